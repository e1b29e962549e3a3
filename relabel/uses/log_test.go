package uses

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/usage"
)

var logNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// record is a line of a usage log, as the proxy writes it.
func record(r usage.Record) string {
	r.V = usage.Version
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(b) + "\n"
}

func asked(ago time.Duration, endpoint, query string, more ...func(*usage.Record)) string {
	r := usage.Record{Time: logNow.Add(-ago), Endpoint: endpoint, Verdict: "pass", User: "ada"}
	if expr, err := promql.ParseExpr(query); err == nil {
		r.Facts = usage.Describe(expr)
	} else {
		r.Facts = usage.DescribeText(query)
	}
	for _, f := range more {
		f(&r)
	}
	return record(r)
}

func packed(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.String()
}

func TestLog(t *testing.T) {
	panel := func(r *usage.Record) { r.Dashboard, r.Panel, r.User = "gpu", "7", "bob" }
	refuse := func(r *usage.Record) { r.Verdict, r.Bound = "refuse", "unselective" }
	long := "sum(" + strings.Repeat(`x{a="b"} + `, 1000) + `y{le="5"} + {__name__=~"z.*"})`
	selectors := func(texts ...string) func(*usage.Record) {
		return func(r *usage.Record) {
			var all [][]*labels.Matcher
			for _, text := range texts {
				m, err := promql.ParseMetricSelector(text)
				if err != nil {
					panic(err)
				}
				all = append(all, m)
			}
			r.Facts = usage.DescribeSelectors(all)
		}
	}
	dir := folder(t,
		"usage.jsonl", asked(time.Hour, "query_range", `sum by (node) (rate(cpu{mode="idle"}[5m]))`)+asked(time.Minute, "query",
			`sum by (node) (rate(cpu{mode="idle"}[5m]))`, panel)+
			asked(time.Minute, "series", "", selectors(`{le!=""}`))+asked(time.Minute, "labels", "")+asked(time.Minute, "series", "",
			selectors(`one`, `two{a=",{"}`))+
			asked(time.Minute, "federate", "", selectors(`{__name__=~"fed.*"}`))+asked(time.Minute, "label_values", "",
			selectors(`{job="x"}`))+
			asked(time.Minute, "query", `count({__name__=~".+"}) + count(named)`, refuse)+asked(time.Minute, "query",
			long)+asked(time.Minute, "query", `broken(`)+
			asked(time.Minute, "format_query", `formatted`)+asked(time.Minute, "rules", "")+`{"v":1,"time":"2026-11-`,
		"usage.jsonl.1", asked(2*time.Hour, "query", `rotated`)+"\n",
		"usage.jsonl.2.gz", packed(asked(30*time.Hour, "query", `too_old`)+asked(20*time.Hour, "query", `packed`)),
		"usage.jsonl.bak", "no log", "other.jsonl", "nor this",
	)
	set := new(Set)
	if err := Log(t.Context(), set, dir+"/usage.jsonl", LogOptions{Window: 24 * time.Hour, Now: logNow}); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir),
		`usage.jsonl:0 ada, series |  | one all; two{a=",{"} all`,
		`usage.jsonl:0 ada, label_values | {job="x"} | {job="x"} all`,
		`usage.jsonl:0 ada, query | broken( | broken all`,
		`usage.jsonl:0 ada, query | count({__name__=~".+"}) + count(named) | named none`,
		`usage.jsonl:0 ada, query | packed | packed all`,
		`usage.jsonl:0 ada, query | rotated | rotated all`,
		`usage.jsonl:0 bob, dashboard gpu, panel 7 | sum by (node) (rate(cpu{mode="idle"}[5m])) | cpu{mode="idle"} node`,
		`usage.jsonl:0 ada, query |  | x all; y all; {__name__=~"z.*"} all`,
		`usage.jsonl:0 ada, federate | {__name__=~"fed.*"} | {__name__=~"fed.*"} all`,
	)
	for _, u := range set.Uses {
		if strings.Contains(u.Query, "cpu") && (u.Count != 2 || !u.Last.Equal(logNow.Add(-time.Minute)) || u.Owner != "bob") {
			t.Errorf("%+v", u)
		}
	}
	expect(t, "warnings", set.Warnings,
		dir+`/usage.jsonl: 1 calls listed series, names or values without selecting anything in particular, such as {le!=""}; nothing is kept for them`,
		dir+`/usage.jsonl: 1 queries that selected metrics without naming them were refused; nothing is kept for that part of them`,
		dir+`/usage.jsonl: 2 lines have queries that were cut or do not parse; every metric named in them is kept`,
		dir+`/usage.jsonl: 1 different queries select series without naming a metric, such as {job="x"}; all that they select are kept`)
	if !set.From.Equal(logNow.Add(-20*time.Hour)) || !set.To.Equal(logNow.Add(-time.Minute)) {
		t.Errorf("from %s to %s", set.From, set.To)
	}
}

