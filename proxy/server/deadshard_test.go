package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// A quartet is four shards of one group, three of them sound Prometheus servers. The fourth one is
// a Prometheus too, but stands behind a scripted server that can die, hang or lie in its name. A
// proxy over the three sound ones says what an answer without the fourth is.
//
// Lies that no proxy can see, and that are not looked for here: numbers that are wrong but
// possible, a series left out of an answer that ends well, samples of another time under the right
// times, a target that does not exist. Whoever wants these found compares replicas.
type quartet struct {
	t      testing.TB
	now    time.Time
	honest []*localprom.Shard
	three  string            // the proxy over the sound ones
	lacks  map[string]*reply // what it answers
	has    map[string]*reply // what a proxy over all four answers
	client *http.Client
	more   string // of the configuration
}

// fourth is a proxy over all four, and what may be done to the last one.
type fourth struct {
	*quartet
	s    *Server
	url  string
	liar *fakeshard.Shard
	name string // as errors call it
	lie  atomic.Pointer[lie]
	net  *network
}

// lie changes an honest answer.
type lie func(path string, body []byte) []byte

// network lets calls to one address go nowhere.
type network struct {
	mu    sync.Mutex
	black string // packets to it are dropped
	conns map[net.Conn]string
}

// Dial is a shard.DialFunc.
func (n *network) Dial(ctx context.Context, nw, addr string) (net.Conn, error) {
	n.mu.Lock()
	black := n.black == addr
	n.mu.Unlock()
	if black {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: nw, Err: ctx.Err()}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, nw, addr)
	if err == nil {
		n.mu.Lock()
		n.conns[c] = addr
		n.mu.Unlock()
	}
	return c, err
}

// swallow drops everything to and from the address from now on; what is open ends as if its peer
// had vanished and the kernel had noticed.
func (n *network) swallow(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.black = addr
	for c, a := range n.conns {
		if a == addr {
			_ = c.Close()
		}
	}
}

func newQuartet(t testing.TB) *quartet {
	q := &quartet{t: t, now: time.Now().Truncate(time.Second), client: newClient(t), more: limits(ample)}
	for i := range 4 {
		var series []storedSeries
		for n := range 3 {
			node := fmt.Sprintf("n%d", 3*i+n)
			for v, l := range []labels.Labels{
				labels.FromStrings("__name__", "up", "job", "node", "node", node),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "200"),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "500"),
			} {
				one := storedSeries{lbls: l}
				at := q.now.Add(-30 * time.Minute).Add(time.Duration(i*700+n*900) * time.Millisecond)
				for ; at.Before(q.now); at = at.Add(15 * time.Second) {
					sec := at.Sub(q.now.Add(-time.Hour)).Seconds()
					f := 1.0
					if v > 0 {
						f = math.Floor(sec * float64(3*i+n+v))
					}
					one.points = append(one.points, point{t: at.UnixMilli(), f: f})
				}
				series = append(series, one)
			}
		}
		// The last samples are the newest ones for an hour, however long the test takes: federation
		// is about now.
		q.honest = append(q.honest, promShardWith(t, localprom.Options{LookbackDelta: time.Hour}, series))
	}
	var urls []string
	for _, p := range q.honest[:3] {
		urls = append(urls, p.URL())
	}
	_, q.three = startProxy(t, t.Context(), q.config(urls))
	q.lacks = q.sound(t, q.three)
	return q
}

func (q *quartet) config(urls []string) string {
	var b strings.Builder
	b.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n")
	for _, u := range urls {
		fmt.Fprintf(&b, "      - {replicas: [{url: %q}]}\n", u)
	}
	return b.String() + q.more
}

// four is a proxy over the honest servers.
func (q *quartet) four(t testing.TB) string {
	t.Helper()
	var urls []string
	for _, p := range q.honest {
		urls = append(urls, p.URL())
	}
	_, url := startProxy(t, t.Context(), q.config(urls))
	return url
}

// withFourth starts a proxy over all four whose requests have so much time.
func (q *quartet) withFourth(t testing.TB, o shard.Options, timeout time.Duration) *fourth {
	own := *q
	own.more = roomy(timeout)
	f := &fourth{quartet: &own, net: &network{conns: map[net.Conn]string{}}}
	honest := q.honest[3].URL()
	f.liar = fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		a := forward(honest, r)
		if l := f.lie.Load(); l != nil && !fakeshard.DefaultProbe(r) && a.Status == 200 {
			a.Body = (*l)(r.Path, a.Body)
		}
		return a, true
	}})
	var urls []string
	for _, p := range q.honest[:3] {
		urls = append(urls, p.URL())
	}
	o.Dial = f.net.Dial
	f.name = "jaguar/" + f.liar.Addr()
	f.s, f.url = startProxy(t, t.Context(), f.config(append(urls, f.liar.URL())), func(opts *Options) { opts.shards = o })
	return f
}

