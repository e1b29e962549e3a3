package deny

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

var now = time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)

// subject is a panel's range query.
func subject(t testing.TB) *Subject {
	t.Helper()
	const query = `sum by (pod) (rate(container_cpu_usage_seconds_total{namespace="a", pod=~"x.+"}[5m]))`
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	return &Subject{
		Endpoint: "query_range", Tenant: "research", User: "ann", Dashboard: "abc", Panel: "7",
		Digest: func() string { return Digest("query_range", query) }, Query: expr.String,
		Selectors: parser.ExtractSelectors(expr), Range: 6 * time.Hour, Step: 15 * time.Second,
	}
}

// TestLook: each condition alone refuses what has it and nothing else, and several refuse what has
// them all.
func TestLook(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rule    Rule
		matches bool
	}{
		{"endpoint", Rule{Endpoint: "query_range"}, true},
		{"other endpoint", Rule{Endpoint: "query"}, false},
		{"tenant", Rule{Tenant: "research"}, true},
		{"other tenant", Rule{Tenant: "Research"}, false},
		{"user", Rule{User: "ann"}, true},
		{"other user", Rule{User: "an"}, false},
		{"dashboard", Rule{Dashboard: "abc"}, true},
		{"other dashboard", Rule{Dashboard: "abcd"}, false},
		{"panel", Rule{Panel: "7"}, true},
		{"other panel", Rule{Panel: "8"}, false},
		{"query in another form", Rule{Query: "sum(rate(container_cpu_usage_seconds_total{namespace='a',pod=~'x.+'}[5m]))by(pod)"}, true},
		{"other query", Rule{Query: "sum by (pod) (rate(container_cpu_usage_seconds_total[5m]))"}, false},
		{"regex", Rule{Regex: `sum by \(pod\).*container_cpu.*`}, true},
		{"regex of a part", Rule{Regex: `container_cpu`}, false},
		{"selector by name", Rule{Selector: "container_cpu_usage_seconds_total"}, true},
		{"selector of one matcher", Rule{Selector: `{pod=~"x.+"}`}, true},
		{"selector of another value", Rule{Selector: `{pod=~"x.*"}`}, false},
		{"selector of another kind", Rule{Selector: `{namespace=~"a"}`}, false},
		{"selector with more than there is", Rule{Selector: `{namespace="a",node="n"}`}, false},
		{"range", Rule{Range: model.Duration(6 * time.Hour)}, true},
		{"longer range", Rule{Range: model.Duration(6*time.Hour + 1)}, false},
		{"step", Rule{Step: model.Duration(15 * time.Second)}, true},
		{"shorter step", Rule{Step: model.Duration(14 * time.Second)}, false},
		{"digest", Rule{Digest: subject(t).Digest()}, true},
		{"digest of another endpoint", Rule{Digest: Digest("query", "x")}, false},
		{"all that it has", Rule{User: "ann", Dashboard: "abc", Range: model.Duration(time.Hour), Selector: `{namespace="a"}`}, true},
		{"one that it has not", Rule{User: "ann", Dashboard: "abc", Range: model.Duration(time.Hour), Selector: `{namespace="b"}`}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.rule.Name, tc.rule.Reason, tc.rule.Until = "r", "because", now.Add(time.Minute)
			for _, shadow := range []bool{false, true} {
				tc.rule.Shadow = shadow
				var table Table
				if table.Any() {
					t.Error("an empty table has rules")
				}
				if err := table.Configure([]Rule{tc.rule}); err != nil {
					t.Fatal(err)
				}
				f := table.Look(subject(t), now)
				if (f.Rule != nil) != (tc.matches && !shadow) || (len(f.Shadows) > 0) != (tc.matches && shadow) {
					t.Errorf("shadow %t: %+v", shadow, f)
				}
				want := int64(0)
				if tc.matches {
					want = 1
				}
				if list := table.List(now); len(list) != 1 || list[0].Hits != want || list[0].Last.IsZero() == tc.matches {
					t.Errorf("%+v", list)
				}
				over := now.Add(time.Minute)
				if f := table.Look(subject(t), over); f.Rule != nil || f.Shadows != nil || len(table.List(over)) != 0 {
					t.Errorf("a rule that has ended: %+v", f)
				}
			}
		})
	}
	instant := subject(t)
	instant.Step = 0
	var table Table
	err := table.Configure([]Rule{{Name: "r", Reason: "b", Step: model.Duration(time.Hour)}})
	if err != nil || table.Look(instant, now).Rule != nil {
		t.Errorf("%v: a rule about steps refuses what has none", err)
	}
}

