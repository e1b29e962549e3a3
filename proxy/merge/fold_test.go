package merge

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

var nan, inf, none = math.NaN(), math.Inf(1), stale

// made is a table of lines of text, each a label set and values: `{a="1"}` 1 2 3.
func made(t testing.TB, b *admit.Budget, grid Grid, series ...TableSeries) *Table {
	t.Helper()
	slices.SortFunc(series, func(a, b TableSeries) int { return labels.Compare(a.Labels, b.Labels) })
	tab := &Table{Grid: grid}
	tab.held = admit.NewLedger(b)
	for _, s := range series {
		if len(s.Values) != grid.Len() {
			t.Fatalf("%d values on a grid of %d", len(s.Values), grid.Len())
		}
		if err := tab.held.Hold(100); err != nil {
			t.Fatal(err)
		}
		block := valueBlocks.Get().(*valueBlock)
		tab.blocks = append(tab.blocks, block)
		n := copy(block[:], s.Values)
		tab.Series = append(tab.Series, TableSeries{Labels: s.Labels, Values: block[:n:n]})
	}
	return tab
}

func row(set string, values ...float64) TableSeries {
	ls := labels.EmptyLabels()
	if set != "" {
		name, value, _ := strings.Cut(set, "=")
		ls = labels.FromStrings(name, value)
	}
	return TableSeries{Labels: ls, Values: values}
}

// part is one of the two series of an average.
func part(which string, s TableSeries) TableSeries {
	b := labels.NewBuilder(s.Labels)
	b.Set(PartLabel, which)
	return TableSeries{Labels: b.Labels(), Values: s.Values}
}

// joined runs a Fold or Union in every order of the tables, and checks that nothing is held when
// its result is closed.
func joined(t *testing.T, tables [][]TableSeries, grid Grid, join func([]*Table, *admit.Budget) (*Table, error)) (string, error) {
	t.Helper()
	var (
		first    string
		firstErr error
	)
	orders := permutations(len(tables))
	for i, order := range orders {
		pool := admit.NewPool(64 << 20)
		b := admit.NewBudget(pool, roomy)
		var list []*Table
		for _, j := range order {
			list = append(list, made(t, b, grid, slices.Clone(tables[j])...))
		}
		tab, err := join(list, b)
		got := ""
		if err == nil {
			got = shown(tab)
			if !slices.IsSortedFunc(tab.Series, func(a, b TableSeries) int { return labels.Compare(a.Labels, b.Labels) }) {
				t.Errorf("not sorted: %s", got)
			}
		} else if tab != nil {
			t.Error("a table with an error")
		}
		tab.Close()
		for _, x := range list {
			if len(x.Series) > 0 || len(x.blocks) > 0 {
				t.Error("a table is still open")
			}
			x.Close()
		}
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held in the end", held)
		}
		b.Close()
		if i == 0 {
			first, firstErr = got, err
		} else if got != first || (err == nil) != (firstErr == nil) {
			t.Errorf("order %v changes the result:\n%s%v\n%s%v", order, got, err, first, firstErr)
		}
	}
	return first, firstErr
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

