package propose_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// memory is a source that holds its series.
type memory []labels.Labels

func (memory) String() string { return "memory" }

func (m memory) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	for _, ls := range m {
		native := strings.HasPrefix(ls.Get(model.MetricNameLabel), "native")
		if err := f(&inventory.Series{Labels: ls, Interval: 15 * time.Second, Native: native}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// of makes series of text: `name{a="b"}` without quotes around values, separated by blanks.
func of(job string, series ...string) memory {
	var out memory
	for _, text := range series {
		name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name, "job", job, "instance", "i"))
		for pair := range strings.SplitSeq(rest, ",") {
			if label, value, ok := strings.Cut(pair, "="); ok {
				b.Set(label, value)
			}
		}
		out = append(out, b.Labels())
	}
	return out
}

// queries are uses of each query.
func queries(texts ...string) *uses.Set {
	set := new(uses.Set)
	for i, text := range texts {
		set.Add(&uses.Use{Kind: uses.Logged, Where: fmt.Sprintf("query %d", i), Query: text})
	}
	return set
}

// plan proposes, with what the proposal was made from.
func plan(t *testing.T, src memory, set *uses.Set, o propose.Options) ([]propose.Rule, []propose.Refusal, *inventory.Inventory,
	*uses.Index,
) {
	t.Helper()
	inv, err := inventory.Collect(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	index := set.Index(uses.External, inv.Known())
	for _, ls := range src {
		index.Observe(ls)
	}
	rules, refused := propose.Propose(inv, set, index, o)
	return rules, refused, inv, index
}

// show writes rules down: kind, job, metrics, label and values.
func show(rules []propose.Rule) []string {
	var out []string
	for _, r := range rules {
		text := fmt.Sprintf("%s %s %s %s", r.ID, r.Risk, strings.Join(r.Metrics, ","), r.Label)
		out = append(out, strings.TrimSpace(text+" "+strings.Join(r.Values, ",")))
	}
	return out
}

func TestPropose(t *testing.T) {
	histogram := of("j", "h_bucket{le=0.1}", "h_bucket{le=0.2}", "h_bucket{le=0.25}", "h_bucket{le=30.0}", "h_bucket{le=60.0}",
		"h_bucket{le=+Inf}")
	for _, test := range []struct {
		name    string
		src     memory
		queries []string
		options propose.Options
		want    []string
		refused []string // beginnings of reasons
	}{
		{
			name: "what nothing selects goes by its name", src: of("j", "a", "b", "c_x", "c_y"), queries: []string{"sum(a)"},
			want: []string{"j/names/1 low b,c_x,c_y"},
		},
		{
			name: "a matcher on job lets other jobs go", src: append(of("j", "a"), of("k", "a")...), queries: []string{`a{job="k"}`},
			want: []string{"j/names/1 low a"},
		},
		{
			name: "a matcher on another label lets no whole metric go, nor what is new tomorrow", src: append(of("j", "a{code=200}", "a{code=500}"), of("k", "a{code=200}")...), queries: []string{`a{code="500"}`},
			want: []string{"j/slice/code/1 medium a code 200", "k/slice/code/1 medium a code 200"},
		},
		{
			name: "a use that selects nothing waits for a trouble", src: of("j", "a{code=200}", "b"),
			queries: []string{`a{code="500"}`, "sum(b)"},
			want:    nil,
		},
		{
			name: "a use of a job that is not there keeps the metric", src: of("j", "a", "b"), queries: []string{`a{job="other"}`, "b"},
			want: nil, refused: []string{"a use of this name selects no series"},
		},
		{
			name: "a selector of another job without a name keeps nothing here", src: append(of("j", "a"), of("k", "b")...), queries: []string{`{job="k"}`, `{__name__=~".+",job="k"}`},
			want: []string{"j/names/1 low a"},
		},
		{
			name: "external labels exclude nothing", src: of("j", "a{cluster=x}", "a{cluster=y}"), queries: []string{`a{cluster="x"}`},
			want: nil,
		},
		{
			name: "series that lack a label", src: of("j", "a{pod=x}", "a"), queries: []string{`a{pod!=""}`},
			want: []string{"j/slice/pod/1 medium a pod"},
		},
		{
			name: "two needs, one slice", src: of("j", "a{code=200}", "a{code=404}", "a{code=500}"),
			queries: []string{`a{code="500"}`, `a{code=~"4.."}`},
			want:    []string{"j/slice/code/1 medium a code 200"},
		},
		{
			name: "slices are of medium risk", src: of("j", "a{code=200}", "a{code=500}"), queries: []string{`a{code="500"}`},
			options: propose.Options{Risk: propose.Low},
			want:    nil, refused: []string{"it needs the risk medium"},
		},
		{
			name: "buckets by le, in both spellings", src: histogram, queries: []string{`sum(rate(h_bucket{le="30"}[5m]))`},
			want: []string{"j/buckets/1 medium h_bucket le 0.1,0.2,0.25"},
		},
		{
			name: "quantiles keep all buckets", src: histogram, queries: []string{`histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))`},
			want: nil, refused: []string{"it needs the risk high"},
		},
		{
			name: "quantiles within an error", src: histogram, queries: []string{`histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))`}, options: propose.Options{Risk: propose.High},
			want: []string{"j/buckets/1 high h_bucket le 0.2"},
		},
		{
			name: "sums of all buckets keep all buckets", src: histogram, queries: []string{`sum(rate(h_bucket[5m]))`},
			options: propose.Options{Risk: propose.High},
			want:    nil,
		},
		{
			name: "the same buckets of every job", src: append(slices.Clone(histogram),
				of("k", "h_bucket{le=0.1}", "h_bucket{le=0.25}", "h_bucket{le=+Inf}")...),
			queries: []string{`h_bucket{job="j",le="0.2"}`, `h_bucket{job="k",le="0.1"}`},
			want:    []string{"j/buckets/1 medium h_bucket le 30.0"},
		},
		{
			name: "a label that no answer depends on", src: of("j", "a{pod=x,uid=1}", "a{pod=y,uid=2}"),
			queries: []string{"sum by (pod) (a)"}, options: propose.Options{Risk: propose.High},
			want: []string{"j/label/uid high a uid"},
		},
		{
			name: "a label with one short value is left", src: of("j", "a{pod=x,uid=1}", "a{pod=y,uid=1}"),
			queries: []string{"sum by (pod) (a)"},
			want:    nil,
		},
		{
			name: "a label with one long value", src: of("j", "a{pod=x,image="+strings.Repeat("x", 64)+"}"),
			queries: []string{"sum by (pod) (a)"}, options: propose.Options{Risk: propose.High},
			want: []string{"j/label/image high a image"},
		},
		{
			name: "exempt jobs", src: append(of("j", "a"), of("k", "a", "b")...), queries: []string{"b"},
			options: propose.Options{Exempt: []string{"k"}},
			want:    []string{"j/names/1 low a"},
		},
		{
			name: "small things", src: of("j", "a{x=1}", "a{x=2}", "b", "c"), queries: []string{"c"},
			options: propose.Options{MinSaving: 2},
			want:    []string{"j/names/1 low a"},
		},
		{
			name: "what the server writes itself", src: of("j", "up", "scrape_duration_seconds", "ALERTS", "ALERTS_FOR_STATE", "a"),
			queries: []string{"a"},
			want:    nil,
		},
		{
			name: "IDs never meet", src: append(of("a", "m{pod=x,names/1=1}", "m{pod=y,names/1=2}"), of("a/label", "unused")...),
			queries: []string{"sum by (pod) (m)"}, options: propose.Options{Risk: propose.High},
			want: []string{"a/label/names/2 low unused", "a/label/names/1 high m names/1"},
		},
		{
			name: "a native histogram keeps its classic twins", src: of("j", "native_h", "native_h_sum", "a"),
			queries: []string{"histogram_quantile(0.9, sum(rate(native_h[5m])))", "a"},
			want:    nil, refused: []string{"it belongs to the native histogram native_h"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules, refused, _, _ := plan(t, test.src, queries(test.queries...), test.options)
			if got := show(rules); !slices.Equal(got, test.want) {
				t.Errorf("rules:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			for _, want := range test.refused {
				if !slices.ContainsFunc(refused, func(r propose.Refusal) bool { return strings.HasPrefix(r.Reason, want) }) {
					t.Errorf("refused: %+v, want one that says %q", refused, want)
				}
			}
			for _, r := range rules {
				if r.Evidence.Text == "" || strings.Contains(r.Evidence.Text, "\n") ||
					(r.Kind == propose.Names) != (r.Evidence.LastUse == nil) {
					t.Errorf("evidence of %s: %+v", r.ID, r.Evidence)
				}
			}
		})
	}
}

// world makes series and queries at random, of few names and values so that they meet.
type world struct {
	*rand.Rand
	thin bool // histograms are asked for quantiles and by le only, so that some of their buckets can go
}

var (
	names = []string{
		"a_total", "a.total", "b_seconds_bucket", "b_seconds_count", "c_info", "d;e", "native_h", "native_h_count",
		"日本_total", "rec:sum",
	}
	values = []string{"", "x", "y", "500", "5.0", "a;b", "200", "1"}
	edges  = []string{"0.1", "0.15", "0.2", "0.25", "0.5", "0.7", "1.0", "2.0", "5.0", "30.0", "+Inf", "1e+06"}
)

func pick[T any](w world, from []T) T { return from[w.IntN(len(from))] }

func (w world) series() memory {
	var out memory
	seen := map[string]bool{}
	for range 20 + w.IntN(200) {
		name := pick(w, names)
		b := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name, "job", pick(w, []string{"j", "k"}), "instance",
			pick(w, []string{"1", "2"})))
		for _, label := range []string{"code", "pod", "uid", "cluster"} {
			b.Set(label, pick(w, values))
		}
		if strings.HasSuffix(name, "_bucket") {
			b.Set("le", pick(w, edges))
		}
		ls := b.Labels()
		if !seen[ls.String()] {
			seen[ls.String()] = true
			out = append(out, ls)
		}
	}
	if w.thin {
		for _, le := range edges {
			out = append(out, labels.FromStrings(model.MetricNameLabel, "b_seconds_bucket", "job", pick(w, []string{"j", "k"}), "instance",
				"3", "le", le))
		}
	}
	return out
}

