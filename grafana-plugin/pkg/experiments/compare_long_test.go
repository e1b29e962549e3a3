package experiments

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const day = 24 * time.Hour

// A run that began months ago is drawn from its beginning, also over a pause that lies where one
// look back ends, and what is told of its whole time is of its whole time.
func TestCompareLongRuns(t *testing.T) {
	w := worldOf(t, "long")
	const query = `{"queryType":"compare","experiments":["long","young"]`
	// The first look begins on day 40, or at the end of the pause.
	for _, until := range []time.Duration{70 * day, 50 * day} {
		r := w.run(t, settingsOf(t, ""), query+`}`, until-day, until)
		r.Interval = time.Hour
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := values[float64](t, frames[0], "Value"); len(got) != 25 || got[0] != 50 || got[24] != 50 {
			t.Errorf("until %s: long has %v", until, got)
		}
		if at := values[time.Time](t, frames[0], "Time"); !at[0].Equal(r.From) {
			t.Errorf("until %s: long begins at %s, the panel at %s", until, at[0], r.From)
		}
		if got := noticesOf(r); strings.Contains(got, "long") {
			t.Errorf("until %s: notices %q", until, got)
		}
	}
	r := w.run(t, settingsOf(t, ""), query+`,"view":"summary"}`, 69*day, 70*day)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// 69 days but for the half one, eight GPUs.
	equal(t, "runs", rowsOf(t, frames[0], "run", "clusters", "started", "duration", "gpu_hours", "mean_util", "gpus"), []string{
		"long c 24h0m0s 5.9616e+06 13152.133333333333 60 8", "young c 1656h0m0s 86400 48.03333333333333 90 2",
	})
	if got, want := noticesOf(r), "long ran for more than 30 days: its clusters, mean_util, restarts, failures and gpus are those of the last 30."; got != want {
		t.Errorf("notices %q, want %q", got, want)
	}
}

// always is an asker of a run that was there at all times, or has failed before earliest.
type always struct {
	scripted
	earliest time.Time
	mu       sync.Mutex
	widest   time.Duration
}

func (a *always) Range(_ context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	if from.Before(a.earliest) {
		return prom.Answer{}, &prom.Failure{Status: 502, Message: "the archive is away"}
	}
	a.mu.Lock()
	a.widest = max(a.widest, until.Sub(from))
	a.mu.Unlock()
	s := prom.Series{Labels: map[string]string{}}
	for at := from; !at.After(until); at = at.Add(step) {
		s.Points = append(s.Points, prom.Point{T: at.UnixMilli(), V: 1})
	}
	return of(s), nil
}

// Of a run whose beginning is not found that is said, and it is not drawn as if it had begun.
func TestCompareOlderRuns(t *testing.T) {
	until := time.Unix(1_800_000_000, 0).UTC()
	for _, a := range []*always{{}, {earliest: until.Add(-40 * day)}} {
		first := float64(until.Add(-30 * day).Unix())
		a.scripted = func(string) prom.Answer { return of(one(first)) }
		for view, rows := range map[string]int{"series": 0, "summary": 2} {
			r := hourly(t, a, "", `{"queryType":"compare","view":"`+view+`","experiments":["a","b"]}`)
			r.From, r.Until = until.Add(-time.Hour), until
			runs, err := r.findRuns(t.Context())
			if err != nil || len(runs) != 2 || !runs[0].older {
				t.Fatalf("%+v, %v", runs, err)
			}
			r = hourly(t, a, "", `{"queryType":"compare","view":"`+view+`","experiments":["a","b"]}`)
			r.From, r.Until = until.Add(-time.Hour), until
			frames, err := r.Do(t.Context())
			if err != nil || len(frames) != 1 || frames[0].Rows() != rows {
				t.Fatalf("%s: %d frames, %v", view, len(frames), err)
			}
			if got := noticesOf(r); !strings.Contains(got, "a began before ") || !strings.Contains(got, "b began before ") {
				t.Errorf("%s: notices %q", view, got)
			}
			if a.widest > 31*day {
				t.Errorf("%s: asked over %s at once", view, a.widest)
			}
		}
	}
}

// TestLinkOfALongRun: the link of a run is over no more time than is answered at once.
func TestLinkOfALongRun(t *testing.T) {
	until := time.Unix(1_800_000_000, 0).UTC()
	r := hourly(t, &always{}, "", `{"queryType":"compare","view":"summary","experiments":["a","b"]}`)
	for long, want := range map[time.Duration]time.Duration{45 * day: 30 * day, 7 * day: 7*day + r.Settings.Interval()} {
		var s runSummary
		s.first, s.last = until.Add(-long), until
		frames := r.summaryFrames([]runSummary{s})
		at := func(name string) int64 {
			field, _ := frames[0].FieldByName(name)
			ms, err := strconv.ParseInt(field.At(0).(string), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return ms
		}
		if got := time.Duration(at("to")-at("from")) * time.Millisecond; got != want {
			t.Errorf("a run of %s: its link is over %s, want %s", long, got, want)
		}
	}
}
