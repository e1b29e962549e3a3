package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// searchWorld is random series over shards of which some search and some do not, and one
// Prometheus that holds them all, with the labels of their groups.
type searchWorld struct {
	t      testing.TB
	rng    *rand.Rand
	base   string // of the proxy
	single string // of the one Prometheus
	ask    *rig
	start  time.Time
}

func (w *searchWorld) text(words ...string) string {
	var b strings.Builder
	for range 1 + w.rng.IntN(4) {
		b.WriteString(words[w.rng.IntN(len(words))])
	}
	return b.String()
}

// serve starts a Prometheus with the series.
func (w *searchWorld) serve(series []labels.Labels, features ...string) string {
	p, err := localprom.Start(w.t.Context(), localprom.Options{DisableWAL: true, Features: features, BlockDuration: 24 * time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	var b strings.Builder
	b.WriteString("load 60s\n")
	for _, l := range series {
		var pairs []string
		l.Range(func(one labels.Label) { pairs = append(pairs, strconv.Quote(one.Name)+"="+strconv.Quote(one.Value)) })
		fmt.Fprintf(&b, "  {%s} 1x10\n", strings.Join(pairs, ","))
	}
	if err := p.LoadAt(b.String(), w.start); err != nil {
		w.t.Fatal(err)
	}
	return p.URL()
}

func newSearchWorld(t testing.TB, seed uint64) *searchWorld {
	w := &searchWorld{t: t, rng: rand.New(rand.NewPCG(seed, 5)), start: time.Now().Add(-15 * time.Minute).Truncate(time.Second)}
	w.ask = &rig{t: t, client: newClient(t)}
	names := []string{"node", "cpu", "Seconds", "_", "total", "gpu", "größe", "http", "<&>", "b"}
	var shared []labels.Labels // the same metrics and values are on several shards
	for range 40 {
		more := w.text("a", "b", "日")
		shared = append(shared, labels.FromStrings("__name__", w.text(names...), "job", w.text(names...), "x_"+w.text(names...), more))
	}
	text := "groups:\n"
	var all []labels.Labels
	for _, g := range []struct {
		name   string
		shards []bool // those that search
	}{{"jaguar", []bool{true, false, true}}, {"ibis", []bool{true}}, {"heron", []bool{false}}} {
		text += fmt.Sprintf("  - name: %s\n    labels: {cluster: %s}\n    replica_labels: [prometheus_replica]\n    shards:\n", g.name, g.name)
		for i, searches := range g.shards {
			var mine []labels.Labels
			for range 60 {
				l := labels.NewBuilder(labels.FromStrings("__name__", w.text(names...), "job", w.text(names...)))
				if w.rng.IntN(2) == 0 {
					l = labels.NewBuilder(shared[w.rng.IntN(len(shared))])
				}
				l.Set("shard", g.name+strconv.Itoa(i))
				all = append(all, l.Set("cluster", g.name).Labels())
				l.Del("cluster")
				mine = append(mine, l.Set("prometheus_replica", "a").Labels())
			}
			var features []string
			if searches {
				features = []string{"search-api"}
			}
			text += fmt.Sprintf("      - replicas: [{url: %q}]\n", w.serve(unique(mine), features...))
		}
	}
	w.single = w.serve(unique(all), "search-api")
	_, w.base = startProxy(t, t.Context(), text)
	return w
}

func unique(all []labels.Labels) []labels.Labels {
	slices.SortFunc(all, labels.Compare)
	return slices.CompactFunc(all, labels.Equal)
}

// form is a random search.
func (w *searchWorld) form(path string) url.Values {
	pick := func(of ...string) string { return of[w.rng.IntN(len(of))] }
	f := url.Values{"start": {stamp(w.start.Add(-time.Minute))}, "end": {stamp(w.start.Add(12 * time.Minute))}}
	for range w.rng.IntN(4) {
		term := w.text("node", "gpu", "_", "t", "C", "ß", "b", "<", "cluster", "jag", "日")
		f.Add("search[]", term)
	}
	maybe := func(name string, of ...string) {
		if w.rng.IntN(2) == 0 {
			f.Set(name, pick(of...))
		}
	}
	maybe("fuzz_alg", "subsequence", "jarowinkler")
	maybe("fuzz_threshold", "0", "40", "70", "100")
	maybe("case_sensitive", "true", "false", "0", "T")
	maybe("include_score", "true", "false")
	maybe("limit", "1", "2", "5", "20", "300", "10000")
	maybe("batch_size", "1", "3", "7", "1000")
	switch w.rng.IntN(3) {
	case 0:
		f.Set("sort_by", "alpha")
		maybe("sort_dir", "asc", "dsc")
	case 1:
		if len(f["search[]"]) > 0 {
			f.Set("sort_by", "score")
		}
	}
	if len(f["search[]"]) == 0 && f.Get("sort_dir") != "dsc" {
		// Without a text a Prometheus gives any values as soon as it has enough of them; see
		// withoutAText.
		f.Set("limit", "10000")
	}
	for range w.rng.IntN(3) {
		f.Add("match[]", pick(`{job=~".*gpu.*"}`, `{cluster="jaguar"}`, `{cluster!="ibis",job!=""}`, `{shard=~"jaguar[01]"}`,
			`{cluster=~"i.*|heron"}`, `{__name__=~".*node.*"}`, `{nothing="here"}`, `{cluster="jaguar",job=~".*_.*"}`))
	}
	if path == "label_values" {
		f.Set("label", pick("job", "cluster", "shard", "__name__", "nothing", "prometheus_replica"))
	}
	return f
}

// get asks a server.
func (w *searchWorld) get(base, path string, f url.Values) *reply {
	req, err := http.NewRequest(http.MethodGet, base+"/api/v1/search/"+path+"?"+f.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ask.ask(req)
}

// TestSearchOverServers asks real servers.
func TestSearchOverServers(t *testing.T) {
	w := newSearchWorld(t, randseed.Of(t, testSeed))
	t.Run("is that of one Prometheus", w.isThatOfOne)
	t.Run("without a text is in order", w.withoutAText)
	t.Run("refuses as Prometheus", w.refuses)
}

// isThatOfOne: over shards that search, shards that do not, and the labels of groups, the answer is
// that of one Prometheus that holds everything, byte for byte.
func (w *searchWorld) isThatOfOne(t *testing.T) {
	found, more, refused := 0, 0, 0
	for range 500 {
		path := []string{"metric_names", "label_names", "label_values"}[w.rng.IntN(3)]
		f := w.form(path)
		got, want := w.get(w.base, path, f), w.get(w.single, path, f)
		if got.status != want.status {
			t.Fatalf("%s %v: %s\nwant %s", path, f, got, want)
		}
		if want.status != http.StatusOK {
			refused++
			if got.message.Error != want.message.Error {
				t.Errorf("%s %v: %q, want %q", path, f, got.message.Error, want.message.Error)
			}
			continue
		}
		if got.header.Get("Content-Type") != want.header.Get("Content-Type") || !bytes.Equal(got.body, want.body) {
			t.Fatalf("%s %v: %s\nwant %s", path, f, got, want)
		}
		found += bytes.Count(got.body, []byte("{")) - 2
		more += bytes.Count(got.body, []byte(`"has_more":true`))
	}
	t.Logf("found %d, more %d times, refused %d", found, more, refused)
	if found < 1000 || more < 8 {
		t.Errorf("found %d, more %d times", found, more)
	}
}

// withoutAText: the first values are given where a limit cuts, and has_more is true exactly then.
func (w *searchWorld) withoutAText(t *testing.T) {
	for _, path := range []string{"metric_names", "label_names", "label_values"} {
		f := url.Values{
			"start": {stamp(w.start)}, "end": {stamp(w.start.Add(10 * time.Minute))}, "label": {"job"},
			"limit": {"10000"}, "batch_size": {"10000"},
		}
		all := bytes.SplitAfter(w.get(w.single, path, f).body, []byte("},"))
		for _, limit := range []int{1, 2, len(all) - 1, len(all)} {
			f.Set("limit", strconv.Itoa(limit))
			got := w.get(w.base, path, f)
			want := string(bytes.Join(all[:limit], nil))
			if limit < len(all) {
				want = strings.TrimSuffix(want, ",") + `]}` + "\n" + `{"status":"success","has_more":true}` + "\n"
			}
			if got.status != 200 || string(got.body) != want {
				t.Errorf("%s, limit %d of %d: %s, want %s", path, limit, len(all), got, want)
			}
		}
	}
}

// refuses: what a Prometheus refuses is refused, nearly always in its words.
func (w *searchWorld) refuses(t *testing.T) {
	for _, c := range []struct{ path, query string }{
		{"label_values", ""},
		{"label_values", "label="},
		{"label_names", "sort_dir=asc"},
		{"label_names", "sort_by=score"},
		{"label_names", "sort_by=score&sort_dir=asc&search[]=a"},
		{"metric_names", "limit=0"},
		{"metric_names", "limit=-1"},
		{"metric_names", "limit=x"},
		{"metric_names", "batch_size=0"},
		{"metric_names", "fuzz_threshold=101"},
		{"metric_names", "fuzz_alg=Subsequence"},
		{"metric_names", "sort_by=Alpha"},
		{"metric_names", "sort_by=alpha&sort_dir=desc"},
		{"metric_names", "case_sensitive=maybe"},
		{"metric_names", "include_metadata=2"},
		{"metric_names", "start=20&end=10"},
		{"metric_names", "match[]={}"},
		{"metric_names", "match[]=up{"},
		{"metric_names", strings.Repeat("search[]=a&search[]=b&", 1) + manyTerms(33)},
	} {
		f, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got, want := w.get(w.base, c.path, f), w.get(w.single, c.path, f)
		if got.status != 400 || want.status != 400 || got.message.Error == "" {
			t.Errorf("%s?%s: %s, want %s", c.path, c.query, got, want)
		}
	}
	// A text that is empty sorts nothing by score; a Prometheus answers as its index has it.
	if got := w.get(w.base, "metric_names", url.Values{"search[]": {""}, "sort_by": {"score"}}); got.status != 400 {
		t.Errorf("an empty text by score: %s", got)
	}
}

func manyTerms(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "search[]=t%d&", i)
	}
	return b.String()
}

// searches are the requests of a fake shard whose paths have the text in them.
func searches(s *fakeshard.Shard, path string) (n int) {
	for _, rec := range s.Requests() {
		if strings.Contains(rec.Path, path) {
			n++
		}
	}
	return n
}

// TestSearchOfShardsThatDoNot: a shard that said that it searches and does not, any more or in this
// way, is searched here, and is not asked again for a while.
func TestSearchOfShardsThatDoNot(t *testing.T) {
	for _, c := range []struct {
		name, script string
		again        int // how often it is asked to search, of two requests
	}{
		{"gone", `status 404; header Content-Type text/plain; send '404 page not found'`, 1},
		{"off", `error 503 unavailable search API disabled`, 1},
		{"lower limit", `error 400 bad_data limit 100 exceeds the configured maximum (10, see --web.search.max-limit)`, 2},
		{"another search", `header Content-Type application/x-ndjson; send '{"results":[{"name":"zzz"}]}{"status":"success","has_more":false}'`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}}, "")
			s := r.shards["jaguar"][1][0]
			if err := s.Set("", fakeshard.Route{Path: "/api/v1/search/*", Script: c.script}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				form := url.Values{"search[]": {"t"}, "include_score": {"true"}}
				got := r.ask(r.request(t.Context(), asking{path: "/api/v1/search/label_names", form: form}))
				if got.status != 200 || !strings.Contains(string(got.body), `"name":"instance"`) ||
					!strings.Contains(string(got.body), `"name":"cluster"`) ||
					!strings.HasSuffix(string(got.body), `{"status":"success","has_more":false}`+"\n") {
					t.Error(got)
				}
			}
			if n := searches(s, "/api/v1/search/"); n != c.again {
				t.Errorf("asked to search %d times, want %d", n, c.again)
			}
			r.idle()
		})
	}
}

