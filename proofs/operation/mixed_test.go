package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
)

const (
	// heapSlack is how much more the program may hold after all requests than before them.
	heapSlack = 1 << 20
	// callers ask at once.
	callers = 24
)

// mishaps are what one answer in five is.
var mishaps = []string{
	"error 500 internal boom", "status 502; garbage html", "error 503 unavailable starting", "error 422 execution too many samples",
	"error 429 too_many_requests busy", "garbage", "garbage shape", "garbage null", "garbage cut", "garbage empty", "garbage wire",
	"garbage deep", "status 204", "redirect", "reset", "close", "flush; reset", "limit 20 reset; answer",
	"length 1000000; limit 20 close; answer", "chunked; limit 20 close; answer", "badlength; answer", "badchunk", "gzip bad; answer",
	"gzip cut; answer", "gzip double; answer", "gzip bomb 64MiB", "flood 1MiB; answer", "header Content-Encoding br; answer",
	"delay 100ms; answer", "generate 300KiB", "limit 30 stall; answer", "skew 1h; answer",
}

// paths are those on the shards where answers go wrong; what the program asks of its own accord is
// spared, else a shard would soon be taken for dead and asked no more.
var paths = []string{
	"/api/v1/query_range", "/api/v1/series", "/api/v1/labels", "/api/v1/label/*/values", "/api/v1/read", "/api/v1/metadata",
	"/api/v1/rules", "/api/v1/alerts", "/api/v1/targets", "/api/v1/targets/metadata", "/api/v1/query_exemplars", "/api/v1/status/tsdb",
	"/api/v1/search/*",
}

// queries are those of /api/v1/query, likewise: by their texts.
var queries = []string{"up", `up{job="a"}`, "count(up)", "sum by (job) (up)"}

// misbehave gives a shard new scripts: of the next answers on each path one in five goes wrong.
func misbehave(t *testing.T, s *fakeshard.Shard, rng *rand.Rand) {
	t.Helper()
	var routes []fakeshard.Route
	add := func(r fakeshard.Route) {
		for n := 1; n <= 40; n++ {
			if rng.IntN(5) == 0 {
				r.Nth, r.Script = n, mishaps[rng.IntN(len(mishaps))]
				routes = append(routes, r)
			}
		}
	}
	for _, path := range paths {
		add(fakeshard.Route{Path: path})
	}
	for _, query := range queries {
		add(fakeshard.Route{Path: "/api/v1/query", Query: query})
	}
	if err := s.Set("", routes...); err != nil {
		t.Error(err)
	}
}

// mixed is a program over shards that misbehave, and over others, that do not, at times when what
// it holds is looked at.
type mixed struct {
	t            *testing.T
	p            *program
	file         string
	busy, quiet  []*fakeshard.Shard
	codes        sync.Map // status, or what became of it, to *atomic.Int64
	wrong        complaints
	read         []byte
	everyRequest []asked
}

