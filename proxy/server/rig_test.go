package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// patience bounds how long a test waits for what has to happen. It ends a test that hangs; nothing
// is asserted about how fast the thing does happen.
const patience = time.Minute

// ample is the timeout of requests that are to be answered before it, on a busy machine too.
const ample = time.Minute

// rigGroup is a group of a rig: one number of replicas for each of its shards. Its label is
// cluster, with its name as the value, unless it is bare.
type rigGroup struct {
	name     string
	bare     bool
	replicas []int
}

// rig is a proxy over scripted shards. Each shard stores one series,
// up{instance="<group>-<shard>"}, so that an answer shows whose data is in it.
type rig struct {
	t      testing.TB
	s      *Server
	url    string
	admin  string
	shards map[string][][]*fakeshard.Shard // by group, shard, replica
	names  map[*fakeshard.Shard]string     // as errors call them
	log    *logbook
	client *http.Client
	config string
}

// newRig starts healthy shards and a proxy over them that has examined them all. more is the rest
// of the configuration.
func newRig(t testing.TB, groups []rigGroup, more string, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, shards: map[string][][]*fakeshard.Shard{}, names: map[*fakeshard.Shard]string{}, log: &logbook{}}
	r.client = newClient(t)
	var b strings.Builder
	b.WriteString("groups:\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "  - name: %s\n", g.name)
		if !g.bare {
			fmt.Fprintf(&b, "    labels: {cluster: %s}\n", g.name)
		}
		b.WriteString("    shards:\n")
		for i, n := range g.replicas {
			b.WriteString("      - replicas:\n")
			var replicas []*fakeshard.Shard
			for range n {
				s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{
					"__name__": "up",
					"instance": fmt.Sprintf("%s-%d", g.name, i), "job": "fake",
				}}})
				fmt.Fprintf(&b, "          - {url: %q}\n", s.URL())
				r.names[s] = g.name + "/" + s.Addr()
				replicas = append(replicas, s)
			}
			r.shards[g.name] = append(r.shards[g.name], replicas)
		}
	}
	r.config = b.String() + more
	change = append([]func(*Options){func(o *Options) {
		o.Logger = slog.New(r.log)
		o.DrainTimeout = patience // who has just been released, or has left, may be kept from the processor
		o.Ready = func(_, admin netAddr) { r.admin = "http://" + admin.String() }
	}}, change...)
	r.s, r.url = startProxy(t, t.Context(), r.config, change...)
	return r
}

