package dropped

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// sample is a plan with one rule of each kind, and a metric that another job keeps.
const sample = `{
  "version": 1, "made": "2026-11-21T10:00:00Z", "owner": "platform", "inputs": {"sources": ["x"]},
  "rules": [
    {"id": "apiserver/names/1", "kind": "names", "risk": "low", "job": "apiserver", "metrics": ["apiserver_gone", "go_gc_gone", "shared_total"], "saves": {"series": 12}},
    {"id": "node/names/1", "kind": "names", "risk": "low", "job": "node", "metrics": ["go_gc_gone"]},
    {"id": "apiserver/slice/1", "kind": "slice", "risk": "medium", "job": "apiserver", "metrics": ["requests_total"], "label": "verb", "values": ["", "CONNECT", "WATCH"]},
    {"id": "apiserver/buckets/1", "kind": "buckets", "risk": "medium", "job": "apiserver", "metrics": ["slo_bucket"], "label": "le", "values": ["0.15", "30.0"]},
    {"id": "apiserver/buckets/2", "kind": "buckets", "risk": "high", "job": "apiserver", "metrics": ["lat_bucket"], "label": "le", "values": ["0.15", "30.0"]},
    {"id": "apiserver/label/1", "kind": "label", "risk": "medium", "job": "apiserver", "metrics": ["wide_total"], "label": "uid"}
  ],
  "elsewhere": ["shared_total"]
}`

var made = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func read(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func look(t testing.TB, s *Set, query string, until func(int) int64) Found {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s.Look(Asked{Expr: e, Selectors: selectors(e), Until: until})
}

func selectors(e parser.Expr) (out [][]*labels.Matcher) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v.LabelMatchers)
		}
		return nil
	})
	return out
}

