package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/randseed"
)

// The two tenants. What belongs to one has its mark on it, canary and the name together, which the
// other one never writes: it says cana.y where it looks for that.
const (
	red, blue = "red", "blue"
	mark      = "canary"
)

var others = map[string]string{red: blue, blue: red}

// divided is a world of two tenants: two real servers that hold the series of both, with targets,
// exemplars, rules and alerts, a proxy before them, and for each tenant a server that holds nothing
// but its own, which says what it should be answered.
type divided struct {
	t      *testing.T
	s      *Server
	url    string
	client *http.Client
	log    *logbook
	usage  string
	until  time.Time // of what was loaded; what is scraped comes later
	own    map[string]string
}

// seriesOf is a tenant's series on one shard.
func seriesOf(who string, shard int) string {
	step := map[string]int{red: 1, blue: 1000}[who]
	var b strings.Builder
	for n, ns := range []string{who + "-1", who + "-2", "shared"} {
		is := fmt.Sprintf("namespace=%q,owner=%q,mark=%q,shard=\"s%d\",job=\"j\",instance=\"i%d\"", ns, who, mark+who, shard, n)
		fmt.Fprintf(&b, "  requests_total{%s,path=\"/%s\"} 0+%dx45\n", is, mark+who, step)
		fmt.Fprintf(&b, "  temperature{%s} %d+%dx45\n", is, n*step, step)
		for i, le := range []string{"1", "2", "+Inf"} {
			fmt.Fprintf(&b, "  latency_seconds_bucket{%s,le=%q} 0+%dx45\n", is, le, (i+1)*step)
		}
		fmt.Fprintf(&b, "  up{%s} 1x45\n  %s%s_only{%s,%s%s_name=\"x\"} 7x45\n", is, mark, who, is, mark, who)
		fmt.Fprintf(&b, "  target_info{%s,data=%q} 1x45\n", is, mark+who)
	}
	return b.String()
}

// nobodys is what neither tenant may see: without their labels, or with only one of them.
func nobodys(shard int) string {
	out := fmt.Sprintf("  orphan{data=\"canaryred canaryblue\",shard=\"s%d\"} 1x45\n", shard)
	for who, other := range others {
		out += fmt.Sprintf("  requests_total{namespace=\"%s-1\",owner=%q,mark=\"canaryred canaryblue\",shard=\"s%d\",job=\"j\",instance=\"i9\"} 0+1x45\n",
			other, who, shard)
	}
	return out
}

// ruleFile has rules of both tenants in one group, of one in another, and of nobody.
const ruleFile = `groups:
  - name: mixed
    interval: 1s
    rules:
      - {alert: Red, expr: 'temperature{owner="red",namespace="red-1"} >= 0', labels: {rule: canaryred}, annotations: {is: canaryred}}
      - {alert: Red, expr: 'vector(1)', labels: {namespace: red-1, owner: red}, annotations: {is: canaryred}}
      - {alert: Blue, expr: 'vector(1)', labels: {namespace: blue-1, owner: blue}, annotations: {is: canaryblue}}
      - {alert: Each, expr: 'sum by (namespace, owner, mark) (temperature) >= 0'}
      - {record: 'canaryred:sum', expr: 'sum(canaryred_only)', labels: {namespace: red-1, owner: red}}
      - {record: 'canaryblue:sum', expr: 'sum(canaryblue_only)', labels: {namespace: blue-1, owner: blue}}
      - {record: 'all:sum', expr: 'sum(canaryred_only) + sum(canaryblue_only)'}
  - name: canaryblue_group
    interval: 1s
    rules:
      - {record: 'canaryblue:other', expr: 'vector(1)', labels: {namespace: blue-2, owner: blue}}
  - name: canaryred_group
    interval: 1s
    rules:
      - {record: 'canaryred:other', expr: 'vector(1)', labels: {namespace: red-2, owner: red}}
`