// newClient is an HTTP client that leaves no connection behind and follows no redirect.
func newClient(t testing.TB) *http.Client {
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// alive answers the proxy's own question to a server that is silent for a while.
var alive = fakeshard.Route{Path: "/api/v1/query", Query: "count(up)", Script: "answer"}

// ownQuestion tells whether the proxy asked it by itself: for the engine's version, and whether a
// silent server is there.
func ownQuestion(rec fakeshard.Record) bool {
	q := rec.Form.Get("query")
	return q == "1+1" || q == "count(up)" && rec.Form.Get("time") == ""
}

// askedOf are the requests that the shard was asked at the path, but for the proxy's own questions.
func askedOf(s *fakeshard.Shard, path string) []fakeshard.Record {
	return slices.DeleteFunc(s.RequestsTo(path), ownQuestion)
}

// all are the rig's shards, in the same order each time.
func (r *rig) all() []*fakeshard.Shard {
	return slices.SortedFunc(maps.Keys(r.names), func(a, b *fakeshard.Shard) int {
		return strings.Compare(r.names[a], r.names[b])
	})
}

// called is what errors call the shards.
func (r *rig) called(shards []*fakeshard.Shard) []string {
	var out []string
	for _, s := range shards {
		out = append(out, r.names[s])
	}
	return out
}

// seldom has the proxy ask shards nothing of its own but once, at the start.
var seldom = shard.Options{ProbeInterval: time.Hour, VitalsEvery: time.Hour, FactsEvery: time.Hour}

// quiet waits until a proxy that asks seldom has asked all of that: a server's metrics, which come
// last, are read within a second of the start, whatever the configuration is.
func (r *rig) quiet() {
	r.t.Helper()
	seen, since := -1, time.Now()
	r.eventually("the proxy's own questions are over", func() bool {
		n, busy := 0, false
		for _, s := range r.all() {
			n += s.Seen()
			busy = busy || s.InFlight() > 0 || len(s.RequestsTo("/metrics")) == 0
		}
		if busy || n != seen {
			seen, since = n, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// idle waits until no shard works for anybody and nothing of the budget is held.
func (r *rig) idle() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range r.all() {
		if err := s.Set(""); err != nil { // the proxy's own questions, which go on, are no work that lasts
			r.t.Error(err)
		}
		if err := s.WaitIdle(ctx); err != nil {
			r.t.Errorf("%s: %v", r.names[s], err)
		}
	}
	r.eventually("all memory is given back", func() bool { return r.s.poolNow().InUse() == 0 })
	r.eventually("no request is in flight", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
}

// eventually waits for something that is about to become true.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	pause := 2 * time.Millisecond
	for end := time.Now().Add(patience); !ok(); time.Sleep(pause) {
		pause = min(2*pause, 50*time.Millisecond) // whoever is waited for wants the processor
		if time.Now().After(end) {
			r.t.Errorf("waited in vain until %s", what)
			return
		}
	}
}

// metric is the sum of a metric's series that have all the label values, given as name=value.
func (r *rig) metric(name string, want ...string) float64 {
	r.t.Helper()
	families, err := r.s.opts.Gatherer.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.Metric {
			have := map[string]string{}
			for _, l := range m.Label {
				have[l.GetName()] = l.GetValue()
			}
			for _, w := range want {
				if k, v, _ := strings.Cut(w, "="); have[k] != v {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// asking is a request that a client may send, and where it arrives on the shards.
type asking struct {
	name   string
	id     endpoint.ID
	path   string
	form   url.Values
	post   bool
	body   []byte // of remote read
	at     string // the path on the shard
	groups []string
	frames bool // the shard answers with streamed chunks
	most   bool // the answer is cut where a shard sends too much, with a warning, instead of refused
}

// askings are one request for each endpoint of the table that asks shards, and one for each road of
// a query.
func askings() []asking {
	now := time.Now()
	window := url.Values{"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now)}}
	with := func(base url.Values, kv ...string) url.Values {
		out := url.Values{}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out.Set(kv[i], kv[i+1])
		}
		return out
	}
	none := url.Values{}
	jaguar, heron, all := []string{"jaguar"}, []string{"heron"}, []string{"jaguar", "heron"}
	read := readRequest(now.Add(-10*time.Minute), now, labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"),
		labels.MustNewMatcher(labels.MatchEqual, "cluster", "jaguar"))
	return []asking{
		{
			name: "query passed", id: endpoint.Query, path: "/api/v1/query", form: with(none, "query", `up{cluster="heron"}`),
			at: "/api/v1/query", groups: heron,
		},
		{
			name: "query_range passed", id: endpoint.QueryRange, path: "/api/v1/query_range",
			form: with(window, "query", `up{cluster="heron"}`, "step", "15"), at: "/api/v1/query_range", groups: heron,
		},
		{
			name: "query raw", id: endpoint.Query, path: "/api/v1/query", form: with(none, "query", `count(info(up{cluster="jaguar"}))`),
			post: true, at: "/api/v1/read", groups: jaguar, frames: true,
		},
		{
			name: "query_range raw", id: endpoint.QueryRange, path: "/api/v1/query_range",
			form: with(window, "query", `quantile by (instance) (1, up{cluster="jaguar"})`, "step", "15"), at: "/api/v1/read",
			groups: jaguar, frames: true,
		},
		{
			name: "query pushed", id: endpoint.Query, path: "/api/v1/query", form: with(none, "query", `count(up{cluster="jaguar"})`),
			post: true, at: "/api/v1/query", groups: jaguar,
		},
		{name: "query_range pushed", id: endpoint.QueryRange, path: "/api/v1/query_range", form: with(window, "query", `avg(up{cluster="jaguar"}) / sum(up{cluster="jaguar"})`, "step", "15"), at: "/api/v1/query_range", groups: jaguar},
		{
			name: "query spliced", id: endpoint.Query, path: "/api/v1/query", form: with(none, "query", `up{cluster="jaguar"}`),
			at: "/api/v1/query", groups: jaguar,
		},
		{
			name: "query_range spliced", id: endpoint.QueryRange, path: "/api/v1/query_range",
			form: with(window, "query", `up{cluster="jaguar"}`, "step", "15"), at: "/api/v1/query_range", groups: jaguar,
		},
		{
			name: "query_exemplars", id: endpoint.QueryExemplars, path: "/api/v1/query_exemplars",
			form: with(window, "query", `up{cluster="jaguar"}`), at: "/api/v1/query_exemplars", groups: jaguar,
		},
		{
			name: "series", id: endpoint.Series, path: "/api/v1/series", form: with(window, "match[]", `up{cluster="jaguar"}`), post: true,
			at: "/api/v1/series", groups: jaguar, most: true,
		},
		{
			name: "labels", id: endpoint.Labels, path: "/api/v1/labels", form: with(window, "match[]", `up{cluster="jaguar"}`),
			at: "/api/v1/labels", groups: jaguar, most: true,
		},
		{
			name: "label_values", id: endpoint.LabelValues, path: "/api/v1/label/instance/values",
			form: with(window, "match[]", `up{cluster="jaguar"}`), at: "/api/v1/label/instance/values", groups: jaguar, most: true,
		},
		{
			name: "label_values of a group label", id: endpoint.LabelValues, path: "/api/v1/label/cluster/values",
			form: with(window, "match[]", `up{cluster="jaguar"}`), at: "/api/v1/series", groups: jaguar, most: true,
		},
		{
			name: "search_metric_names", id: endpoint.SearchMetricNames, path: "/api/v1/search/metric_names",
			form: with(window, "match[]", `up{cluster="jaguar"}`, "search[]", "u"),
			at:   "/api/v1/search/metric_names", groups: jaguar, most: true,
		},
		{
			name: "search_label_names", id: endpoint.SearchLabelNames, path: "/api/v1/search/label_names", post: true,
			form: with(window, "match[]", `up{cluster="jaguar"}`), at: "/api/v1/search/label_names", groups: jaguar, most: true,
		},
		{
			name: "search_label_values", id: endpoint.SearchLabelValues, path: "/api/v1/search/label_values",
			form: with(window, "match[]", `up{cluster="jaguar"}`, "label", "instance", "search[]", "a"),
			at:   "/api/v1/search/label_values", groups: jaguar, most: true,
		},
		{name: "metadata", id: endpoint.Metadata, path: "/api/v1/metadata", form: none, at: "/api/v1/metadata", groups: all, most: true},
		{name: "rules", id: endpoint.Rules, path: "/api/v1/rules", form: none, at: "/api/v1/rules", groups: all},
		{name: "alerts", id: endpoint.Alerts, path: "/api/v1/alerts", form: none, at: "/api/v1/alerts", groups: all},
		{name: "targets", id: endpoint.Targets, path: "/api/v1/targets", form: none, at: "/api/v1/targets", groups: all},
		{
			name: "targets_metadata", id: endpoint.TargetsMetadata, path: "/api/v1/targets/metadata", form: with(none, "metric", "up"),
			at: "/api/v1/targets/metadata", groups: all, most: true,
		},
		{name: "scrape_pools", id: endpoint.ScrapePools, path: "/api/v1/scrape_pools", form: none, at: "/api/v1/scrape_pools", groups: all},
		{
			name: "alertmanagers", id: endpoint.Alertmanagers, path: "/api/v1/alertmanagers", form: none,
			at: "/api/v1/alertmanagers", groups: all,
		},
		{name: "features", id: endpoint.Features, path: "/api/v1/features", form: none, at: "/api/v1/features", groups: all},
		{name: "read", id: endpoint.Read, path: "/api/v1/read", post: true, body: read, at: "/api/v1/read", groups: jaguar, frames: true},
		{
			name: "federate", id: endpoint.Federate, path: "/federate", form: with(none, "match[]", `up{cluster="jaguar"}`),
			at: "/api/v1/read", groups: jaguar, frames: true,
		},
		{
			name: "status_buildinfo", id: endpoint.StatusBuildinfo, path: "/api/v1/status/buildinfo", form: none,
			at: "/api/v1/status/buildinfo", groups: all,
		},
		{name: "status_tsdb", id: endpoint.StatusTSDB, path: "/api/v1/status/tsdb", form: none, at: "/api/v1/status/tsdb", groups: all},
	}
}

// readRequest is the body of a remote read that accepts streamed chunks.
func readRequest(from, until time.Time, ms ...*labels.Matcher) []byte {
	q, err := remote.ToQuery(from.UnixMilli(), until.UnixMilli(), ms, nil)
	if err != nil {
		panic(err)
	}
	raw, err := (&prompb.ReadRequest{
		Queries:               []*prompb.Query{q},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
	}).Marshal()
	if err != nil {
		panic(err)
	}
	return snappy.Encode(nil, raw)
}

// request is the asking as a request to the rig.
func (r *rig) request(ctx context.Context, a asking, more ...string) *http.Request {
	form := url.Values{}
	for k, v := range a.form {
		form[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	target, method := r.url+a.path, http.MethodGet
	var body io.Reader
	switch {
	case a.body != nil:
		method, body = http.MethodPost, bytes.NewReader(a.body)
	case a.post:
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	case len(form) > 0:
		target += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		r.t.Fatal(err)
	}
	switch {
	case a.body != nil:
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "snappy")
		req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	case a.post:
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req
}

// reply is an answer as its client has it.
type reply struct {
	status  int
	header  http.Header
	body    []byte // the first 4 MiB
	size    int64
	err     error // of the connection: no answer, or half of one
	took    time.Duration
	message struct {
		Status, ErrorType, Error string
		Data                     json.RawMessage
		Warnings                 []string
		Spillway                 struct{ Bound, Value, Seen, Advice string }
	}
}

// half tells whether the answer was begun and the connection cut.
func (a *reply) half() bool { return a.status != 0 && a.err != nil }

func (a *reply) String() string {
	return fmt.Sprintf("status %d after %s, %d bytes, err %v: %.400s", a.status, a.took.Round(time.Millisecond), a.size, a.err, a.body)
}

// ask sends a request and reads the answer to its end.
func (r *rig) ask(req *http.Request) *reply { return r.askKeeping(4<<20, req) }

// askKeeping is ask of which the first bytes of the answer's body are kept, and the others counted.
func (r *rig) askKeeping(most int64, req *http.Request) *reply {
	began := time.Now()
	out := &reply{}
	resp, err := r.client.Do(req)
	if err != nil {
		out.err, out.took = err, time.Since(began)
		return out
	}
	defer resp.Body.Close()
	out.status, out.header = resp.StatusCode, resp.Header
	out.body, out.err = io.ReadAll(io.LimitReader(resp.Body, most))
	rest := int64(0)
	if out.err == nil {
		rest, out.err = io.Copy(io.Discard, resp.Body)
	}
	out.size, out.took = int64(len(out.body))+rest, time.Since(began)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson") {
		for line := range bytes.Lines(out.body) {
			_ = json.Unmarshal(line, &out.message) // half an answer has half a line
		}
	}
	if out.err == nil && rest == 0 && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(out.body, &out.message); err != nil {
			r.t.Errorf("an answer that is no JSON: %v: %.300s", err, out.body)
		}
	}
	return out
}

// logbook keeps what is logged.
type logbook struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	level slog.Level
	text  string
}

// Enabled implements slog.Handler.
func (*logbook) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *logbook) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString(rec.Message)
	rec.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) < 100_000 {
		l.lines = append(l.lines, logLine{rec.Level, b.String()})
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *logbook) WithGroup(string) slog.Handler { return l }

// atLeast are the lines of the level and above.
func (l *logbook) atLeast(level slog.Level) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, line := range l.lines {
		if line.level >= level {
			out = append(out, line.text)
		}
	}
	return out
}

// limits is a configuration's timeout for everything.
func limits(timeout time.Duration) string {
	return fmt.Sprintf("limits: {timeout: %dms}\n", timeout.Milliseconds())
}

// roomy is limits with a place for each of the few dozen requests that a test asks at once: what is
// looked at is a server's fault, not who waits for whom. Every endpoint has the timeout, those too
// that have 5 or 10 s of their own.
func roomy(timeout time.Duration) string {
	var each []string
	for _, e := range endpoint.Table {
		each = append(each, fmt.Sprintf("%s: {timeout: %dms}", e.ID, timeout.Milliseconds()))
	}
	return fmt.Sprintf("limits: {timeout: %dms, replica_calls: 48, endpoints: {%s}}\n", timeout.Milliseconds(), strings.Join(each, ", "))
}