func TestLook(t *testing.T) {
	const again = ": to have it back, name it in keep.yaml and make the rules again with spillway relabel plan"
	const without = ": this answer goes without it; to have it back, name it in keep.yaml and make the rules again with spillway relabel plan"
	gone := func(what, rule string) string {
		return what + " since 2026-11-21 by rule " + rule + " (owner platform)"
	}
	s := read(t, sample)
	for _, tc := range []struct {
		query    string
		warning  string
		info     string
		warnings int // where more than one
	}{
		// Names.
		{query: `up`},
		{query: `apiserver_gone_not`},
		{query: `apiserver_gone`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{
			query:   `sum(rate(apiserver_gone{code="200"}[5m])) / 2`,
			warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again,
		},
		{query: `apiserver_gone{job="apiserver"}`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `apiserver_gone{job="node"}`},
		{query: `apiserver_gone{job=~"node|kubelet"}`},
		{query: `apiserver_gone{job!="apiserver"}`},
		{query: `{__name__="apiserver_gone"}`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `{__name__=~"up|apiserver_gone"}`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `{__name__=~"apiserver_.+"}`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `{__name__=~".*server_gone"}`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `{__name__=~"apiserver_.+",__name__!="apiserver_gone"}`},
		{query: `{job="apiserver"}`},
		{query: `go_gc_gone`, warning: gone("metric go_gc_gone is dropped", "apiserver/names/1 and 1 more") + again},
		{query: `go_gc_gone{job="node"}`, warning: gone("metric go_gc_gone is dropped", "node/names/1") + again},
		// A metric that another job keeps: a matcher on another label may be what always led there.
		{query: `shared_total{job="apiserver"}`, warning: gone("metric shared_total is dropped", "apiserver/names/1") + again},
		{query: `shared_total{namespace="x"}`},
		{query: `shared_total`, info: gone("metric shared_total of job apiserver is dropped", "apiserver/names/1") + without},
		{
			query: `shared_total{job=~"apiserver|node"}`,
			info:  gone("metric shared_total of job apiserver is dropped", "apiserver/names/1") + without,
		},
		// Slices.
		{query: `requests_total{verb!~"|CONNECT|WATCH"}`},
		{query: `requests_total{verb="GET"}`},
		{query: `requests_total{verb=~"GET|PUT"}`},
		{query: `requests_total{verb="WATCH"}`, warning: gone(`series of metric requests_total with verb = "WATCH" are dropped`, "apiserver/slice/1") + again},
		{query: `requests_total{verb=~"WATCH|CONNECT"}`, warning: gone(`series of metric requests_total with verb = "CONNECT", "WATCH" are dropped`, "apiserver/slice/1") + again},
		{query: `requests_total{verb=~"WATCH|GET"}`, info: gone(`series of metric requests_total with verb = "WATCH" are dropped`, "apiserver/slice/1") + without},
		{query: `requests_total{verb=~"WATCH|GET",verb!="GET"}`, warning: gone(`series of metric requests_total with verb = "WATCH" are dropped`, "apiserver/slice/1") + again},
		{query: `requests_total{verb=""}`, warning: gone(`series of metric requests_total with verb = "" are dropped`, "apiserver/slice/1") + again},
		{query: `sum(requests_total)`, info: gone(`series of metric requests_total with verb = "", "CONNECT", "WATCH" are dropped`, "apiserver/slice/1") + without},
		{query: `sum(requests_total{job="node"})`},
		// Buckets: both spellings; quantiles that the plan knows of are content.
		{query: `slo_bucket{le="30"}`, warning: gone(`buckets of metric slo_bucket with le = "30.0" are dropped`, "apiserver/buckets/1") + again},
		{query: `slo_bucket{le="30.0"}`, warning: gone(`buckets of metric slo_bucket with le = "30.0" are dropped`, "apiserver/buckets/1") + again},
		{query: `slo_bucket{le="1.0"}`},
		{query: `histogram_quantile(0.9, sum by (le) (rate(slo_bucket[5m])))`, info: gone(`buckets of metric slo_bucket with le = "0.15", "30.0" are dropped`, "apiserver/buckets/1") + without},
		{query: `histogram_quantile(0.9, sum by (le) (rate(lat_bucket[5m])))`},
		{query: `lat_bucket{le=~"30(\\.0)?"}`, warning: gone(`buckets of metric lat_bucket with le = "30.0" are dropped`, "apiserver/buckets/2") + again},
		{query: `lat_bucket{le!="+Inf"}`, info: gone(`buckets of metric lat_bucket with le = "0.15", "30.0" are dropped`, "apiserver/buckets/2") + without},
		// Labels.
		{query: `sum by (code) (wide_total)`},
		{query: `wide_total`},
		{query: `wide_total{uid=~".*"}`},
		{query: `wide_total{uid="a"}`, warning: gone("label uid of metric wide_total is dropped", "apiserver/label/1") + again},
		{query: `wide_total{uid!=""}`, warning: gone("label uid of metric wide_total is dropped", "apiserver/label/1") + again},
		{
			query:   `sum by (uid, code) (rate(wide_total[5m]))`,
			warning: gone("label uid of metric wide_total is dropped", "apiserver/label/1") + again,
		},
		{query: `sum by (uid) (rate(wide_total{job="node"}[5m]))`},
		{query: `sum by (uid) (sum by (code) (wide_total))`},
		{query: `sum without (uid) (wide_total)`},
		{query: `sum by (uid) (up * on (code) group_right () wide_total)`},
		{query: `sum by (uid) (label_replace(wide_total, "uid", "x", "code", ".*"))`},
		// Several at once, and one twice.
		{query: `apiserver_gone + apiserver_gone`, warning: gone("metric apiserver_gone is dropped", "apiserver/names/1") + again},
		{query: `apiserver_gone or go_gc_gone`, warnings: 2},
	} {
		f := look(t, s, tc.query, nil)
		want := func(kind string, got []string, one string, n int) {
			switch {
			case n > 0 && len(got) != n, n == 0 && one == "" && len(got) > 0, n == 0 && one != "" && !slices.Equal(got, []string{one}):
				t.Errorf("%s: %s %q, want %q (%d)", tc.query, kind, got, one, n)
			}
		}
		want("warnings", f.Warnings, tc.warning, tc.warnings)
		want("infos", f.Infos, tc.info, 0)
		if said := len(f.Warnings)+len(f.Infos) > 0; said != (len(f.Rules) > 0) {
			t.Errorf("%s: rules %q and messages %q %q", tc.query, f.Rules, f.Warnings, f.Infos)
		}
	}
}

// TestTime: what ends before the plan was made finds what was stored then.
func TestTime(t *testing.T) {
	s := read(t, sample)
	at := func(d time.Duration) func(int) int64 { return func(int) int64 { return made.Add(d).UnixMilli() } }
	for _, query := range []string{`apiserver_gone`, `requests_total{verb="WATCH"}`, `sum by (uid) (wide_total)`, `wide_total{uid="1"}`} {
		if f := look(t, s, query, at(-time.Second)); len(f.Warnings) > 0 || len(f.Rules) > 0 {
			t.Errorf("%s, before: %q", query, f.Warnings)
		}
		if f := look(t, s, query, at(time.Second)); len(f.Warnings) != 1 {
			t.Errorf("%s, after: %q", query, f.Warnings)
		}
	}
	// Each selector has a time of its own.
	first := func(i int) int64 { return made.Add(time.Duration(1-2*i) * time.Hour).UnixMilli() }
	if f := look(t, s, `apiserver_gone + go_gc_gone`, first); len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "apiserver_gone") {
		t.Errorf("%q", f.Warnings)
	}
}

