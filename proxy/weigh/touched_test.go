package weigh

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestTouched: a query is refused that selects more series than it may, by what its shards say of
// their metrics where that is the number, else by what was counted, once; never by what is not
// known.
func TestTouched(t *testing.T) {
	const each = 40_000 // of x_total, on each of two shards
	no := qerr.New(qerr.TooExpensive, "too many samples")
	lost := errors.New("no route to it")
	for _, tc := range []struct {
		query string
		leaves, most,
		asked int // to count, of both shards
		seen string // "" is let through
		err  error  // what becomes of counting
	}{
		{"sum(x_total)", 1, 2 * each, 0, "", nil},
		{"sum(x_total)", 1, 2*each - 1, 0, "80000", nil},
		{"sum(x_total)", 1, 2*each - 1, 0, "80000", lost}, // nobody is asked
		{"sum(x_total) + sum(x_total offset 5m)", 1, 3 * each, 0, "160000", nil},
		{"sum(x_total)", 2, 3 * each, 0, "160000", nil},
		{`sum(x_total{job="few"})`, 1, each, 2, "", nil},
		{`sum(x_total{job="all"})`, 1, each, 2, "80000", nil},
		{`sum(x_total{job="all"})`, 1, 2 * each, 0, "", nil},
		{`sum(x_total{job="few"}) + sum(x_total)`, 1, 2*each + 799, 2, "80800", nil},
		{`sum(x_total{job="all"})`, 1, each, 2, "", no},
		{`sum(x_total{job="all"})`, 1, each, 2, "", lost},                   // whoever asks the query itself is told
		{`sum(x_total{cluster="jaguar"})`, 1, each, 0, "80000", nil},        // the group's label
		{`sum(x_total) + sum(y_total)`, 1, 2*each + 1, 2, "160000", nil},    // which no shard has named
		{`sum(x_total) + sum(y_total{job="few"})`, 1, 3 * each, 2, "", nil}, // that has at most as many
	} {
		w := sized(t, each)
		w.err = tc.err
		q, p := w.planned(t, tc.query, tc.leaves, 1, 0)
		for i := range 2 {
			err := w.Touched(t.Context(), q, p, tc.most)
			asked := int(w.asked.Swap(0))
			if i == 0 && asked != tc.asked || i == 1 && tc.err == nil && asked != 0 {
				t.Errorf("%s: time %d: %d were asked", tc.query, i, asked)
			}
			var e *qerr.Error
			refused := errors.As(err, &e)
			if refused != (tc.seen != "") || refused && (e.Bound != policy.BoundMaxSeriesTouched || e.Seen != tc.seen ||
				e.Kind != qerr.TooExpensive || !strings.Contains(e.Message, "of x_total")) {
				t.Errorf("%s of %d: %+v", tc.query, tc.most, err)
			}
		}
	}

	old := sized(t, each) // what servers have in their heads says nothing of the time before
	for _, s := range old.shards {
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2000000,"minTime":%d},"seriesCountByMetricName":[{"name":"x_total","value":%d}]}}`, old.Now-7_200_000, 2*each)
		if err := old.Known.Sizes.Names(s).Learn(strings.NewReader(told), time.UnixMilli(old.Now), 0); err != nil {
			t.Fatal(err)
		}
	}
	for move, asked := range map[time.Duration]int64{0: 0, 24 * time.Hour: 2} {
		old.asked.Store(0)
		q, p := old.planned(t, "sum(x_total)", 1, 1, move)
		if err := old.Touched(t.Context(), q, p, 3*each); (err == nil) != (asked > 0) || old.asked.Load() != asked {
			t.Errorf("%s ago: %d were asked, %v", move, old.asked.Load(), err)
		}
	}

	w := newWorld(t, each, 1<<30) // whose shards have said nothing
	q, p := w.planned(t, "sum(rate(x_total[5m]))", 1, 241, 0)
	if err := w.Touched(t.Context(), q, p, each); err != nil || w.asked.Load() > 0 {
		t.Errorf("refused by what is not known: %v", err)
	}
	if _, err := w.Pieces(t.Context(), q, p); err != nil {
		t.Fatal(err)
	}
	if err := w.Touched(t.Context(), q, p, each); err == nil {
		t.Error("let through, though they were counted for another reason")
	}
}

// BenchmarkTouched is what a query costs whose shards say that it is not too much.
func BenchmarkTouched(b *testing.B) {
	w := sized(b, 40_000)
	q, p := w.planned(b, `sum by (job) (rate(x_total{job="a",namespace=~"a|b"}[5m])) / sum by (job) (rate(x_total{job="b"}[5m]))`, 1, 241, 0)
	for b.Loop() {
		if err := w.Touched(b.Context(), q, p, 1_000_000); err != nil {
			b.Fatal(err)
		}
	}
}