// exporter is a tenant's target, with its mark in texts, values and exemplars.
func exporter(t *testing.T, who string) string {
	text := strings.ReplaceAll(`# TYPE live gauge
# HELP live What canaryWHO has.
live{mark="canaryWHO"} 1
# TYPE hits counter
# HELP hits Hits of canaryWHO.
hits_total{mark="canaryWHO"} 5 # {trace_id="canaryWHO"} 1
# TYPE canaryWHO_live gauge
# HELP canaryWHO_live Its own.
canaryWHO_live 1
# EOF
`, "WHO", who)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")
		fmt.Fprint(w, text)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// server is an embedded Prometheus with these series.
func (d *divided) server(text, config string) string {
	d.t.Helper()
	p, err := localprom.Start(d.t.Context(), localprom.Options{
		DisableWAL: true, Config: config, Features: []string{"exemplar-storage", "promql-experimental-functions"},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = p.Close() })
	// Not older than an hour: what is scraped already moves the head's bounds.
	if err := p.LoadAt("load 60s\n"+text, d.until.Add(-45*time.Minute)); err != nil {
		d.t.Fatal(err)
	}
	return p.URL()
}

func newDivided(t *testing.T) *divided {
	t.Helper()
	dir := t.TempDir()
	d := &divided{
		t: t, client: newClient(t), log: &logbook{}, usage: filepath.Join(dir, "usage.jsonl"), own: map[string]string{},
		until: time.Now().Add(-30 * time.Second).Truncate(time.Second),
	}
	files := map[string]string{"rules.yaml": ruleFile}
	for _, who := range []string{red, blue, "all"} {
		files[who] = "token-of-" + who
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := "rule_files: [" + dir + "/rules.yaml]\nscrape_configs:\n"
	text := "tenants:\n  - {name: all, bearer_token_file: " + dir + "/all}\n"
	for who := range others {
		config += fmt.Sprintf("  - {job_name: %[1]s, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{targets: [%[2]q], labels: {namespace: %[1]s-1, owner: %[1]s, team: canary%[1]s}}]}\n",
			who, exporter(t, who))
		text += fmt.Sprintf("  - {name: %[1]s, bearer_token_file: %[2]s/%[1]s, matchers: ['{namespace=~\"%[1]s-.+|shared\"}', '{owner=\"%[1]s\"}']}\n",
			who, dir)
		d.own[who] = d.server(seriesOf(who, 0)+seriesOf(who, 1), "")
	}
	text += "usage_log: {path: " + d.usage + "}\nlimits: {unselective: allow, timeout: 60s}\ngroups:\n  - name: g\n    shards:\n"
	for i := range 2 {
		series := seriesOf(red, i) + seriesOf(blue, i) + nobodys(i)
		text += fmt.Sprintf("      - {replicas: [{url: %q}]}\n", d.server(series, config))
		config = ""
	}
	d.s, d.url = startProxy(t, t.Context(), text, func(o *Options) { o.Logger = slog.New(d.log) })
	for _, path := range []string{
		"/api/v1/alerts", "/api/v1/rules", "/api/v1/metadata", "/api/v1/targets",
		"/api/v1/query_exemplars?query=hits_total&start=" + stamp(d.until) + "&end=" + stamp(time.Now().Add(time.Hour)),
	} {
		(&rig{t: t}).eventually("both tenants are in "+path, func() bool {
			got := d.ask("all", &call{method: http.MethodGet, path: path})
			return bytes.Contains(got, []byte(mark+red)) && bytes.Contains(got, []byte(mark+blue))
		})
	}
	return d
}

func as(who, text string) string {
	return strings.NewReplacer("ME", who, "YOU", others[who]).Replace(text)
}

// encoded are the parameters as the tenant writes them.
func encoded(who string, params []string) string {
	out := make([]string, len(params))
	for i, p := range params {
		k, v, _ := strings.Cut(as(who, p), "=")
		out[i] = url.QueryEscape(k) + "=" + url.QueryEscape(v)
	}
	return strings.Join(out, "&")
}

// ask is all that the tenant gets to see: the status, the headers and the body, as they are and
// inflated. It is empty where nothing came in time.
func (d *divided) ask(who string, c *call) []byte {
	target, body := d.url+as(who, c.path), encoded(who, c.in[1])
	if q := encoded(who, c.in[0]); q != "" {
		target += "?" + q
	}
	if c.read != nil {
		raw, err := (&prompb.ReadRequest{Queries: narrowedTo(who, c.read), AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{
			prompb.ReadRequest_ResponseType(len(c.read) % 2),
		}}).Marshal()
		if err != nil {
			d.t.Error(err)
			return nil
		}
		body = string(snappy.Encode(nil, raw))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, c.method, target, strings.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return nil
	}
	r.Header.Set("Authorization", "Bearer token-of-"+who)
	if c.method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if c.read != nil {
		r.Header.Set("Content-Type", "application/x-protobuf")
		r.Header.Set("Content-Encoding", "snappy")
		r.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	}
	if c.explain != "" {
		r.Header.Set(explainHeader, c.explain)
	}
	got := (&rig{t: d.t, client: d.client}).ask(r)
	out := fmt.Appendf(nil, "%d %v %v\n%s", got.status, got.header, got.err, got.body)
	if plain, err := snappy.Decode(nil, got.body); err == nil && c.read != nil {
		out = append(out, plain...)
	}
	return out
}

// narrowedTo are the queries with the tenants' names in their matchers.
func narrowedTo(who string, qs []*prompb.Query) []*prompb.Query {
	out := make([]*prompb.Query, len(qs))
	for i, q := range qs {
		own := *q
		own.Matchers = make([]*prompb.LabelMatcher, len(q.Matchers))
		for j, m := range q.Matchers {
			own.Matchers[j] = &prompb.LabelMatcher{Type: m.Type, Name: m.Name, Value: as(who, m.Value)}
		}
		out[i] = &own
	}
	return out
}

// sight is what a run of calls has come to.
type sight struct {
	leak     string         // the first; empty where there was none
	calls    int            // of both tenants
	own      map[string]int // by kind, answers with something of who asked
	compared int            // with what a server with nothing else answers
	all      map[string]int // calls by kind
}

// without are the kinds of calls of which none was answered with something of who asked.
func (s *sight) without() []string {
	kinds := []string{"query", "exemplars", "series", "labels", "label/", "federate", "read", "rules", "alerts", "metadata"}
	return slices.DeleteFunc(kinds, func(kind string) bool { return s.own[kind] > 0 })
}

// add adds what more calls have come to.
func (s *sight) add(more sight) {
	s.leak = more.leak
	s.calls += more.calls
	s.compared += more.compared
	for kind, n := range more.own {
		s.own[kind] += n
	}
	for kind, n := range more.all {
		s.all[kind] += n
	}
}

// look has both tenants ask the same at once, n times or until one sees what is the other's.
func (d *divided) look(g *calls, n int) sight {
	s := sight{own: map[string]int{}, all: map[string]int{}}
	for range n {
		c := g.call()
		var wg sync.WaitGroup
		var answers [2][]byte
		who := []string{red, blue}
		for i := range who {
			wg.Go(func() { answers[i] = d.ask(who[i], c) })
		}
		wg.Wait()
		for i, got := range answers {
			s.calls++
			s.all[c.kind]++
			if bytes.Contains(got, []byte(mark+who[i])) {
				s.own[c.kind]++
			}
			what := ""
			switch status := string(got[:min(3, len(got))]); {
			case bytes.Contains(got, []byte(mark+others[who[i]])):
				what = "sees"
			case status == "500" || status == "502":
				what = "is answered with an error of Spillway"
			case status == "200" && c.query != "":
				s.compared++
				what = d.differs(who[i], c, got)
			}
			if what != "" {
				s.leak = fmt.Sprintf("%s %s: %s %s %q %v: %.1500s", who[i], what, c.method, as(who[i], c.path), c.in, c.read, got)
				return s
			}
		}
	}
	return s
}

// differs tells how an answer differs from that of the server that has the tenant's series only.
func (d *divided) differs(who string, c *call, got []byte) string {
	target := d.own[who] + c.path + "?" + encoded(who, slices.Concat(c.in[0], c.in[1]))
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, nil)
	if err != nil {
		return err.Error()
	}
	want := (&rig{t: d.t, client: d.client}).ask(r)
	_, body, _ := bytes.Cut(got, []byte("\n"))
	if want.status != http.StatusOK || want.err != nil {
		return "" // such as a join that is none on one server
	}
	a, said := fromJSON(d.t, body)
	b, _ := fromJSON(d.t, want.body)
	if said != "" {
		return ""
	}
	if diff := compare(a, b, 1e-9); diff != "" {
		return "is not answered as if there were nothing else (" + diff + ")"
	}
	if len(a) != len(b) {
		return fmt.Sprintf("has %d series, and of its own %d", len(a), len(b))
	}
	return ""
}

// TestTenantsProperty: two tenants ask the same at once, whatever it is, and neither sees a byte of
// the other's: no series, label, text, error or warning; queries are answered as by a server that
// has nothing else; and neither's lines in the log and the usage log have any of the other's.
// Then holes are planted, one after the other, and each is found.
func TestTenantsProperty(t *testing.T) {
	d := newDivided(t)
	seed := randseed.Of(t, 0)
	g := newCalls(d, seed)
	s := d.look(g, 300)
	for len(s.without()) > 0 && s.leak == "" && s.calls < 3000 { // a seed may ask rarely for what is a tenant's
		s.add(d.look(g, 100))
	}
	if s.leak != "" {
		t.Fatal(s.leak)
	}
	t.Logf("%d calls, %d compared, own by kind %v of %v", s.calls, s.compared, s.own, s.all)
	for _, kind := range s.without() {
		t.Errorf("of %d calls of %s none was answered with what is the tenant's own", s.all[kind], kind)
	}
	if s.compared < 20 {
		t.Errorf("%d answers were compared", s.compared)
	}
	d.lines()
	for name, hole := range holes() {
		d.s.walls = standing()
		hole(&d.s.walls)
		if s := d.look(newCalls(d, seed), 900); s.leak == "" {
			t.Errorf("%s: not found in %d calls", name, s.calls)
		} else {
			t.Logf("%s: found after %d calls: %.300s", name, s.calls, s.leak)
		}
	}
	d.s.walls = standing()
}

// lines looks at what the tenants' requests have left in the log and the usage log.
func (d *divided) lines() {
	seen := map[string]int{}
	for _, line := range d.log.atLeast(slog.LevelDebug) {
		for who, other := range others {
			if strings.Contains(line, "caller={"+who+" ") || strings.Contains(line, "tenant="+who) {
				seen["log "+who]++
				if strings.Contains(line, mark+other) {
					d.t.Errorf("a line of %s has something of %s: %s", who, other, line)
				}
			}
		}
	}
	(&rig{t: d.t}).eventually("the usage log is written", func() bool {
		data, err := os.ReadFile(d.usage)
		return err == nil && bytes.Count(data, []byte("\n")) > 100
	})
	data, err := os.ReadFile(d.usage)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var rec struct{ Tenant string }
		if json.Unmarshal([]byte(line), &rec) != nil || others[rec.Tenant] == "" {
			continue
		}
		seen["usage "+rec.Tenant]++
		if strings.Contains(line, mark+others[rec.Tenant]) {
			d.t.Errorf("a usage line of %s has something of another: %s", rec.Tenant, line)
		}
	}
	for _, what := range []string{"log red", "log blue", "usage red", "usage blue"} {
		if seen[what] < 50 {
			d.t.Errorf("%d lines of %s", seen[what], what)
		}
	}
}
