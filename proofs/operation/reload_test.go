package operation

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/testpki"
)

// wall is a shard behind TLS that answers only who shows a client certificate and the token of now,
// or that before it.
type wall struct {
	srv  *httptest.Server
	mu   sync.Mutex
	good [2]string
	cert tls.Certificate

	refused atomic.Int64
}

func newWall(t *testing.T, ca *testpki.Authority, behind string) *wall {
	to, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	w := &wall{}
	pass := httputil.NewSingleHostReverseProxy(to)
	tr := &http.Transport{}
	pass.Transport = tr
	pass.ErrorLog = log.New(io.Discard, "", 0) // callers leave
	w.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		ok := r.Header.Get("Authorization") == "Bearer "+w.good[0] || r.Header.Get("Authorization") == "Bearer "+w.good[1]
		w.mu.Unlock()
		if !ok {
			w.refused.Add(1)
			http.Error(rw, "who are you", http.StatusUnauthorized)
			return
		}
		pass.ServeHTTP(rw, r)
	}))
	w.srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{w.cert},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
		}, nil
	}}
	w.srv.Config.ErrorLog = pass.ErrorLog
	w.srv.StartTLS()
	t.Cleanup(func() { w.srv.Close(); tr.CloseIdleConnections() })
	return w
}

// turn gives it another certificate, and a token that is good beside the last one.
func (w *wall) turn(t *testing.T, ca *testpki.Authority, token string) {
	t.Helper()
	cert, key := ca.Renew("shard")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cert, w.good = pair, [2]string{token, w.good[0]}
}

// reloaded is a program whose configuration, tokens and certificates change.
type reloaded struct {
	t      *testing.T
	p      *program
	ca     *testpki.Authority
	rng    *rand.Rand
	config *folder
	shown  *folder // the certificate of the listeners
	client *folder // that which the shard is shown
	dir    string
	walls  [2]*wall
	sets   [2][]string // the URLs of the shards of even generations, and of odd ones
	turns  int

	wrong  complaints
	served atomic.Int64
	told   atomic.Int64 // the newest generation of which a reload said that it is in force
}

func newReloaded(t *testing.T) *reloaded {
	t.Helper()
	r := &reloaded{
		t: t, ca: testpki.New(t, "ours"), rng: rand.New(rand.NewPCG(randseed.Of(t, 0), 1)), dir: t.TempDir(),
		config: &folder{t: t, dir: t.TempDir()}, shown: &folder{t: t, dir: t.TempDir()}, client: &folder{t: t, dir: t.TempDir()},
	}
	for set := range r.sets {
		for i := range 3 {
			var series []map[string]string
			for _, job := range []string{"a", "b"} {
				series = append(series, map[string]string{
					"__name__": "up", "job": job, "instance": fmt.Sprint("node-", i), "set": fmt.Sprint(set),
				})
			}
			url := fakeshard.Start(t, fakeshard.Config{Series: series}).URL()
			if i == 2 {
				r.walls[set] = newWall(t, r.ca, url)
				url = r.walls[set].srv.URL
			}
			r.sets[set] = append(r.sets[set], url)
		}
	}
	r.turnShard()
	r.turnTenant()
	r.turnListener()
	r.put(0, r.text(0))
	web := filepath.Join(r.dir, "web.yml")
	replace(t, web, fmt.Sprintf("tls_server_config: {cert_file: %q, key_file: %q}\n", r.shown.path("tls.crt"), r.shown.path("tls.key")))
	r.p = start(t, r.config.path("spillway.yaml"), web, r.ca.Pool())
	return r
}

// text is the configuration of a generation: its number is a label of every series, and its shards
// say whether it is even.
func (r *reloaded) text(generation int) string {
	var b strings.Builder
	b.WriteString("groups:\n")
	for g, shards := range [][]string{r.sets[generation%2][:1], r.sets[generation%2][1:]} {
		fmt.Fprintf(&b, "  - name: g%d\n    labels: {cluster: \"%d\", part: p%d}\n    shards:\n", g, generation, g)
		for _, url := range shards {
			client := ""
			if strings.HasPrefix(url, "https:") {
				client = fmt.Sprintf(", http_client: {authorization: {credentials_file: %q}, tls_config: {ca_file: %q, cert_file: %q, key_file: %q}}",
					filepath.Join(r.dir, "shard.token"), r.client.path("ca.crt"), r.client.path("tls.crt"), r.client.path("tls.key"))
			}
			fmt.Fprintf(&b, "      - replicas: [{url: %q%s}]\n", url, client)
		}
	}
	fmt.Fprintf(&b, "tenants:\n  - {name: all, bearer_token_file: %q}\n", filepath.Join(r.dir, "all.token"))
	fmt.Fprintf(&b, "  - {name: mine, bearer_token_file: %q, matchers: ['{job=\"a\"}']}\n", filepath.Join(r.dir, "mine.token"))
	fmt.Fprintf(&b, "limits: {timeout: 50s, max_series: %d}\n", 1000+generation)
	return b.String()
}

