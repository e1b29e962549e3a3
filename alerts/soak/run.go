package soak

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
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
	parser  func() parser.Parser  // of a group's engine; nil is one that remembers
	only    func(s *sort) bool    // sorts that are staged; nil is all
	stores  func(*store) database // what stands in place of the store; nil is itself
	workers int                   // groups that are evaluated at a time; 0 is as many as there are processors
	window  time.Duration         // what the model works out at once; three hours where it is 0
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
		o.parser = func() parser.Parser { return remember() }
	}
	if o.stores == nil {
		o.stores = func(s *store) database { return s }
	}
	o.workers = cmp.Or(o.workers, runtime.GOMAXPROCS(0))
	o.window = cmp.Or(o.window, 3*time.Hour)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// database is what scrapes and rules write to and rules read.
type database interface {
	storage.Appendable
	storage.Queryable
	// scraper is whom scrapes of one window are handed to.
	scraper() storage.Appendable
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
	s := newSchedule(groups, kept, from.Add(-warmUp), until)
	s.say = func(days, fired int) {
		o.Say("day %d after %s: %d alerts fired", days, time.Since(began).Round(time.Second), fired)
	}
	if err := s.run(ctx, h, o.workers); err != nil {
		return nil, err
	}
	r := &Report{Options: o, From: from, Until: until, plan: p, model: m, incidents: incidents}
	j := &judge{incidents: incidents}
	for _, g := range groups {
		j.fired = append(j.fired, g.fired...)
		r.groups = append(r.groups, spent{g.group.Name(), g.took})
		r.Evaluating += g.took
	}
	r.judge(j)
	r.Took, r.Scraping, r.Samples = time.Since(began), h.took, h.samples
	return r, nil
}

// build makes Prometheus' own groups of the plan's, each with an engine of its own: what the parser
// remembers is for one at a time.
func (p *plan) build(ctx context.Context, o *Options, h *history) []*evaluated {
	log := slog.New(slog.DiscardHandler)
	metrics := rules.NewGroupMetrics(prometheus.NewRegistry())
	var out []*evaluated
	for _, g := range p.groups {
		engine := promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: time.Hour, LookbackDelta: lookback,
			EnableAtModifier: true, EnableNegativeOffset: true, Parser: o.parser(),
			NoStepSubqueryIntervalFn: func(int64) int64 { return defaultInterval.Milliseconds() },
		})
		opts := &rules.ManagerOptions{
			QueryFunc: rules.EngineQueryFunc(engine, h.store), Appendable: h.store, Queryable: h.store, Context: ctx, Logger: log,
			NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Metrics: metrics,
		}
		e := &evaluated{of: g}
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
