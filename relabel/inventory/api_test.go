package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// server is a query API over a list of series, with a limit of its own as a proxy has.
type server struct {
	t        testing.TB
	series   []labels.Labels
	metadata map[string]string
	limit    int
	warning  string // on answers of series
	busy     int    // so many requests are turned away first
	requests int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests++
	if err := r.ParseForm(); err != nil {
		s.t.Error(err)
	}
	if s.busy > 0 {
		s.busy--
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"status":"error","errorType":"too_many_requests","error":"the queue is full"}`)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/prefix/api/v1/")
	limit, err := strconv.Atoi(r.Form.Get("limit"))
	if err != nil || limit == 0 || limit > s.limit {
		limit = s.limit
	}
	if path != "metadata" && path != "targets" && (r.Form.Get("start") != "1699997000" || r.Form.Get("end") != "1700000000") {
		s.t.Errorf("%s: from %s to %s", path, r.Form.Get("start"), r.Form.Get("end"))
	}
	var chosen []labels.Labels
	for _, ls := range s.series {
		if matches(s.t, ls, r.Form["match[]"]) {
			chosen = append(chosen, ls)
		}
	}
	var data any
	cut := false
	list := func(of func(ls labels.Labels, add func(string))) {
		set := map[string]bool{}
		for _, ls := range chosen {
			of(ls, func(v string) { set[v] = true })
		}
		out := []string{}
		for v := range set {
			out = append(out, v)
		}
		sort.Strings(out)
		if cut = len(out) > limit; cut {
			out = out[:limit]
		}
		data = out
	}
	switch {
	case path == "series":
		out := []map[string]string{}
		for i, ls := range chosen {
			if cut = i == limit; cut {
				break
			}
			out = append(out, ls.Map())
		}
		data = out
	case path == "labels":
		list(func(ls labels.Labels, add func(string)) { ls.Range(func(l labels.Label) { add(l.Name) }) })
	case strings.HasPrefix(path, "label/"):
		name := strings.TrimSuffix(strings.TrimPrefix(path, "label/"), "/values")
		if strings.HasPrefix(name, "U__") {
			name = model.UnescapeName(name, model.ValueEncodingEscaping)
		}
		list(func(ls labels.Labels, add func(string)) {
			if v := ls.Get(name); v != "" {
				add(v)
			}
		})
	case path == "metadata":
		out := map[string][]map[string]string{}
		for name, typ := range s.metadata {
			if only := r.Form.Get("metric"); only == "" || only == name {
				if len(out) == s.limit {
					cut = true
					break
				}
				out[name] = []map[string]string{{"type": typ, "help": "", "unit": ""}}
			}
		}
		data = out
	default:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"status":"error","errorType":"forbidden","error":"not for this tenant"}`)
		return
	}
	answer := map[string]any{"status": "success", "data": data}
	var warnings []string
	if cut {
		warnings = append(warnings, fmt.Sprintf("results truncated due to limit: at most %d", limit))
	}
	if s.warning != "" && path == "series" {
		warnings = append(warnings, s.warning)
	}
	if warnings != nil {
		answer["warnings"] = warnings
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

func matches(t testing.TB, ls labels.Labels, selectors []string) bool {
	if len(selectors) == 0 {
		return true
	}
	for _, text := range selectors {
		matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return false
		}
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			return true
		}
	}
	return false
}

var apiNow = time.Unix(1_700_000_000, 0)