// broken are configurations that are not taken.
func (r *reloaded) broken(generation int) string {
	good := r.text(generation)
	kinds := []string{
		"", "groups: [\n", good[:len(good)/2] + "\n  oops", good + "nonsense: 1\n", strings.Replace(good, "timeout: 50s", "timeout: 0", 1),
		strings.Replace(good, "name: g1", "name: g0", 1), strings.ReplaceAll(good, "https://", "ftp://"),
		strings.Replace(good, "credentials_file", "credentials_fill", 1),
		strings.Replace(good, r.sets[generation%2][1], r.sets[generation%2][0], 1), // a server in two places
		strings.Replace(good, "job=", "job==", 1), strings.ReplaceAll(good, r.client.path("ca.crt"), filepath.Join(r.dir, "none.crt")),
	}
	return kinds[generation/3%len(kinds)]
}

// put makes the text the configuration, by turns as editors and as Kubernetes do it.
func (r *reloaded) put(i int, text string) {
	r.t.Helper()
	if i%2 == 0 {
		r.config.swap(map[string]string{"spillway.yaml": text})
		return
	}
	replace(r.t, filepath.Join(r.config.dir, "..data", "spillway.yaml"), text)
}

func (r *reloaded) turnShard() {
	r.turns++
	for _, w := range r.walls {
		w.turn(r.t, r.ca, fmt.Sprint("shard-", r.turns))
	}
	replace(r.t, filepath.Join(r.dir, "shard.token"), fmt.Sprintf("shard-%d\n", r.turns))
	cert, key := r.ca.Renew("spillway")
	r.client.swap(map[string]string{"ca.crt": fmt.Sprintf("# %d\n%s", r.turns, r.ca.PEM), "tls.crt": cert, "tls.key": key})
}

func (r *reloaded) turnTenant() {
	r.turns++
	for _, name := range []string{"all", "mine"} {
		replace(r.t, filepath.Join(r.dir, name+".token"), fmt.Sprintf("%s-%d\n", name, r.turns))
	}
}

func (r *reloaded) turnListener() {
	cert, key := r.ca.Renew("spillway")
	r.shown.swap(map[string]string{"tls.crt": cert, "tls.key": key})
}

// ask is one request of a client that reads its token before each, as Prometheus does.
func (r *reloaded) ask(c *http.Client, a asked, tenant string) (status int, body []byte, err error) {
	token, err := os.ReadFile(filepath.Join(r.dir, tenant+".token"))
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest(http.MethodPost, r.p.main+a.path, strings.NewReader(a.form.Encode()))
	if strings.HasSuffix(a.path, "/values") {
		req, err = http.NewRequest(http.MethodGet, a.url(r.p.main), nil)
	}
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return do(c, req)
}

// judge looks at an answer: whole, of one configuration, of none that is older than one of which a
// reload had said before the question that it is in force, and only the tenant's.
func (r *reloaded) judge(a asked, tenant string, told int64, status int, body []byte, err error) {
	var got answer
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &got) != nil || len(got.Warnings) > 0 {
		r.wrong.add("%s of %s: %d %v %.300s", a.path, tenant, status, err, body)
		return
	}
	r.served.Add(1)
	if a.path == "/api/v1/labels" {
		return
	}
	generations := valuesOf(body, "cluster")
	if strings.HasSuffix(a.path, "/values") {
		var list []string
		_ = json.Unmarshal(got.Data, &list) // empty where it is something else
		for _, v := range list {
			generations[v] = 1
		}
	}
	if len(generations) != 1 {
		r.wrong.add("%s of %s is of the configurations %v: %.600s", a.path, tenant, generations, body)
		return
	}
	for v := range generations {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < told || n%3 == 2 {
			r.wrong.add("%s of %s is of configuration %s, and %d was in force before", a.path, tenant, v, told)
		}
		if sets := valuesOf(body, "set"); !strings.HasSuffix(a.path, "/values") && (len(sets) != 1 || sets[fmt.Sprint(n%2)] == 0) {
			r.wrong.add("%s of %s: configuration %s, and shards %v: %.600s", a.path, tenant, v, sets, body)
		}
	}
	if jobs := valuesOf(body, "job"); tenant == "mine" && len(jobs) > 0 && (len(jobs) > 1 || jobs["a"] == 0) {
		r.wrong.add("%s of %s shows the jobs %v", a.path, tenant, jobs)
	}
	if nodes := valuesOf(body, "instance"); a.path == "/api/v1/query" && a.form.Get("query") == "up" && len(nodes) != 3 {
		r.wrong.add("%s of %s shows the nodes %v: %.600s", a.path, tenant, nodes, body)
	}
}

