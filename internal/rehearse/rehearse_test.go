package rehearse

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/usage"
)

var many = flag.Int("rehearse.queries", 300, "how many different queries are compared")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Unix(1_790_000_000, 0).UTC().Truncate(time.Minute)

// at is the time that is looked at.
var at = start.Add(55 * time.Minute)

// prometheus is a server with an hour of samples.
func prometheus(t *testing.T) string {
	t.Helper()
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	var b strings.Builder
	b.WriteString("load 30s\n")
	for i := range 40 {
		fmt.Fprintf(&b, "cpu_seconds_total{node=\"n%d\",mode=\"m%d\"} 0+%dx120\n", i/4, i%4, i+1)
	}
	b.WriteString("latency{node=\"n1\"} {{schema:1 sum:4 count:10 buckets:[1 2 1]}}+{{schema:1 sum:4 count:10 buckets:[1 2 1]}}x120\n")
	if err := p.LoadAt(b.String(), start); err != nil {
		t.Fatal(err)
	}
	return p.URL()
}

// texts are so many different queries.
func texts(n int) []string {
	out := []string{"latency", "histogram_quantile(0.9, rate(latency[5m]))", "1 + 1", `"text"`, "absent(nothing)", "nothing"}
	for i := 0; len(out) < n; i++ {
		switch i % 4 {
		case 0:
			out = append(out, fmt.Sprintf("sum by (node) (rate(cpu_seconds_total[%dm])) > %d", 1+i%20, i))
		case 1:
			out = append(out, fmt.Sprintf(`cpu_seconds_total{mode="m%d"} * %d`, i%4, i))
		case 2:
			out = append(out, fmt.Sprintf(`avg_over_time(cpu_seconds_total{node=~"n.+"}[%ds])`, 60+i))
		default:
			out = append(out, fmt.Sprintf("topk(%d, cpu_seconds_total)", 1+i))
		}
	}
	return out
}

// asked are lines of a usage log for queries, every second of them a range query.
func asked(texts []string) []byte {
	var b bytes.Buffer
	for i, text := range texts {
		rec := usage.Record{Time: at, User: "ann", Dashboard: "d", Panel: fmt.Sprint(i), Endpoint: "query", Facts: usage.Facts{Query: text}}
		if i%2 == 1 && text != `"text"` {
			rec.Endpoint, rec.RangeSeconds, rec.StepSeconds = "query_range", 1800, 60
		}
		b.Write(rec.Line())
	}
	return b.Bytes()
}

// altered is a proxy in front of a server that changes answers to some queries.
func altered(t *testing.T, target string, change map[string]func(w http.ResponseWriter, answer []byte)) (string, *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(tr.CloseIdleConnections)
	pass := &httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body) // what breaks has no query
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, _ := url.ParseQuery(string(body))
		f := change[form.Get("query")+form.Get("match[]")]
		if f == nil {
			pass.ServeHTTP(w, r)
			return
		}
		r.Header.Del("Accept-Encoding")
		rec := httptest.NewRecorder()
		pass.ServeHTTP(rec, r)
		f(w, rec.Body.Bytes())
	}))
	t.Cleanup(s.Close)
	return s.URL, &asked
}

// replaced changes the text of an answer.
func replaced(t *testing.T, old, with string) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, answer []byte) {
		if !bytes.Contains(answer, []byte(old)) {
			t.Errorf("there is no %s in %.300s", old, answer)
		}
		_, _ = w.Write(bytes.Replace(answer, []byte(old), []byte(with), 1))
	}
}

func says(status int, text string) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, _ []byte) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func side(t *testing.T, url string) *Side {
	tr := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(tr.CloseIdleConnections)
	return &Side{URL: url, Client: &http.Client{Transport: tr, Timeout: time.Minute}}
}

