package dashboards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/dashboards/live"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/rules"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Options say how panels are asked. Zero values take the defaults named.
type Options struct {
	// Asking's window is the time range of the dashboards; its bound is for panels that read no
	// recorded series.
	bench.Asking
	// Then, where set, is called when all panels have been asked, while the servers and the proxy
	// still run: api is the proxy's URL, and what was recorded ends at until.
	Then func(ctx context.Context, api string, until time.Time) error
}

func (o Options) withDefaults() Options {
	o.Asking = o.Asking.WithDefaults()
	return o
}

// Validate returns everything that is wrong with o.
func (o Options) Validate() error {
	var p bench.Problems
	o.Asking.Check(&p, time.Minute)
	return p.Err()
}

// Panel is one panel and what it took.
type Panel struct {
	// Dashboard and Title are where it is.
	Dashboard, Title string
	// Queries is how many it asks at once; Series is how many series they brought.
	Queries, Series int
	// Recorded says that one of its queries reads a recorded series.
	Recorded bool
	bench.Took
}

// Result is what was measured.
type Result struct {
	// Rules is what the ruler took meanwhile, before the panels were asked.
	Rules *rules.Result
	// Panels are all of them, the slowest first.
	Panels []Panel
	// Bound is that of the options.
	Bound time.Duration
}

// Err is what is wrong with the result: a panel that was not answered, or that took longer than the
// bound and reads no recorded series.
func (r *Result) Err() error {
	var errs []error
	if len(r.Panels) == 0 {
		errs = append(errs, errors.New("no panel was asked"))
	}
	for _, p := range r.Panels {
		switch {
		case p.Err != nil:
			errs = append(errs, fmt.Errorf("%s, %q: %w", p.Dashboard, p.Title, p.Err))
		case p.Median > r.Bound && !p.Recorded:
			errs = append(errs, fmt.Errorf("%s, %q takes %.1f s and reads no recorded series", p.Dashboard, p.Title, p.Median.Seconds()))
		}
	}
	return errors.Join(errs...)
}

// slowest is how many panels the table has.
const slowest = 10

// WriteMarkdown writes the table of the documentation.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	over := 0
	for _, p := range r.Panels {
		if p.Median > r.Bound || p.Err != nil {
			over++
		}
	}
	fmt.Fprintf(&b, "%d panels over %d series of %d nodes x 8 GPUs on %d servers; %d over %s or not answered. The slowest:\n\n", len(r.Panels), r.Rules.Series, r.Rules.Nodes, r.Rules.Shards, over, r.Bound)
	b.WriteString("| dashboard | panel | queries | series | recorded | median | longest |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, p := range r.Panels[:min(slowest, len(r.Panels))] {
		recorded := ""
		if p.Recorded {
			recorded = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s | %s | %.2f s |\n", p.Dashboard, p.Title, p.Queries, p.Series, recorded, p.Text(),
			p.Max.Seconds())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Measure makes the data, lets the ruler run and asks every panel. It ends early, with an error,
// when ctx does; what is wrong with panels is in the result.
func Measure(ctx context.Context, servers rules.Options, o Options) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	r := &Result{Bound: o.Bound}
	say := servers.Say
	if say == nil {
		say = func(string, ...any) {}
	}
	servers.Then = func(ctx context.Context, groups []config.Group, until time.Time) (err error) {
		dir, err := os.MkdirTemp(servers.Dir, "spillway-dashboards-")
		if err != nil {
			return fmt.Errorf("the benchmark needs a folder: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file := filepath.Join(dir, "spillway.yaml")
		if err := config.WriteFile(file, config.Of(groups...)); err != nil {
			return err
		}
		proc, api, _, err := realprom.StartProxy(ctx, servers.Spillway, file, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, proc.Stop()) }()
		source := live.NewSource("the proxy", api)
		for _, name := range dashboards.Names() {
			d, err := dashboards.Load(name)
			if err != nil {
				return err
			}
			say("dashboard %s", name)
			panels, err := o.ask(ctx, source, d, until)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil { // a variable without options, say: what nobody can look at
				panels = []Panel{{Dashboard: name, Title: "the whole dashboard", Took: bench.Took{Err: err}}}
			}
			r.Panels = append(r.Panels, panels...)
		}
		if o.Then != nil {
			return o.Then(ctx, api, until)
		}
		return nil
	}
	var err error
	if r.Rules, err = rules.Measure(ctx, servers); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.Panels, func(a, b Panel) int { return a.Took.Compare(b.Took) })
	return r, nil
}

// ask asks all panels of a dashboard, one after the other.
func (o *Options) ask(ctx context.Context, source live.Source, d *dashboards.Dashboard, until time.Time) ([]Panel, error) {
	byPanel := map[int]*Panel{}
	took := map[int][]time.Duration{}
	var order []int
	for n := range o.Times {
		to := until.Add(-time.Duration(n) * time.Second) // no answer can come out of a cache
		view, err := live.Look(ctx, source, d, to.Add(-o.Window), to, "jaguar")
		if err != nil {
			return nil, err
		}
		all, err := view.Questions()
		if err != nil {
			return nil, err
		}
		questions := map[int][]live.Question{}
		for _, q := range all {
			if q.Panel == nil {
				continue
			}
			p, id := q.Panel, q.Panel.ID
			if byPanel[id] == nil {
				byPanel[id], order = &Panel{Dashboard: d.Name, Title: p.Title, Queries: len(p.Targets)}, append(order, id)
			}
			recorded, err := readsRecorded(q.Question.Expr)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", q.Where, err)
			}
			byPanel[id].Recorded = byPanel[id].Recorded || recorded
			questions[id] = append(questions[id], q.Question)
		}
		for _, id := range order {
			p := byPanel[id]
			counts := make([]int, len(questions[id]))
			var g errgroup.Group
			began := time.Now()
			for i, q := range questions[id] {
				g.Go(func() error {
					a, err := source.Ask(ctx, q)
					if err == nil {
						counts[i] = len(a.Series)
					}
					return err
				})
			}
			err := g.Wait()
			took[id] = append(took[id], time.Since(began))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if p.Err == nil {
				p.Err = err
			}
			p.Series = 0
			for _, c := range counts {
				p.Series += c
			}
		}
	}
	out := make([]Panel, 0, len(order))
	for _, id := range order {
		p := byPanel[id]
		p.Took = bench.Summary(took[id], p.Err)
		out = append(out, *p)
	}
	return out, nil
}

// readsRecorded tells whether an expression selects a series that a rule records: by convention
// these have a colon in their name.
func readsRecorded(expr string) (yes bool, err error) {
	e, err := parser.NewParser(parser.Options{ExperimentalDurationExpr: true}).ParseExpr(expr)
	if err != nil {
		return false, err
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok && strings.Contains(v.Name, ":") {
			yes = true
		}
		return nil
	})
	return yes, nil
}
