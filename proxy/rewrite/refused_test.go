package rewrite_test

import (
	"cmp"
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
	"slices"
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
	// wantParts is how many at least are instant, and a part of what the query has.
	wantParts = 30
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
	parts     int  // how many answers were compared with parts of others
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
	maskAgo    = regexp.MustCompile(`\(tried [0-9]+s ago:`)
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
	file, err := os.ReadFile(goldenFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	var golden strings.Builder
	tried, compared, others, kinds, met := 0, 0, 0, map[string]int{}, map[string]int{}
	for i, q := range queries {
		w := fixed
		if q.path == "federate" {
			w = live
		}
		w.from = byte(2 + i)
		a := w.ask(q)
		s := a.body.Spillway
		said := heading(i, q) + a.said()
		for again := 0; again < 20 && !*update && !strings.Contains(string(file), said); again++ {
			b := w.ask(q) // of two bounds that it is beyond, now the one is met first and now the other
			said = heading(i, q) + b.said()
		}
		if own := blockOf(string(file), heading(i, q)); own != "" && boundOf(own) != boundOf(said) && !*update {
			others++ // on a slow machine one bound may be met first each time
			said = own
		}
		golden.WriteString(said)
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
		if r.Tried && r.Path == "/api/v1/query" && r.And == "" {
			w.compareParts(q, r, again)
		}
		if r.Tried && r.Path == "/api/v1/query_range" && r.Parameters["query"][0] == q.text {
			w.compare(q, r, again.values())
			compared++
		}
	}
	t.Logf("%d of %d carry a rewrite that was tried and is answered, %d have the values of the query itself; by kind %v, of the bounds %v",
		tried, len(queries), compared, kinds, met)
	t.Logf("%d are parts of what the query itself has", fixed.parts)
	if fixed.parts < wantParts {
		t.Errorf("only %d were compared with a part of what the query itself has, want %d", fixed.parts, wantParts)
	}
	if tried < wantTried || compared < wantCompared {
		t.Errorf("only %d of %d carry a rewrite that was tried, want %d, and %d were compared, want %d", tried, len(queries), wantTried,
			compared, wantCompared)
	}
	if others > 3 {
		t.Errorf("%d queries meet another bound than the file has", others)
	}
	if *update {
		file = []byte(golden.String())
		if err := os.WriteFile(goldenFile, file, 0o644); err != nil {
			t.Fatal(err)
		}
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

var (
	aggregates = regexp.MustCompile(`\b(sum|avg|min|max|count|group|quantile|stddev|topk)\b *(by|\()`)
	matchers   = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)
)

// compareParts compares what says to be a part of the query's own series with that part, as the
// free proxy gives it: those with one value of a label, or the ten largest.
func (w *world) compareParts(q refusedQuery, r *qerr.Rewrite, a answer) {
	w.t.Helper()
	text := r.Parameters["query"][0]
	largest := text == "topk(10, "+q.text+")"
	if !largest && (r.Kind != "matcher" || aggregates.MatchString(q.text)) {
		return
	}
	all := w.getOf(w.free, r.Path, url.Values{"query": {q.text}, "time": r.Parameters["time"]})
	if all.status != http.StatusOK {
		w.t.Fatalf("%s of the free proxy: %d %s", q.text, all.status, all.body.Error)
	}
	var want []series
	if largest {
		want = all.body.Data.Result
		slices.SortFunc(want, func(a, b series) int { return cmp.Compare(b.number(w.t), a.number(w.t)) })
		want = want[:min(10, len(want))]
	} else {
		for _, m := range matchers.FindAllStringSubmatch(text, -1) {
			if strings.Contains(q.text, m[0]) {
				continue
			}
			for _, s := range all.body.Data.Result {
				if s.Metric[m[1]] == m[2] {
					want = append(want, s)
				}
			}
			break
		}
	}
	values := func(of []series) (out []string) {
		for _, s := range of {
			if largest { // of several that are as large any may be chosen
				out = append(out, fmt.Sprint(s.Value))
			} else {
				out = append(out, fmt.Sprint(s))
			}
		}
		slices.Sort(out)
		return out
	}
	if got, want := values(a.body.Data.Result), values(want); !slices.Equal(got, want) {
		w.t.Errorf("%s: %s has %v, want %v", q.text, text, got, want)
	}
	w.parts++
}

func (s *series) number(t *testing.T) float64 {
	f, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEmptyIsNotTried: what has no series in the end is not said to have been tried, though shards
// sent some for it.
func TestEmptyIsNotTried(t *testing.T) {
	w := startWorld(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	for _, q := range []refusedQuery{
		{"query_range", time.Hour, "15s", "quantile(0.95, DCGM_FI_DEV_GPU_UTIL) > 1e9"},
		{"query_range", 45 * 24 * time.Hour, "1h", "avg(node_load1) > 1e9"},
		{"query", 0, "-", "DCGM_FI_DEV_GPU_UTIL * on (Hostname, gpu) nothing_has_this_name"},
	} {
		w.from++
		a := w.ask(q)
		if r := a.body.Spillway.Rewrite; a.status != http.StatusUnprocessableEntity || r != nil && r.Tried ||
			strings.Contains(a.body.Error, "tried") {
			t.Errorf("%s: %d %s", q.text, a.status, a.body.Error)
		}
	}
}

// TestFrameIsKept: what calls on the times of the request is not proposed with others, since its
// values would be others.
func TestFrameIsKept(t *testing.T) {
	w := startWorld(t, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	for _, q := range []refusedQuery{
		{"query_range", 12 * time.Hour, "1s", "sum(up) * step()"},
		{"query_range", 60 * 24 * time.Hour, "1h", "sum(up) / range()"},
		{"query_range", time.Hour, "15s", "DCGM_FI_DEV_GPU_UTIL + on () group_left () vector(start())"},
		{"query_range", 12 * time.Hour, "1s", "sum(rate(node_network_receive_bytes_total[5m])) * (end() - time())"},
	} {
		w.from++
		a := w.ask(q)
		if a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", q.text, a.status, a.body.Error)
		}
		if r := a.body.Spillway.Rewrite; r != nil && (r.Parameters["step"][0] != strconv.Itoa(int(seconds(t, q.step))) ||
			r.Parameters["start"][0] != strconv.FormatInt(w.end.Add(-q.over).Unix(), 10)) {
			t.Errorf("%s: %s", q.text, a.body.Error)
		}
	}
}

func seconds(t *testing.T, text string) float64 {
	d, err := model.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d).Seconds()
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
	text = maskAgo.ReplaceAllString(text, "(tried:")
	return maskPort.ReplaceAllString(maskTried.ReplaceAllString(text, "in 12ms)"), "shard:9090")
}

// said is what the golden file has of a refusal.
func (a *answer) said() string {
	s := &a.body.Spillway
	head, said := fmt.Sprintf("%d, bound %s, value %s, seen %s", a.status, s.Bound, s.Value, s.Seen), masked(a.body.Error)
	if s.Bound == policy.BoundMaxResponseBytes { // whose answer was too much, and by how much, is another one each time
		head = fmt.Sprintf("%d, bound %s", a.status, s.Bound)
		said = "…; " + strings.TrimPrefix(said[strings.Index(said, "; ")+1:], " ")
		said, _, _ = strings.Cut(said, ", or ")
	}
	if s.Rewrite != nil && s.Rewrite.Kind == "metric" { // of metrics with as many series, shards tell another one each time
		said = maskMetric.ReplaceAllString(said, "try … (${1} …)")
	}
	return head + "\n" + said + "\n\n"
}

// blockOf is what the file has of a query, by its heading; empty where it has nothing.
func blockOf(file, heading string) string {
	_, rest, found := strings.Cut(file, heading)
	if !found {
		return ""
	}
	said, _, _ := strings.Cut(rest, "\n\n")
	return heading + said + "\n\n"
}

// boundOf is the bound that stands in what the file has of a query.
func boundOf(block string) string {
	_, rest, _ := strings.Cut(block, ", bound ")
	bound, _, _ := strings.Cut(rest, "\n")
	bound, _, _ = strings.Cut(bound, ",")
	return bound
}

// heading is the line above a sentence.
func heading(i int, q refusedQuery) string {
	return fmt.Sprintf("# %d: %s %s %s %s\n", i+1, q.path, model.Duration(q.over), q.step, q.text)
}
