package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// ReplayOptions say how much is replayed. The zero value is the default.
type ReplayOptions struct {
	// MaxSeries is how many series the sample may have; 200,000.
	MaxSeries int
	// Span is how far the sample reaches back from its newest moment; 30 minutes. Where the source
	// has one sample of a series, as pages do, it is continued over the span, one a minute.
	Span time.Duration
	// MaxQueries is how many different queries are asked; 20,000. Those about metrics that a rule
	// touches come first, and the rest is counted as skipped.
	MaxQueries int
	// Timeout is how long one query may take; a minute. One that takes longer before or after is
	// counted as skipped.
	Timeout time.Duration
	// External are labels that no stored series has, since they are added elsewhere; uses.External
	// where it is nil. Matchers on them are taken out of queries.
	External []string
	// Dir is where the temporary folder is made, which is removed at the end; the system's where it
	// is empty. It takes a few hundred bytes for each series of the sample, twice.
	Dir string
	// Progress is told how many queries were asked of how many; nil for nobody.
	Progress func(done, total int64)
}

const (
	// rangeSteps is how many steps a range query has, over the second half of the span: the first
	// is what rates look back on.
	rangeSteps = 5
	// differencesAtMost is how many are described.
	differencesAtMost = 1000
	// engineSamples is how many samples one query may hold, as the server has it.
	engineSamples = 50_000_000
)

// Play loads a sample of the data twice, before and after the rules, into two storages in a
// temporary folder, records in each what the recording rules of the set record, asks each every
// query of the set, at the newest moment and over a range, and compares the answers. An error means
// that nothing was compared: a difference is none.
func Play(ctx context.Context, src inventory.Sampled, set *uses.Set, rules []propose.Rule, o ReplayOptions) (_ *Replay, err error) {
	o.MaxSeries, o.MaxQueries = cmp.Or(o.MaxSeries, 200_000), cmp.Or(o.MaxQueries, 20_000)
	o.Span, o.Timeout = cmp.Or(o.Span, 30*time.Minute), cmp.Or(o.Timeout, time.Minute)
	if o.External == nil {
		o.External = uses.External
	}
	if o.Span < 10*interval {
		return nil, fmt.Errorf("replay: a span of %s has too few samples for rates; at least %s are needed", o.Span, 10*interval)
	}
	chains, err := chainsOf(rules)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	dir, err := os.MkdirTemp(o.Dir, "spillway-replay-")
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	x, err := load(ctx, src, set.Recorded(), int64(o.MaxSeries), o.Span)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if x.found == 0 && x.wanted > 0 {
		return nil, fmt.Errorf("replay: none of the %d series of the sample has a sample in the last %s, so that no answer could be compared and nothing is proven. Does %s add labels to what it sends that no "+
			"stored series has? Then name them: --external-label. Or leave this proof out: --no-replay", x.wanted, model.Duration(o.Span), src)
	}
	p := &player{
		o: o, end: time.UnixMilli(x.end), out: &Replay{Parts: int64(x.thinned), Wanted: x.wanted, Found: x.found},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: engineSamples, Timeout: o.Timeout, EnableAtModifier: true, EnableNegativeOffset: true, Parser: syntax,
			NoStepSubqueryIntervalFn: func(int64) int64 { return interval.Milliseconds() },
		}),
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if p.before, err = newStore(ctx, filepath.Join(dir, "before"), x, o.Span, nil); err != nil {
		return nil, fmt.Errorf("replay: load what is stored: %w", err)
	}
	if p.after, err = newStore(ctx, filepath.Join(dir, "after"), x, o.Span, chains); err != nil {
		return nil, fmt.Errorf("replay: load what the rules leave: %w", err)
	}
	p.out.Series, p.out.After = p.before.series, p.after.series
	queries, skipped := questions(set, rules, o.External, p.end, o.Span)
	p.out.Skipped = skipped
	if err := p.record(ctx, set, filepath.Join(dir, "rules")); err != nil {
		return nil, fmt.Errorf("replay: evaluate recording rules: %w", err)
	}
	if n := len(queries); n > o.MaxQueries {
		skipped["there are more queries than may be asked"] += int64(n - o.MaxQueries)
		queries = queries[:o.MaxQueries]
	}
	for i, q := range queries {
		if err := p.ask(ctx, q); err != nil {
			return nil, fmt.Errorf("replay: %s: %s: %w", q.where(), q.text, err)
		}
		if o.Progress != nil {
			o.Progress(int64(i+1), int64(len(queries)))
		}
	}
	if len(p.out.Skipped) == 0 {
		p.out.Skipped = nil
	}
	return p.out, nil
}