func (w world) query() string {
	name := pick(w, names)
	if strings.HasSuffix(name, "_bucket") && (w.thin || w.IntN(3) == 0) {
		if w.IntN(2) == 0 {
			return fmt.Sprintf(`histogram_quantile(0.9, sum by (le, %s) (rate(%s[5m])))`, pick(w, []string{"pod", "job"}), name)
		}
		return fmt.Sprintf(`sum(rate(%s{le=~%q}[5m]))`, name,
			regexp.QuoteMeta(pick(w, edges))+"|"+regexp.QuoteMeta(strings.TrimSuffix(pick(w, edges), ".0")))
	}
	var matchers []string
	for range w.IntN(3) {
		matchers = append(matchers, fmt.Sprintf("%s%s%q", pick(w, []string{"code", "pod", "job", "le", "cluster", "uid", "absent"}),
			pick(w, []string{"=", "!=", "=~", "!~"}), pick(w, append(slices.Clone(values), "j", "0.5", "30", ".+", "x|y"))))
	}
	selector := fmt.Sprintf("{%q%s}", name, strings.Join(append([]string{""}, matchers...), ","))
	switch w.IntN(10) {
	case 0:
		return fmt.Sprintf("histogram_quantile(0.9, sum by (le) (rate(%s[5m])))", selector)
	case 1:
		return fmt.Sprintf("sum by (%s) (rate(%s[5m]))", pick(w, []string{"pod", "code", "job", "le"}), selector)
	case 2:
		return fmt.Sprintf("absent(%s)", selector)
	case 3:
		return fmt.Sprintf("sum(%s) / on (code) group_left (pod) %s", selector, pick(w, []string{"c_info", "a_total"}))
	case 4:
		return fmt.Sprintf("topk(3, %s) unless %s", selector, pick(w, []string{"c_info", "a_total"}))
	case 5:
		return fmt.Sprintf("sum without (%s) (%s)", pick(w, []string{"pod", "uid", "instance"}), selector)
	case 6:
		if w.IntN(4) == 0 {
			return fmt.Sprintf(`count({__name__=~"%s.*"})`, pick(w, []string{"a", "b", "native"}))
		}
		return fmt.Sprintf("count(%s)", selector)
	}
	return selector
}