func TestFold(t *testing.T) {
	type tables = [][]TableSeries
	one := Grid{}
	two := Grid{Start: 0, End: 1000, Step: 1000}
	avg := func(set string, sum, count float64) []TableSeries {
		return []TableSeries{part("sum", row(set, sum)), part("count", row(set, count))}
	}
	for _, tc := range []struct {
		name   string
		op     FoldOp
		grid   Grid
		in     tables
		want   string
		reason string // of ErrInexact
	}{
		{"no tables", FoldSum, Grid{}, nil, "", ""},
		{"empty tables", FoldSum, one, tables{{}, {}}, "", ""},
		{"sum", FoldSum, two, tables{{row("", 1, none)}, {row("", 2, 3)}, {row("", none, none)}}, "{} 3 3\n", ""},
		{
			"groups apart", FoldSum, one,
			tables{{row("g=a", 1), row("g=c", 3)}, {row("g=b", 2), row("g=c", 4)}},
			"{g=\"a\"} 1\n{g=\"b\"} 2\n{g=\"c\"} 7\n", "",
		},
		{"nothing at a step", FoldSum, two, tables{{row("", 1, none)}, {row("", 1, none)}}, "{} 2 .\n", ""},
		{"compensated", FoldSum, one, tables{{row("", 1e16)}, {row("", 1)}, {row("", 1)}}, "{} 1.0000000000000002e+16\n", ""},
		{
			"alone, whatever", FoldSum,
			Grid{End: 3, Step: 1},
			tables{{row("", nan, none, inf, math.Copysign(0, -1))}, {row("", none, -inf, none, none)}},
			"{} NaN -Inf +Inf -0\n", "",
		},
		{"NaN in a sum", FoldSum, one, tables{{row("", nan)}, {row("", 1)}}, "", "not finite"},
		{"infinity in a sum", FoldSum, one, tables{{row("", inf)}, {row("", 1)}}, "", "not finite"},
		{"overflow", FoldSum, one, tables{{row("", 1e308)}, {row("", 1e308)}}, "", "not finite"},
		{"zeros", FoldSum, one, tables{{row("", 0)}, {row("", 0)}}, "{} 0\n", ""},
		{"cancel to nothing", FoldSum, one, tables{{row("", 1)}, {row("", -1)}}, "", "cancel"},
		{"cancel too far", FoldSum, two, tables{{row("", 1, 1001)}, {row("", 1, -1000)}}, "", "cancel"},
		{"cancel a little", FoldSum, one, tables{{row("", 1000)}, {row("", -999)}}, "{} 1\n", ""},
		{"count", FoldCount, two, tables{{row("", 1, none)}, {row("", 2, 3)}}, "{} 3 3\n", ""},
		{"count too far", FoldCount, one, tables{{row("", 1<<52)}, {row("", 1<<52)}}, "", "2^53"},
		{"half a count", FoldCount, one, tables{{row("", 1.5)}, {row("", 1.5)}}, "", "integer"},
		{"no count", FoldCount, one, tables{{row("", nan)}, {row("", -1)}}, "", "integer"},
		{"min", FoldMin, two, tables{{row("", 1, nan)}, {row("", -2, 3)}, {row("", nan, nan)}}, "{} -2 3\n", ""},
		{"max", FoldMax, two, tables{{row("", 1, nan)}, {row("", -inf, -3)}, {row("", nan, none)}}, "{} 1 -3\n", ""},
		{"nothing but NaN", FoldMax, one, tables{{row("", nan)}, {row("", nan)}}, "{} NaN\n", ""},
		{"zeros tie", FoldMax, one, tables{{row("", 0)}, {row("", math.Copysign(0, -1))}}, "", "tie"},
		{"zeros do not decide", FoldMin, one, tables{{row("", 0)}, {row("", math.Copysign(0, -1))}, {row("", -1)}}, "{} -1\n", ""},
		{"zeros of one sign", FoldMin, one, tables{{row("", math.Copysign(0, -1))}, {row("", math.Copysign(0, -1))}}, "{} -0\n", ""},
		{"group", FoldGroup, two, tables{{row("", 1, none)}, {row("", none, none), row("g=a", none, 1)}}, "{} 1 .\n{g=\"a\"} . 1\n", ""},
		{"avg", FoldAvg, one, tables{avg("g=a", 6, 2), avg("g=a", 4, 3), avg("g=b", 1, 4)}, "{g=\"a\"} 2\n{g=\"b\"} 0.25\n", ""},
		{"avg, no groups", FoldAvg, one, tables{avg("", 6, 2), avg("", 4, 3)}, "{} 2\n", ""},
		{"avg with a name before the part's", FoldAvg, one, tables{
			append(avg("A=a", 6, 2), avg("A=b", 6, 3)...),
			append(avg("A=a", 4, 3), avg("zz=a", 1, 1)...),
		}, "{A=\"a\"} 2\n{A=\"b\"} 2\n{zz=\"a\"} 1\n", ""},
		{
			"avg of one sample", FoldAvg, one,
			tables{avg("g=a", inf, 1), avg("g=b", nan, 1), avg("g=c", -0.5, 1)},
			"{g=\"a\"} +Inf\n{g=\"b\"} NaN\n{g=\"c\"} -0.5\n", "",
		},
		{"avg of one shard", FoldAvg, one, tables{avg("", 1, 3)}, "{} 0.3333333333333333\n", ""},
		{"avg of one shard that overflows", FoldAvg, one, tables{avg("", inf, 2), avg("g=a", 1, 1)}, "", "average is not finite"},
		{"avg of one shard with NaN", FoldAvg, one, tables{avg("", nan, 2)}, "", "average is not finite"},
		{"avg with NaN", FoldAvg, one, tables{avg("", nan, 1), avg("", 1, 1)}, "", "not finite"},
		{"avg cancels", FoldAvg, one, tables{avg("", 1e6, 1), avg("", -1e6+1, 1)}, "", "cancel"},
		{"avg of nothing", FoldAvg, one, tables{avg("", 0, 0)}, "", "integer"},
		{"a sum alone", FoldAvg, one, tables{avg("", 1, 1), {part("sum", row("", 1))}}, "", "alone"},
		{"a count alone", FoldAvg, one, tables{{part("count", row("", 1))}}, "", "alone"},
		{"a count alone at a step", FoldAvg, two, tables{{part("sum", row("", 1, none)), part("count", row("", 1, 1))}}, "", "alone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := joined(t, tc.in, tc.grid, func(tables []*Table, b *admit.Budget) (*Table, error) { return Fold(tc.op, tables, b) })
			if tc.reason != "" {
				if !errors.Is(err, ErrInexact) || !strings.Contains(err.Error(), tc.reason) {
					t.Fatalf("got %q, %v; want ErrInexact with %q", got, err, tc.reason)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// TestFoldManyCancel: of many parts each may be small enough, and all together too large.
func TestFoldManyCancel(t *testing.T) {
	for _, tc := range []struct {
		pairs int
		want  bool
	}{{4, true}, {5, false}} {
		tables := []*Table{made(t, nil, Grid{}, row("", 0.001))}
		for range tc.pairs {
			tables = append(tables, made(t, nil, Grid{}, row("", 0.99)), made(t, nil, Grid{}, row("", -0.99)))
		}
		tab, err := Fold(FoldSum, tables, nil)
		if (err == nil) != tc.want || err != nil && !errors.Is(err, ErrInexact) {
			t.Errorf("%d pairs: %v", tc.pairs, err)
		}
		tab.Close()
	}
}

func TestFoldOtherErrors(t *testing.T) {
	b := admit.NewBudget(admit.NewPool(1<<20), roomy)
	if _, err := Fold(FoldSum, []*Table{made(t, b, Grid{}, row("", 1)), made(t, b, four)}, b); qerr.From(err).Kind != qerr.Internal {
		t.Errorf("grids differ: %v", err)
	}
	if _, err := Fold(FoldSum, []*Table{{}, {Histograms: true}}, b); !errors.Is(err, ErrInexact) {
		t.Errorf("histograms: %v", err)
	}
	// as a server answers that does not answer what it was asked
	if _, err := Fold(FoldAvg, []*Table{made(t, b, Grid{}, row("", 1))}, b); !errors.Is(err, ErrInexact) {
		t.Errorf("an average without parts: %v", err)
	}
	if _, err := Fold(FoldOp(99), []*Table{made(t, b, Grid{}, row("", 1)), made(t, b, Grid{}, row("", 1))}, b); err == nil {
		t.Error("an unknown operation is taken")
	}
	if tab, err := Union([]*Table{{}, {Histograms: true}}); err != nil || !tab.Histograms {
		t.Errorf("histograms: %v", err)
	}
	if b.Held() != 0 {
		t.Errorf("%d bytes are held", b.Held())
	}
	small := admit.NewBudget(admit.NewPool(64<<10), roomy)
	tables := []*Table{made(t, nil, Grid{}), made(t, nil, Grid{})}
	for i := range 5000 {
		tables[i%2].Series = append(tables[i%2].Series, row(fmt.Sprintf("a=%05d", i), 1))
	}
	_, err := Fold(FoldSum, tables, small)
	qerrtest.Refused(t, err, qerr.Overloaded, "memory.budget")
	if small.Held() != 0 {
		t.Errorf("%d bytes are held", small.Held())
	}
}

func TestUnion(t *testing.T) {
	union := func(tables []*Table, _ *admit.Budget) (*Table, error) { return Union(tables) }
	type tables = [][]TableSeries
	for name, tc := range map[string]struct {
		in    tables
		want  string
		twice bool
	}{
		"none":  {in: nil},
		"empty": {in: tables{{}, {}}},
		"one":   {in: tables{{row("b=1", 1), row("a=1", 2)}}, want: "{a=\"1\"} 2\n{b=\"1\"} 1\n"},
		"between": {
			in:   tables{{row("a=1", 1), row("a=3", nan)}, {row("a=2", 2)}, {row("", 4)}},
			want: "{} 4\n{a=\"1\"} 1\n{a=\"2\"} 2\n{a=\"3\"} NaN\n",
		},
		"twice":        {in: tables{{row("a=1", 1)}, {row("a=2", 2)}, {row("a=1", 1)}}, twice: true},
		"no set twice": {in: tables{{row("", 1)}, {row("", 2)}}, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := joined(t, tc.in, Grid{}, union)
			if errors.Is(err, ErrTwice) != tc.twice || err == nil && (got != tc.want || tc.twice) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