// chainsOf are the rules of each job, in their order.
func chainsOf(rules []propose.Rule) (map[string]*Chain, error) {
	out := map[string]*Chain{}
	for i := range rules {
		c, err := NewChain(rules[i].Relabel)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", rules[i].ID, err)
		}
		job := out[rules[i].Job]
		if job == nil {
			out[rules[i].Job] = c
			continue
		}
		job.steps = append(job.steps, c.steps...)
	}
	return out, nil
}

// player asks both sides.
type player struct {
	o             ReplayOptions
	engine        *promql.Engine
	before, after *store
	end           time.Time
	out           *Replay
}

func (p *player) close() error {
	var errs []error
	for _, s := range []*store{p.before, p.after} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(append(errs, p.engine.Close())...)
}

// record evaluates the recording rules on both sides.
func (p *player) record(ctx context.Context, set *uses.Set, dir string) error {
	all := ruleGroups(set)
	if len(all.Groups) == 0 {
		return nil
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "recorded.yaml"), text, 0o600)); err != nil {
		return err
	}
	most := 0
	for _, s := range []*store{p.before, p.after} {
		evaluated, _, err := s.record(ctx, p.engine, dir, p.end.Add(-p.o.Span), p.end.Add(interval))
		if err != nil {
			return err
		}
		most = max(most, evaluated)
	}
	if left := len(all.Groups) - most; left > 0 {
		p.out.Skipped["recording rules that cannot be evaluated: what reads them is empty"] = int64(left)
	}
	return nil
}

// plain is the syntax that rules may have.
var plain = parser.NewParser(parser.Options{})

// ruleGroups are the recording rules of the set, each once, one in a group: they are evaluated in
// the order in which they read each other.
func ruleGroups(set *uses.Set) rulefmt.RuleGroups {
	var out rulefmt.RuleGroups
	type key struct{ record, expr, labels string }
	seen := map[key]bool{}
	for _, u := range set.Uses {
		if u.Records == "" || !model.UTF8Validation.IsValidMetricName(u.Records) {
			continue
		}
		expr, err := plain.ParseExpr(u.Query)
		if err != nil {
			continue
		}
		k := key{u.Records, expr.String(), fmt.Sprint(u.RuleLabels)} // maps are printed in the order of their keys
		if seen[k] {
			continue
		}
		seen[k] = true
		out.Groups = append(out.Groups, rulefmt.RuleGroup{
			Name: fmt.Sprintf("%d", len(out.Groups)), Rules: []rulefmt.Rule{{Record: u.Records, Expr: k.expr, Labels: u.RuleLabels}},
		})
	}
	return out
}

// ask asks both sides one query, in both ways, and counts the worse outcome.
func (p *player) ask(ctx context.Context, q *query) error {
	worst, skip, err := p.both(ctx, q, q.text)
	if err != nil {
		return err
	}
	switch {
	case skip:
	case worst.outcome == different:
		worst, err = p.again(ctx, q, worst)
	case worst.outcome == empty:
		worst, err = p.below(ctx, q, worst)
	}
	if err != nil {
		return err
	}
	if skip {
		p.out.Skipped["it takes longer than a query may, or holds more samples"]++
		return nil
	}
	p.out.Queries++
	switch worst.outcome {
	case empty:
		p.out.Empty++
	case failed:
		p.out.Failed++
	case equal:
		p.out.Equal++
	case rounded:
		p.out.Rounded++
	case within:
		p.out.Within++
	default:
		p.out.Different++
		if len(p.out.Differences) < differencesAtMost {
			p.out.Differences = append(p.out.Differences,
				Difference{Where: q.where(), Query: q.text, Before: worst.before, After: worst.after})
		}
	}
	return nil
}