func newMixed(t *testing.T) *mixed {
	t.Helper()
	m := &mixed{t: t, file: filepath.Join(t.TempDir(), "spillway.yaml")}
	for i := range 4 {
		s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{
			{"__name__": "up", "instance": fmt.Sprint("node-", i%2), "job": "a"},
			{"__name__": "up", "instance": fmt.Sprint("node-", i%2), "job": "b"},
		}})
		if i < 2 {
			m.busy = append(m.busy, s)
		} else {
			m.quiet = append(m.quiet, s)
		}
	}
	m.write(m.quiet)
	m.p = start(t, m.file, "", nil)
	now := time.Now()
	up := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "up")}
	q, err := remote.ToQuery(now.Add(-10*time.Minute).UnixMilli(), now.UnixMilli(), up, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := (&prompb.ReadRequest{
		Queries: []*prompb.Query{q}, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m.read = snappy.Encode(nil, raw)
	m.everyRequest = everyRequest()
	return m
}

func (m *mixed) write(shards []*fakeshard.Shard) {
	m.t.Helper()
	text := "groups:\n  - name: heron\n    labels: {cluster: heron}\n    shards:\n"
	for _, s := range shards {
		text += fmt.Sprintf("      - replicas: [{url: %q}]\n", s.URL())
	}
	replace(m.t, m.file, text+"limits: {timeout: 400ms}\n")
}

// over puts the program over these shards.
func (m *mixed) over(shards []*fakeshard.Shard) {
	m.t.Helper()
	m.write(shards)
	resp, err := m.p.client.Post(m.p.admin+"/-/reload", "", nil)
	if err != nil {
		m.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		m.t.Fatalf("reload: %d", resp.StatusCode)
	}
}

// everyRequest is a request to each endpoint that is served, and for each road of a query; remote
// read has none here.
func everyRequest() []asked {
	now := time.Now().Unix()
	window := func(kv ...string) url.Values {
		out := url.Values{"start": {fmt.Sprint(now - 600)}, "end": {fmt.Sprint(now)}}
		for i := 0; i < len(kv); i += 2 {
			out.Set(kv[i], kv[i+1])
		}
		return out
	}
	all := []asked{
		{"/api/v1/query_range", window("query", "up", "step", "15")},
		{"/api/v1/query_range", window("query", "avg(up) / sum(up)", "step", "15")},
		{"/api/v1/query_range", window("query", "quantile by (job) (0.5, up)", "step", "60")},
		{"/api/v1/query", url.Values{"query": {"count(info(up))"}}},
		{"/api/v1/query", url.Values{"query": {"sum("}}},
		{"/api/v1/query", url.Values{"query": {`{le!=""}`}}},
		{"/api/v1/query", url.Values{"query": {"1+1"}}},
		{"/api/v1/query_exemplars", window("query", "up")},
		{"/api/v1/series", window("match[]", "up")},
		{"/api/v1/series", window("match[]", `{job!=""}`)},
		{"/api/v1/labels", window()},
		{"/api/v1/label/instance/values", window()},
		{"/api/v1/label/cluster/values", window("match[]", "up")},
		{"/api/v1/search/metric_names", window("search[]", "u")},
		{"/api/v1/search/label_names", window()},
		{"/api/v1/search/label_values", window("label", "job")},
		{"/api/v1/metadata", nil},
		{"/api/v1/rules", nil},
		{"/api/v1/alerts", nil},
		{"/api/v1/targets", nil},
		{"/api/v1/targets/metadata", url.Values{"metric": {"up"}}},
		{"/api/v1/features", nil},
		{"/federate", url.Values{"match[]": {"up"}}},
		{"/api/v1/format_query", url.Values{"query": {"sum(up)by(job)"}}},
		{"/api/v1/parse_query", url.Values{"query": {"up"}}},
		{"/api/v1/status/buildinfo", nil},
		{"/api/v1/status/tsdb", nil},
		{"/api/v1/status/flags", nil},
		{"/api/v1/status/config", nil},
		{"/api/v1/status/runtimeinfo", nil},
		{"/api/v1/status/walreplay", nil},
		{"/api/v1/openapi.yaml", nil},
		{"/api/v1/nothing", nil},
		{"/-/healthy", nil},
		{"/-/ready", nil},
		{"/", nil},
	}
	for _, q := range queries {
		all = append(all, asked{"/api/v1/query", url.Values{"query": {q}}})
	}
	return all
}

// one is a request, by whom leaves at times.
func (m *mixed) one(c *http.Client, rng *rand.Rand) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	leaves := rng.IntN(20) == 0
	if leaves {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(4_000))*time.Microsecond)
	}
	defer cancel()
	a := m.everyRequest[rng.IntN(len(m.everyRequest))]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url(m.p.main), nil)
	if rng.IntN(20) == 0 {
		a = asked{path: "/api/v1/read"}
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, m.p.main+a.path, bytes.NewReader(m.read))
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "snappy")
	}
	if err != nil {
		m.wrong.add("%v", err)
		return
	}
	status, body, err := do(c, req)
	outcome := fmt.Sprint(status)
	switch {
	case leaves && err != nil:
		outcome = "left"
	case status == http.StatusOK && err != nil:
		outcome = "cut" // half of it had been sent
	case err != nil:
		m.wrong.add("%s: %d %v", a.url(""), status, err)
	case status >= 500 && status != 502 && status != 503:
		m.wrong.add("%s: %d %.300s", a.url(""), status, body)
	case strings.HasPrefix(a.path, "/api/v1/") && !slices.Contains([]string{"/api/v1/read", "/api/v1/openapi.yaml"}, a.path) &&
		!strings.Contains(a.path, "search") && !json.Valid(body):
		m.wrong.add("%s: %d, and no JSON: %.300s", a.url(""), status, body)
	}
	n, _ := m.codes.LoadOrStore(outcome, &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
}

