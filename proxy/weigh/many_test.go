package weigh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestManySeriesAreListed: where a server says of itself that a selector may have so many series
// that it would hold too much of them to count them, it is asked to list them, and no more than a
// number. More than that is too much for the query, which no server is asked for; fewer are as if
// they had been counted. Both are remembered, the one for nobody who may have more.
func TestManySeriesAreListed(t *testing.T) {
	const query = `sum by (job) ({__name__=~"a.+|b.+"})` // an instant query, which makes little of each
	for _, tc := range []struct {
		name   string
		series int64
		steps  int
		ok     bool
		lists  int // of two shards
	}{
		{"few", 500, 1, true, 2},
		{"as many as are listed", maxListed, 1, true, 2},
		{"one more", maxListed + 1, 1, false, 2},
		{"all", 2_000_000, 1, false, 2},
		{"all at the steps of four hours", 2_000_000, 1000, false, 2},
		{"all at those of eight, of which one moment is enough", 2_000_000, 2000, false, 2},
		{"few at those of eight", 500, 2000, true, 2 * countMoments},
	} {
		w := sized(t, 1000) // and two million in all
		w.series = tc.series
		check := func(lists int) {
			t.Helper()
			n, err := w.ask(t, query, tc.steps, 0)
			switch {
			case tc.ok && (err != nil || n != 1):
				t.Errorf("%s: %d pieces, %v", tc.name, n, err)
			case !tc.ok && (err == nil || qerr.From(err).Bound != "max_shard_bytes"):
				t.Errorf("%s: %v, want a refusal by max_shard_bytes", tc.name, err)
			}
			if len(w.lists) != lists {
				t.Errorf("%s: lists were asked for %d times, want %d", tc.name, len(w.lists), lists)
			}
			w.lists = nil
		}
		check(tc.lists)
		check(0)
		if tc.ok {
			continue
		}
		w.MaxBytes = 64 << 30 // as of another tenant: two million are not too many to count
		if _, err := w.ask(t, query, tc.steps, 0); err != nil && tc.steps == 1 {
			t.Errorf("%s: whoever may have more is refused: %v", tc.name, err)
		}
		if len(w.lists) > 0 {
			t.Errorf("%s: a list was asked for of what is not too much to count", tc.name)
		}
	}
}

// TestCountsSayWhatTheyTake: a question that counts series makes a server hold something of each of
// them, less where it looks for native histograms; all that a query may take where nobody knows how
// many there are of a selector that names no metric.
func TestCountsSayWhatTheyTake(t *testing.T) {
	for _, tc := range []struct {
		world *world
		query string
		holds int64
	}{
		{sized(t, 200_000), "max_over_time(x_total[6h:15s])", 200_000 * (countBytes + blockBytes)}, // no natives are looked for
		{sized(t, 20_000), "sum(rate(x_total[5m]))", 20_000 * (listBytes + blockBytes)},
		{sized(t, 100_000_000), "sum(rate(x_total[5m]))", maxListed * (listBytes + blockBytes)},
		{newWorld(t, 20_000, 512<<20), "sum(rate(x_total[5m]))", 20_000 * (listBytes + blockBytes)}, // counted, and then looked for natives
		{newWorld(t, 20_000, 512<<20), `sum(rate({job=~".+x"}[5m]))`, 256 << 20},
		{before(sized(t, 300_000)), "sum(rate(x_total[5m]))", 300_000 * (countBytes + blockBytes)}, // all of it, since the window is older
	} {
		_, _ = tc.world.ask(t, tc.query, 241, 0)
		if tc.world.holds != tc.holds {
			t.Errorf("%s: counting was said to take %d bytes, want %d", tc.query, tc.world.holds, tc.holds)
		}
	}
}