// TestPlantedChanges: of many questions each of twenty that are answered otherwise after the
// upgrade is told, with its first difference, and nothing else is.
func TestPlantedChanges(t *testing.T) {
	t.Parallel()
	before := prometheus(t)
	all := texts(*many)
	// m0 of n0 grows by one each half minute, and is 110 at the time that is looked at.
	planted := map[string]struct {
		kind  Kind
		alter func(http.ResponseWriter, []byte)
		is    string
	}{
		`value`:      {Answer, replaced(t, `"110"]`, `"110.1"]`), `{__name__="cpu_seconds_total", mode="m0", node="n0"} at 1790003280: 110.1`},
		`near`:       {Answer, replaced(t, `"110"]`, `"110.000001"]`), "110.000001"},
		`nan`:        {Answer, replaced(t, `"110"]`, `"NaN"]`), "NaN"},
		`infinite`:   {Answer, replaced(t, `"110"]`, `"+Inf"]`), "+Inf"},
		`label`:      {Answer, replaced(t, `"mode":"m0"`, `"mode":"m9"`), "no such series (10 in all, before 10)"},
		`added`:      {Answer, replaced(t, `"result":[`, `"result":[{"metric":{"a":"b"},"value":[1790003280,"1"]},`), `series {a="b"}`},
		`time`:       {Answer, replaced(t, `[1790003280,"110"]`, `[1790003281,"110"]`), "no such sample"},
		`empty`:      {Answer, says(200, `{"status":"success","data":{"resultType":"vector","result":[]}}`), "no such series (0 in all"},
		`warning`:    {Notes, replaced(t, `{"status":"success"`, `{"warnings":["metric might not be a counter"],"status":"success"`), "metric might not be"},
		`info`:       {Notes, replaced(t, `{"status":"success"`, `{"infos":["PromQL info: x"],"status":"success"`), "PromQL info"},
		`refused`:    {Refused, says(422, `{"status":"error","errorType":"execution","error":"too much","spillway":{"bound":"max_series"}}`), "execution max_series: too much"},
		`unknown`:    {Refused, says(400, `{"status":"error","errorType":"bad_data","error":"unknown function"}`), "bad_data: unknown function"},
		`broken`:     {Refused, says(500, `{"status":"error","errorType":"internal","error":"it broke"}`), "internal: it broke"},
		`cost`:       {Cost, replaced(t, `"totalQueryableSamples":`, `"totalQueryableSamples":99`), "samples"},
		`histogram`:  {Answer, replaced(t, `"count":"2220"`, `"count":"2221"`), `"count":"2221"`},
		`scalar`:     {Answer, replaced(t, `"2"]`, `"3"]`), "scalar at 1790003280: 3"},
		`nothing`:    {Answer, replaced(t, `"result":[]`, `"result":[{"metric":{},"value":[1790003280,"1"]}]`), "series {}"},
		`bucket`:     {Answer, replaced(t, `"buckets":[[`, `"buckets":[[9,"0","0","9"],[`), "buckets"},
		`range`:      {Answer, replaced(t, `[1790003280,"110"]]`, `[1790003280,"111"]]`), `at 1790003280: 111`},
		`range lost`: {Answer, replaced(t, `,[1790003280,"110"]]`, `]`), "no such sample"},
	}
	queries := map[string]string{
		"histogram": "latency + latency", "bucket": "latency", "scalar": "1 + 1", "nothing": "nothing and up",
		"range": `cpu_seconds_total{mode="m0"} offset 0s`, "range lost": `cpu_seconds_total{mode="m0"} @ end()`,
	}
	change := map[string]func(http.ResponseWriter, []byte){}
	var lines bytes.Buffer
	name := map[string]string{}
	for _, kind := range slices.Sorted(maps.Keys(planted)) {
		query := queries[kind]
		if query == "" {
			query = fmt.Sprintf(`cpu_seconds_total{mode="m0",node!="%s"}`, kind)
		}
		rec := usage.Record{Time: at, Endpoint: "query", Rule: kind, Facts: usage.Facts{Query: query}}
		if strings.HasPrefix(kind, "range") {
			rec.Endpoint, rec.RangeSeconds, rec.StepSeconds = "query_range", 600, 60
		}
		lines.Write(rec.Line())
		change[query], name[query] = planted[kind].alter, kind
	}
	all = slices.DeleteFunc(all, func(text string) bool { return change[text] != nil })
	lines.Write(asked(all))
	log := filepath.Join(t.TempDir(), "usage.jsonl")
	if err := os.WriteFile(log, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	after, _ := altered(t, before, change)
	qs := NewQuestions()
	if err := qs.Log(t.Context(), log, time.Time{}); err != nil {
		t.Fatal(err)
	}
	rules := mixinRules(t)
	for expr, name := range rules {
		qs.Rule(expr, name)
	}
	qs.Rule("sum(cpu_seconds_total)", "alert X")
	began := time.Now()
	r, err := Run(t.Context(), qs, Options{From: side(t, before), To: side(t, after), At: at})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d questions, of them %d of the mixin's rules, in %s", r.Asked, len(rules), time.Since(began).Round(time.Millisecond))
	want := len(all) + len(rules) + len(planted) + 1
	if r.Asked != want || len(r.Failures) > 0 || r.Passing > 0 || r.CostCompared < want/2 {
		t.Errorf("asked %d of %d: %+v", r.Asked, want, r)
	}
	found := map[string]Change{}
	for _, c := range r.Changes {
		n, ok := name[c.Question.Query]
		if _, twice := found[n]; !ok || twice {
			t.Errorf("not planted: %+v", c)
		}
		found[n] = c
	}
	for kind, want := range planted {
		c, ok := found[kind]
		if !ok || c.Kind != want.kind || !strings.Contains(c.After, want.is) || c.Question.Who != "rule "+kind {
			t.Errorf("%s: found %t, want %s: …%s…, got %+v", kind, ok, want.kind, want.is, c)
		}
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "20 changes, 0 that could not be compared") ||
		strings.Index(text.String(), "refusal: ") > strings.Index(text.String(), "cost: ") {
		t.Error(text.String())
	}
}

// mixinRules are the expressions of all rules of the mixin, each with the name of one that has it.
func mixinRules(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../alerts/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		if dir := filepath.Base(filepath.Dir(file)); dir != "global" && dir != "shard" {
			continue
		}
		groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				out[r.Expr] = "rule " + r.Record + r.Alert
			}
		}
	}
	if len(out) < 300 {
		t.Fatalf("only %d rules in %q", len(out), files)
	}
	return out
}

