package usage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// promql is a parser with everything on that shards may have on.
var promql = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
	EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

func TestDescribe(t *testing.T) {
	list := func(s string) []string {
		if s == "" {
			return []string{}
		}
		return strings.Split(s, " ")
	}
	for _, tc := range []struct{ in, query, metrics, matchers, grouping, le string }{
		{in: `up`, metrics: `up`},
		{
			in: ` sum  by(b, a) (rate(x{b="1",a=~"2.+"}[5m])) `, query: `sum by (b, a) (rate(x{a=~"2.+",b="1"}[5m]))`, metrics: `x`,
			matchers: `a=~"2.+" b="1"`, grouping: `a b`,
		},
		{in: `sum without (pod) (a) / on (ns, node) group_left (owner) b`, metrics: `a b`, grouping: `node ns owner pod`},
		{in: `a * ignoring (x) group_right (y) b`, query: `a * ignoring (x) group_right (y) b`, metrics: `a b`, grouping: `x y`},
		{in: `{__name__=~"a|b|c"}`, metrics: `a b c`},
		{in: `{__name__=~"node_.+",job="x"}`, matchers: `__name__=~"node_.+" job="x"`},
		{in: `{__name__!="up",job="x"}`, matchers: `__name__!="up" job="x"`},
		{in: `{__name__=~"(?i)up"}`, matchers: `__name__=~"(?i)up"`},
		{in: `{__name__=~"up|",job="x"}`, matchers: `__name__=~"up|" job="x"`},
		{in: `{"utf8.metric","a.b"="c"}`, metrics: `utf8.metric`, matchers: `"a.b"="c"`},
		{in: `x_bucket{le="0.5"} / x_bucket{le=~"1|\\+Inf"}`, metrics: `x_bucket`, matchers: `le="0.5" le=~"1|\\+Inf"`, le: `+Inf 0.5 1`},
		{in: `x_bucket{le!="0.5"}`, metrics: `x_bucket`, matchers: `le!="0.5"`},
		{in: `histogram_quantile(0.9, sum by (pod) (rate(x_bucket[5m])))`, metrics: `x_bucket`, grouping: `le pod`},
		{in: `label_replace(a, "dst", "$1", "src", "(.*)")`, metrics: `a`, grouping: `src`},
		{in: `label_join(a, "dst", "-", "s1", ("s2"))`, query: `label_join(a, "dst", "-", "s1", ("s2"))`, metrics: `a`, grouping: `s1 s2`},
		{in: `sort_by_label_desc(a, "l1", "l2")`, metrics: `a`, grouping: `l1 l2`},
		{in: `info(a)`, metrics: `a target_info`, grouping: `instance job`},
		{in: `info(a, {k8s="x"})`, metrics: `a target_info`, matchers: `k8s="x"`, grouping: `instance job`},
		{
			in: `info(a, {__name__="build_info"})`, query: `info(a, {__name__="build_info"})`, metrics: `a build_info`,
			grouping: `instance job`,
		},
		{in: `max_over_time(rate(a[5m])[1h:1m] offset 1d) > bool -b @ end()`, metrics: `a b`},
		{in: `absent(a{x=""}) or vector(1)`, metrics: `a`, matchers: `x=""`},
		{in: `topk(5, count_values("v", a))`, metrics: `a`},
		{in: `1 + 1`},
	} {
		t.Run(tc.in, func(t *testing.T) {
			expr, err := promql.ParseExpr(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			want := Facts{
				tc.query, list(tc.metrics), list(tc.matchers), list(tc.grouping), list(tc.le),
				strings.Contains(tc.in, `{k8s="x"}`),
				[]string{},
			}
			got := Describe(expr)
			if tc.query == "" {
				got.Query = ""
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			// The printed form is the same query.
			again, err := promql.ParseExpr(Describe(expr).Query)
			if err != nil || !reflect.DeepEqual(Describe(again), Describe(expr)) {
				t.Errorf("%s became another query: %v", tc.in, err)
			}
		})
	}
}

func TestDescribeSelectors(t *testing.T) {
	sets, err := promql.ParseMetricSelectors([]string{`up{b="1", a="2"}`, `{le!=""}`, `{__name__="x.y"}`})
	if err != nil {
		t.Fatal(err)
	}
	want := Facts{
		Query:   `up{a="2",b="1"},{le!=""},{__name__="x.y"}`,
		Metrics: []string{"up", "x.y"}, Matchers: []string{`a="2"`, `b="1"`, `le!=""`}, Grouping: []string{}, LE: []string{},
		Nameless: true, Cut: []string{},
	}
	if got := DescribeSelectors(sets); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := DescribeSelectors(nil); got.Query != "" || got.Metrics == nil {
		t.Errorf("got %+v", got)
	}
	if got := SelectorText([]*labels.Matcher{}); got != "{}" {
		t.Errorf("got %s", got)
	}
}

func TestDescribeText(t *testing.T) {
	if got := DescribeText("sum(\xff"); got.Query != "sum(\uFFFD" || got.LE == nil {
		t.Errorf("got %+v", got)
	}
}

func TestLongQueryIsCut(t *testing.T) {
	for _, unit := range []string{"x", "田", "é"} {
		got := DescribeText(strings.Repeat(unit, 100_000)).Query
		if len(got) > MaxQueryBytes || len(got) < MaxQueryBytes-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, unit+CutMark) {
			t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-10:])
		}
	}
	exact := strings.Repeat("x", MaxQueryBytes)
	if got := DescribeText(exact).Query; got != exact {
		t.Error("a text that fits was cut")
	}
	// The facts are whole where the text is not.
	names := "m" + strings.Repeat("m", 9000)
	expr, err := promql.ParseExpr("a + " + names + ` + b{x="y"}`)
	if err != nil {
		t.Fatal(err)
	}
	if f := Describe(expr); len(f.Metrics) != 3 || len(f.Matchers) != 1 || !strings.HasSuffix(f.Query, CutMark) {
		t.Errorf("got %d metrics, %v", len(f.Metrics), f.Matchers)
	}
}

