package soak

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// defaultInterval is that of groups which name none, and the step of subqueries that name none.
const defaultInterval = 30 * time.Second

// lookback is how old a sample may be that an instant selector finds.
const lookback = 5 * time.Minute

// Options says what to soak. The zero value of every field but Rules is usable.
type Options struct {
	// Rules are what is on trial.
	Rules Rules
	// Severities are those of the alerts that are judged; auto and critical where there are none.
	Severities []string
	// All has the control plane's alerts judged too.
	All bool
	// Seed draws the cluster and what happens to it.
	Seed uint64
	// Length is the simulated time that is judged; a day where it is 0.
	Length time.Duration
	// Cluster is the simulated cluster: 12 nodes with all exporters where it says nothing. Troubles
	// in it are staged beside those that are drawn, and explain nothing.
	Cluster cluster.Options
	// Interval between scrapes; a minute where it is 0.
	Interval time.Duration
	// Say is told how far it is, one line for each simulated day; nil is nobody.
	Say func(format string, args ...any)

	// For tests.
	parser parser.Parser         // of the engine; nil is one that remembers
	only   func(s *sort) bool    // sorts that are staged; nil is all
	stores func(*store) database // what stands in place of the store; nil is itself
}

func (o Options) withDefaults() Options {
	if len(o.Severities) == 0 {
		o.Severities = []string{"auto", "critical"}
	}
	o.Length = cmp.Or(o.Length, day)
	o.Interval = cmp.Or(o.Interval, time.Minute)
	o.Cluster.Seed = o.Seed
	o.Cluster.Nodes = cmp.Or(o.Cluster.Nodes, 12)
	o.Cluster.Cluster = cmp.Or(o.Cluster.Cluster, "jaguar")
	if o.Cluster.Exporters == 0 {
		o.Cluster.Exporters = cluster.AllExporters
	}
	if o.Cluster.Start.IsZero() {
		o.Cluster.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.parser == nil {
		o.parser = remember()
	}
	if o.stores == nil {
		o.stores = func(s *store) database { return s }
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// database is what scrapes and rules write to and rules read.
type database interface {
	storage.Appendable
	storage.Queryable
}

// evaluated is one group as Prometheus evaluates it.
type evaluated struct {
	group    *rules.Group
	alerting []*rules.AlertingRule // of the chosen alerts
	next     time.Time
	took     time.Duration
}

// Run soaks the rules and tells what fired. An error is of the machinery or of a rule that cannot
// be evaluated; what is wrong with what fired is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.withDefaults()
	began := time.Now()
	p, err := o.plan()
	if err != nil {
		return nil, err
	}
	from := o.Cluster.Start.Add(lead)
	until := from.Add(o.Length)
	incidents, m, err := stage(o, from, until)
	if err != nil {
		return nil, err
	}
	kept := newStore(p.reach)
	h, err := newHistory(&o, m, p, o.stores(kept))
	if err != nil {
		return nil, err
	}
	groups := p.build(ctx, &o, h)
	j := &judge{incidents: incidents}
	r := &Report{Options: o, From: from, Until: until, plan: p, model: m, incidents: incidents}
	start := from.Add(-warmUp)
	for at := start; at.Before(until); at = at.Add(window) {
		mark := time.Now()
		if err := h.scrape(ctx, at, at.Add(window)); err != nil {
			return nil, err
		}
		r.Scraping += time.Since(mark)
		mark = time.Now()
		if err := evaluate(ctx, groups, at, at.Add(window), j); err != nil {
			return nil, err
		}
		r.Evaluating += time.Since(mark)
		kept.forget(at.Add(window))
		if done := at.Add(window).Sub(from); done > 0 && done%day == 0 {
			o.Say("day %d after %s: %d alerts fired", done/day, time.Since(began).Round(time.Second), len(j.fired))
		}
	}
	r.judge(j)
	r.Took, r.Samples = time.Since(began), h.samples
	for _, g := range groups {
		r.groups = append(r.groups, spent{g.group.Name(), g.took})
	}
	return r, nil
}

// build makes Prometheus' own groups of the plan's.
func (p *plan) build(ctx context.Context, o *Options, h *history) []*evaluated {
	log := slog.New(slog.DiscardHandler)
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: lookback,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: o.parser,
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultInterval.Milliseconds() },
	})
	opts := &rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, h.store), Appendable: h.store, Queryable: h.store, Context: ctx, Logger: log,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Metrics: rules.NewGroupMetrics(prometheus.NewRegistry()),
	}
	var out []*evaluated
	for _, g := range p.groups {
		e := &evaluated{}
		var made []rules.Rule
		for _, x := range g.rules {
			if x.Record != "" {
				made = append(made, rules.NewRecordingRule(x.Record, spelt{x.expr, x.Expr}, labels.FromMap(x.Labels)))
				continue
			}
			a := rules.NewAlertingRule(x.Alert, spelt{x.expr, x.Expr}, time.Duration(x.For), time.Duration(x.KeepFiringFor),
				labels.FromMap(x.Labels), labels.EmptyLabels(), labels.EmptyLabels(), "", true, log)
			made = append(made, a)
			if o.chosen(x) {
				e.alerting = append(e.alerting, a)
			}
		}
		e.group = rules.NewGroup(rules.GroupOptions{
			Name: g.group, File: g.file, Interval: max(g.interval, o.Interval), Limit: g.limit,
			Rules: made, Opts: opts, QueryOffset: &g.offset,
		})
		out = append(out, e)
	}
	return out
}

// evaluate evaluates all groups in [from, until), each at its own moments as a server would that
// is never late, in order of time.
func evaluate(ctx context.Context, groups []*evaluated, from, until time.Time, j *judge) error {
	for _, g := range groups {
		if g.next.IsZero() {
			g.next = g.group.EvalTimestamp(from.UnixNano()).Add(g.group.Interval())
		}
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		g := slices.MinFunc(groups, func(a, b *evaluated) int { return a.next.Compare(b.next) })
		if !g.next.Before(until) {
			return nil
		}
		mark := time.Now()
		g.group.Eval(ctx, g.next)
		g.took += time.Since(mark)
		for _, r := range g.group.Rules() {
			if err := r.LastError(); err != nil {
				return fmt.Errorf("%s of group %s at %s: %w", r.Name(), g.group.Name(), g.next.UTC().Format(time.RFC3339), err)
			}
		}
		for _, a := range g.alerting {
			if a.ActiveAlertsCount() > 0 {
				j.see(a, g.next, g.group.Interval())
			}
		}
		g.next = g.next.Add(g.group.Interval())
	}
}
