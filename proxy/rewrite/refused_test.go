package rewrite_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

var update = flag.Bool("update", false, "write testdata/refused.golden anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	refusedFile = "testdata/refused.txt"
	goldenFile  = "testdata/refused.golden"
	// wantTried is how many of the hundred have to carry a rewrite that was tried and fits.
	wantTried = 90
	// wantCompared is how many rewrites at least have the text of the query, and its values.
	wantCompared = 10
	// past is how long before the end data begins.
	past = 80 * time.Minute
)

// bounds are those of the test's proxy: of a cluster of nine nodes they refuse what the defaults
// refuse of one of ten thousand.
const bounds = `limits: {max_series: 60, max_samples: 30000, max_response_bytes: 128KiB, max_shard_bytes: 768KiB}
`

// refusedQuery is a line of the file.
type refusedQuery struct {
	path string
	over time.Duration
	step string
	text string
}

func readRefused(t *testing.T) (out []refusedQuery) {
	t.Helper()
	text, err := os.ReadFile(refusedFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " ", 4)
		if len(f) != 4 {
			t.Fatalf("%s: %s", refusedFile, line)
		}
		over, err := model.ParseDuration(f[1])
		if err != nil && f[1] != "0" {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, refusedQuery{f[0], time.Duration(over), f[2], f[3]})
	}
	return out
}

// world is a proxy over the shards of two clusters: one of two shards, one of one. free is another
// one over the same, whose bounds refuse nothing of it. All data ends at end.
type world struct {
	t         *testing.T
	url, free string
	end       time.Time
	from      byte // the last byte of the address that is asked from
}

// unbounded are the bounds of the free proxy.
const unbounded = `limits: {max_series: 1000000, max_samples: 500000000, max_response_bytes: 1GiB, max_shard_bytes: 16GiB, max_range: 1000d, unselective: allow, timeout: 5m}
`

func startWorld(t *testing.T, end time.Time) *world {
	t.Helper()
	w := &world{t: t, end: end, from: 1}
	groups := ""
	for _, c := range []struct {
		name          string
		nodes, shards int
	}{{"jaguar", 6, 2}, {"ibis", 3, 1}} {
		m, err := cluster.New(cluster.Options{
			Seed: 1, Cluster: c.name, Nodes: c.nodes, Start: w.end.Add(-20 * 24 * time.Hour).Truncate(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		groups += fmt.Sprintf("  - name: %s\n    labels: {cluster: %s}\n    shards:\n", c.name, c.name)
		for i := range c.shards {
			own := labels.FromStrings("cluster", c.name)
			p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, ExternalLabels: own})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			if _, err := m.BackfillHead(t.Context(), p.Storage(), cluster.BackfillOptions{
				From: w.end.Add(-past), Until: w.end, Interval: 30 * time.Second,
				Keep: func(target cluster.Target) bool { return cluster.Shard(target, c.shards) == i },
			}); err != nil {
				t.Fatal(err)
			}
			groups += fmt.Sprintf("      - replicas: [{url: %q}]\n", p.URL())
		}
	}
	w.free, _ = servertest.Start(t, "groups:\n"+groups+unbounded)
	w.url, _ = servertest.Start(t, "groups:\n"+groups+bounds, func(o *server.Options) { o.RewriteTime = time.Minute })
	for i := range 100 { // a shard is asked for its sketch once it has answered something
		w.ask(refusedQuery{"query", 0, "-", fmt.Sprintf("count(up) + %d", i)})
		time.Sleep(10 * time.Millisecond)
	}
	return w
}

// answer is what the proxy says.
type answer struct {
	status int
	text   string
	body   struct {
		Error string
		Data  struct {
			Result []series
		}
		Warnings []string
		Spillway struct {
			Bound, Value, Seen, Advice string
			Rewrite                    *qerr.Rewrite
		}
	}
}

// series is one of an answer, of one moment or of several.
type series struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

// values are the values of an answer, by series and moment in milliseconds.
func (a *answer) values() map[string]map[int64]string {
	out := map[string]map[int64]string{}
	for _, s := range a.body.Data.Result {
		by := map[int64]string{}
		for _, v := range append(s.Values, s.Value) {
			if at, ok := v[0].(float64); ok {
				by[int64(at*1000)] = fmt.Sprint(v[1])
			}
		}
		out[fmt.Sprint(s.Metric)] = by // maps are printed in the order of their keys
	}
	return out
}

// ask asks a query as its line says.
func (w *world) ask(q refusedQuery) answer {
	at := func(when time.Time) string { return strconv.FormatInt(when.Unix(), 10) }
	v := url.Values{}
	switch q.path {
	case "federate":
		return w.get("/federate", url.Values{"match[]": {q.text}})
	case "query":
		v.Set("time", at(w.end))
	default:
		v.Set("start", at(w.end.Add(-q.over)))
		v.Set("end", at(w.end))
		if q.step != "-" {
			v.Set("step", q.step)
		}
	}
	v.Set("query", q.text)
	return w.get("/api/v1/"+q.path, v)
}

func (w *world) get(path string, v url.Values) answer { return w.getOf(w.url, path, v) }

// getOf asks from the world's address: of one address not many rewrites are looked for.
func (w *world) getOf(base, path string, v url.Values) (a answer) {
	w.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, w.from)}}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, base+path+"?"+v.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a.status, a.text = resp.StatusCode, string(body)
	if err := json.Unmarshal(body, &a.body); err != nil && path != "/federate" && path != "/api/v1/query_exemplars" {
		w.t.Fatalf("%s: %v", body, err)
	}
	return a
}