// dropped are the series that rules take, in the order in which the plan has them.
func dropped(src memory, rules []propose.Rule) map[string]bool {
	out := map[string]bool{}
	for _, ls := range src {
		if _, kept := apply(ls, rules); !kept {
			out[ls.String()] = true
		}
	}
	return out
}

func apply(ls labels.Labels, rules []propose.Rule) (labels.Labels, bool) {
	b := labels.NewBuilder(ls)
	for _, r := range rules {
		if r.Job == ls.Get("job") && !relabel.ProcessBuilder(b, r.Relabel...) {
			return labels.EmptyLabels(), false
		}
	}
	return b.Labels(), true
}

// TestProperties holds many random worlds against what the package promises: kept is a superset of
// used, savings equal the claim, twice equals once, equal input gives equal rules, and one more use
// never takes one more series.
func TestProperties(t *testing.T) {
	const seed = 20261121
	kinds := map[propose.Kind]int{}
	for i := range uint64(150) {
		w := world{rand.New(rand.NewPCG(seed, i)), i%2 == 0}
		src := w.series()
		var texts []string
		for range 1 + w.IntN(6) {
			texts = append(texts, w.query())
		}
		o := propose.Options{Risk: pick(w, []propose.Risk{propose.Low, propose.Medium, propose.High}), MinSaving: int64(w.IntN(4))}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, world %d, risk %s: %s\nqueries:\n%s", seed, i, o.Risk, fmt.Sprintf(format, args...),
				strings.Join(texts, "\n"))
		}
		rules, _, _, index := plan(t, src, queries(texts...), o)
		for _, r := range rules {
			kinds[r.Kind]++
			if !o.Risk.Accepts(r.Risk) {
				fail("%s is of risk %s", r.ID, r.Risk)
			}
			goes := dropped(src, []propose.Rule{r})
			if int64(len(goes)) != r.Saves.Series ||
				r.Kind != propose.Label && r.Saves.MemoryBytes != propose.Save(r.Saves.Series, 0).MemoryBytes {
				fail("%s claims %+v and takes %d", r.ID, r.Saves, len(goes))
			}
			if want := float64(len(goes)) / 15; r.Saves.SamplesPerSecond < want-1e-9 || r.Saves.SamplesPerSecond > want+1e-9 {
				fail("%s claims %+v, want %g samples a second", r.ID, r.Saves, want)
			}
			for _, ls := range src {
				planned := ls.Get("job") == r.Job && slices.Contains(r.Metrics, ls.Get(model.MetricNameLabel)) && r.Kind != propose.Label &&
					(r.Kind == propose.Names || slices.Contains(r.Values, ls.Get(r.Label)))
				if planned != goes[ls.String()] {
					fail("%s and %s: planned %v, goes %v", r.ID, ls, planned, goes[ls.String()])
				}
			}
		}
		goes := dropped(src, rules)
		for _, ls := range src {
			out, kept := apply(ls, rules)
			again, still := apply(out, rules)
			if kept && (!still || !labels.Equal(out, again)) {
				fail("%s: once is %s, twice %s", ls, out, again)
			}
			for _, e := range index.For(ls.Get(model.MetricNameLabel)) {
				if !index.Selects(e, ls) {
					continue
				}
				if !kept && !(e.Quantile && o.Risk == propose.High) {
					fail("%s goes and is used by %s", ls, e.Uses[0].Query)
				}
				if kept {
					ls.Range(func(l labels.Label) {
						if !out.Has(l.Name) && e.Reads(l.Name) {
							fail("%s loses %s, which decides the answer of %s", ls, l.Name, e.Uses[0].Query)
						}
					})
				}
			}
		}
		if again, _, _, _ := plan(t, src, queries(texts...), o); !slices.Equal(show(rules), show(again)) {
			fail("made twice:\n%q\n%q", show(rules), show(again))
		}
		more := append(slices.Clone(texts), w.query())
		fewer, _, _, _ := plan(t, src, queries(more...), o)
		for series := range dropped(src, fewer) {
			if !goes[series] {
				fail("%s goes with one more use, and stayed without it: %s", series, more[len(more)-1])
			}
		}
	}
	for _, kind := range []propose.Kind{propose.Names, propose.Slice, propose.Buckets, propose.Label} {
		if kinds[kind] < 15 {
			t.Errorf("%d rules of kind %s in all worlds: they show little", kinds[kind], kind)
		}
	}
	t.Logf("rules: %v", kinds)
}