// again looks whether a difference is one that a query has with itself, or that a stated error
// explains: the same query is asked without what makes it so.
func (p *player) again(ctx context.Context, q *query, worst verdict) (verdict, error) {
	if v, ok, err := p.without(ctx, q, withoutChoice); err != nil || ok && v.alike() {
		return verdict{outcome: max(v.outcome, rounded)}, err
	}
	if q.quantile > 0 {
		if v, ok, err := p.without(ctx, q, withoutBoth); err != nil || ok && v.alike() {
			return verdict{outcome: within}, err
		}
	}
	return worst, nil
}

// below looks at what a query that is empty would have compared with its thresholds: most alerts
// are quiet.
func (p *player) below(ctx context.Context, q *query, worst verdict) (verdict, error) {
	v, ok, err := p.without(ctx, q, withoutThresholds)
	if err == nil && ok && v.outcome == different {
		if w, ok, err := p.without(ctx, q, withoutBoth); err != nil || ok && w.alike() {
			return verdict{outcome: max(w.outcome, rounded)}, err
		}
	}
	if err != nil || !ok || v.outcome == failed {
		return worst, err
	}
	return v, nil
}

// withoutBoth leaves neither thresholds nor choices.
func withoutBoth(expr parser.Expr) (parser.Expr, bool) {
	expr, a := withoutThresholds(expr)
	expr, b := withoutChoice(expr)
	return expr, a || b
}

// without asks a form of the query from which something is taken. ok is false where there is no
// such form, or it cannot be answered.
func (p *player) without(ctx context.Context, q *query, take func(parser.Expr) (parser.Expr, bool)) (v verdict, ok bool, err error) {
	expr, err := syntax.ParseExpr(q.text)
	if err != nil {
		return v, false, nil // the text of the expression has another form than the expression
	}
	form, changed := take(expr)
	if !changed {
		return v, false, nil
	}
	v, skip, err := p.both(ctx, q, form.String())
	return v, !skip, err
}

// verdict is an outcome with what shows it.
type verdict struct {
	outcome       outcome
	before, after string
}

// alike says that there is an answer on both sides, and that it is the same but for what may
// differ.
func (v verdict) alike() bool {
	return v.outcome == equal || v.outcome == rounded || v.outcome == within
}

// both asks both sides, at the newest moment and over a range. skip says that a side could not
// answer in the bounds of the engine.
func (p *player) both(ctx context.Context, q *query, text string) (worst verdict, skip bool, err error) {
	var queries [2]promql.Query
	defer func() {
		for _, q := range queries {
			if q != nil {
				q.Close()
			}
		}
	}()
	for _, way := range []string{"now", "over a range"} {
		var answers [2]answer
		for i, s := range []*store{p.before, p.after} {
			if queries[i] != nil {
				queries[i].Close()
				queries[i] = nil
			}
			if way == "now" {
				queries[i], err = p.engine.NewInstantQuery(ctx, s, nil, text, p.end)
			} else {
				half := p.o.Span / 2
				queries[i], err = p.engine.NewRangeQuery(ctx, s, nil, text, p.end.Add(-half), p.end, half/rangeSteps)
			}
			if err != nil {
				answers[i] = answer{err: err} // no query over a range gives strings or ranges
				continue
			}
			answers[i] = answerOf(queries[i].Exec(ctx), p.end)
			if ctx.Err() != nil {
				return worst, false, context.Cause(ctx)
			}
			if tooMuch(answers[i].err) {
				return worst, true, nil
			}
		}
		v := verdict{}
		v.outcome, v.before, v.after = compare(answers[0], answers[1], q.quantile)
		if v.outcome == different {
			v.before, v.after = way+": "+v.before, way+": "+v.after
		}
		if way == "now" && isRange(q.expr) {
			return v, false, nil // a range over a range is none
		}
		if v.outcome > worst.outcome || way == "now" {
			worst = v
		}
	}
	return worst, false, nil
}

// isRange says whether the query has a range or a string for its value, which only an instant query
// may.
func isRange(expr parser.Expr) bool {
	return expr.Type() == parser.ValueTypeMatrix || expr.Type() == parser.ValueTypeString
}

func tooMuch(err error) bool {
	var timeout promql.ErrQueryTimeout
	var samples promql.ErrTooManySamples
	return errors.As(err, &timeout) || errors.As(err, &samples)
}