// TestLongSearchBlamesNobodyElse: where scoring takes all the time that there is, the error says
// so, and not that the shard had not answered. Where another long evaluation runs, it waits for its
// turn.
func TestLongSearchBlamesNobodyElse(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "")
	var names strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&names, `,"%s%05d"`, strings.Repeat("rqponmlkjihgfedcba_", 10)[:173], i)
	}
	if err := r.shards["jaguar"][0][0].Set("",
		fakeshard.Route{Path: "/api/v1/search/*", Script: "status 404; send gone"},
		fakeshard.Route{Path: "/api/v1/label/__name__/values", Script: `send '{"status":"success","data":[` + names.String()[1:] + `]}'`},
	); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcdefghijklmnopqr_", 20)[:254]
	form := url.Values{
		"search[]": {text, text[1:]}, "fuzz_alg": {"jarowinkler"}, "fuzz_threshold": {"1"}, "sort_by": {"score"},
		"match[]": {`{__name__="a"}`},
	}
	timeout := 400 * time.Millisecond
	ask := func() (got *reply) { // on a busy machine ten megabytes of names may take all of the time
		for {
			form.Set("timeout", fmt.Sprint(timeout.Milliseconds(), "ms"))
			got = r.ask(r.request(t.Context(), asking{path: "/api/v1/search/metric_names", form: form}))
			if !strings.Contains(got.message.Error, "had not answered") || timeout > 6*time.Second {
				return got
			}
			timeout *= 2
		}
	}
	got := ask()
	if got.message.Error == "" || strings.Contains(got.message.Error, "had not answered") ||
		!strings.Contains(got.message.Error, "at its end it was still being searched here") {
		t.Error(got)
	}
	r.s.gate = evaluation.NewGate(1, nil)
	turn, err := r.s.gate.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer turn.End()
	turn.Heavy()
	if err := turn.Look(); err != nil { // it has the one place of what is long
		t.Fatal(err)
	}
	if got := ask(); got.status != 429 || got.message.Spillway.Bound != policy.BoundEvaluations {
		t.Error(got)
	}
	r.idle()
}

// TestSearchIsBoundedAndSaysSo: the limit of the configuration, with a warning where it cut, and
// has_more alone where the request's own did.
func TestSearchIsBoundedAndSaysSo(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "limits: {endpoints: {search_label_names: {max_series: 2}}}\n")
	for limit, want := range map[string]string{
		"1": `{"results":[{"name":"__name__"}]}` + "\n" + `{"status":"success","has_more":true}` + "\n",
		"2": `{"results":[{"name":"__name__"},{"name":"cluster"}]}` + "\n" + `{"status":"success","has_more":true}` + "\n",
		"3": `{"results":[{"name":"__name__"},{"name":"cluster"}],"warnings":["results truncated due to limit: at most 2 (max_series)` +
			`; search for more of the text, or add a label matcher"]}` + "\n" + `{"status":"success","has_more":true}` + "\n",
	} {
		got := r.ask(r.request(t.Context(), asking{path: "/api/v1/search/label_names", form: url.Values{"limit": {limit}}}))
		verdict := "clamp" // no start asks for the whole retention
		if got.status != 200 || string(got.body) != want || got.header.Get(verdictHeader) != verdict {
			t.Errorf("limit %s: %s %v, want %s", limit, got, got.header, want)
		}
	}
}