// TestFewMessages: however much a request names, it has five messages, and the last one counts the
// rest.
func TestFewMessages(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf(`"m_%03d"`, i))
	}
	s := read(t, `{"version":1,"made":"2026-11-21T10:00:00Z","rules":[{"id":"a/names/1","kind":"names","job":"a","metrics":[`+strings.Join(names, ",")+`]}]}`)
	f := look(t, s, `{__name__=~"m_.*"}`, nil)
	if len(f.Warnings) != MaxMessages || !slices.Equal(f.Rules, []string{"a/names/1"}) {
		t.Fatalf("%d warnings, rules %q", len(f.Warnings), f.Rules)
	}
	if !strings.HasPrefix(f.Warnings[0], "metric m_000 is dropped since 2026-11-21 by rule a/names/1: ") || !strings.HasSuffix(f.Warnings[4], "; and so are 295 more that this request names") {
		t.Errorf("%q", f.Warnings)
	}
	// A request that would compare more than maxTries times stops there, and says what it knows by
	// then.
	var many []*labels.Matcher
	many = append(many, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".*_2.*9"))
	var asked Asked
	for range 1000 {
		asked.Selectors = append(asked.Selectors, many)
	}
	var l losses
	for _, ms := range asked.Selectors {
		for range s.named(ms, &l) {
		}
	}
	if l.tries > maxTries+len(asked.Selectors) {
		t.Errorf("%d comparisons", l.tries)
	}
	if f := s.Look(asked); len(f.Warnings) != MaxMessages {
		t.Errorf("%q", f.Warnings)
	}
}

// TestOldestFirst: the same rule in two plans is in force since the first.
func TestOldestFirst(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	now := write("now.json", sample)
	before := write("before.json", strings.ReplaceAll(strings.ReplaceAll(sample, "2026-11-21", "2026-10-02"), "platform", "storage"))
	one, err := Load([]string{now})
	if err != nil {
		t.Fatal(err)
	}
	both, err := Load([]string{now, before})
	if err != nil {
		t.Fatal(err)
	}
	f := look(t, both, `apiserver_gone`, nil)
	if len(f.Warnings) != 1 || !strings.HasPrefix(f.Warnings[0], "metric apiserver_gone is dropped since 2026-10-02 by rule apiserver/names/1 and 1 more (owner storage): ") {
		t.Errorf("%q", f.Warnings)
	}
	if one.Hash() == both.Hash() || one.Hash() == "" || one.Hash() != read(t, sample).Hash() {
		t.Errorf("hashes %q and %q", one.Hash(), both.Hash())
	}
}

