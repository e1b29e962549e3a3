package canary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const day = 24 * time.Hour

// lives is a series and when it was there, before now.
type lives struct {
	series      string
	from, until time.Duration
}

// server is a Prometheus that has these.
func server(t *testing.T, now time.Time, all ...lives) string {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	const every = 4 * time.Minute
	text, begin := "load 4m\n", 8*day
	for _, l := range all {
		text += fmt.Sprintf("  %s _x%d 1x%d\n", l.series, (begin-l.from)/every, (l.from-l.until)/every)
	}
	if err := s.LoadAt(text, now.Add(-begin)); err != nil {
		t.Fatal(err)
	}
	return s.URL()
}

func set(queries ...string) *uses.Set {
	out := new(uses.Set)
	for i, q := range queries {
		out.Add(&uses.Use{Kind: uses.Rule, Where: fmt.Sprintf("alert A%d", i), Query: q})
	}
	return out
}

func run(t *testing.T, url string, now time.Time, s *uses.Set) *Report {
	t.Helper()
	hc := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(hc.CloseIdleConnections)
	a, err := NewAPI(url, hc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Uses: s, API: a, Now: now, ClusterLabel: "cluster"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// findings are those of a report, in short.
func findings(r *Report) (out []string) {
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s %s %d", f.State, f.Cluster, f.Selector, f.Series))
	}
	return out
}

// TestRun: what was there on three days in a row and is not now is gone, in its cluster alone, and
// for days after; what comes and goes is rare, what never was is told apart, and what was away for
// less than an hour is found.
func TestRun(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(
		t, now,
		lives{`up{cluster="jaguar",job="a"}`, 8 * day, 0},
		lives{`up{cluster="ibis",job="a"}`, 8 * day, 0},
		lives{`gone{cluster="jaguar",n="1"}`, 8 * day, 2 * time.Hour},
		lives{`gone{cluster="jaguar",n="2"}`, 4 * day, 2 * time.Hour},
		lives{`gone{cluster="ibis"}`, 8 * day, 0},
		lives{`friday{cluster="jaguar"}`, 8 * day, 50 * time.Hour},
		lives{`friday{cluster="ibis"}`, 8 * day, 74 * time.Hour},
		lives{`restarts{cluster="jaguar"}`, 8 * day, 30 * time.Minute},
		lives{`trouble{cluster="jaguar"}`, 5 * day, 4 * day},
		lives{`young{cluster="jaguar"}`, 50 * time.Hour, 2 * time.Hour},
		lives{`new{cluster="jaguar"}`, time.Hour, 0},
	)
	r := run(t, url, now, set(
		`rate(gone[5m]) > 1`, `sum by (cluster) (gone{n!="x"}) / up`, `absent(restarts)`, `trouble or young`, `new`, `never{a="b"}`,
		`up unless on (cluster) gone`, `{job="a"}`, `topk(1, {__name__=~"a|b"})`, `friday`,
	))
	want := []string{
		`gone ibis friday 1`, `gone jaguar friday 1`, `gone jaguar gone 2`, `gone jaguar gone{n!="x"} 2`, `never  never{a="b"} 0`,
		`rare jaguar trouble 0`, `rare jaguar young 0`,
	}
	if got := findings(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Skipped != 2 || r.Selectors != 9 || len(r.Lost) != 0 || r.Young || r.Unlabelled {
		t.Errorf("%d selectors, %d skipped, lost %v, young %t, unlabelled %t", r.Selectors, r.Skipped, r.Lost, r.Young, r.Unlabelled)
	}
	if u := r.Findings[2].Uses; !slices.Equal(u, []string{"alert A0", "alert A6"}) {
		t.Errorf("used by %v", u)
	}
	if err := r.Err(); err == nil || err.Error() != "3 selectors find nothing any more" {
		t.Error(err)
	}
	if n := r.Clusters["ibis"]; n[Found] != 3 || n[Gone] != 1 {
		t.Errorf("ibis: %v", n)
	}
	var text, numbers bytes.Buffer
	if err := errors.Join(r.WriteText(&text, false), r.WriteMetrics(&numbers)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "GONE     gone\n         in jaguar, where it found 2 series a day ago\n         alert A0; alert A6\n") ||
		!strings.Contains(s, "GONE     friday\n         in 2 clusters: ibis, jaguar, where it found 2 series 3 days ago\n") ||
		strings.Contains(s, "trouble") || !strings.HasSuffix(s, "9 selectors asked: 3 gone, 0 not known, 1 never there in 7 days, 2 there at times (--all lists them); 2 name no metric and were not asked\n") {
		t.Error(s)
	}
	for _, line := range []string{
		`spillway_canary_selectors{of_cluster="jaguar",state="gone"} 3`, `spillway_canary_selectors{of_cluster="ibis",state="gone"} 1`,
		`spillway_canary_selectors{of_cluster="",state="never"} 1`, "spillway_canary_lost_clusters 0",
	} {
		if !strings.Contains(numbers.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, numbers.String())
		}
	}
}

// TestComesAndGoes: what is there for days and then is not, and nothing is lost: a value of a
// label while others are there, and what a rule records that has nothing to record. A label that is
// on no series any more was dropped, and a rule that could record and does not is not evaluated.
func TestComesAndGoes(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(
		t, now,
		lives{`ALERTS{cluster="jaguar",alertname="Watchdog",severity="none"}`, 8 * day, 0},
		lives{`ALERTS{cluster="jaguar",alertname="NodeDown",severity="auto"}`, 5 * day, 2 * time.Hour},
		lives{`requests_total{cluster="jaguar",job="api",code="200"}`, 8 * day, 0},
		lives{`requests_total{cluster="jaguar",job="api",code="500"}`, 8 * day, 3 * time.Hour},
		lives{`requests_total{cluster="jaguar",job="other",code="500"}`, 8 * day, 3 * time.Hour},
		lives{`labels{cluster="jaguar",label_team="a"}`, 8 * day, 3 * time.Hour},
		lives{`labels{cluster="jaguar"}`, 8 * day, 0},
		lives{`runs{cluster="jaguar"}`, 8 * day, 3 * time.Hour},
		lives{`job:runs:sum{cluster="jaguar"}`, 8 * day, 3 * time.Hour},
		lives{`job:labels:sum{cluster="jaguar"}`, 8 * day, 3 * time.Hour},
		lives{`job:elsewhere:sum{cluster="jaguar"}`, 8 * day, 3 * time.Hour},
	)
	s := set(
		`ALERTS{severity="auto"}`, `requests_total{job="api",code=~"5.."}`, `requests_total{job="other",code=~"5.."}`,
		`labels{label_team="a"}`, `job:runs:sum`, `job:labels:sum`, `job:elsewhere:sum`,
	)
	s.Add(&uses.Use{Kind: uses.Rule, Where: "rule job:runs:sum", Query: "sum by (cluster) (runs > 0)", Records: "job:runs:sum"})
	s.Add(&uses.Use{Kind: uses.Rule, Where: "rule job:labels:sum", Query: "sum by (cluster) (labels)", Records: "job:labels:sum"})
	r := run(t, url, now, s)
	want := []string{
		`gone jaguar job:elsewhere:sum 1`, `gone jaguar job:labels:sum 1`, `gone jaguar labels{label_team="a"} 1`,
		`gone jaguar requests_total{code=~"5..",job="other"} 1`, `gone jaguar runs 1`,
		`rare jaguar ALERTS{severity="auto"} 0`, `rare jaguar job:runs:sum 0`, `rare jaguar requests_total{code=~"5..",job="api"} 0`,
	}
	if got := findings(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i, why := range map[int]string{5: "the metric is there, with other values of its labels", 6: "its rule has nothing to record"} {
		if r.Findings[i].Why != why {
			t.Errorf("%s: %q", r.Findings[i].Selector, r.Findings[i].Why)
		}
	}
}

// TestLostCluster: of a cluster of which nothing is left, that is said and no more; not of one that
// was away for minutes.
func TestLostCluster(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(
		t, now, lives{`up{cluster="jaguar"}`, 8 * day, 0}, lives{`up{cluster="ibis"}`, 8 * day, 2 * time.Hour},
		lives{`x{cluster="ibis"}`, 8 * day, 2 * time.Hour}, lives{`up{cluster="lynx"}`, 8 * day, 12 * time.Minute},
	)
	r := run(t, url, now, set("up", "x"))
	if got := findings(r); len(got) != 0 || !slices.Equal(r.Lost, []string{"ibis"}) {
		t.Errorf("found %v, lost %v", got, r.Lost)
	}
	if err := r.Err(); err == nil || err.Error() != "nothing is left of ibis" {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := r.WriteMetrics(&b); err != nil || !strings.Contains(b.String(), `spillway_canary_selectors{of_cluster="ibis",state="gone"} 2`) {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestBlind: where nothing was ever found, or most could not be asked, that is said, and no metric
// should tell of a look; a server without a past, and a label that nothing has, are said too.
func TestBlind(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(t, now, lives{`up`, 2 * day, 0}, lives{`y`, 2 * day, 2 * time.Hour})
	r := run(t, url, now, set("never", "neither"))
	if err := r.Err(); r.Blind() == "" || err == nil ||
		err.Error() != "none of 2 selectors has found anything in 7 days: is it the right server, and are these its rules and dashboards?" {
		t.Errorf("%q, %v", r.Blind(), err)
	}
	r = run(t, url, now, set("up", "y"))
	var b bytes.Buffer
	if err := r.WriteText(&b, false); err != nil || r.Blind() != "" || r.Err() != nil {
		t.Errorf("%v, %q, %v", err, r.Blind(), r.Err())
	}
	for _, want := range []string{"nothing can be called gone: the servers are new, or keep less than 4 days", "No series has the label of --cluster-label"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	r = &Report{Selectors: 3, Findings: []Finding{{State: Unknown, Selector: "a"}, {State: Unknown, Selector: "b"}}}
	if err := r.Err(); err == nil || err.Error() != "2 of 3 selectors could not be asked" {
		t.Error(err)
	}
}

// TestForeignText: names that others gave move no cursor, and are not printed by the page.
func TestForeignText(t *testing.T) {
	r := &Report{Selectors: 9, Lost: []string{"a\x1b[31m"}, Findings: []Finding{
		{State: Gone, Cluster: "ev\"il\n\u202e", Selector: "x", DaysAgo: 1, Uses: []string{strings.Repeat("u", 1000) + "\n"}},
		{State: Unknown, Selector: "y", Why: "no\r\x00", Uses: []string{"alert B"}},
	}}
	var b bytes.Buffer
	if err := r.WriteText(&b, true); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.ContainsAny(strings.ReplaceAll(s, "\n", ""), "\x1b\u202e\r\x00") ||
		strings.Count(s, "\n") != 8 || len(s) > 800 {
		t.Errorf("%q", s)
	}
	if err := r.Err(); err == nil || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("%q", err)
	}
}

// TestNotKnown: what could not be asked is neither found nor gone, whether it was refused or
// answered in part; what is turned away for now is asked again.
func TestNotKnown(t *testing.T) {
	var busy, asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		const none = `{"status":"success","data":{"resultType":"matrix","result":[]}`
		switch q := r.FormValue("query"); {
		case strings.Contains(q, "refused"):
			w.WriteHeader(422)
			fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"too many series"}`)
		case strings.Contains(q, "partial"):
			fmt.Fprint(w, none+`,"warnings":["shard x is away"]}`)
		case strings.Contains(q, "busy") && busy.Add(1) < attempts:
			w.WriteHeader(429)
			fmt.Fprint(w, `{"status":"error","errorType":"too_many_requests","error":"later"}`)
		case strings.Contains(q, "down"):
			w.WriteHeader(503)
			fmt.Fprint(w, `{"status":"error","errorType":"unavailable","error":"no shard"}`)
		default:
			fmt.Fprint(w, none+`,"warnings":["PromQL info: x"]}`)
		}
	}))
	defer s.Close()
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	a, err := NewAPI(s.URL, hc)
	if err != nil {
		t.Fatal(err)
	}
	var pauses atomic.Int64
	o := Options{
		Uses: set("refused", "partial", "busy", "down", "other"), API: a, Now: time.Now(),
		Pause: func(context.Context, time.Duration) error { pauses.Add(1); return nil },
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, fmt.Sprintf("%s %s %s", f.State, f.Selector, f.Why))
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"unknown down ", "unknown partial the answer came with a warning: shard x is away", "unknown refused execution: too many series",
		"never busy", "never other",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if n := pauses.Load(); n != 2*(attempts-1) {
		t.Errorf("%d pauses", n)
	}
	if err := r.Err(); err == nil || err.Error() != "3 of 5 selectors could not be asked" {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back.Findings) != len(r.Findings) || back.Selectors != 5 {
		t.Errorf("%v: %s", err, b.String())
	}

	// Where nothing can be asked, there is no report.
	o.Uses = set("refused", "down")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "none of 2 selectors could be asked, the first: ") {
		t.Error(err)
	}
	o.Uses = set(`{a="b"}`)
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "there is no selector to ask for") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	o.Uses = set("other")
	if _, err := Run(ctx, o); err == nil || err.Error() != "enough" {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "ftp://x", "http://[::1"} {
		if _, err := NewAPI(bad, hc); err == nil || !strings.Contains(err.Error(), "is no URL of a Prometheus API") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestLast: only what was there on three days in a row is missed, for as long as they are seen.
func TestLast(t *testing.T) {
	for _, tc := range []struct {
		days seen
		want int
	}{
		{seen{9, 9, 9, 9, 9, 9, 9, 0}, 6},
		{seen{0, 0, 0, 0, 1, 1, 1, 0}, 6},
		{seen{9, 9, 9, 9, 9, 9, 0, 0}, 5},
		{seen{9, 9, 9, 0, 0, 0, 0, 0}, 2},
		{seen{9, 9, 0, 0, 0, 0, 0, 0}, -1},
		{seen{9, 9, 9, 9, 9, 0, 9, 0}, -1},
		{seen{9, 9, 9, 9, 0, 9, 9, 0}, -1},
		{seen{9, 9, 9, 9, 9, 9, 9, 1}, -1},
		{seen{}, -1},
	} {
		if got := tc.days.last(); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.days, got, tc.want)
		}
	}
}

// TestNobodyAnswers: after eight questions without an answer no more are asked; what was found
// until the time was over is told, and the rest is not known.
func TestNobodyAnswers(t *testing.T) {
	var asked atomic.Int64
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		switch q := r.FormValue("query"); {
		case strings.Contains(q, "slow"):
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		case strings.Contains(q, "dead"):
			w.WriteHeader(502)
			fmt.Fprint(w, `{"status":"error","errorType":"x","error":"lynx-0 cannot be reached"}`)
		case strings.Contains(q, "page"):
			fmt.Fprint(w, `<html>Sign in</html>`)
		default:
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
		}
	}))
	defer s.Close()
	defer close(hang)
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	a, err := NewAPI(s.URL, hc)
	if err != nil {
		t.Fatal(err)
	}
	many := func(name string) *uses.Set {
		var queries []string
		for i := range 100 {
			queries = append(queries, fmt.Sprintf("%s_%03d", name, i))
		}
		return set(queries...)
	}
	o := Options{Uses: many("dead"), API: a, Now: time.Now(), Pause: func(context.Context, time.Duration) error { return nil }}
	if _, err := Run(t.Context(), o); err == nil || err.Error() != "none of 100 selectors could be asked, the first: server error: 502: lynx-0 cannot be reached" {
		t.Error(err)
	}
	if n := asked.Load(); n > (inARow+atOnce)*attempts {
		t.Errorf("%d requests of a server that does not answer", n)
	}
	o.Uses = set("page")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the answer is not that of a Prometheus API, is the address right?") {
		t.Error(err)
	}
	o.Uses, o.Within = set("one", "two", "three", "slow"), 300*time.Millisecond
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := findings(r); len(got) != 4 || got[0] != "unknown  slow 0" || r.Findings[0].Why != "not asked within 300ms" {
		t.Errorf("%v, %q", got, r.Findings[0].Why)
	}
}
