package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// scripted answers each question by its text.
type scripted func(query string) prom.Answer

func (s scripted) Instant(_ context.Context, query string, _ time.Time) (prom.Answer, error) {
	return s(query), nil
}

func (s scripted) Range(_ context.Context, query string, _, _ time.Time, _ time.Duration) (prom.Answer, error) {
	return s(query), nil
}

// one is a series with a value at time 0 and labels, which are names and values in turn.
func one(value float64, labels ...string) prom.Series {
	s := prom.Series{Labels: map[string]string{}, Points: []prom.Point{{V: value}}}
	for i := 0; i < len(labels); i += 2 {
		s.Labels[labels[i]] = labels[i+1]
	}
	return s
}

// of is an answer of these series.
func of(series ...prom.Series) prom.Answer { return prom.Answer{Series: series} }

// hourly is a run of the first hour of 1970.
func hourly(t testing.TB, asker prom.Asker, settings, query string) *Run {
	t.Helper()
	q, err := model.ParseQuery("A", "", []byte(query))
	if err != nil {
		t.Fatal(err)
	}
	return NewRun(asker, settingsOf(t, settings), q, time.UnixMilli(0).UTC(), time.UnixMilli(3_600_000).UTC())
}

// Steps are whole seconds, no finer than the panel can show, than Grafana asks for or Prometheus
// allows, and leave a point in the range.
func TestStep(t *testing.T) {
	for _, c := range []struct {
		length         time.Duration
		points         int64
		interval       time.Duration
		step, recorded time.Duration
	}{
		{time.Hour, 100, 0, 36 * time.Second, time.Minute},
		{61 * time.Minute, 100, 0, 37 * time.Second, time.Minute},
		{time.Hour, 0, 0, 15 * time.Second, time.Minute},
		{time.Hour, 1, 0, time.Hour, time.Hour},
		{time.Hour, 100, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute},
		{24 * time.Hour, 0, 0, 87 * time.Second, 87 * time.Second},
		{31 * 24 * time.Hour, 1_000_000, 0, 244 * time.Second, 244 * time.Second}, // 11,000 points
		{30 * time.Second, 100, time.Minute, 30 * time.Second, 30 * time.Second},
		{10 * time.Second, 100, time.Minute, 15 * time.Second, 15 * time.Second},
	} {
		r := &Run{
			Settings: settingsOf(t, ""), From: time.UnixMilli(0), Until: time.UnixMilli(0).Add(c.length), MaxPoints: c.points,
			Interval: c.interval,
		}
		if step, recorded := r.Step(), r.recordedStep(); step != c.step || recorded != c.recorded {
			t.Errorf("%s on %d points, interval %s: steps %s and %s, want %s and %s", c.length, c.points, c.interval, step, recorded, c.step, c.recorded)
		}
	}
}

// recorder keeps what was asked over ranges.
type recorder struct {
	scripted
	from, until []time.Time
}

func (r *recorder) Range(_ context.Context, _ string, from, until time.Time, _ time.Duration) (prom.Answer, error) {
	r.from, r.until = append(r.from, from), append(r.until, until)
	return prom.Answer{}, nil
}

// A panel that is drawn again a moment later asks for the same points.
func TestAlignedRange(t *testing.T) {
	a := &recorder{}
	r := hourly(t, a, "", `{}`)
	r.From, r.Until = r.From.Add(61*time.Second), r.Until.Add(7*time.Second)
	for range 2 {
		if _, err := r.Range(t.Context(), "up"); err != nil {
			t.Fatal(err)
		}
		r.From = r.From.Add(3 * time.Second)
	}
	if first := time.UnixMilli(60_000); !a.from[0].Equal(first) || !a.from[1].Equal(first) || !a.until[0].Equal(r.Until) {
		t.Errorf("asked from %v until %v", a.from, a.until)
	}
}

// What the proxy says beside an answer comes with it, once, as serious as it is.
func TestNoticesOfAnswers(t *testing.T) {
	said := prom.Answer{
		Series: []prom.Series{one(1, "a", "b")}, Warnings: []string{"shard ibis is away"}, Infos: []string{"no counter"},
		Histograms: 2,
	}
	r := hourly(t, scripted(func(string) prom.Answer { return said }), "", `{"queryType":"promql","expr":"up","instant":true}`)
	for range 3 { // other questions say the same
		if _, err := r.Instant(t.Context(), "up", r.Until); err != nil {
			t.Fatal(err)
		}
	}
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []data.Notice{
		{Severity: data.NoticeSeverityWarning, Text: "shard ibis is away"},
		{Severity: data.NoticeSeverityInfo, Text: "no counter"},
		{Severity: data.NoticeSeverityWarning, Text: "2 series are native histograms, which are left out here; use histogram_quantile or histogram_avg"},
	}
	if !slices.Equal(frames[0].Meta.Notices, want) {
		t.Errorf("notices %+v", frames[0].Meta.Notices)
	}
	if frames[0].RefID != "A" || frames[0].Meta.ExecutedQueryString != "up\nup\nup\nup" {
		t.Errorf("%q: %q", frames[0].RefID, frames[0].Meta.ExecutedQueryString)
	}
}