// TestLongListsAreCut: whatever a query has, its line is bounded, or one caller had the log full in
// no time. What is missing is told.
func TestLongListsAreCut(t *testing.T) {
	many := func(format string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, "|")
	}
	pods := many("pod-%d", 8000)
	for name, tc := range map[string]struct {
		in, cut            string
		nameless           bool
		metrics, matchers  int
		labels, boundaries int
	}{
		"a long matcher":       {in: `x{pod=~"` + pods + `",a="b"}`, cut: "matchers", metrics: 1, matchers: 1},
		"all fit":              {in: `x{pod=~"` + many("pod-%d", 1500) + `",a="b"}`, metrics: 1, matchers: 2},
		"no name":              {in: `x + {pod=~"` + pods + `",a="b"}`, cut: "matchers", nameless: true, metrics: 1, matchers: 1},
		"names":                {in: `{__name__=~"` + many("metric_%0300d", 250) + `"}`, cut: "metrics", metrics: 213},
		"a regex of names":     {in: `{__name__=~"` + many("metric_%d.+", 9000) + `",a="b"}`, cut: "metrics", matchers: 1},
		"names before labels":  {in: `x + {__name__=~"` + many("a_%05d.+", 5000) + `",a="b"}`, metrics: 1, matchers: 2},
		"many bounds":          {in: `x{le=~"` + many("1%099d", 250) + `"}`, cut: "le matchers", metrics: 1, boundaries: 163},
		"a name that is a lot": {in: `{"` + strings.Repeat("x", 70_000) + `"} + y`, cut: "metrics", metrics: 1},
		"a product": {
			in: `x{le=~"` + strings.Repeat("x", 7000) + `(a|b|c)(a|b|c)(a|b|c)"}`, cut: "le", metrics: 1, matchers: 1,
			boundaries: 2,
		},
		"grouping": {
			in: `sum by (` + strings.ReplaceAll(many("label_%d", 9000), "|", ",") + `) (x)`, cut: "grouping", metrics: 1,
			labels: 1657,
		},
	} {
		expr, err := promql.ParseExpr(tc.in)
		if err != nil {
			t.Fatal(err)
		}
		f := Describe(expr)
		if strings.Join(f.Cut, " ") != tc.cut || f.Nameless != tc.nameless ||
			len(f.Metrics) != tc.metrics || len(f.Matchers) != tc.matchers || len(f.Grouping) != tc.labels || len(f.LE) != tc.boundaries {
			t.Errorf("%s: cut %q, nameless %v, %d metrics, %d matchers, %d labels, %d bounds", name, f.Cut, f.Nameless,
				len(f.Metrics), len(f.Matchers), len(f.Grouping), len(f.LE))
		}
		if n := len((Record{Facts: f}).Line()); n > 200<<10 {
			t.Errorf("%s: the line has %d bytes", name, n)
		}
	}
	// A selector of everything has no matcher that could stand in a list.
	if f := DescribeSelectors([][]*labels.Matcher{{}}); !f.Nameless || strings.Join(f.Cut, " ") != "matchers" {
		t.Errorf("got %+v", f)
	}
}