func TestWithout(t *testing.T) {
	rules, _, inv, _ := plan(t, of("j", "a{x=1}", "a{x=2}", "b", "c"), queries("c"), propose.Options{})
	if len(rules) != 1 {
		t.Fatal(show(rules))
	}
	less, ok, err := rules[0].Without(inv, []string{"a"})
	if err != nil || !ok || !slices.Equal(less.Metrics, []string{"b"}) || less.Saves.Series != 1 || less.Relabel[0].Regex.String() != "b" ||
		len(rules[0].Metrics) != 2 {
		t.Errorf("%+v, %v, %v", less, ok, err)
	}
	if _, ok, err := rules[0].Without(inv, []string{"a", "b"}); ok || err != nil {
		t.Errorf("nothing left: %v, %v", ok, err)
	}
}

func TestAggregate(t *testing.T) {
	for _, test := range []struct {
		metric, label string
		kind          model.MetricType
		want          []string
	}{
		{"http_requests_total", "pod", model.MetricTypeUnknown, []string{"record: without_pod:http_requests_total:rate5m", `sum without (pod) (rate(http_requests_total{job="j"}[5m]))`, "outputs: [total]"}},
		{
			"memory_bytes", "pod", model.MetricTypeGauge,
			[]string{"record: without_pod:memory_bytes:sum", `sum without (pod) (memory_bytes{job="j"})`, "outputs: [sum_samples]"},
		},
		{"m.utf8", "a.b", model.MetricTypeGauge, []string{`sum without ("a.b") ({"m.utf8", job="j"})`}},
	} {
		got := propose.Aggregate("j", test.metric, test.kind, test.label)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", test.metric, got, want)
			}
		}
	}
}