// TestLogOfRepeats: a line whose lists stand in another line of the same hour says nothing of what
// is used, and keeps nothing.
func TestLogOfRepeats(t *testing.T) {
	text := strings.Repeat("x", 100) + usage.CutMark
	lines := ""
	for _, f := range []usage.Facts{
		{Query: text, Metrics: []string{"used"}},
		{Query: text[:50] + usage.CutMark, Cut: []string{usage.CutRepeat}},
	} {
		lines += string(usage.Record{Time: time.Unix(1e9, 0), Endpoint: "query", Verdict: "pass", Facts: f}.Line())
	}
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	set := &Set{}
	if err := Log(t.Context(), set, path, LogOptions{Now: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	if len(set.Uses) != 1 || len(set.Uses[0].Needs) != 1 || set.Uses[0].Count != 1 {
		t.Errorf("uses %+v", set.Uses)
	}
}

// TestLogOfCutLists: what is missing of the lists of a query whose text was cut, too, may be
// anything, so that more is kept and never less.
func TestLogOfCutLists(t *testing.T) {
	many := func(format string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return strings.Join(out, "|")
	}
	pods, sum := many("pod-%d", 8000), "sum("+strings.Repeat("x + ", 3000)
	for query, want := range map[string]string{
		`y{pod=~"` + pods + `"}`:                            `y all`,
		`{pod=~"` + pods + `"}`:                             `{} all`,
		sum + `{job="a"})`:                                  `x all; {job="a"} all`,
		sum + `{job="a",pod=~"` + pods + `"})`:              `x all; {} all`,
		`{__name__=~".+",pod=~"` + pods + `"}`:              `{__name__=~".+"} all; {} all`,
		`{__name__=~".+",pod=~"` + pods[:12000] + `"}`:      `{__name__=~".+"} all; {pod=~"` + pods[:12000] + `"} all`,
		sum + `{__name__!="",job="a"})`:                     `x all; {__name__!=""} all; {job="a"} all`,
		sum + `y{job="a"})`:                                 `x all; y all`,
		sum + `{__name__=~"` + many("a_%d.+", 9000) + `"})`: `{} all`,
		sum + `{__name__=~"a.+",pod=~"` + pods + `"})`:      `x all; {__name__=~"a.+"} all`,
		`{__name__=~"` + many("metric_%0300d", 250) + `"}`:  `{} all`,
		`sum by (` + strings.Repeat("a", 20000) + `) (y)`:   `y all`,
		`y{le=~"` + strings.Repeat("1", 20000) + `"}`:       `y all`,
	} {
		for _, endpoint := range []string{"query", "label_values"} {
			set := new(Set)
			path := filepath.Join(folder(t, "u", asked(time.Minute, endpoint, query)), "u")
			if err := Log(t.Context(), set, path, LogOptions{Now: logNow}); err != nil {
				t.Fatal(err)
			}
			if endpoint == "query" {
				expect(t, query[len(query)-20:], set.lines(filepath.Dir(path)), "u:0 ada, query |  | "+want)
			} else if len(set.Uses) != 1 || len(set.Uses[0].Needs) == 0 {
				t.Errorf("a listing of %s keeps nothing", want)
			}
			warned := strings.Contains(strings.Join(set.Warnings, "\n"), "1 lines have lists that were cut, too")
			if warned != strings.HasSuffix(want, "{} all") {
				t.Errorf("%s: warnings %q", want, set.Warnings)
			}
		}
	}
	// A query that was refused each time is a use, but for selectors without a name, which would
	// have needed everything. Where names are missing nobody knows.
	for query, want := range map[string]string{
		`y{pod=~"` + pods + `"}`:                            `y all`,
		sum + `{job="a",pod=~"` + pods + `"})`:              `x all`,
		sum + `{job="a"})`:                                  `x all`,
		sum + `{__name__=~"` + many("a_%d.+", 9000) + `"})`: `{} all`,
	} {
		set := new(Set)
		refused := strings.ReplaceAll(asked(time.Minute, "query", query), `"verdict":"pass"`, `"verdict":"refuse"`)
		path := filepath.Join(folder(t, "u", refused), "u")
		if err := Log(t.Context(), set, path, LogOptions{Now: logNow}); err != nil {
			t.Fatal(err)
		}
		expect(t, "refused "+query[len(query)-20:], set.lines(filepath.Dir(path)), "u:0 ada, query |  | "+want)
	}
	// Lines of version 1 have complete lists, and do not tell of selectors without a name.
	set := new(Set)
	const old = `{"v":1,"time":"2026-11-21T11:00:00Z","user":"ada","endpoint":"query","query":"x + {job=\"a\"}…",` +
		`"metrics":["x"],"matchers":["job=\"a\""]}` + "\n" +
		`{"v":1,"time":"2026-11-21T11:00:00Z","user":"bob","endpoint":"query","query":"y{job=\"a\"}…",` +
		`"metrics":["y"],"matchers":["job=\"a\""]}` + "\n"
	path := filepath.Join(folder(t, "u", old), "u")
	if err := Log(t.Context(), set, path, LogOptions{Now: logNow}); err != nil {
		t.Fatal(err)
	}
	expect(t, "old lines", set.lines(filepath.Dir(path)), `u:0 ada, query |  | x all; {job="a"} all`, `u:0 bob, query |  | y all`)
}

// TestLogOfLosses: a log that lacks requests says so, and nobody is told that no logged query needs
// something without that; what was lost before the window is no matter.
func TestLogOfLosses(t *testing.T) {
	const day = 24 * time.Hour
	lost := func(ago, long time.Duration, n int64) string {
		return record(usage.Record{Time: logNow.Add(-ago), RangeSeconds: long.Seconds(), Purpose: usage.Lost, Lost: n})
	}
	every := asked(9*day, "query", "x")
	for d := 8; d >= 0; d-- {
		every += asked(time.Duration(d)*day, "query", "x")
	}
	for name, c := range map[string]struct {
		logs     []string
		requests int64
		looked   string
	}{
		"none":          {[]string{every}, 0, "logged query of the last 7 days"},
		"some":          {[]string{every + lost(3*day, day, 12)}, 12, "logged query of the last 7 days (but for 12 requests that were lost)"},
		"into":          {[]string{every + lost(8*day, 2*day, 1)}, 1, "logged query of the last 7 days (but for 1 request that was lost)"},
		"before":        {[]string{lost(9*day, day, 12) + every}, 0, "logged query of the last 7 days"},
		"of two":        {[]string{every + lost(3*day, day, 12), lost(5*day, 0, 3) + every}, 15, "logged query of the last 7 days (but for 15 requests that were lost)"},
		"nothing else":  {[]string{lost(3*day, day, 12)}, 12, "use"},
		"without count": {[]string{every + lost(3*day, day, 0)}, 1, "logged query of the last 7 days (but for 1 request that was lost)"},
	} {
		set := new(Set)
		for _, text := range c.logs {
			path := filepath.Join(folder(t, "u", text), "u")
			if err := Log(t.Context(), set, path, LogOptions{Window: 7 * day, Now: logNow}); err != nil {
				t.Fatal(err)
			}
		}
		if looked := set.Looked(7 * day); set.Lost.Requests != c.requests || looked != c.looked {
			t.Errorf("%s: %+v, no %s", name, set.Lost, looked)
		}
		if n := strings.Count(strings.Join(set.Warnings, "\n"), "no line, from 2026-11-1"); (n > 0) != (c.requests > 0) {
			t.Errorf("%s: warnings %q", name, set.Warnings)
		}
	}
	set := new(Set)
	path := filepath.Join(folder(t, "u", every+lost(3*day, day, 12)), "u")
	if err := Log(t.Context(), set, path, LogOptions{Now: logNow}); err != nil {
		t.Fatal(err)
	}
	if got := set.Lost.String(); got != "12 requests have no line, from 2026-11-18 12:00:00 to 2026-11-19 12:00:00 (UTC)" || !set.OnlyLogged() {
		t.Errorf("%s, only logs: %v", got, set.OnlyLogged())
	}
}

func TestLogLeavesInventoriesOut(t *testing.T) {
	own := func(r *usage.Record) { r.User, r.Purpose = "", usage.Inventory }
	plan := func(r *usage.Record) { r.Purpose = usage.Explain }
	nobody := func(r *usage.Record) { r.User = "" }
	dir := folder(t, "usage.jsonl", asked(3*time.Hour, "series", "stored", own)+
		asked(3*time.Hour, "query", "planned", plan)+asked(2*time.Hour, "series", "listed",
		nobody)+asked(time.Hour, "query", "program", nobody)+
		asked(time.Minute, "query", "program"))
	set := new(Set)
	if err := Log(t.Context(), set, dir+"/usage.jsonl", LogOptions{Window: 24 * time.Hour, Now: logNow}); err != nil {
		t.Fatal(err)
	}
	expect(t, "uses", set.lines(dir), `usage.jsonl:0 somebody, series | listed | listed all`, `usage.jsonl:0 ada, query | program | program all`)
	expect(t, "warnings", set.Warnings[:2], dir+`/usage.jsonl: left out, since they are no uses: 1 request by which spillway relabel took stock through the proxy`,
		dir+`/usage.jsonl: left out, since they are no uses: 1 request for the plan of a query alone`)
	n := set.Nameless
	if len(n.Metrics) != 2 || !n.Metrics["listed"] || !n.Metrics["program"] || !n.From.Equal(logNow.Add(-2*time.Hour)) ||
		!n.To.Equal(logNow.Add(-time.Hour)) {
		t.Errorf("nameless: %+v", n)
	}
}

func TestLogWarnsAndRefuses(t *testing.T) {
	read := func(text string, o LogOptions) (*Set, error) {
		set := new(Set)
		return set, Log(t.Context(), set, folder(t, "u", text)+"/u", o)
	}
	day := LogOptions{Window: 30 * 24 * time.Hour, Now: logNow}
	twoDays := asked(48*time.Hour, "query", "x") + asked(25*time.Hour, "query", "x") + asked(2*time.Hour, "query", "x")
	for text, want := range map[string]string{
		twoDays:                              "covers 48h0m0s of the 30d asked for",
		asked(31*24*time.Hour, "query", "x"): "no line of the log is from the last 30d",
		"":                                   "the log is empty",
	} {
		set, err := read(text, day)
		if err != nil || len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], want) {
			t.Errorf("%v %q, not %s", err, set.Warnings, want)
		}
	}
	// Of a clock that is ahead nothing is said that cannot be: what is covered is not below zero.
	for ahead, want := range map[time.Duration]string{
		27240 * time.Hour: "which has not come yet: is the clock right",
		time.Minute:       "which has not come yet: is the clock right",
		time.Second:       "covers 0s of the 30d asked for", // as a log begins
	} {
		set, err := read(asked(-ahead, "query", "x"), day)
		if err != nil || len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], want) ||
			strings.Contains(set.Warnings[0], "covers -") ||
			set.Covers <= 0 || len(set.Uses) != 1 {
			t.Errorf("%s ahead: %v %q, covers %s", ahead, err, set.Warnings, set.Covers)
		}
	}
	old := asked(31*24*time.Hour, "query", "old")
	for d := 30; d > 0; d-- {
		old += asked(time.Duration(d)*24*time.Hour-time.Minute, "query", "new")
	}
	if set, err := read(old, day); err != nil || len(set.Warnings) != 0 || len(set.Uses) != 1 || set.Coverage.Little() {
		t.Errorf("%v %q", err, set.Warnings)
	}
	// One line of a clock that was ahead, among those of thirty days, does not end the log today.
	set, err := read(old+asked(-20*24*time.Hour, "query", "new"), day)
	if err != nil || len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0], "has not come yet") || set.Coverage.Ended != 0 ||
		set.Coverage.Holes != "" || set.Coverage.Little() {
		t.Errorf("%v %q, %+v", err, set.Warnings, set.Coverage)
	}
	for text, want := range map[string]string{
		asked(0, "query", "x") + `{"v":3,"time":"2026-11-21T12:00:00Z"}` + "\n": "u:2: the line is of version 3",
		`{"v":3}`:                 "u:1: the line is of version 3",
		`{"v":0}`:                 "u:1: the line is of version 0",
		"hello\n":                 "u:1: this is no line of a usage log",
		`{"v":1,"time":3}` + "\n": "u:1: this is no line of a usage log",
	} {
		if _, err := read(text, day); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %s", text, err, want)
		}
	}
	if err := Log(t.Context(), new(Set), t.TempDir()+"/none", day); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	few := newLogReader(day)
	few.maxQueries = 2
	if number, err := few.read(t.Context(),
		strings.NewReader(asked(0, "query", "a")+asked(0, "query", "b")+asked(0, "query", "a")+asked(0, "query", "c"))); number != 4 ||
		err == nil || !strings.Contains(err.Error(), "more than 2 different queries: choose a shorter window") {
		t.Errorf("line %d: %v", number, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := Log(ctx, new(Set), folder(t, "u", strings.Repeat(asked(0, "query", "x"), 3000))+"/u", day); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestLogHoles: a line from before the window says nothing of the time between it and the next one.
func TestLogHoles(t *testing.T) {
	daily := func(from, to int) string {
		var text string
		for d := from; d > to; d-- {
			text += asked(time.Duration(d)*24*time.Hour, "query", "x")
		}
		return text
	}
	for name, c := range map[string]struct {
		text           string
		covers, lines  time.Duration
		little, warned bool
	}{
		"two lines": {
			asked(31*24*time.Hour, "query", "x") + asked(time.Hour, "query", "x"), time.Hour, time.Hour, true, true,
		},
		"each day":    {daily(40, -1), 720 * time.Hour, 720 * time.Hour, false, false},
		"a weekend":   {daily(40, 10) + daily(8, -1), 720 * time.Hour, 720*time.Hour - 71*time.Hour, false, true},
		"a fortnight": {daily(40, 20) + daily(6, -1), 6 * 24 * time.Hour, 720*time.Hour - 14*24*time.Hour - 23*time.Hour, false, true},
		"nothing now": {daily(40, 20), 720 * time.Hour, 720*time.Hour - 20*24*time.Hour - 23*time.Hour, true, true},
		"one hour":    {asked(time.Hour, "query", "x"), time.Hour, time.Hour, true, true},
	} {
		set := new(Set)
		path := filepath.Join(folder(t, "u", c.text), "u")
		if err := Log(t.Context(), set, path, LogOptions{Window: 720 * time.Hour, Now: logNow}); err != nil {
			t.Fatal(err)
		}
		near := func(a, b time.Duration) bool { return (a - b).Abs() <= 2*time.Hour }
		if !near(set.Covers, c.covers) || !near(set.Coverage.Lines, c.lines) || set.Coverage.Little() != c.little {
			t.Errorf("%s: covers %s, has lines of %s, little: %v; want %s, %s, %v", name, set.Covers, set.Coverage.Lines, set.Coverage.Little(),
				c.covers, c.lines, c.little)
		}
		if got := strings.Contains(strings.Join(set.Warnings, "\n"), "no line from"); got != (c.warned && name != "one hour") {
			t.Errorf("%s: warnings %q", name, set.Warnings)
		}
	}
}

// BenchmarkLog is a day's log: a thousand dashboards' queries, asked again and again.
func BenchmarkLog(b *testing.B) {
	var text bytes.Buffer
	const n = 20_000
	for i := range n {
		text.WriteString(asked(time.Duration(i)*time.Second, "query_range", fmt.Sprintf(`sum by (node) (rate(node_cpu_seconds_total{cluster="jaguar",mode!="idle",node=~"node-%d.*"}[5m]))`, i%1000)))
	}
	path := b.TempDir() + "/usage.jsonl"
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		set := new(Set)
		if err := Log(b.Context(), set, path, LogOptions{Now: logNow}); err != nil || len(set.Uses) != 1000 {
			b.Fatal(err, len(set.Uses))
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "lines/s")
}

// rotates is a context that rotates a log when it is first looked at.
type rotates struct {
	context.Context
	once sync.Once
	path string
}

func (r *rotates) Err() error {
	r.once.Do(func() {
		for _, move := range [][2]string{{".1", ".2"}, {"", ".1"}} {
			if err := os.Rename(r.path+move[0], r.path+move[1]); err != nil {
				panic(err)
			}
		}
		if err := os.WriteFile(r.path, nil, 0o600); err != nil {
			panic(err)
		}
	})
	return r.Context.Err()
}

// TestLogRotatedMeanwhile: a log that is rotated while it is read loses nothing: what was asked in
// a file that is passed over would be dropped as unused.
func TestLogRotatedMeanwhile(t *testing.T) {
	dir := folder(t, "usage.jsonl.1", strings.Repeat(asked(time.Hour, "query", "before"), 1100),
		"usage.jsonl", asked(time.Minute, "query", "needed"))
	path := filepath.Join(dir, "usage.jsonl")
	var set Set
	if err := Log(&rotates{Context: t.Context(), path: path}, &set, path, LogOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range set.Uses {
		got = append(got, u.Query)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"before", "needed"}) {
		t.Errorf("%q were asked", got)
	}
	if _, err := os.Stat(path + ".2"); err != nil {
		t.Errorf("it was not rotated: %v", err)
	}
}

// TestLogsOfPods: a log for each pod. What no pod has is lost, and what one has not between its own
// lines; before its first line, and behind the last one where another goes on, a pod was not there.
func TestLogsOfPods(t *testing.T) {
	const day = 24 * time.Hour
	daily := func(from, to int) string {
		var text string
		for d := from; d >= to; d-- {
			text += asked(time.Duration(d)*day, "query", "x")
		}
		return text
	}
	for name, c := range map[string]struct {
		logs          []string
		covers, lines time.Duration
		little        bool
		ended         time.Duration
		looked        string
	}{
		"a young one beside": {
			[]string{daily(100, 0), daily(2, 0)}, 90 * day, 90 * day, false, 0, "logged query of the last 90 days",
		},
		"one after the other": {
			[]string{daily(20, 0), daily(100, 20)}, 90 * day, 90 * day, false, 0, "logged query of the last 90 days",
		},
		"a gap between them": {
			[]string{daily(100, 70), daily(50, 0)}, 50 * day, 70 * day, false, 0, "logged query of the 50 days that the usage log covers",
		},
		"one lost something": {
			[]string{daily(100, 0), daily(100, 40) + daily(30, 0)},
			30 * day, 80 * day, false, 0,
			"logged query of the 30 days that the usage log covers",
		},
		"all are young": {
			[]string{daily(20, 0), daily(2, 0)}, 20 * day, 20 * day, true, 0, "logged query of the 20 days that the usage log covers",
		},
		"ended, more than half": {
			[]string{daily(100, 38)}, 90 * day, 52 * day, false, 38 * day, "logged query of the 52 days until 2026-10-14",
		},
		"both ended": {
			[]string{daily(100, 38), daily(60, 50)}, 90 * day, 52 * day, false, 38 * day, "logged query of the 52 days until 2026-10-14",
		},
		"one ended": {
			[]string{daily(100, 38), daily(60, 0)}, 90 * day, 90 * day, false, 0, "logged query of the last 90 days",
		},
		"a weekend now": {[]string{daily(100, 3)}, 90 * day, 87 * day, false, 0, "logged query of the last 90 days"},
	} {
		set := new(Set)
		for _, text := range c.logs {
			path := filepath.Join(folder(t, "u", text), "u")
			if err := Log(t.Context(), set, path, LogOptions{Window: 90 * day, Now: logNow}); err != nil {
				t.Fatal(err)
			}
		}
		near := func(a, b time.Duration) bool { return (a - b).Abs() <= 2*time.Hour }
		got := set.Coverage
		if !near(set.Covers, c.covers) || !near(got.Lines, c.lines) || got.Little() != c.little || !near(got.Ended, c.ended) {
			t.Errorf("%s: covers %s, %+v", name, set.Covers, got)
		}
		if looked := set.Looked(90 * day); looked != c.looked {
			t.Errorf("%s: no %s", name, looked)
		}
	}
}