// TestLongText: a regular expression sees the beginning of a long text, and costs no more.
func TestLongText(t *testing.T) {
	s := subject(t)
	long := strings.Repeat("a", MaxRegexText) + "b"
	s.Query = func() string { return long }
	var table Table
	if err := table.Configure([]Rule{{Name: "r", Reason: "b", Regex: "a+"}}); err != nil || table.Look(s, now).Rule == nil {
		t.Errorf("%v: the first %d bytes do not match", err, MaxRegexText)
	}
}

// TestQueriesOfAllSyntax: a rule's query meets every request of that query that is let through, in
// syntax that servers have switched on, too, and lists of selectors however they are written.
func TestQueriesOfAllSyntax(t *testing.T) {
	for _, tc := range []struct {
		rule  string
		query string   // of the request
		match []string // likewise, where it selects series
	}{
		{rule: "rate(up[2m+3m])", query: "rate(up[2m + 3m])"},
		{rule: "up  offset (1m*2)", query: "up offset (1m * 2)"},
		{rule: "up + fill(0)  up", query: "up + fill (0) up"},
		{rule: "rate(up[5m] anchored)", query: "rate(up[5m]  anchored)"},
		{rule: "sort_by_label(up,'a')", query: `sort_by_label(up, "a")`},
		{rule: `up{a='b'}`, match: []string{`up{a="b"}`}},
		{rule: `up{a="b"}`, match: []string{`up{ a='b' }`}},
		{rule: `up{a="b, c",d="e"},{f=~"g{1,2}"}`, match: []string{`up{d="e",a="b, c"}`, `{f=~'g{1,2}'}`}},
		{rule: `up, up`, match: []string{"up", "up"}},
	} {
		var table Table
		if err := table.Configure([]Rule{{Name: "r", Reason: "b", Query: tc.rule}}); err != nil {
			t.Errorf("%s: %v", tc.rule, err)
			continue
		}
		text := OfSelectors(tc.match, nil)
		if tc.query != "" {
			expr, err := tree.Parser.ParseExpr(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			text = tree.String(expr)
		}
		if f := table.Look(&Subject{Query: func() string { return text }}, now); f.Rule == nil {
			t.Errorf("%s does not meet %s", tc.rule, text)
		}
		if f := table.Look(&Subject{Query: func() string { return text + " " }}, now); f.Rule != nil {
			t.Errorf("%s meets another one", tc.rule)
		}
	}
}

// TestRegexOfSelectors: a regular expression meets a list of selectors as its caller has written
// it, and as Prometheus prints it.
func TestRegexOfSelectors(t *testing.T) {
	match := []string{`{namespace="a", le!=""}`}
	s := &Subject{Query: func() string { return OfSelectors(match, nil) }, Written: func() string { return strings.Join(match, ", ") }}
	for regex, met := range map[string]bool{
		`\{namespace="[^"]*", ?le!=""\}`: true, `\{le!="",namespace="a"\}`: true, `\{le!=""\}`: false,
	} {
		var table Table
		if err := table.Configure([]Rule{{Name: "r", Reason: "b", Regex: regex}}); err != nil {
			t.Fatal(err)
		}
		if got := table.Look(s, now).Rule != nil; got != met {
			t.Errorf("%s: %v", regex, got)
		}
	}
}

// TestLongSelectors: a long list of names in a selector, which a dashboard's variable comes to, is
// compiled when the request is read, and not again for its text.
func TestLongSelectors(t *testing.T) {
	names := make([]string, 6000)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-1-%d-%d\\\\.ec2\\\\.internal", i/250, i%250)
	}
	match := []string{`up{node=~"(` + strings.Join(names, "|") + `)", job!~"a.*"}`, `up`}
	want := make([]string, len(match))
	var parsed [][]*labels.Matcher
	var known tree.Regexps
	for i, text := range match {
		expr, err := tree.Parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		ms, err := known.ParseSelector(tree.Parser, text)
		if err != nil {
			t.Fatal(err)
		}
		want[i], parsed = tree.String(expr), append(parsed, ms)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := OfSelectors(match, parsed)
	runtime.ReadMemStats(&after)
	if got != strings.Join(want, ", ") {
		t.Errorf("it is %.100s, want %.100s", got, strings.Join(want, ", "))
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(20*len(match[0])); took > most {
		t.Errorf("a text of %d bytes takes %d, want %d at most", len(match[0]), took, most)
	}
}

// TestRefusedRules: what is no rule is refused by the name of the field.
func TestRefusedRules(t *testing.T) {
	for _, tc := range []struct {
		rule Rule
		want string
	}{
		{Rule{Name: "r", Reason: "b"}, "it names nothing to refuse"},
		{Rule{Name: "r", Reason: "b", Selector: "{}"}, "selector: {} is part of every selector"},
		{Rule{Name: "r", Reason: "b", Until: now, Shadow: true}, "it names nothing to refuse"},
		{Rule{Name: "r", Reason: " ", User: "a"}, "reason: "},
		{Rule{Name: "r", Reason: strings.Repeat("a", MaxReason+1), User: "a"}, "reason: "},
		{Rule{Name: "r", Reason: "\xff", User: "a"}, "reason: "},
		{Rule{Name: "", Reason: "b", User: "a"}, "name: "},
		{Rule{Name: "a/b", Reason: "b", User: "a"}, "name: "},
		{Rule{Name: "r", Reason: "b", Regex: "("}, "regex: "},
		{Rule{Name: "r", Reason: "b", Regex: ")|("}, "regex: "},
		{Rule{Name: "r", Reason: "b", Selector: "{"}, "selector: "},
		{Rule{Name: "r", Reason: "b", Query: strings.Repeat("a", MaxPattern+1)}, "at most"},
		{Rule{Name: "r", Reason: "b", Query: "sum(rate(foo[5m…"}, "query: "}, // as live queries show it
		{Rule{Name: "r", Reason: "b", Query: `up, {a="b"`}, "query: "},
		{Rule{Name: "r", Reason: "b", Query: "up, sum(up)"}, "query: "},
		{Rule{Name: "r", Reason: "b", Range: -1}, "range, step: "},
		{Rule{Name: "r", Reason: "b", User: strings.Repeat("a", MaxField+1)}, "at most 256 bytes"},
	} {
		if err := Check(tc.rule); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v; want %q", tc.rule, err, tc.want)
		}
		var table Table
		if table.Configure([]Rule{tc.rule}) == nil || table.Add(tc.rule, API, now) == nil || table.Any() {
			t.Errorf("%+v was taken", tc.rule)
		}
	}
}

// TestOwnRules: rules that were added outlive a new configuration and, by their file, the process;
// those that have ended do not.
func TestOwnRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	var table Table
	if err := table.Open(path, now); err != nil {
		t.Fatal(err)
	}
	config := []Rule{{Name: "c", Reason: "b", User: "bob"}}
	if err := table.Configure(config); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Rule{
		{Name: "a", Reason: "b", User: "ann", Until: now.Add(time.Hour)},
		{Name: "soon", Reason: "b", User: "ann", Until: now.Add(time.Minute)},
	} {
		if err := table.Add(r, API, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Add(Rule{Name: "c", Reason: "b", User: "x"}, API, now); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	if err := table.Remove("c"); !errors.Is(err, ErrConfigured) {
		t.Error(err)
	}
	if err := table.Remove("d"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	table.Look(&Subject{User: "bob", Query: func() string { return "" }}, now)
	if err := table.Configure(config); err != nil {
		t.Fatal(err)
	}
	if list := table.List(now); len(list) != 3 || list[1].Hits != 1 {
		t.Errorf("a reload of the same rules forgets what they did: %+v", list)
	}
	var next Table
	if err := next.Open(path, now.Add(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if list := next.List(now.Add(2 * time.Minute)); len(list) != 1 || list[0].Name != "a" || list[0].Source != API {
		t.Errorf("after a restart: %+v", list)
	}
	if f := next.Look(subject(t), now); f.Rule == nil || f.Source != API {
		t.Errorf("after a restart it refuses nothing: %+v", f)
	}
	if err := next.Remove("a"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(`"a"`)) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestCrashIsRemembered: what was under way at a crash is known for a day, though it is refused for
// minutes, also by the next process.
func TestCrashIsRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	var table, next, last Table
	if err := table.Open(path, now); err != nil {
		t.Fatal(err)
	}
	if err := table.Add(Rule{Name: "crash-1", Reason: "a", Digest: "d", Until: now.Add(time.Minute)}, Crash, now); err != nil {
		t.Fatal(err)
	}
	later := now.Add(time.Hour)
	if err := next.Open(path, later); err != nil {
		t.Fatal(err)
	}
	if f := next.Look(&Subject{Digest: func() string { return "d" }}, later); f.Rule != nil || len(next.List(later)) > 0 {
		t.Errorf("it is in force still: %+v", f)
	}
	if err := next.Remove("crash-1"); err != nil {
		t.Errorf("nobody knows of it: %v", err)
	}
	if err := last.Open(path, later.Add(24*time.Hour)); err != nil || !errors.Is(last.Remove("crash-1"), ErrUnknown) {
		t.Errorf("%v: it is known for ever", err)
	}
}

// TestConfiguredName: a rule of the configuration takes the place of an added one of its name.
func TestConfiguredName(t *testing.T) {
	var table Table
	if err := table.Add(Rule{Name: "a", Reason: "b", User: "ann"}, API, now); err != nil {
		t.Fatal(err)
	}
	if err := table.Configure([]Rule{{Name: "a", Reason: "b", User: "bob"}}); err != nil {
		t.Fatal(err)
	}
	if list := table.List(now); len(list) != 1 || list[0].User != "bob" {
		t.Errorf("%+v", list)
	}
}

// TestConfiguredNameAfterARestart: of an added rule that one of the configuration has taken the
// name of nothing comes back at the next start, whether it was taken before or then, nor later,
// when the configuration has lost it again.
func TestConfiguredNameAfterARestart(t *testing.T) {
	for name, reload := range map[string]bool{"at a reload": true, "at the start": false} {
		path := filepath.Join(t.TempDir(), "deny.json")
		text := `{"version":1,"rules":[{"name":"a","reason":"b","user":"ann","source":"api"},
			{"name":"cut","reason":"b","query":"sum(rate(foo[5m…","source":"api"},
			{"name":"other","reason":"b","user":"joe","source":"api"}]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config := []Rule{{Name: "a", Reason: "b", User: "bob"}, {Name: "cut", Reason: "b", User: "bob"}}
		if reload {
			var before Table
			if err := before.Open(path, now); err == nil {
				t.Errorf("%s: a rule of another version is not named", name)
			}
			if err := before.Configure(config); err != nil {
				t.Fatal(err)
			}
		}
		var table, later Table
		if err := errors.Join(table.Configure(config), table.Open(path, now)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		list := table.List(now)
		if f := table.Look(&Subject{User: "ann"}, now); f.Rule != nil || len(list) != 3 || list[0].User != "bob" {
			t.Errorf("%s: %+v are in force, and ann meets %v", name, list, f.Rule)
		}
		if err := later.Open(path, now); err != nil || len(later.List(now)) != 1 {
			t.Errorf("%s: once the configuration has none: %v, %+v", name, err, later.List(now))
		}
	}
	path := filepath.Join(t.TempDir(), "gone", "deny.json")
	table := Table{path: path}
	var file *FileError
	_ = table.Add(Rule{Name: "a", Reason: "b", User: "ann"}, API, now)
	if err := table.Configure([]Rule{{Name: "a", Reason: "b", User: "bob"}}); !errors.As(err, &file) || len(table.List(now)) != 1 {
		t.Errorf("what cannot be written: %v, %+v", err, table.List(now))
	}
}

// TestRulesOfAnotherVersion: a rule of the file that is none, such as a query that was cut and that
// older versions took, is named and left out; the others hold.
func TestRulesOfAnotherVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	text := `{"version":1,"rules":[{"name":"cut","reason":"b","query":"sum(rate(foo[5m…","source":"api"},
		{"name":"killer","reason":"b","user":"joe","source":"api"},{"name":"bare","source":"api"},
		{"name":"crash-1","reason":"b","digest":"0123","source":"crash"}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var table Table
	if err := table.Open(path, now); err == nil || !strings.Contains(err.Error(), `the rule "cut" is none, and is left out: query: `) ||
		!strings.Contains(err.Error(), `the rule "bare" is none`) {
		t.Errorf("%v", err)
	}
	if f := table.Look(&Subject{User: "joe"}, now); f.Rule == nil || len(table.List(now)) != 2 {
		t.Errorf("%+v are left", table.List(now))
	}
}

// TestRulesOfAnotherVersionStay: what is left out is in the file still after the next change, so
// that the version that wrote it takes it up again, until it ends, is removed or its name is taken.
func TestRulesOfAnotherVersionStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	text := `{"version":1,"rules":[{"name":"cut","reason":"b","query":"sum(rate(foo[5m…","source":"api"},
		{"name":"bare","source":"api"},{"name":"taken","source":"crash"},{"name":"configured","source":"api"},
		{"name":"over","source":"api","until":"` + now.Add(-time.Hour).Format(time.RFC3339) + `"}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var table Table
	if err := table.Open(path, now); err == nil || strings.Contains(err.Error(), `"over"`) {
		t.Errorf("%v", err)
	}
	has := func(want ...string) {
		t.Helper()
		var k kept
		text, err := os.ReadFile(path)
		if err = errors.Join(err, json.Unmarshal(text, &k)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range k.Rules {
			got = append(got, string(e.Source)+" "+e.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the file has %q, want %q", got, want)
		}
	}
	if err := table.Configure([]Rule{{Name: "configured", Reason: "b", User: "ann"}}); err != nil {
		t.Fatal(err)
	}
	if err := table.Add(Rule{Name: "taken", Reason: "b", User: "ann"}, API, now); err != nil {
		t.Fatal(err)
	}
	has("api taken", "api cut", "api bare")
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte("sum(rate(foo[5m…")) {
		t.Errorf("%v: the rule has lost its query: %s", err, text)
	}
	if err := table.Remove("cut"); err != nil {
		t.Errorf("what the log has named cannot be removed: %v", err)
	}
	has("api taken", "api bare")
	if err := table.Remove("cut"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if list := table.List(now); len(list) != 2 {
		t.Errorf("in force are %+v", list)
	}
}

// FuzzOpen: no file brings the table down, and what it takes it writes again.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"version":1,"rules":[{"name":"a","reason":"b","user":"c","source":"api","hits":1}]}`))
	f.Add([]byte(`{"version":1,"rules":[{"name":"a","reason":"b","regex":"(a|b)+","range":"6h","source":"crash"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "deny.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var table, next Table
		if table.Open(path, now) != nil {
			return
		}
		table.Look(&Subject{Query: func() string { return "up" }, Selectors: [][]*labels.Matcher{nil}}, now)
		if err := table.keep(); err != nil {
			t.Fatal(err)
		}
		if err := next.Open(path, now); err != nil || len(next.List(now)) != len(table.List(now)) {
			t.Errorf("%v: %d rules, then %d", err, len(table.List(now)), len(next.List(now)))
		}
	})
}