// forward is the honest server's answer to the request.
func forward(base string, r fakeshard.Record) fakeshard.Answer {
	failed := func(err error) fakeshard.Answer { return fakeshard.Answer{Status: 500, Body: []byte(err.Error())} }
	var body io.Reader = strings.NewReader(r.Form.Encode())
	contentType := "application/x-www-form-urlencoded"
	if strings.HasSuffix(r.Path, "/read") {
		body, contentType = bytes.NewReader(r.Body), "application/x-protobuf"
	}
	target := base + r.Path
	if r.Method == http.MethodGet {
		target, body = target+"?"+r.Form.Encode(), nil
	}
	req, err := http.NewRequest(r.Method, target, body)
	if err != nil {
		return failed(err)
	}
	req.Header.Set("Content-Type", contentType)
	for _, name := range []string{"Content-Encoding", "X-Prometheus-Remote-Read-Version", "Accept"} {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return failed(err)
	}
	h := http.Header{}
	for _, name := range []string{"Content-Type", "Content-Encoding", "Date"} {
		if v := resp.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	return fakeshard.Answer{Status: resp.StatusCode, Header: h, Body: data}
}

// inquiry is one request whose answer does not depend on when it is asked.
type inquiry struct {
	name  string
	id    endpoint.ID
	path  string
	form  url.Values
	exact bool // of a bulk format, which has no place for a warning
}

func (q *quartet) inquiries() (out []inquiry) {
	end, start := stamp(q.now.Add(-time.Minute)), stamp(q.now.Add(-11*time.Minute))
	window := func(kv ...string) url.Values {
		v := url.Values{"start": {start}, "end": {end}}
		for i := 0; i < len(kv); i += 2 {
			v.Add(kv[i], kv[i+1])
		}
		return v
	}
	for _, expr := range []string{
		`up`, `requests_total{code="500"}`, `rate(requests_total[2m])`, `sum(up)`, `count by (job) (up)`, `max(rate(requests_total[2m]))`,
		`topk(3, requests_total)`,
		`sum by (code) (rate(requests_total[3m])) / on () group_left count(up)`, `requests_total{node="n10"}`, `absent(up{node="n10"})`, `min(up) < 5`,
		`quantile(0.5, rate(requests_total[2m]))`, `up * on (node) group_left () requests_total{code="200"}`, // these need the series themselves
	} {
		out = append(out, inquiry{"query " + expr, endpoint.Query, "/api/v1/query", url.Values{"query": {expr}, "time": {end}}, false})
		out = append(out, inquiry{
			"query_range " + expr, endpoint.QueryRange, "/api/v1/query_range", window("query", expr, "step", "30"),
			false,
		})
	}
	return append(
		out,
		inquiry{"series", endpoint.Series, "/api/v1/series", window("match[]", "up", "match[]", `requests_total{code="500"}`), false},
		inquiry{"labels", endpoint.Labels, "/api/v1/labels", window("match[]", "up"), false},
		inquiry{"values of node", endpoint.LabelValues, "/api/v1/label/node/values", window("match[]", "up"), false},
		inquiry{"values of cluster", endpoint.LabelValues, "/api/v1/label/cluster/values", window("match[]", `up{node="n10"}`), false},
		inquiry{"exemplars", endpoint.QueryExemplars, "/api/v1/query_exemplars", window("query", "requests_total"), false},
		inquiry{"metadata", endpoint.Metadata, "/api/v1/metadata", nil, false},
		inquiry{"rules", endpoint.Rules, "/api/v1/rules", nil, false},
		inquiry{"alerts", endpoint.Alerts, "/api/v1/alerts", nil, false},
		inquiry{"scrape_pools", endpoint.ScrapePools, "/api/v1/scrape_pools", nil, false},
		inquiry{"alertmanagers", endpoint.Alertmanagers, "/api/v1/alertmanagers", nil, false},
		inquiry{"federate", endpoint.Federate, "/federate", url.Values{"match[]": {"up"}}, true},
	)
}

// ask sends an inquiry with further parameters.
func (q *quartet) ask(base string, in inquiry, more ...string) *reply {
	r := &rig{t: q.t, url: base, client: q.client}
	return r.ask(r.request(context.Background(), asking{path: in.path, form: in.form}, more...))
}

// same compares what two answers say, byte for byte but for the order of an instant vector, which
// is nobody's promise.
func (q *quartet) same(in inquiry, a, b *reply) bool {
	if in.exact {
		return bytes.Equal(a.body, b.body)
	}
	return bytes.Equal(a.message.Data, b.message.Data) || in.id == endpoint.Query && q.canonical(a) == q.canonical(b)
}

func (q *quartet) canonical(a *reply) string {
	got, _ := fromJSON(q.t, a.body)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(got)) {
		lines = append(lines, fmt.Sprint(key, got[key]))
	}
	return strings.Join(lines, "\n")
}

