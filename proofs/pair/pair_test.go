package pair

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

var (
	away  = flag.Duration("pair.away", 8*time.Second, "how long one is gone")
	kills = flag.Int("pair.kills", 1, "how often one is killed, in turn")
)

const (
	targets, perTarget = 10, 300
	maxSeries          = targets * perTarget / 10
	patience           = 2 * time.Minute
	// apart is how long both are well between two kills: gaps of both within a minute hide each
	// other (docs/replicas.md).
	apart = 75 * time.Second
)

// half is one of the pair: a server that can be killed and started again at its address, on its
// data.
type half struct {
	path string
	args []string
	addr string
	p    *realprom.Process
}

func (h *half) start(t *testing.T) {
	t.Helper()
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: h.path, Args: h.args})
	if err != nil {
		t.Fatal(err)
	}
	h.p = p
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.WaitReady(ctx, "http://"+h.addr+"/-/ready"); err != nil {
		t.Fatal(err)
	}
}

// newPair starts both over the same targets.
func newPair(t *testing.T) (pair [2]*half) {
	t.Helper()
	path, err := realprom.Find("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "# TYPE requests_total counter")
		for i := range perTarget {
			fmt.Fprintf(w, "requests_total{path=\"/%d\"} %g\n", i, time.Since(began).Seconds())
		}
	}))
	t.Cleanup(exporter.Close)
	var list strings.Builder
	for i := range targets {
		fmt.Fprintf(&list, "      - {targets: [%q], labels: {instance: node-%d}}\n", strings.TrimPrefix(exporter.URL, "http://"), i)
	}
	dir := t.TempDir()
	for i := range pair {
		file := filepath.Join(dir, fmt.Sprintf("%d.yml", i))
		text := fmt.Sprintf("global: {scrape_interval: 1s, external_labels: {replica: r%d}}\nscrape_configs:\n  - job_name: node\n    static_configs:\n%s", i, list.String())
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		port, err := realprom.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		h := &half{path: path, addr: fmt.Sprintf("127.0.0.1:%d", port)}
		h.args = []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, fmt.Sprintf("data-%d", i)), "--web.listen-address=" + h.addr}
		h.start(t)
		t.Cleanup(func() { h.p.Kill() })
		pair[i] = h
	}
	return pair
}

// question is what somebody asks all the time.
type question struct {
	path string
	form url.Values
	want string // what is in each answer, once all has been scraped a few times
}