// load asks until stop is closed.
func (r *reloaded) load(stop <-chan struct{}, wg *sync.WaitGroup, clients int) {
	for i := range clients {
		c := newClient(r.t, r.ca.Pool())
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				tenant := []string{"all", "mine"}[n/7%2]
				a := askedNow()[n%7]
				told := r.told.Load()
				status, body, err := r.ask(c, a, tenant)
				r.judge(a, tenant, told, status, body, err)
				if n%50 == 0 {
					c.CloseIdleConnections() // the next one sees the certificate of now
				}
			}
		})
	}
}

// reload asks for one, by turns over HTTP and by SIGHUP, and waits until it was done.
func (r *reloaded) reload(i int, good bool) {
	r.t.Helper()
	if i%2 == 0 {
		resp, err := r.p.client.Post(r.p.admin+"/-/reload", "", nil)
		if err != nil {
			r.t.Fatal(err)
		}
		resp.Body.Close()
		if (resp.StatusCode == http.StatusOK) != good || resp.StatusCode < 400 && !good {
			r.t.Fatalf("reload %d of a configuration that is good, %v: %d\n%s", i, good, resp.StatusCode, lastLines(r.p.Log(), 3))
		}
	} else {
		r.p.signal(syscall.SIGHUP)
	}
	want := map[bool]float64{true: 1, false: 0}[good]
	done := eventually(func() bool {
		if r.wrong.some() {
			return true // said at the end
		}
		if r.p.metrics()["spillway_config_last_reload_successful"] != want {
			return false
		}
		if !good {
			return true
		}
		_, body, _ := r.ask(r.p.client, asked{"/api/v1/label/cluster/values", url.Values{"match[]": {"up"}}}, "all")
		return strings.Contains(string(body), fmt.Sprintf(`["%d"]`, i))
	})
	if !done {
		r.t.Fatalf("reload %d of a configuration that is good, %v, is not done", i, good)
	}
	if good {
		r.told.Store(int64(i))
	}
}

// TestReloadsUnderLoad: clients ask while configurations change, a third of them to something
// broken, and tokens and certificates of tenants, shards and listeners rotate.
func TestReloadsUnderLoad(t *testing.T) {
	r := newReloaded(t)
	before := time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	r.load(stop, &wg, 8)
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer end()
	hashes := map[string]bool{}
	for i := 1; i <= *reloads && !r.wrong.some(); i++ {
		good := i%3 != 2
		text := r.text(i)
		if !good {
			text = r.broken(i)
		}
		r.put(i, text)
		r.reload(i, good)
		info := ""
		for name, v := range r.p.metrics() {
			if strings.HasPrefix(name, "spillway_config_info{") && v == 1 {
				info += name
			}
		}
		if hashes[info] == good && !r.wrong.some() {
			t.Fatalf("reload %d, good %v: the hash is %s", i, good, info)
		}
		hashes[info] = true
		[]func(){r.turnTenant, r.turnShard, r.turnListener}[r.rng.IntN(3)]()
	}
	served := r.served.Load()
	if !eventually(func() bool { return r.served.Load() >= served+20 || r.wrong.some() }) {
		t.Error("nobody is served any more")
	}
	end()
	r.wrong.tell(t)
	m := r.p.metrics()
	at := time.Unix(int64(m["spillway_config_last_reload_success_timestamp_seconds"]), 0)
	if at.Before(before.Truncate(time.Second)) || at.After(time.Now()) {
		t.Errorf("spillway_config_last_reload_success_timestamp_seconds is %s", at)
	}
	t.Logf("%d reloads, %d requests, %d rotations of tokens and certificates", *reloads, r.served.Load(), r.turns+r.shown.n)
}

// do sends a request and reads its answer to its end.
func do(c *http.Client, req *http.Request) (status int, body []byte, err error) {
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}