func TestMaxQueries(t *testing.T) {
	r := hourly(t, scripted(func(string) prom.Answer { return of() }), "", `{}`)
	for i := range maxQueries {
		if _, err := r.Instant(t.Context(), "up", r.Until); err != nil {
			t.Fatalf("query %d: %v", i, err)
		}
	}
	for name, ask := range map[string]func() error{
		"instant": func() error { _, err := r.Instant(t.Context(), "up", r.Until); return err },
		"range":   func() error { _, err := r.Range(t.Context(), "up"); return err },
		"setup":   func() error { return r.Empty(t.Context(), NeedPods, "pods") },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "more than 200 queries; choose a shorter time") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The first error ends what runs and what has not begun.
func TestTogether(t *testing.T) {
	broken := errors.New("no")
	var begun atomic.Int32
	err := together(t.Context(), 50, func(ctx context.Context, i int) error {
		begun.Add(1)
		if i == 0 {
			return broken
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, broken) || begun.Load() > parallel {
		t.Errorf("%v after %d of 50 had begun", err, begun.Load())
	}
	// Never more at once.
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int32
		release := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- together(t.Context(), 50, func(context.Context, int) error {
				now.Add(1)
				<-release
				return nil
			})
		}()
		synctest.Wait()
		if n := now.Load(); n != parallel {
			t.Errorf("%d at once, want %d", n, parallel)
		}
		close(release)
		if err := <-ended; err != nil || now.Load() != 50 {
			t.Errorf("%v after %d", err, now.Load())
		}
	})
	if err := together(t.Context(), 1, func(context.Context, int) error { panic("oh") }); !errors.Is(err, ErrPanic) ||
		!strings.Contains(err.Error(), "oh") {
		t.Errorf("a panic: %v", err)
	}
}

func TestMaxPods(t *testing.T) {
	list := make([]prom.Series, maxPods+1)
	for i := range list {
		list[i] = one(1, "pod", fmt.Sprint(i))
	}
	n := maxPods
	r := hourly(t, scripted(func(string) prom.Answer { return of(list[:n]...) }), "", `{}`)
	if pods, err := r.PodsNow(t.Context()); err != nil || len(pods) != maxPods {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	n++
	const says = "20001 pods are chosen, and at most 20000 are looked at; choose experiments, a cluster or a shorter time"
	if _, err := r.PodsIn(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("one more: %v", err)
	}
}

func TestChosen(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{`{}`, ""},
		{`{"clusters":["c"],"namespaces":["n"],"teams":["t"],"experiments":["e"]}`, `cluster="c" namespace="n" team="t" experiment="e"`},
		{`{"namespaces":["n","m"],"experiments":["a.b","c","c"]}`, `namespace=~"m|n" experiment=~"a\\.b|c"`},
		{`{"teams":["unassigned"]}`, `team=~"|unassigned"`}, // a team may be called so
		{`{"teams":["t","unassigned"]}`, `team=~"|t|unassigned"`},
	} {
		q, err := model.ParseQuery("A", "", []byte(c.query))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Chosen(q), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.query, got, c.want)
		}
		if strings.Contains(c.query, "unassigned") && len(q.Teams) != strings.Count(c.want, "|") {
			t.Errorf("the query was changed: %q", q.Teams)
		}
	}
}

// A query's limit narrows the settings' bound and never widens it.
func TestLimitRows(t *testing.T) {
	for _, c := range []struct{ limit, want int }{{0, 3}, {2, 2}, {5, 3}} {
		r := &Run{Settings: settingsOf(t, `{"maxRows":3}`), Query: model.Query{Limit: c.limit}}
		if got := limitRows(r, []int{1, 2, 3, 4}, "things"); len(got) != c.want || len(r.notices) != 1 ||
			!strings.HasPrefix(r.notices[0].Text, fmt.Sprintf("%d of 4 things are left out", 4-c.want)) {
			t.Errorf("limit %d: %v, %v", c.limit, got, r.notices)
		}
		if got := limitRows(r, []int{1, 2}, "things"); len(got) != 2 || len(r.notices) != 1 {
			t.Errorf("limit %d of two: %v, %v", c.limit, got, r.notices)
		}
		// What a query's own limit leaves out was asked for.
		if got := len(r.missed) > 0; got != (c.limit != 2) {
			t.Errorf("limit %d: missed %q", c.limit, r.missed)
		}
	}
}