// TestSpillway: through Spillway nothing changes but what a bound refuses.
func TestSpillway(t *testing.T) {
	t.Parallel()
	direct := prometheus(t)
	cfg, err := config.Parse(fmt.Appendf(nil, "groups: [{name: a, labels: {cluster: a}, shards: [{replicas: [{url: %q}]}]}]\nlimits: {max_range: 1h}\n", direct), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	s, err := server.New(server.Options{
		Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "9.9",
		Ready: func(main, _ net.Addr) { ready <- "http://" + main.String() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, context.Background()) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	qs := NewQuestions()
	if err := qs.read(t.Context(), bytes.NewReader(asked(texts(60))), time.Time{}); err != nil {
		t.Fatal(err)
	}
	long := usage.Record{Time: at, Endpoint: "query", Facts: usage.Facts{Query: "max_over_time(cpu_seconds_total[2h])"}}
	series := usage.Record{Time: at, Endpoint: "series", RangeSeconds: 600, Facts: usage.Facts{Query: "cpu_seconds_total"}}
	if err := qs.read(t.Context(), bytes.NewReader(slices.Concat(long.Line(), series.Line())), time.Time{}); err != nil {
		t.Fatal(err)
	}
	url := <-ready
	r, err := Run(t.Context(), qs, Options{From: side(t, direct), To: side(t, url), At: at, IgnoreLabels: []string{"cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Changes) != 1 || r.Changes[0].Kind != Refused || !strings.Contains(r.Changes[0].After, "max_range") ||
		r.Asked != 62 || len(r.Failures) > 0 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.To, "(Spillway, as Prometheus ") || !strings.Contains(r.From, "(Prometheus ") {
		t.Errorf("%s, %s", r.From, r.To)
	}
	again, err := Run(t.Context(), qs, Options{From: side(t, url), To: side(t, url), At: at})
	if err != nil || len(again.Changes) > 0 || again.CostCompared < 55 || again.Refused != 1 {
		t.Errorf("%v: Spillway against itself: %+v", err, again)
	}
}

// TestPassing: what differs once is asked again, and what cannot be compared is told apart.
func TestPassing(t *testing.T) {
	t.Parallel()
	before := prometheus(t)
	var n atomic.Int64
	after, _ := altered(t, before, map[string]func(http.ResponseWriter, []byte){
		"1 + 1": func(w http.ResponseWriter, answer []byte) {
			if n.Add(1) == 1 {
				answer = bytes.Replace(answer, []byte(`"2"`), []byte(`"3"`), 1)
			}
			_, _ = w.Write(answer)
		},
		"latency": says(200, "<html>"),
		"absent(nothing)": func(w http.ResponseWriter, answer []byte) {
			_, _ = w.Write(append(answer, bytes.Repeat([]byte{' '}, 1<<17)...))
		},
	})
	qs := NewQuestions()
	for _, q := range []string{"1 + 1", "latency", "absent(nothing)", "nothing"} {
		qs.Rule(q, "r")
	}
	r, err := Run(t.Context(), qs, Options{From: side(t, before), To: side(t, after), At: at, MaxAnswerBytes: 1 << 17})
	if err != nil {
		t.Fatal(err)
	}
	if r.Passing != 1 || len(r.Changes) != 0 || len(r.Failures) != 2 || r.Empty != 1 ||
		!strings.Contains(r.Failures[0].Why, "too large") || !strings.Contains(r.Failures[1].Why, "no answer of a Prometheus API: <html>") {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Run(ctx, qs, Options{From: side(t, before), To: side(t, after)}); err == nil {
		t.Error("it went on")
	}
	for _, bad := range []string{"host:9090", "http://127.0.0.1:1"} {
		if _, err := Run(t.Context(), qs, Options{From: side(t, before), To: side(t, bad)}); err == nil {
			t.Errorf("%s is taken for a server", bad)
		}
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer page.Close()
	_, err = Run(t.Context(), qs, Options{From: side(t, page.URL), To: side(t, before)})
	if err == nil || !strings.Contains(err.Error(), "is no Prometheus API") {
		t.Errorf("%v", err)
	}
}

// TestLog: what of a log is asked again, and how: packed and rotated files, the longest range, what
// is left out and why.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	line := func(r usage.Record) []byte {
		r.Time = at
		return r.Line()
	}
	query := func(endpoint, text string, length, step float64) usage.Record {
		return usage.Record{Endpoint: endpoint, User: "ann", RangeSeconds: length, StepSeconds: step, Facts: usage.Facts{Query: text}}
	}
	old := query("query", "old", 0, 0)
	old.Time = at.Add(-time.Hour)
	inventory := query("series", "a", 0, 0)
	inventory.Purpose = usage.Inventory
	planned := query("query", "planned", 0, 0)
	planned.Purpose = usage.Explain
	text := slices.Concat(
		line(query("query_range", "up", 3600, 15)), line(query("query_range", "up", 7200, 30)), line(query("query_range", "up", 60, 1)),
		line(query("query", "up", 0, 0)), line(query("series", "a", 60, 0)), line(query("series", "a, b", 60, 0)), line(inventory),
		line(planned),
		line(query("label_values", "a", 60, 0)), line(query("query", "sum(", 0, 0)), line(query("query", "u"+usage.CutMark, 0, 0)),
		old.Line(), line(usage.Record{Purpose: usage.Lost, Lost: 7}),
	)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(line(query("query", "up", 0, 0)))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "usage.jsonl")
	for name, content := range map[string][]byte{"usage.jsonl": append(text, `{"v":1,"ti`...), "usage.jsonl.1.gz": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	qs := NewQuestions()
	if err := qs.Log(t.Context(), path, at.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	qs.Rule("up", "alert Down")
	qs.Rule("absent(up)", "alert Gone")
	var got []string
	for _, q := range qs.list(MaxQuestions) {
		got = append(got, q.say())
	}
	want := []string{
		"query up, asked 2 times, by alert Down",
		"query absent(up), by alert Gone",
		"query_range up over 2h0m0s each 30s, asked 3 times, by ann",
		"series a over 1m0s, asked 1 times, by ann",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if s := qs.skipped; s[skipCut] != 1 || s[skipSelf] != 1 || s[skipEndpoint] != 1 || s[skipSeveral] != 1 || s[skipBroken] != 1 ||
		s[skipPlan] != 1 || s[skipLost] != 7 {
		t.Errorf("%v", s)
	}
	if n := len(qs.list(2)); n != 2 || qs.skipped[skipMany] != 2 {
		t.Errorf("%d, %v", n, qs.skipped)
	}
	for bad, why := range map[string]string{
		"x\n" + string(text): "line 1 is no line", `{"v":3}` + "\n": "line 1 is of version 3", "{\n{\n": "line 1 is no line",
	} {
		if err := NewQuestions().read(t.Context(), strings.NewReader(bad), time.Time{}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if err := qs.Log(t.Context(), filepath.Join(dir, "gone"), time.Time{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestDifferBehindTheCut: what is shown of a value is cut, what is compared is not.
func TestDifferBehindTheCut(t *testing.T) {
	answerOf := func(count, last string) *answer {
		var value any
		text := `{"buckets":[` + strings.Repeat(`[0,"1.2345678901234567","2.3456789012345678","3"],`, 9) + `[0,"7","8","` + last + `"]],"count":"` + count + `"}`
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		return &answer{data: []row{{key: "{}", points: []point{{"1", value}, {"2", "5"}}}}}
	}
	o := &Options{Tolerance: 1e-9}
	for name, c := range map[string]struct{ count, last, was, is string }{
		"count":       {"1000000", "3", `{} at 1: count 10`, `{} at 1: count 1000000`},
		"last bucket": {"10", "4", `{} at 1: buckets [9] [3] 3`, `{} at 1: buckets [9] [3] 4`},
	} {
		kind, was, is, differ := o.compare(answerOf("10", "3"), answerOf(c.count, c.last))
		if kind != Answer || !differ || was != c.was || is != c.is {
			t.Errorf("%s: %s %t\n%s\n%s", name, kind, differ, was, is)
		}
	}
	later := answerOf("10", "3")
	later.data[0].points[1].value = "6"
	if _, was, is, differ := o.compare(answerOf("10", "3"), later); !differ || was != "{} at 2: 5" || is != "{} at 2: 6" {
		t.Errorf("%t %s %s", differ, was, is)
	}
	if _, was, is, differ := o.compare(answerOf("10", "3"), answerOf("10", "3")); differ {
		t.Errorf("equal ones differ: %s %s", was, is)
	}
}

// TestSame: values are equal within the tolerance, in whatever they are wrapped.
func TestSame(t *testing.T) {
	o := &Options{Tolerance: 1e-9, CostChange: 0.1}
	value := func(text string) (v any) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{`"1"`, `"1.0000000001"`, true},
		{`"1"`, `"1.00000001"`, false},
		{`"NaN"`, `"nan"`, true},
		{`"NaN"`, `"0"`, false},
		{`"+Inf"`, `"1e308"`, false},
		{`"+Inf"`, `"-Inf"`, false},
		{`"0"`, `"-0"`, true},
		{`"a"`, `"b"`, false},
		{`{"count":"10","buckets":[[0,"1","2","3"]]}`, `{"count":"10.0","buckets":[[0,"1","2","3.0"]]}`, true},
		{`{"count":"10","buckets":[[0,"1","2","3"]]}`, `{"count":"10","buckets":[[0,"1","2","4"]]}`, false},
		{`{"count":"10"}`, `{"count":"10","sum":"1"}`, false},
		{`[1]`, `{"a":1}`, false},
	} {
		if got := o.same(value(tc.a), value(tc.b)); got != tc.same {
			t.Errorf("%s, %s: %t", tc.a, tc.b, got)
		}
	}
	for _, tc := range []struct {
		a, b   int64
		dearer bool
	}{
		{0, 1000, false},
		{0, 1001, true},
		{100_000, 110_000, false},
		{100_000, 110_001, true},
		{110_001, 100_000, true},
		{math.MaxInt64, 1, true},
	} {
		if got := o.dearer(tc.a, tc.b); got != tc.dearer {
			t.Errorf("%d, %d: %t", tc.a, tc.b, got)
		}
	}
	const said = "jaguar/10.0.0.1:9090 had not answered after 4.87s at 2026-11-26T03:00:00Z; 12 series"
	if got := mask(said); got != "jaguar/… had not answered after … at …; 12 series" {
		t.Error(got)
	}
}

// FuzzRead: no answer brings it down, and each is equal to itself.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"]],"histograms":[[1,{"count":"1"}]]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]},"spillway":{"explain":{"plan":{"children":[null]}}}}`))
	f.Add([]byte(`{"status":"error","errorType":"execution","error":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Side{spillway: true}
		q := &Question{Endpoint: "query", Query: "up"}
		a, b := s.read(q, &http.Response{StatusCode: 200}, text), s.read(q, &http.Response{StatusCode: 200}, text)
		o := &Options{Tolerance: 1e-9}
		if a.failed != b.failed {
			t.Errorf("%q, %q", a.failed, b.failed)
		}
		if kind, was, is, differ := o.compare(&a, &b); differ {
			t.Errorf("%s: %s, %s", kind, was, is)
		}
	})
}