// ask asks n requests of shards that misbehave.
func (m *mixed) ask(n int, seed uint64) {
	m.t.Helper()
	stop := make(chan struct{})
	var turning, wg sync.WaitGroup
	turning.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for {
			for _, s := range m.busy {
				misbehave(m.t, s, rng)
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	var left atomic.Int64
	left.Store(int64(n))
	for i := range callers {
		c := newClient(m.t, nil)
		wg.Go(func() {
			defer c.CloseIdleConnections()
			for rng := rand.New(rand.NewPCG(seed, uint64(i+1))); left.Add(-1) >= 0; {
				m.one(c, rng)
			}
		})
	}
	wg.Wait()
	close(stop)
	turning.Wait()
}

// held is what the program holds when it rests.
type held struct {
	goroutines, files, budget, flying, calls, heap float64
}

// heapAlloc is what is allocated, in the text of a profile that was made right after a collection.
var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// rests has the program collect its garbage twice, and looks.
func (m *mixed) rests() held {
	m.t.Helper()
	v := m.p.metrics()
	heap := 0.0
	for range 2 {
		status, body, err := get(m.p.client, m.p.admin+"/debug/pprof/heap?gc=1&debug=1")
		found := heapAlloc.FindSubmatch(body)
		if err != nil || status != http.StatusOK || found == nil {
			m.t.Fatalf("collect: %d %v", status, err)
		}
		heap, _ = strconv.ParseFloat(string(found[1]), 64) // digits
	}
	return held{
		v["go_goroutines"], v["process_open_fds"], v["spillway_memory_budget_used_bytes"], v["spillway_requests_in_flight"],
		v["spillway_calls_in_flight"], heap,
	}
}

// TestMixedRequests: after a great many requests of all kinds, of which shards answer a fifth
// wrongly and one client in twenty leaves, the program holds what it held before.
func TestMixedRequests(t *testing.T) {
	seed := randseed.Of(t, 0)
	m := newMixed(t)
	m.over(m.busy)
	m.ask(3000, seed) // what is kept for good is there then: pools, tables, the code's own lazy values
	m.over(m.quiet)
	var before held
	if !eventually(func() bool {
		was := before
		before = m.rests()
		return before.goroutines == was.goroutines && before.files == was.files
	}) {
		t.Fatal("it does not come to rest")
	}
	m.over(m.busy)
	m.codes.Clear()
	began := time.Now()
	m.ask(*requests, seed+1)
	took := time.Since(began)
	m.over(m.quiet)
	var after held
	ok := eventually(func() bool {
		after = m.rests()
		return after.goroutines <= before.goroutines && after.files <= before.files && after.budget == 0 && after.flying == 0 &&
			after.calls == 0 && after.heap <= before.heap+heapSlack
	})
	counts := map[string]int64{}
	m.codes.Range(func(code, n any) bool { counts[code.(string)] = n.(*atomic.Int64).Load(); return true })
	t.Logf("%d requests in %s: %v", *requests, took.Round(time.Second), counts)
	t.Logf("before %+v", before)
	t.Logf("after  %+v", after)
	if !ok {
		_, body, _ := get(m.p.client, m.p.admin+"/debug/pprof/goroutine?debug=1")
		t.Errorf("it holds more than before; its goroutines:\n%.6000s", body)
	}
	m.wrong.tell(t)
	n := int64(*requests)
	if counts["200"] < n/4 || counts["502"]+counts["503"] < n/50 || counts["left"] < n/100 {
		t.Errorf("that is no mix: %v", slices.Sorted(maps.Keys(counts)))
	}
}