// federationRemark is what a federation begins with that lacks this shard.
var federationRemark = regexp.MustCompile(`^# partial answer: shard jaguar\[3\][^\n]*\n`)

// judged is what came of one inquiry under one fault.
type judged struct{ whole, partial, refused int }

// warm asks for one thing on each road, while all four are sound, so that connections are open and
// times are known when the fault comes.
func (f *fourth) warm(t testing.TB) {
	t.Helper()
	for _, in := range f.inquiries() {
		if !slices.Contains(roads, in.name) {
			continue
		}
		if got := f.ask(f.url, in); got.status != 200 || len(got.message.Warnings) > 0 || !f.same(in, got, f.has[in.name]) {
			t.Fatalf("%s of sound shards: %s\nwant %.300s", in.name, got, f.has[in.name].body)
		}
	}
}

// judge asks everything of the proxy over all four, whose last is at fault, with partial answers
// and without, so many at once. The rule:
//
//   - with partial_response=true the answer is that of the three with a warning that names the
//     fourth, or, where the fault did no harm, that of all four;
//   - without, it is that of all four or an error that names the shard;
//   - never fewer series than there are without a word.
//
// or, where set, is asked about answers that fit neither.
func (f *fourth) judge(t *testing.T, fault string, list []inquiry, atOnce int, or func(in inquiry, got *reply) bool) (sum judged) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, in := range list {
		without := f.lacks[in.name]
		for _, partial := range []string{"true", "false"} {
			var more []string
			if takesPartial(in.id) {
				more = []string{"partial_response", partial}
			} else if partial == "true" {
				continue
			}
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				got := f.ask(f.url, in, more...)
				named := strings.Contains(string(got.body), f.name) || strings.Contains(string(got.body), "jaguar[3]")
				flagged := strings.Contains(strings.Join(got.message.Warnings, "\n"), "jaguar[3]")
				answered := got.err == nil && got.status == 200
				if answered && in.id == endpoint.Federate {
					flagged = got.header.Get("X-Spillway-Partial") == "true"
					got.body = federationRemark.ReplaceAll(got.body, nil)
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case answered && len(got.message.Warnings) == 0 && !flagged && f.same(in, got, f.has[in.name]):
					sum.whole++
				case answered && partial == "true" && (flagged || in.exact && in.id != endpoint.Federate) && f.same(in, got, without):
					sum.partial++
				case got.err == nil && partial == "false" && got.status != 200 && named &&
					slices.Contains([]int{422, 502, 503}, got.status):
					sum.refused++
				case or != nil && or(in, got):
					sum.refused++
				default:
					t.Errorf("%s, %s, partial_response=%s: %s\nwithout the shard: %.300s\nwith it: %.300s", fault, in.name, partial, got, without.body, f.has[in.name].body)
				}
			})
		}
	}
	wg.Wait()
	return sum
}

// atOnce is how many requests are under way: fewer than a server has slots for, so that none waits
// for another.
const atOnce = 6

// sound are the answers of a proxy nothing behind which is wrong.
func (q *quartet) sound(t testing.TB, base string) map[string]*reply {
	t.Helper()
	out := map[string]*reply{}
	for _, in := range q.inquiries() {
		got := q.ask(base, in)
		if got.status != 200 || len(got.message.Warnings) > 0 {
			t.Fatalf("%s of sound shards: %s", in.name, got)
		}
		out[in.name] = got
	}
	return out
}

