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

// TestRun: what was there on three days and is not now is gone, in its cluster alone; what comes
// and goes is rare, what never was is told apart, and what was away for less than an hour is found.
func TestRun(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(
		t, now,
		lives{`up{cluster="jaguar",job="a"}`, 8 * day, 0},
		lives{`up{cluster="ibis",job="a"}`, 8 * day, 0},
		lives{`gone{cluster="jaguar",n="1"}`, 8 * day, 2 * time.Hour},
		lives{`gone{cluster="jaguar",n="2"}`, 4 * day, 2 * time.Hour},
		lives{`gone{cluster="ibis"}`, 8 * day, 0},
		lives{`restarts{cluster="jaguar"}`, 8 * day, 30 * time.Minute},
		lives{`trouble{cluster="jaguar"}`, 5 * day, 4 * day},
		lives{`young{cluster="jaguar"}`, 50 * time.Hour, 2 * time.Hour},
		lives{`new{cluster="jaguar"}`, time.Hour, 0},
	)
	r := run(t, url, now, set(
		`rate(gone[5m]) > 1`, `sum by (cluster) (gone{n!="x"}) / up`, `absent(restarts)`, `trouble or young`, `new`, `never{a="b"}`,
		`up unless on (cluster) gone`, `{job="a"}`, `topk(1, {__name__=~"a|b"})`,
	))
	want := []string{
		`gone jaguar gone 2`, `gone jaguar gone{n!="x"} 2`, `never  never{a="b"} 0`, `rare jaguar trouble 0`, `rare jaguar young 0`,
	}
	if got := findings(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Skipped != 2 || r.Selectors != 8 || len(r.Lost) != 0 {
		t.Errorf("%d selectors, %d skipped, lost %v", r.Selectors, r.Skipped, r.Lost)
	}
	if u := r.Findings[0].Uses; !slices.Equal(u, []string{"alert A0", "alert A6"}) {
		t.Errorf("used by %v", u)
	}
	if err := r.Err(); err == nil || err.Error() != "2 selectors find nothing any more" {
		t.Error(err)
	}
	if n := r.Clusters["ibis"]; n[Found] != 3 || n[Gone] != 0 {
		t.Errorf("ibis: %v", n)
	}
	var text, numbers bytes.Buffer
	if err := errors.Join(r.WriteText(&text, false), r.WriteMetrics(&numbers)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "GONE     gone\n         in jaguar, where it found 2 series a day ago\n         alert A0; alert A6\n") ||
		strings.Contains(s, "trouble") || !strings.HasSuffix(s, "8 selectors asked: 2 gone, 0 not known, 1 never there in 7 days, 2 there at times (--all lists them); 2 name no metric and were not asked\n") {
		t.Error(s)
	}
	for _, line := range []string{
		`spillway_canary_selectors{of_cluster="jaguar",state="gone"} 2`, `spillway_canary_selectors{of_cluster="ibis",state="gone"} 0`,
		`spillway_canary_selectors{of_cluster="",state="never"} 1`, "spillway_canary_lost_clusters 0",
	} {
		if !strings.Contains(numbers.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, numbers.String())
		}
	}
}

// TestLostCluster: of a cluster of which nothing is left, that is said and no more.
func TestLostCluster(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	url := server(
		t, now, lives{`up{cluster="jaguar"}`, 8 * day, 0}, lives{`up{cluster="ibis"}`, 8 * day, 2 * time.Hour},
		lives{`x{cluster="ibis"}`, 8 * day, 2 * time.Hour},
	)
	r := run(t, url, now, set("up", "x"))
	if got := findings(r); len(got) != 0 || !slices.Equal(r.Lost, []string{"ibis"}) {
		t.Errorf("found %v, lost %v", got, r.Lost)
	}
	if err := r.Err(); err == nil || err.Error() != "nothing is left of ibis" {
		t.Error(err)
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
	if err := r.Err(); err == nil || err.Error() != "3 could not be asked" {
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

// TestGone: only what was there on each of the last days is missed.
func TestGone(t *testing.T) {
	for _, tc := range []struct {
		days [days + 1]int64
		want bool
	}{
		{[days + 1]int64{9, 9, 9, 9, 9, 9, 9, 0}, true},
		{[days + 1]int64{0, 0, 0, 0, 1, 1, 1, 0}, true},
		{[days + 1]int64{9, 9, 9, 9, 9, 0, 9, 0}, false},
		{[days + 1]int64{9, 9, 9, 9, 0, 9, 9, 0}, false},
		{[days + 1]int64{9, 9, 9, 9, 9, 9, 9, 1}, false},
		{[days + 1]int64{}, false},
	} {
		if got := gone(tc.days); got != tc.want {
			t.Errorf("%v: %t", tc.days, got)
		}
	}
}