// TestManyOfWhichLittleIsMade: a query that makes little of each series is refused where a server
// says that it has very many, and asked without a count where it has not. Of an aggregation by
// labels of which the server tells how many values they have, it is the groups that are held
// beside.
func TestManyOfWhichLittleIsMade(t *testing.T) {
	for _, tc := range []struct {
		query  string
		series int
		jobs   int // 0: it does not tell
		ok     bool
	}{
		{"sum(x_total)", 1_500_000, 0, false}, // 860 MB
		{"sum(x_total)", 300_000, 0, true},
		{"sum by (job) (x_total)", 700_000, 0, false},
		{"sum by (job) (x_total)", 700_000, 50, true},
		{"sum by (job) (x_total)", 1_500_000, 50, false},
		{"sum by (job, pod) (x_total)", 700_000, 50, false},
	} {
		w := sized(t, tc.series)
		for _, s := range w.shards {
			if tc.jobs == 0 {
				break
			}
			told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2000000,"minTime":0},"seriesCountByMetricName":[{"name":"x_total","value":%d}],
				"labelValueCountByLabelName":[{"name":"job","value":%d},{"name":"pod","value":90000}]}}`, tc.series, tc.jobs)
			if err := w.Known.Sizes.Names(s).Learn(strings.NewReader(told), time.UnixMilli(w.Now), 0); err != nil {
				t.Fatal(err)
			}
		}
		_, err := w.ask(t, tc.query, 1, 0)
		if tc.ok != (err == nil) || err != nil && qerr.From(err).Bound != "max_shard_bytes" {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// TestListsThatFail: a number that was listed stands though another server's list failed; a list
// that is refused is one of too many; and that there was nothing is not believed for long.
func TestListsThatFail(t *testing.T) {
	const query = `sum by (job) ({__name__=~"a.+|b.+"})`
	for _, tc := range []struct {
		name   string
		series int64
		err    error // of the second server's list
		first  bool  // whether it is answered at once
		again  bool  // and when that is over
		lists  int   // the second time
	}{
		{"the other one is lost", 500, errors.New("gone"), false, true, 1},
		{"the other one refuses", 500, qerr.New(qerr.TooExpensive, "no lists here"), false, true, 1},
		{"nothing yet", 0, nil, true, true, 0},
	} {
		w := sized(t, 1000)
		w.series = tc.series
		ask := w.Ask
		w.Ask = func(ctx context.Context, questions []Question, found func(int, int64)) error {
			if err := ask(ctx, questions, func(i int, n int64) {
				if tc.err == nil || questions[i].Part.Shard == w.shards[0] {
					found(i, n)
				}
			}); err != nil {
				return err
			}
			return tc.err
		}
		_, err := w.ask(t, query, 1, 0)
		if (err == nil) != tc.first {
			t.Errorf("%s: %v", tc.name, err)
		}
		if tc.err != nil && refused(tc.err) && qerr.From(err).Bound != "max_shard_bytes" {
			t.Errorf("%s: %v, want a refusal by max_shard_bytes", tc.name, err)
		}
		w.lists, tc.err = nil, nil
		if _, err := w.ask(t, query, 1, 0); (err == nil) != tc.again || len(w.lists) != tc.lists {
			t.Errorf("%s, again: %v, after %d lists, want %d", tc.name, err, len(w.lists), tc.lists)
		}
	}
	w := sized(t, 1000)
	w.series = 0
	week := func() { _, _ = w.ask(t, query, 7*24*240, 0) }
	week()
	w.series, w.Now, w.lists = 2_000_000, w.Now+11*60_000, nil
	if week(); len(w.lists) == 0 {
		t.Error("that there was nothing is believed for longer than ten minutes")
	}
}

// TestBoundsOfOthers: what weighed little for somebody who may have much, or for nobody who knew
// how many series there are, is weighed for whoever may have less, and when it is known.
func TestBoundsOfOthers(t *testing.T) {
	const query = `sum by (job) ({__name__=~"a.+|b.+"})`
	w := sized(t, 1000)
	w.series, w.MaxBytes = 2_000_000, 64<<30
	if _, err := w.ask(t, query, 1, 0); err != nil {
		t.Fatal(err)
	}
	w.MaxBytes = 512 << 20
	if _, err := w.ask(t, query, 1, 0); err == nil {
		t.Error("what somebody may ask is asked for somebody who may have less")
	}
	w = newWorld(t, 2_000_000, 512<<20)
	if _, err := w.ask(t, "sum(x_total)", 1, 0); err != nil {
		t.Fatal(err)
	}
	tell(t, w, 2_000_000)
	if _, err := w.ask(t, "sum(x_total)", 1, 0); err == nil {
		t.Error("what was asked while nobody knew how much it is, is asked now")
	}
}

// TestManyAreTouched: of more series than are listed it is known that they are more, and not how
// many there may be.
func TestManyAreTouched(t *testing.T) {
	w := sized(t, 1000)
	w.series = 300_000 // of two million
	q, p := w.planned(t, `sum by (job) ({__name__=~"a.+|b.+"})`, 1, 1, 0)
	if err := w.Touched(t.Context(), q, p, 1_000_000); err != nil {
		t.Errorf("300,000 on each of two shards are refused: %v", err)
	}
	if err := w.Touched(t.Context(), q, p, 400_000); err == nil || !strings.Contains(err.Error(), "500002") {
		t.Errorf("more than 400,000: %v", err)
	}
}

// before is a world whose shards tell of less time than queries read.
func before(w *world) *world {
	for _, s := range w.shards {
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2000000,"minTime":%d},"seriesCountByMetricName":[{"name":"x_total","value":%d}]}}`,
			w.Now, w.series)
		if err := w.Known.Sizes.Names(s).Learn(strings.NewReader(told), time.UnixMilli(w.Now), 0); err != nil {
			panic(err)
		}
	}
	return w
}

// TestOldWindows: what a shard says of its newest hours bounds nothing that is older: a metric that
// was large then is weighed by what it was.
func TestOldWindows(t *testing.T) {
	w := before(sized(t, 10))
	w.series = 2_000_000
	if _, err := w.ask(t, `sum(rate(x_total{job="few or many"}[5m]))`, 1, 0); err == nil {
		t.Error("two million series of an older window were taken for ten")
	}
}