var (
	maskTried  = regexp.MustCompile(`in [0-9.]+m?s\)`)
	maskMetric = regexp.MustCompile(`try .* \((tried|estimated)[^)]*\)`)
	maskPort   = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

// TestHundredRefused: of a hundred queries as people send them, which the proxy refuses, at least
// ninety are told at once what else to ask, and that was tried. The test asks it: it is answered
// whole and not with nothing, within the same bounds; a shorter window and a longer step have the
// values that the query itself has at each of their moments. All sentences stand in one file, to be
// read aloud, and are those of the file.
func TestHundredRefused(t *testing.T) {
	fixed := startWorld(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)) // always the same, so that sentences are
	live := startWorld(t, time.Now().Truncate(time.Minute))               // federate asks of now alone
	queries := readRefused(t)
	if len(queries) != 100 {
		t.Errorf("%s has %d queries", refusedFile, len(queries))
	}
	var golden strings.Builder
	tried, compared, kinds, met := 0, 0, map[string]int{}, map[string]int{}
	for i, q := range queries {
		w := fixed
		if q.path == "federate" {
			w = live
		}
		w.from = byte(2 + i)
		a := w.ask(q)
		s := a.body.Spillway
		head, said := fmt.Sprintf("%d, bound %s, value %s, seen %s", a.status, s.Bound, s.Value, s.Seen), masked(a.body.Error)
		if s.Bound == policy.BoundMaxResponseBytes { // whose answer was too much, and by how much, is another one each time
			head = fmt.Sprintf("%d, bound %s", a.status, s.Bound)
			said = "…; " + strings.TrimPrefix(said[strings.Index(said, "; ")+1:], " ")
			said, _, _ = strings.Cut(said, ", or ")
		}
		if s.Rewrite != nil && s.Rewrite.Kind == "metric" { // of metrics with as many series, shards tell another one each time
			said = maskMetric.ReplaceAllString(said, "try … (${1} …)")
		}
		golden.WriteString(heading(i, q) + head + "\n" + said + "\n\n")
		if a.status != http.StatusUnprocessableEntity || s.Bound == "" {
			t.Errorf("%s is not refused by a bound: %d %s", q.text, a.status, a.body.Error)
			continue
		}
		met[s.Bound]++
		r := s.Rewrite
		if r == nil {
			continue
		}
		if !strings.Contains(a.body.Error, "try ") {
			t.Errorf("the sentence does not say it: %s", a.body.Error)
		}
		again := w.get(r.Path, r.Parameters)
		if again.status != http.StatusOK || r.Tried && !again.whole(r.Path) {
			t.Errorf("%s: its rewrite %v is answered %d: %.1000s", q.text, r, again.status, again.text)
			continue
		}
		if r.Tried {
			tried++
			kinds[r.Kind+r.And]++
		}
		if r.Tried && r.Path == "/api/v1/query_range" && r.Parameters["query"][0] == q.text {
			w.compare(q, r, again.values())
			compared++
		}
	}
	t.Logf("%d of %d carry a rewrite that was tried and is answered, %d have the values of the query itself; by kind %v, of the bounds %v",
		tried, len(queries), compared, kinds, met)
	if tried < wantTried || compared < wantCompared {
		t.Errorf("only %d of %d carry a rewrite that was tried, want %d, and %d were compared, want %d", tried, len(queries), wantTried,
			compared, wantCompared)
	}
	if *update {
		if err := os.WriteFile(goldenFile, []byte(golden.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	want, got := strings.Split(string(file), "\n"), strings.Split(golden.String(), "\n")
	for i, line := range got {
		if i >= len(want) || line != want[i] {
			t.Errorf("line %d of %s is not\n%s\n-update writes it anew", i+1, goldenFile, line)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%s has %d lines, not %d", goldenFile, len(want), len(got))
	}
}

// whole tells whether the answer is one that lacks nothing by its own word, and is not empty.
func (a *answer) whole(path string) bool {
	switch {
	case a.status != http.StatusOK || len(a.body.Warnings) > 0:
		return false
	case path == "/federate":
		return strings.Contains(a.text, "{")
	case path == "/api/v1/query_exemplars":
		return strings.Contains(a.text, `"seriesLabels":{`)
	}
	return len(a.body.Data.Result) > 0
}

// compare compares the values of a rewrite that has the text of the query with those that the free
// proxy gives for the query itself, at moments of the query itself.
func (w *world) compare(q refusedQuery, r *qerr.Rewrite, got map[string]map[int64]string) {
	w.t.Helper()
	number := func(of string) int64 {
		f, err := strconv.ParseFloat(strings.TrimSuffix(r.Parameters[of][0], "s"), 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return int64(f * 1000)
	}
	step, err := model.ParseDuration(q.step)
	if err != nil {
		w.t.Fatal(err)
	}
	own, first := time.Duration(step).Milliseconds(), w.end.Add(-q.over).UnixMilli()
	from := max(number("start"), w.end.Add(-past).UnixMilli()) // there is nothing before
	from = first + (from-first)/own*own                        // a moment of the query
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) }
	truth := w.getOf(w.free, r.Path, url.Values{
		"query": {q.text}, "start": {seconds(from)}, "end": {seconds(w.end.UnixMilli())}, "step": {q.step},
	})
	if truth.status != http.StatusOK {
		w.t.Fatalf("%s of the free proxy: %d %s", q.text, truth.status, truth.body.Error)
	}
	want := truth.values()
	moments := 0
	for series, values := range got {
		for at, v := range values {
			if at < from {
				w.t.Errorf("%s, %v: %s has a value before there was any", q.text, r, series)
			} else if moments++; want[series][at] != v {
				w.t.Errorf("%s, %v: %s has %s at %d, not %s", q.text, r, series, v, at, want[series][at])
				return
			}
		}
	}
	for series, values := range want { // and nothing is missing
		for at := range values {
			if asked := at >= number("start") && (at-number("start"))%number("step") == 0; asked && got[series][at] == "" {
				w.t.Errorf("%s, %v: %s lacks its value at %d", q.text, r, series, at)
				return
			}
		}
	}
	if moments == 0 {
		w.t.Errorf("%s, %v: nothing was compared", q.text, r)
	}
}

// masked is a sentence without what is never the same.
func masked(text string) string {
	return maskPort.ReplaceAllString(maskTried.ReplaceAllString(text, "in 12ms)"), "shard:9090")
}

// heading is the line above a sentence.
func heading(i int, q refusedQuery) string {
	return fmt.Sprintf("# %d: %s %s %s %s\n", i+1, q.path, model.Duration(q.over), q.step, q.text)
}
