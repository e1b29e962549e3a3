package recording

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

// Range answers a range query. Its answer must show what Options.Append got before.
type Range func(ctx context.Context, expr string, from, until time.Time, step time.Duration) (promql.Matrix, error)

// maxSteps is how many points of one series a Prometheus gives in one answer.
const maxSteps = 11_000

// Options say which rules are evaluated over what.
type Options struct {
	// Rules has the rule files, *.yaml at its root.
	Rules fs.FS
	// Dir is the folder in which the servers that go on have these files. When in its interval a
	// group is evaluated follows from its file's path and its name, so the past ends in step with
	// what goes on. Empty where nothing does: all groups are evaluated at the multiples of their
	// intervals.
	Dir string
	// Interval is that of groups that name none; a minute where it is 0.
	Interval time.Duration
	// Query answers the rules' questions, Append takes what they write. It gets samples of any age
	// and must take them.
	Query  Range
	Append storage.Appendable
	// ExternalLabels are what templates of alert labels see.
	ExternalLabels labels.Labels
	// Labels are set on everything that is written, in the place of labels of their names: as if it
	// came through a proxy that knows the server's.
	Labels labels.Labels
}

// Filler evaluates rules over stretches of time. It is for one goroutine.
type Filler struct {
	opts  Options
	rules [][]*rule // those that read each other together
	asked *answer   // of the rule that is evaluated
}

// rule is one rule in a group of its own: rules are evaluated one after the other over all steps.
type rule struct {
	rule     rules.Rule
	group    *rules.Group
	interval time.Duration
	phase    time.Duration // of the evaluations in their interval
	where    string
}

// Stats is what Fill wrote.
type Stats struct {
	// Rules is how many were evaluated, Steps how often all in all, Samples what they wrote, stale
	// markers included.
	Rules, Steps, Samples int
}

// New reads the rules.
func New(o Options) (*Filler, error) {
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.Rules == nil || o.Query == nil || o.Append == nil {
		return nil, errors.New("evaluate rules over the past: rules, who answers their queries and who takes their samples must be named")
	}
	f := &Filler{opts: o}
	all, err := f.load()
	if err != nil {
		return nil, fmt.Errorf("evaluate rules over the past: %w", err)
	}
	f.rules = inOrder(all)
	return f, nil
}

// loader reads rule files from a file system and leaves out annotations, whose templates would be
// expanded for each step.
type loader struct {
	files  fs.FS
	parser parser.Parser
}

func (l loader) Load(name string, ignoreUnknown bool, scheme model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	text, err := fs.ReadFile(l.files, name)
	if err != nil {
		return nil, []error{err}
	}
	groups, errs := rulefmt.Parse(text, ignoreUnknown, scheme, l.parser, promslog.NewNopLogger())
	if len(errs) > 0 {
		return nil, errs
	}
	for i := range groups.Groups {
		for n := range groups.Groups[i].Rules {
			groups.Groups[i].Rules[n].Annotations = nil
		}
	}
	return groups, nil
}

func (l loader) Parse(expr string) (parser.Expr, error) { return l.parser.ParseExpr(expr) }

func (f *Filler) load() ([]*rule, error) {
	names, err := fs.Glob(f.opts.Rules, "*.yaml")
	if err != nil {
		return nil, err
	}
	p := parser.NewParser(parser.Options{})
	o := &rules.ManagerOptions{
		QueryFunc: f.at, Appendable: anyAge{f.opts.Append, f.opts.Labels}, Logger: promslog.NewNopLogger(),
		GroupLoader: loader{f.opts.Rules, p}, Parser: p,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, // the past is nobody's news
	}
	m := rules.NewManager(o)
	var all []*rule
	for _, name := range names { // one file after the other: groups come as a map
		groups, errs := m.LoadGroups(f.opts.Interval, f.opts.ExternalLabels, "", nil, false, name)
		if len(errs) > 0 {
			return nil, fmt.Errorf("%s: %w", name, errors.Join(errs...))
		}
		for _, key := range sortedKeys(groups) {
			g := groups[key]
			phase := f.phase(g, o)
			for i, r := range g.Rules() {
				if a, ok := r.(*rules.AlertingRule); ok {
					a.SetRestored(true) // there is nothing before the past
				}
				all = append(all, &rule{
					rule: r, interval: g.Interval(), phase: phase, where: fmt.Sprintf("%s: group %s: %s", name, g.Name(), r.Name()),
					group: rules.NewGroup(rules.GroupOptions{
						Name: fmt.Sprintf("%s/%d", g.Name(), i), File: name, Interval: g.Interval(),
						Limit: g.Limit(), Rules: []rules.Rule{r}, Opts: o,
					}),
				})
			}
		}
	}
	return all, nil
}

// phase is when in its interval a server evaluates the group.
func (f *Filler) phase(g *rules.Group, o *rules.ManagerOptions) time.Duration {
	if f.opts.Dir == "" {
		return 0
	}
	live := rules.NewGroup(rules.GroupOptions{Name: g.Name(), File: filepath.Join(f.opts.Dir, g.File()), Interval: g.Interval(), Opts: o})
	return time.Duration(live.EvalTimestamp(g.Interval().Nanoseconds()).UnixNano() % g.Interval().Nanoseconds())
}