// questions are a ruler's, a dashboard's and those of its variables. Read series by series each of
// the first seven would need ten times max_series.
func questions(now time.Time) []question {
	instant := func(q, want string) question {
		return question{"/api/v1/query", url.Values{"query": {q}, "time": {fmt.Sprintf("%.3f", float64(now.UnixMilli())/1000)}}, want}
	}
	ranged := func(q, want string) question {
		return question{"/api/v1/query_range", url.Values{"query": {q}, "start": {fmt.Sprint(now.Add(-5 * time.Second).Unix())}, "end": {fmt.Sprint(now.Unix())}, "step": {"1"}}, want}
	}
	return []question{
		instant(`count(requests_total)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		instant(`count by (job) (rate(requests_total[10s]) > 0)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		instant(`sum by (job) (rate(requests_total[10s]))`, `"job":"node"`),
		instant(`count(topk by (path) (1, requests_total))`, fmt.Sprintf(`"%d"`, perTarget)),
		instant(`count(max by (instance) (requests_total))`, fmt.Sprintf(`"%d"`, targets)),
		ranged(`count(requests_total)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		ranged(`quantile(0.5, count by (instance) (requests_total))`, fmt.Sprintf(`"%d"`, perTarget)),
		instant(`count(up == 1)`, fmt.Sprintf(`"%d"`, targets)),
		instant(`up == 0`, `"result":[]`),
		{"/api/v1/label/instance/values", url.Values{"match[]": {"up"}}, `"node-9"`},
		{"/api/v1/series", url.Values{"match[]": {`up{instance="node-3"}`}}, `"node-3"`},
	}
}

// callers ask until stop is called, and tell what went wrong.
type callers struct {
	url   string
	asked atomic.Int64
	wg    sync.WaitGroup
	ctx   context.Context
	stop  context.CancelFunc

	mu    sync.Mutex
	wrong []string
	phase string
	last  string // phase of the last complaint
}

func (c *callers) enter(phase string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = phase
}

func (c *callers) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 || c.phase != c.last && len(c.wrong) < 60 { // some of each phase
		c.last = c.phase
		c.wrong = append(c.wrong, c.phase+": "+fmt.Sprintf(format, args...))
	}
}

// one asks one question; what is wrong with its answer, empty where nothing is.
func (c *callers) one(ctx context.Context, client *http.Client, q question) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+q.path+"?"+q.form.Encode(), nil)
	if err != nil {
		return err.Error()
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Sprintf("%s: %v", q.form, err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", q.form, err)
	case resp.StatusCode != http.StatusOK || !strings.Contains(string(body), q.want) || strings.Contains(string(body), `"warnings"`):
		return fmt.Sprintf("%s: want %s, got %d after %s: %.600s", q.form, q.want, resp.StatusCode, time.Since(began).Round(time.Millisecond), body)
	}
	return ""
}

func (c *callers) run(n int) {
	for range n {
		c.wg.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr}
			for c.ctx.Err() == nil {
				for _, q := range questions(time.Now()) {
					if w := c.one(c.ctx, client, q); w != "" && c.ctx.Err() == nil {
						c.complain("%s", w)
					}
					c.asked.Add(1)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// figures are the samples of a metric whose labels contain those given, by the rest of what tells
// them apart.
func figures(t testing.TB, reg *prometheus.Registry, name string, with map[string]string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if has(m, with) {
				text, err := json.Marshal(m.Label)
				if err != nil {
					t.Fatal(err)
				}
				out[string(text)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

func has(m *dto.Metric, with map[string]string) bool {
	n := 0
	for _, l := range m.Label {
		if v, ok := with[l.GetName()]; ok && v == l.GetValue() {
			n++
		}
	}
	return n == len(with)
}

// failures are the calls to a replica that ended in any way that is held against it.
func failures(t *testing.T, reg *prometheus.Registry, replica string) (n float64) {
	t.Helper()
	for _, outcome := range []string{"silent", "internal", "overloaded", "shard_failed", "timeout", "unavailable"} {
		for _, v := range figures(t, reg, "spillway_shard_requests_total", map[string]string{"replica": replica, "outcome": outcome}) {
			n += v
		}
	}
	return n
}

// state is 1 where the replica is in the state.
func state(t *testing.T, reg *prometheus.Registry, replica, state string) (n float64) {
	t.Helper()
	for _, v := range figures(t, reg, "spillway_shard_replica_state", map[string]string{"replica": replica, "state": state}) {
		n += v
	}
	return n
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// TestLossOfOne kills one of the pair, and starts it again on what it had written.
func TestLossOfOne(t *testing.T) {
	pair := newPair(t)
	text := fmt.Sprintf("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n    heartbeat: up\n    shards: [{replicas: [{url: 'http://%s'}, {url: 'http://%s'}]}]\nlimits: {max_series: %d}\n", pair[0].addr, pair[1].addr, maxSeries)
	reg := prometheus.NewRegistry()
	base, _ := servertest.Start(t, text, func(o *server.Options) { o.Registerer, o.Gatherer = reg, reg })
	c := &callers{url: base, phase: "both are well"}
	c.ctx, c.stop = context.WithCancel(t.Context())
	client := &http.Client{}
	defer client.CloseIdleConnections()
	eventually(t, "all has been scraped often enough", func() bool {
		for _, q := range questions(time.Now()) {
			if c.one(t.Context(), client, q) != "" {
				return false
			}
		}
		return true
	})
	time.Sleep(5 * time.Second) // so that the steps of range queries have all of it too
	c.run(4)
	time.Sleep(2 * time.Second)
	for k := range *kills {
		if k > 0 {
			time.Sleep(apart)
		}
		i := k % 2
		h, other := pair[i], pair[1-i]
		clean := failures(t, reg, other.addr)
		c.enter(fmt.Sprintf("replica %d was killed", i))
		h.p.Kill()
		killed := time.Now()
		eventually(t, "the one that was killed is named", func() bool { return state(t, reg, h.addr, "down") == 1 })
		t.Logf("replica %d is down by spillway_shard_replica_state %s after it was killed", i, time.Since(killed).Round(100*time.Millisecond))
		time.Sleep(max(0, *away-time.Since(killed)))
		if n := state(t, reg, other.addr, "up"); n != 1 {
			t.Errorf("the one that is left is not up: %g", n)
		}
		c.enter(fmt.Sprintf("replica %d is started again", i))
		h.start(t)
		eventually(t, "it is up again", func() bool { return state(t, reg, h.addr, "up") == 1 })
		// It is read again at some moment from then on.
		c.enter(fmt.Sprintf("replica %d is back", i))
		time.Sleep(16 * time.Second)
		if n := failures(t, reg, other.addr) - clean; n != 0 {
			t.Errorf("%g failures were charged to the replica that is well", n)
		}
	}
	c.stop()
	c.wg.Wait()
	for _, w := range c.wrong {
		t.Error(w)
	}
	t.Logf("%d questions over %d series with max_series %d", c.asked.Load(), targets*perTarget, maxSeries)
}

func TestMain(m *testing.M) { realpromtest.Main(m) }