func TestEncode(t *testing.T) {
	r := Record{
		Time: time.Date(2026, 11, 21, 13, 0, 0, 123456789, time.FixedZone("", 3600)), ID: "a",
		RangeSeconds: math.NaN(), StepSeconds: math.Inf(1), ShardSeconds: 0.25, User: "a\nb\xff",
		EstimatedShardSeconds: math.NaN(), EstimatedGiBSeconds: math.Inf(-1), Facts: Facts{Query: "a < b"},
	}
	want := `{"v":1,"time":"2026-11-21T12:00:00.123Z","id":"a","tenant":"","user":"a\nb` + "\ufffd" + `","dashboard":"","panel":"","rule":"","endpoint":"","query":"a < b","metrics":[],"matchers":[],"grouping":[],"le":[],"nameless":false,"cut":[],"range_s":0,"step_s":0,"series":0,"samples":0,"bytes":0,"shard_s":0.25,"peak_bytes":0,"verdict":"","bound":"","claimed":false,"purpose":"","lane":"","shadow":[],"estimated_by":"","estimated_series":0,"estimated_samples":0,"estimated_bytes":0,"estimated_shard_s":0,"estimated_shard_gib_s":0,"lost":0}` + "\n"
	got := string(r.Line())
	if strings.ReplaceAll(got, `\ufffd`, "\ufffd") != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.Time = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	if !json.Valid(r.Line()) {
		t.Error("a far year breaks the line")
	}
}

// FuzzRecord: whatever the query and the caller's words, the line is one line of valid JSON, and
// describing does not panic.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{
		`sum by (a) (rate(x{b="1"}[5m]))`, `{__name__=~"a|b"}`, `info(a, {b="c"})`, `label_join(a, "b", "", "c")`, `{"a.b"}`, "\xff",
		"a\nb", `sort_by_label(a)`,
		`histogram_quantile(0.9, x_bucket{le=~"1|2"})`, `a @ 1 offset 5m`, `rate(a[step()])`, `{le=~"a|b|"}`,
	} {
		f.Add(s, "ada")
	}
	f.Fuzz(func(t *testing.T, query, user string) {
		if len(query) > 1<<10 {
			return // the parser is quadratic; longer ones are cut off before it, see package policy
		}
		facts := DescribeText(query)
		if expr, err := promql.ParseExpr(query); err == nil {
			facts = Describe(expr)
		}
		if matchers, err := promql.ParseMetricSelector(query); err == nil {
			selector := DescribeSelectors([][]*labels.Matcher{matchers})
			if again, err := promql.ParseMetricSelector(selector.Query); err == nil &&
				!reflect.DeepEqual(DescribeSelectors([][]*labels.Matcher{again}), selector) {
				t.Fatalf("%s became %s", query, selector.Query)
			}
		}
		line := (Record{User: user, Facts: facts}).Line()
		var got Record
		if bytes.Count(line, []byte("\n")) != 1 || json.Unmarshal(line, &got) != nil || !utf8.Valid(line) {
			t.Fatalf("%q", line)
		}
		if utf8.ValidString(user) && got.User != user || len(got.Query) > MaxQueryBytes {
			t.Fatalf("%q", line)
		}
	})
}

const docsFile = "../../docs/usage-log.md"

// TestDocs compares the table of docs/usage-log.md with Record: the same fields in the same order,
// of the same types.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| ([^|]+) \\|$")
	var got [][2]string
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		got = append(got, [2]string{m[1], m[2]})
	}
	var want [][2]string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for f := range typ.Fields() {
			if f.Anonymous {
				walk(f.Type)
				continue
			}
			if f.Tag.Get("json") == "-" {
				continue
			}
			kind := map[reflect.Kind]string{
				reflect.String: "string", reflect.Slice: "list of strings", reflect.Int: "integer",
				reflect.Int64: "integer", reflect.Float64: "number", reflect.Bool: "boolean", reflect.Struct: "time",
			}[f.Type.Kind()]
			want = append(want, [2]string{f.Tag.Get("json"), kind})
		}
	}
	walk(reflect.TypeFor[Record]())
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s has %v\nthe struct has %v", docsFile, got, want)
	}
	var keys []string
	dec := json.NewDecoder(bytes.NewReader((Record{}).Line()))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key.(string))
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
	// The contract of the wire, in its order: whoever reads old files relies on it.
	contract := "v time id tenant user dashboard panel rule endpoint query metrics matchers grouping le nameless cut range_s step_s series samples bytes shard_s peak_bytes verdict bound claimed purpose lane shadow estimated_by estimated_series estimated_samples estimated_bytes estimated_shard_s estimated_shard_gib_s lost"
	if strings.Join(keys, " ") != contract {
		t.Errorf("a line has %v", keys)
	}
	// The example of the page is a line.
	example := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("the page has no example")
	}
	strict := json.NewDecoder(bytes.NewReader(example[1]))
	strict.DisallowUnknownFields()
	var r Record
	if err := strict.Decode(&r); err != nil {
		t.Error(err)
	}
	if again := string(r.Line()); again != string(example[1]) {
		t.Errorf("the example would be written as\n%s", again)
	}
}