// TestAPISplits: whatever the limits are, all series come, once each, as long as one answer can
// hold those that only differ in a label whose values can be listed.
func TestAPISplits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := &server{t: t, metadata: map[string]string{
		"h": "histogram", "m0_total": "counter", "native": "histogram", "g": "gauge",
		"r": "summary",
	}}
	var want []string
	add := func(pairs ...string) {
		ls := labels.FromStrings(pairs...)
		s.series = append(s.series, ls)
		b := labels.NewBuilder(ls).Del("cluster")
		want = append(want, b.Labels().String())
	}
	for i := range 300 {
		add("__name__", "m0_total", "job", "j", "instance", fmt.Sprint(i%10), "po.d|()", fmt.Sprintf("p.*%d\"\\", i%100), "x",
			fmt.Sprint(i/100), "cluster", "c")
	}
	for i := range 40 {
		add("__name__", fmt.Sprintf("m0_%d_and_so_on", i), "job", "j")
		add("__name__", "some", "job", "j", "only", strings.Repeat("x", i%7), "other", fmt.Sprint(i))
	}
	add("__name__", "h_bucket", "le", "1.0")
	add("__name__", "native")
	add("__name__", "é")
	add("__name__", "m0.é", "cluster", "a")
	add("__name__", "m0")
	s.series = append(s.series, labels.FromStrings("__name__", "m0.é", "cluster", "b"))
	slices.Sort(want)
	base := serve(t, s.ServeHTTP) + "/prefix/api/v1/"
	for range 4 {
		s.limit = 12 + r.IntN(100)
		s.requests = 0
		src, err := API(client, base, APIOptions{External: []string{"cluster"}, Window: 50 * time.Minute, Now: apiNow, Limit: 90})
		if err != nil {
			t.Fatal(err)
		}
		sameLines(t, names(t, src), want)
		inv, err := Collect(t.Context(), src, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, typ := range map[string]model.MetricType{
			"m0_total": "counter", "h_bucket": "histogram", "native": "histogram",
			"some": "unknown",
		} {
			job := "j"
			if name == "native" || name == "h_bucket" {
				job = ""
			}
			if m := inv.Metric(job, name); m == nil || m.Type != typ || m.Native != (name == "native") {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if s.requests > 3000 {
			t.Errorf("%d requests for %d series at a limit of %d", s.requests, len(s.series), s.limit)
		}
	}
	// A list of metadata that was cut is asked for piece by piece.
	s.limit = 4
	src, err := API(client, base, APIOptions{Now: apiNow, Window: 50 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	types, err := src.(*api).types(t.Context())
	if err != nil || !types.cut {
		t.Fatal("the metadata was not cut")
	}
	for name := range s.metadata {
		if typ, family, err := types.of(t.Context(), name); err != nil || !family || string(typ) != s.metadata[name] {
			t.Errorf("%s: %s, %v", name, typ, err)
		}
	}
}

func TestAPIRefuses(t *testing.T) {
	s := &server{t: t, limit: 1000}
	for i := range 5 {
		s.series = append(s.series, labels.FromStrings("__name__", "a", "i", fmt.Sprint(i)))
	}
	open := func(url string) Source {
		src, err := API(client, url, APIOptions{Now: apiNow, Window: 50 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
	base := serve(t, s.ServeHTTP)
	fails := func(src Source, says ...string) {
		t.Helper()
		_, err := Collect(t.Context(), src, nil)
		for _, one := range says {
			if err == nil || !strings.Contains(err.Error(), one) {
				t.Errorf("got %v, want %q", err, one)
			}
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	good := open(base + "/prefix")
	s.busy = 1
	if got := read(t, good); len(got) != 5 {
		t.Errorf("got %q", got)
	}
	s.warning = "Spillway narrowed the range to 55m before now: because"
	if got := read(t, good); len(got) != 5 {
		t.Errorf("got %q", got)
	}
	for _, dropped := range []string{ // as a Spillway says it that has drop_rules and tells an inventory too
		"metric a is dropped since 2026-11-21 by rule x/names/1 (owner platform): to have it back, name it in keep.yaml",
		"metric a of job x is dropped since 2026-11-21 by rule x/names/1: answers go without it",
		`series of metric a with i = "7" are dropped since 2026-11-21 by rule x/slice/1: to have it back`,
		`buckets of metric a with le = "30.0" and 4 more are dropped since 2026-11-21 by rule x/buckets/1: to have it back`,
		"label pod of metric a is dropped since 2026-11-21 by rule x/label/pod: to have it back",
	} {
		s.warning = dropped
		if got := read(t, good); len(got) != 5 {
			t.Errorf("%s: got %q", dropped, got)
		}
	}
	s.warning = "partial answer: shard metric is dropped since 2026-11-21 by rule x did not answer; its series are missing"
	fails(good, "may not be whole")
	s.warning = "shard b did not answer"
	fails(good, "may not be whole", "shard b did not answer")
	s.warning = ""
	s.limit = 2 // five values of i cannot be listed
	fails(good, `{__name__="a"}`, "no label is left")
	fails(open(strings.Replace(base, "://", "://u:secret@", 1)+"/elsewhere"), "403")
	fails(open(serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })), "not that of a query API")
	fails(open(serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"success","data":{}}`) })),
		"not that of a query API")
	fails(open(serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"status":"error","error":"too much"}`)
	})), "422", "too much")
	fails(open(strings.Replace(serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "://", "://u:secret@",
		1)), "names of metrics")
	gone := errors.New("gone away")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.limit = 1000
	if err := good.Scan(ctx, func(*Series) error { cancel(gone); return ctx.Err() }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if err := good.Scan(t.Context(), func(*Series) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "x", "http://", "ftp://x", "http://u:secret@x:y:z"} {
		if _, err := API(nil, bad, APIOptions{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", bad, err)
		}
	}
	if _, err := API(nil, "http://x", APIOptions{Limit: -1}); err == nil {
		t.Error("a negative limit is taken")
	}
}

// FuzzAPI: whatever a server answers, reading it ends, with series that have the name that was
// asked for or with an error.
func FuzzAPI(f *testing.F) {
	f.Add(`["a"]`, `[{"__name__":"a","b":"c"}]`, `{"a":[{"type":"gauge"}]}`, "")
	f.Add(`["a","\u0000"]`, `[{"__name__":"b"}]`, `{}`, "results truncated due to limit")
	f.Add(`[""]`, `[{}]`, `[]`, "x")
	f.Add(`null`, `null`, `null`, "")
	f.Add(`[""]`, `[{}]`, `{}`, "")
	f.Fuzz(func(t *testing.T, list, series, metadata, warning string) {
		warnings, err := json.Marshal([]string{warning})
		if err != nil {
			t.Skip("no text")
		}
		requests := 0
		a, err := API(&http.Client{Transport: round(func(r *http.Request) string {
			if requests++; requests > 5000 {
				t.Fatal("reading does not end")
			}
			data := list
			switch {
			case strings.HasSuffix(r.URL.Path, "/series"):
				data = series
			case strings.HasSuffix(r.URL.Path, "/metadata"):
				data = metadata
			}
			// Only questions for one metric are cut: those for names would split 200 characters
			// deep.
			if warning == "" || !strings.HasSuffix(r.URL.Path, "/series") {
				return `{"status":"success","data":` + data + `}`
			}
			return `{"status":"success","data":` + data + `,"warnings":` + string(warnings) + `}`
		})}, "http://127.0.0.1", APIOptions{Now: apiNow})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		err = a.Scan(t.Context(), func(s *Series) error {
			key := s.Labels.String()
			if seen[key] || s.Labels.Get(model.MetricNameLabel) == "" {
				t.Errorf("%q comes twice or has no name", key)
			}
			seen[key] = true
			return nil
		})
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}

// round answers without a network.
type round func(*http.Request) string

func (f round) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(r))),
		Request: r,
	}, nil
}

// TestReadAtOnce: the proxy refuses a request with more.
func TestReadAtOnce(t *testing.T) {
	if readAtOnce > endpoint.MaxReadQueries {
		t.Errorf("%d queries in one request of remote read, and Spillway takes %d", readAtOnce, endpoint.MaxReadQueries)
	}
}

// TestIsOf: a server that adds labels sends the series that was asked for with them, and may have
// another one that differs in just such labels.
func TestIsOf(t *testing.T) {
	added := func(l labels.Label) bool { return l.Name == "cluster" && l.Value == "x" }
	asked := labels.FromStrings("__name__", "a", "pod", "p")
	for _, c := range []struct {
		name string
		sent labels.Labels
		want bool
	}{
		{"as asked", asked, true},
		{"with the label", labels.FromStrings("__name__", "a", "pod", "p", "cluster", "x"), true},
		{"with another value of it", labels.FromStrings("__name__", "a", "pod", "p", "cluster", "y"), false},
		{"with another label", labels.FromStrings("__name__", "a", "pod", "p", "node", "n"), false},
		{"without a label", labels.FromStrings("__name__", "a", "cluster", "x"), false},
		{"another value", labels.FromStrings("__name__", "a", "pod", "q", "cluster", "x"), false},
	} {
		if got := isOf(c.sent, asked, added); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if isOf(labels.FromStrings("cluster", "x"), labels.EmptyLabels(), added) {
		t.Error("what was found already is found again")
	}
}
