package recording

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/api"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files are rules in which a group reads a later file's group, so that the order of files is the
// wrong one.
var files = fstest.MapFS{
	"a.yaml": {Data: []byte(`groups:
  - name: late
    interval: 30s
    rules:
      - record: cluster:busy:sum
        expr: sum(node:busy:max)
      - alert: Busy
        expr: node:busy:max > 5
        for: 2m
        labels: {severity: page}
        annotations: {summary: "{{ query \"up\" }}"}
`)},
	"b.yaml": {Data: []byte(`groups:
  - name: early
    interval: 30s
    rules:
      - record: node:busy:max
        expr: max by (node) (busy)
`)},
}

// filled is a shard with ten minutes of data: node a is busy from 3m on and gone after 7m, node b
// never is.
func filled(t *testing.T) *localprom.Shard {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.LoadAt("load 30s\n busy{node=\"a\"} 1x5 9x7 stale\n busy{node=\"b\"} 1x20\n", zero); err != nil {
		t.Fatal(err)
	}
	return s
}

var zero = time.Unix(1_700_000_400, 0)

// series is what the shard answers, as text.
func series(t *testing.T, s *localprom.Shard, expr string, at time.Duration) []string {
	t.Helper()
	q, err := s.Engine().NewInstantQuery(t.Context(), s.Storage(), nil, expr, zero.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, x := range v {
		out = append(out, fmt.Sprintf("%s %g", x.Metric, x.F))
	}
	slices.Sort(out)
	return out
}

func TestFill(t *testing.T) {
	for name, source := range map[string]func(*localprom.Shard) Range{
		"engine": func(s *localprom.Shard) Range { return FromEngine(s.Engine(), s.Storage()) },
		"http": func(s *localprom.Shard) Range {
			c, err := api.NewClient(api.Config{Address: s.URL()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.(api.CloseIdler).CloseIdleConnections)
			return NewRemote(c).Range
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t)
			f, err := New(Options{Rules: files, Query: source(s), Append: s.Storage()})
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range [][2]time.Duration{{0, 4 * time.Minute}, {4 * time.Minute, 10 * time.Minute}} {
				st, err := f.Fill(t.Context(), zero.Add(part[0]), zero.Add(part[1]))
				if err != nil {
					t.Fatal(err)
				}
				if steps := int((part[1] - part[0]) / (30 * time.Second)); st.Rules != 3 || st.Steps != 3*steps || st.Samples == 0 {
					t.Errorf("%v: %+v, want 3 rules and %d steps of each", part, st, steps)
				}
			}
			for _, c := range []struct {
				expr string
				at   time.Duration
				want []string
			}{
				{"cluster:busy:sum", 0, []string{`{__name__="cluster:busy:sum"} 2`}},
				{"cluster:busy:sum", 4 * time.Minute, []string{`{__name__="cluster:busy:sum"} 10`}},
				{"node:busy:max", 8 * time.Minute, []string{`{__name__="node:busy:max", node="b"} 1`}}, // stale, not looked back for
				{"ALERTS", 4 * time.Minute, []string{`{__name__="ALERTS", alertname="Busy", alertstate="pending", node="a", severity="page"} 1`}},
				{"ALERTS", 5 * time.Minute, []string{`{__name__="ALERTS", alertname="Busy", alertstate="firing", node="a", severity="page"} 1`}}, // waited over the seam of two stretches
				{"ALERTS", 8 * time.Minute, nil},
				{"ALERTS_FOR_STATE", 5 * time.Minute, []string{fmt.Sprintf(`{__name__="ALERTS_FOR_STATE", alertname="Busy", node="a", severity="page"} %g`, float64(zero.Add(3*time.Minute).Unix()))}},
			} {
				if got := series(t, s, c.expr, c.at); !slices.Equal(got, c.want) {
					t.Errorf("%s at %s: %q, want %q", c.expr, c.at, got, c.want)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	s := filled(t)
	with := func(expr string) fstest.MapFS {
		return fstest.MapFS{"x.yaml": {Data: []byte("groups: [{name: x, rules: [{record: x, expr: y}, {record: y, expr: '" + expr + "'}]}]")}}
	}
	o := Options{Query: FromEngine(s.Engine(), s.Storage()), Append: s.Storage()}
	for expr, want := range map[string]string{"sum(": "unclosed"} {
		o.Rules = with(expr)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", expr, err, want)
		}
	}
	o.Rules = with("busy * on () group_left () busy") // fails: many to many
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Fill(t.Context(), zero, zero.Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "x.yaml: group x: y") {
		t.Errorf("a rule that fails: %v", err)
	}
	if _, err := f.Fill(t.Context(), zero, zero.Add(10*24*time.Hour)); err == nil || !strings.Contains(err.Error(), "11000") {
		t.Errorf("ten days at once: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	if _, err := f.Fill(ctx, zero, zero.Add(time.Minute)); err == nil {
		t.Error("a context that has ended is no error")
	}
}

// TestWarnings: an answer that may be a part is an error.
func TestWarnings(t *testing.T) {
	if err := noWarnings([]string{"a shard did not answer"}); err == nil {
		t.Error("no error")
	}
	if err := noWarnings(nil); err != nil {
		t.Errorf("none: %v", err)
	}
}

// TestInStep: with Options.Dir the past ends in step with a server that has the rule files there:
// the server's next evaluation comes one interval after the last of the past.
func TestInStep(t *testing.T) {
	const interval = 2 * time.Second
	files := fstest.MapFS{}
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} { // three of a server's phases are not all at 0
		text := fmt.Sprintf("groups: [{name: g, interval: %s, rules: [{record: %s, expr: vector(1)}]}]", interval, name)
		files[name+".yaml"] = &fstest.MapFile{Data: []byte(text)}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := func(config string) *localprom.Shard {
		s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, Config: config})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	samples := func(s *localprom.Shard, metric string, from, until time.Time) (at []int64) {
		q, err := s.Storage().Querier(from.UnixMilli(), until.UnixMilli()-1)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric))
		for set.Next() {
			for it := set.At().Iterator(nil); it.Next() != chunkenc.ValNone; {
				at = append(at, it.AtT())
			}
		}
		if set.Err() != nil {
			t.Fatal(set.Err())
		}
		return at
	}
	live, past := start("rule_files: ["+filepath.Join(dir, "*.yaml")+"]"), start("")
	began := time.Now()
	f, err := New(Options{Rules: files, Dir: dir, Query: FromEngine(past.Engine(), past.Storage()), Append: past.Storage()})
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]time.Time{}
	for _, name := range []string{"a", "b", "c"} {
		var found []int64
		for end := began.Add(time.Minute); len(found) == 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the server has not evaluated %s", name)
			}
			found = samples(live, name, began.Add(-interval), end)
		}
		next[name] = time.UnixMilli(found[0])
	}
	from, middle := began.Add(-10*interval), began.Add(-3*interval) // two stretches, wherever they meet
	for _, part := range [][2]time.Time{{from, middle}, {middle, began}} {
		if _, err := f.Fill(t.Context(), part[0], part[1]); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range next {
		var want []int64
		for n := -12; n < 2; n++ {
			if past := at.Add(time.Duration(n) * interval); !past.Before(from) && past.Before(began) {
				want = append(want, past.UnixMilli())
			}
		}
		if got := samples(past, name, from, began); len(want) < 9 || !slices.Equal(got, want) {
			t.Errorf("%s: the past is evaluated at %d, want %d: the server goes on at %d", name, got, want, at.UnixMilli())
		}
	}
}

// TestBlocks: what is written as a block is what a filler appends, and rules see each other's
// results on the way.
func TestBlocks(t *testing.T) {
	s := filled(t)
	dir := t.TempDir()
	files := maps.Clone(files)
	files["c.yaml"] = &fstest.MapFile{Data: []byte("no rules at all")}
	st, err := Blocks(t.Context(), dir, Options{Rules: Without(files, "c.yaml"), Labels: labels.FromStrings("cluster", "x")}, s.Engine(),
		s.Storage(), zero, zero.Add(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if st.Rules != 3 || st.Steps != 60 {
		t.Errorf("%+v", st)
	}
	other, err := localprom.Start(t.Context(),
		localprom.Options{Blocks: []string{dir}, DisableWAL: true, Retention: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for expr, want := range map[string][]string{
		"cluster:busy:sum": {`{__name__="cluster:busy:sum", cluster="x"} 10`},
		"busy":             nil,
		"count(ALERTS)":    {`{} 1`},
	} {
		if got := series(t, other, expr, 5*time.Minute); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "recording-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
}