// loadTwo loads two plans.
func loadTwo(t *testing.T, a, b string) *Set {
	t.Helper()
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")}
	for i, text := range []string{a, b} {
		if err := os.WriteFile(paths[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(paths)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlansOfSeveralClusters: what one cluster's plan drops and another one's does not may be in
// the answer.
func TestPlansOfSeveralClusters(t *testing.T) {
	s := loadTwo(t, sample, strings.ReplaceAll(sample, `"apiserver_gone", `, ""))
	for _, query := range []string{`apiserver_gone`, `apiserver_gone{cluster="b"}`, `apiserver_gone{job="apiserver"}`} {
		f := look(t, s, query, nil)
		if len(f.Warnings) != 0 || len(f.Infos) != 1 ||
			!strings.HasPrefix(f.Infos[0], "metric apiserver_gone of job apiserver is dropped since 2026-11-21 by rule apiserver/names/1 (owner platform): "+
				"answers go without it where that plan's rules are in force; to have it back") {
			t.Errorf("%s: %q %q", query, f.Warnings, f.Infos)
		}
	}
	if f := look(t, s, `go_gc_gone`, nil); len(f.Warnings) != 1 || len(f.Infos) != 0 {
		t.Errorf("what both drop: %q %q", f.Warnings, f.Infos)
	}
}

func TestNone(t *testing.T) {
	s, err := Load(nil)
	if err != nil || s != nil {
		t.Fatalf("%v, %v", s, err)
	}
	if f := look(t, s, `apiserver_gone`, nil); len(f.Warnings) > 0 || s.Hash() != "" {
		t.Errorf("%q", f.Warnings)
	}
	asked := Asked{Selectors: [][]*labels.Matcher{{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"),
		labels.MustNewMatcher(labels.MatchRegexp, "job", "a.*"),
	}}}
	full := read(t, sample)
	for name, set := range map[string]*Set{"no plan": nil, "a plan that does not touch it": full} {
		if n := testing.AllocsPerRun(100, func() { set.Look(asked) }); n > 2 {
			t.Errorf("with %s a look allocates %g times", name, n)
		}
	}
}

func TestBadPlans(t *testing.T) {
	rule := func(s string) string { return `{"version":1,"made":"2026-11-21T10:00:00Z","rules":[` + s + `]}` }
	for name, tc := range map[string]struct{ text, want string }{
		"empty":           {"", "line 1: not JSON"},
		"cut":             {"{\n\"version\": 1,\n", "line 3: not JSON"},
		"another file":    {"groups:\n- a", "line 1: not JSON"},
		"a list":          {"[]", "line 1: the file is not what a plan has there (a JSON array)"},
		"another JSON":    {`{"panels": []}`, "no plan: it has no version; name a file that `spillway relabel plan -o FILE` has written"},
		"a later version": {`{"version": 2}`, "version 2, and this Spillway reads version 1"},
		"no date":         {`{"version": 1}`, "does not say when it was made"},
		"wrong type":      {"{\"version\": 1, \"made\": \"2026-11-21T10:00:00Z\",\n\"rules\": [\n{\"id\": 7}]}", "line 3: rules.id is not what a plan has there (a JSON number)"},
		"two documents":   {sample + "{}", "not JSON"},
		"no id":           {rule(`{"kind":"names","metrics":["x"]}`), "rules[0]: the rule has no id"},
		"long id":         {rule(`{"id":"` + strings.Repeat("x", 2000) + `","kind":"names","metrics":["x"]}`), "longer than 1024 bytes"},
		"no metric":       {rule(`{"id":"a","kind":"names"}`), "rules[0]: rule a names no metric"},
		"unknown kind":    {rule(`{"id":"a","kind":"magic","metrics":["x"]}`), `rule a is of the kind "magic", which this Spillway does not know`},
		"slice of what":   {rule(`{"id":"a","kind":"slice","label":"x","metrics":["x"]}`), "does not say the label or the values"},
		"which label":     {rule(`{"id":"a","kind":"label","metrics":["x"]}`), "does not say which"},
		"many rules": {
			rule(strings.TrimSuffix(strings.Repeat(`{"id":"a","kind":"names","metrics":["x"]},`, MaxRules+1), ",")),
			"more than 20000 rules",
		},
	} {
		s, err := Read(strings.NewReader(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || s != nil {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if _, err := Read(endless{}); err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Errorf("an endless plan: %v", err)
	}
	path := filepath.Join(t.TempDir(), "plan.json")
	if _, err := Load([]string{path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing plan: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]string{path}); err == nil || !strings.HasPrefix(err.Error(), path+": line 1: ") {
		t.Errorf("a bad plan: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// FuzzRead: any file is a plan or an error, and a plan can be asked anything.
func FuzzRead(f *testing.F) {
	f.Add(sample, `apiserver_gone`)
	f.Add(`{"version":1,"made":"2026-11-21T10:00:00Z","rules":[{"id":"\u0000\ud800","kind":"slice","job":"","label":"le","metrics":["a\n"],"values":["","1.0"]}]}`, `{"a\n",le=~"1|2"}`)
	f.Add(`{"version":1e3}`, `{__name__=~"(?i)a.*"}`)
	f.Fuzz(func(t *testing.T, text, query string) {
		s, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err == nil {
			check(t, s, Asked{Expr: e, Selectors: selectors(e)})
		}
		for i, name := range s.names {
			if i == 100 {
				break
			}
			check(t, s, Asked{Selectors: [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, "__name__", name)}}})
		}
	})
}

// check holds an answer against what the package promises of all of them.
func check(t *testing.T, s *Set, a Asked) {
	t.Helper()
	found := s.Look(a)
	if n := len(found.Warnings) + len(found.Infos); n > MaxMessages || (n > 0) != (len(found.Rules) > 0) || len(found.Rules) > n {
		t.Fatalf("%d messages and the rules %q", n, found.Rules)
	}
	for _, text := range slices.Concat(found.Warnings, found.Infos) {
		if len(text) > 1024 || !strings.Contains(text, "dropped") {
			t.Fatalf("the message %q", text)
		}
	}
	if again := s.Look(a); !slices.Equal(again.Warnings, found.Warnings) || !slices.Equal(again.Infos, found.Infos) ||
		!slices.Equal(again.Rules, found.Rules) {
		t.Fatalf("the same question has the answers %v and %v", found, again)
	}
}

// TestOthersOfSeveralPlans: what a plan was made from has no message, whichever others there are;
// what another one's servers may have is an info; and a plan that knows neither the metric nor the
// job of a rule is no other.
func TestOthersOfSeveralPlans(t *testing.T) {
	const (
		clusterB = `{"version": 1, "made": "2026-11-21T10:00:00Z", "jobs": [{"job": "apiserver"}], "rules": [%s]}`
		nodes    = `{"version": 1, "made": "2026-11-21T10:00:00Z", "jobs": [{"job": "kubelet"}], "rules": [%s]}`
		other    = `{"id": "o/names/1", "kind": "names", "job": "kubelet", "metrics": ["other_gone"]}`
		watches  = `{"id": "b/slice/1", "kind": "slice", "job": "apiserver", "metrics": ["requests_total"], "label": "verb", "values": ["WATCH"]}`
		uids     = `{"id": "b/label/1", "kind": "label", "job": "apiserver", "metrics": ["wide_total"], "label": "uid"}`
		whole    = `{"id": "b/names/1", "kind": "names", "job": "apiserver", "metrics": ["wide_total", "requests_total", "slo_bucket"]}`
	)
	for name, c := range map[string]struct {
		plan, query     string
		warnings, infos int
	}{
		"made from it":                   {fmt.Sprintf(clusterB, other), `shared_total{namespace="web"}`, 0, 0},
		"a part of one":                  {fmt.Sprintf(clusterB, other), `shared_total`, 0, 1},
		"only the job":                   {fmt.Sprintf(clusterB, other), `shared_total{job="apiserver",namespace="web"}`, 0, 1},
		"the metric, another has it":     {fmt.Sprintf(clusterB, other), `apiserver_gone`, 0, 1},
		"the metric, another job's plan": {fmt.Sprintf(nodes, other), `apiserver_gone`, 1, 0},
		"a label, another has it":        {fmt.Sprintf(clusterB, other), `sum by (uid) (wide_total{cluster="b"})`, 0, 1},
		"a matcher, another has it":      {fmt.Sprintf(clusterB, other), `wide_total{uid="x"}`, 0, 1},
		"a label, both":                  {fmt.Sprintf(clusterB, uids), `sum by (uid) (wide_total)`, 1, 0},
		"a label, another job's plan":    {fmt.Sprintf(nodes, other), `sum by (uid) (wide_total)`, 1, 0},
		"values, another has them":       {fmt.Sprintf(clusterB, other), `requests_total{verb="WATCH"}`, 0, 1},
		"values, both":                   {fmt.Sprintf(clusterB, watches), `requests_total{verb="WATCH"}`, 1, 0},
		"values, one of them":            {fmt.Sprintf(clusterB, watches), `requests_total{verb="CONNECT"}`, 0, 1},
		"values, another job's plan":     {fmt.Sprintf(nodes, other), `requests_total{verb="WATCH"}`, 1, 0},
		"buckets, another has them":      {fmt.Sprintf(clusterB, other), `slo_bucket{le="30"}`, 0, 1},
		"values, the other has nothing":  {fmt.Sprintf(clusterB, whole), `slo_bucket{le="30"}`, 1, 1},
	} {
		s := loadTwo(t, sample, c.plan)
		f := look(t, s, c.query, nil)
		if len(f.Warnings) != c.warnings || len(f.Infos) != c.infos {
			t.Errorf("%s: %q %q", name, f.Warnings, f.Infos)
		}
		for _, text := range f.Infos {
			if !strings.Contains(text, "plan's rules are in force") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}