// deaths are the ways in which a shard can be dead or hang.
var deaths = []struct {
	name  string
	hangs bool
	kill  func(f *fourth) error
}{
	{"refused", false, func(f *fourth) error { f.liar.Close(); return nil }},
	{"black hole", true, func(f *fourth) error { f.net.swallow(f.liar.Addr()); return nil }},
	{"hung", true, func(f *fourth) error { return f.liar.Set("stall") }},
	{"hung after the header", true, func(f *fourth) error { return f.liar.Set("flush; stall") }},
	{"stuck in the body", true, func(f *fourth) error { return f.liar.Set("limit 40 stall; answer") }},
	{"reset", false, func(f *fourth) error { return f.liar.Set("reset") }},
	{"reset in the body", false, func(f *fourth) error { return f.liar.Set("chunked; limit 40 reset; answer") }},
	{"errors", false, func(f *fourth) error { return f.liar.Set("error 500 internal boom") }},
	{"starting", false, func(f *fourth) error { return f.liar.Set("status 503; send 'Service Unavailable'") }},
	{"busy", false, func(f *fourth) error { return f.liar.Set("error 429 too_many_requests busy") }},
}

// patient is a proxy's patience with shards: on a busy machine sound ones are slow. impatient is
// that of one whose shards are to be found hanging soon, in a request of hungTimeout, of which two
// fifths have to do for the answer without the shard.
var (
	patient   = shard.Options{DialTimeout: ample, HeaderTimeout: ample, ProgressTimeout: ample, ProbeInterval: 500 * time.Millisecond}
	impatient = shard.Options{
		DialTimeout: 6 * time.Second, HeaderTimeout: 6 * time.Second, ProgressTimeout: 6 * time.Second,
		ProbeInterval: 500 * time.Millisecond,
	}
)

const hungTimeout = 20 * time.Second

// TestOneOfFourShardsIsDead: refused connections, packets that go nowhere, a server that takes
// connections and says nothing, one that stops in its answer. What the other three say stays as it
// is, and every answer that lacks the fourth says so.
func TestOneOfFourShardsIsDead(t *testing.T) {
	q := newQuartet(t)
	q.has = q.sound(t, q.four(t))
	for _, d := range deaths {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			o, timeout := patient, ample
			if d.hangs {
				o, timeout = impatient, hungTimeout
			}
			f := q.withFourth(t, o, timeout)
			f.warm(t)
			if err := d.kill(f); err != nil {
				t.Fatal(err)
			}
			list, first := f.inquiries(), atOnce
			if d.hangs { // some, all at once: each of them takes its time
				list = slices.DeleteFunc(list, func(in inquiry) bool { return !slices.Contains(roads, in.name) })
				first = 2 * len(list)
			}
			look := func(list []inquiry, atOnce int) {
				sum := f.judge(t, d.name, list, atOnce, nil)
				t.Logf("%s: %d answers lack the shard and say so, %d errors name it, %d were whole", d.name, sum.partial, sum.refused, sum.whole)
				if sum.partial < len(list)/2 || sum.refused < len(list)/2 {
					t.Errorf("%s did not reach enough requests: %+v", d.name, sum)
				}
			}
			look(list, first) // at once, while nobody knows
			if d.name == "black hole" || !d.hangs {
				look(f.inquiries(), atOnce) // when the proxy has had time to see it
			}
		})
	}
}

// roads are the names of inquiries, one for each road.
var roads = []string{
	"query up", "query sum(up)", "query_range rate(requests_total[2m])", "query_range topk(3, requests_total)", "series",
	"values of node", "exemplars", "rules", "federate",
}

// TestManyCallersOfAHungShard: more callers at once than a server has slots for. One that hangs
// holds them all, and still who accepts a part gets the others' part, not a refusal because the
// slots are taken.
func TestManyCallersOfAHungShard(t *testing.T) {
	q := newQuartet(t)
	f := q.withFourth(t, impatient, hungTimeout)
	if err := f.liar.Set("stall"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, in := range f.inquiries() {
		if in.name != "query up" && in.name != "query quantile(0.5, rate(requests_total[2m]))" {
			continue
		}
		for range 16 {
			wg.Go(func() {
				got := f.ask(f.url, in, "partial_response", "true")
				if got.err != nil || got.status != 200 || !f.same(in, got, f.lacks[in.name]) ||
					!strings.Contains(strings.Join(got.message.Warnings, "\n"), "jaguar[3]") {
					t.Errorf("%s: %s", in.name, got)
				}
			})
		}
	}
	wg.Wait()
}