// first is the first evaluation at from or later, as servers have it: they store milliseconds.
func (r *rule) first(from time.Time) time.Time {
	since := (from.UnixNano() - r.phase.Nanoseconds()) % r.interval.Nanoseconds()
	at := from.Add(-time.Duration(since)).Truncate(time.Millisecond)
	if at.Before(from) {
		at = at.Add(r.interval)
	}
	return at
}

// Fill evaluates all rules over [from, until), at the multiples of their groups' intervals or, with
// Options.Dir, when servers do. An error names each rule that failed; what the others wrote stands.
func (f *Filler) Fill(ctx context.Context, from, until time.Time) (Stats, error) {
	var (
		st   Stats
		errs []error
	)
	for _, rs := range f.rules {
		if ctx.Err() != nil {
			return st, context.Cause(ctx)
		}
		if len(rs) > 1 || readsItself(rs[0].rule) {
			errs = append(errs, f.circle(ctx, rs, from, until, &st))
			continue
		}
		r := rs[0]
		steps, err := f.fill(ctx, r, from, until)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.where, err))
			continue
		}
		st.Rules++
		st.Steps += steps
		st.Samples += f.asked.written
	}
	f.asked = nil
	return st, errors.Join(errs...)
}

// circle evaluates rules that read each other, or their own past: step by step and in their order,
// as servers do. One that fails is left out from then on.
func (f *Filler) circle(ctx context.Context, rs []*rule, from, until time.Time, st *Stats) error {
	var errs []error
	next := map[*rule]time.Time{}
	for _, r := range rs {
		next[r] = r.first(from)
	}
	st.Rules += len(rs)
	for ctx.Err() == nil {
		at := until
		for _, t := range next {
			if t.Before(at) {
				at = t
			}
		}
		if at.Equal(until) {
			return errors.Join(errs...)
		}
		for _, r := range rs {
			if t, ok := next[r]; !ok || !t.Equal(at) {
				continue
			}
			steps, err := f.fill(ctx, r, at, at.Add(1))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.where, err))
				delete(next, r)
				st.Rules--
				continue
			}
			st.Steps += steps
			st.Samples += f.asked.written
			next[r] = at.Add(r.interval)
		}
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

func (f *Filler) fill(ctx context.Context, r *rule, from, until time.Time) (steps int, err error) {
	first := r.first(from)
	if !first.Before(until) {
		f.asked = &answer{}
		return 0, nil
	}
	last := first.Add((until.Sub(first) - 1) / r.interval * r.interval)
	if n := last.Sub(first)/r.interval + 1; n > maxSteps {
		return 0, fmt.Errorf("%d steps are more than the %d that one answer may have: fill a shorter stretch at a time", n, maxSteps)
	}
	expr := r.rule.Query().String()
	m, err := f.opts.Query(ctx, expr, first, last, r.interval)
	if err != nil {
		return 0, err
	}
	f.asked = newAnswer(expr, m)
	for t := first; !t.After(last); t = t.Add(r.interval) {
		r.group.Eval(ctx, t)
		if err := r.rule.LastError(); err != nil {
			return steps, err
		}
		steps++
	}
	return steps, ctx.Err()
}

// anyAge keeps rule groups from asking that what is out of order be dropped, which in time that
// goes by is a mistake and here is the purpose. It sets Options.Labels too.
type anyAge struct {
	storage.Appendable
	set labels.Labels
}

func (a anyAge) Appender(ctx context.Context) storage.Appender {
	return &late{a.Appendable.Appender(ctx), a.set, labels.NewBuilder(labels.EmptyLabels())}
}

type late struct {
	storage.Appender
	set     labels.Labels
	builder *labels.Builder
}

func (*late) SetOptions(*storage.AppendOptions) {}

func (a *late) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	return a.Appender.Append(ref, a.labelled(l), t, v)
}

func (a *late) AppendHistogram(ref storage.SeriesRef, l labels.Labels, t int64, h *histogram.Histogram,
	fh *histogram.FloatHistogram,
) (storage.SeriesRef, error) {
	return a.Appender.AppendHistogram(ref, a.labelled(l), t, h, fh)
}

func (a *late) labelled(l labels.Labels) labels.Labels {
	if a.set.IsEmpty() {
		return l
	}
	a.builder.Reset(l)
	a.set.Range(func(x labels.Label) { a.builder.Set(x.Name, x.Value) })
	return a.builder.Labels()
}

// answer is a range query's, by moment.
type answer struct {
	expr    string
	at      map[int64]promql.Vector
	written int
}

func newAnswer(expr string, m promql.Matrix) *answer {
	a := &answer{expr: expr, at: map[int64]promql.Vector{}}
	for _, s := range m {
		for _, p := range s.Floats {
			a.at[p.T] = append(a.at[p.T], promql.Sample{Metric: s.Metric, T: p.T, F: p.F})
		}
		for _, p := range s.Histograms {
			a.at[p.T] = append(a.at[p.T], promql.Sample{Metric: s.Metric, T: p.T, H: p.H})
		}
	}
	return a
}

// at answers a rule from what was asked for the whole stretch.
func (f *Filler) at(_ context.Context, expr string, t time.Time) (promql.Vector, error) {
	if f.asked == nil || f.asked.expr != expr {
		return nil, fmt.Errorf("the query %q of a label's template cannot be answered about the past", expr)
	}
	v := f.asked.at[t.UnixMilli()]
	delete(f.asked.at, t.UnixMilli()) // the rule changes what it is given, and memory is wanted back
	f.asked.written += len(v)
	return v, nil
}
