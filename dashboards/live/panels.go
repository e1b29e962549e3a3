package live

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/dashboards"
)

// View is a dashboard as somebody looks at it: with a time range, one value for each variable, and
// whom it asks.
type View struct {
	Dashboard *dashboards.Dashboard
	vars      dashboards.Vars
}

// drawn is how many moments a panel draws; more would say the same.
const drawn = 60

// everything is the value of the variable cluster with All chosen.
const everything = "$__all"

// Look opens a dashboard. cluster is the one that is chosen, All where it is everything; prefer are
// values that the other variables take where they have them. The options of variables are asked of
// source, each with those before it chosen, as Grafana does.
func Look(ctx context.Context, source Source, d *dashboards.Dashboard, from, to time.Time, cluster string, prefer ...string) (*View,
	error,
) {
	return lookEvery(ctx, interval, source, d, from, to, cluster, prefer...)
}

// lookEvery is Look where targets are scraped at another interval.
func lookEvery(ctx context.Context, scrape time.Duration, source Source, d *dashboards.Dashboard, from, to time.Time, cluster string,
	prefer ...string,
) (*View, error) {
	step := max(to.Sub(from)/drawn, scrape).Truncate(scrape)
	v := &View{Dashboard: d, vars: dashboards.Vars{
		Interval: step, Scrape: scrape, From: from, To: to,
		Values: map[string]dashboards.Value{},
	}}
	for i := range d.Variables {
		x := &d.Variables[i]
		if x.Type == "datasource" {
			v.vars.Values[x.Name] = x.Choose("prometheus")
			continue
		}
		options, err := v.options(ctx, source, x)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", x.Name, err)
		}
		switch at := slices.IndexFunc(options, func(o string) bool { return slices.Contains(prefer, o) }); {
		case x.Name == "cluster" && cluster != everything:
			v.vars.Values[x.Name] = x.Choose(cluster)
		case at >= 0:
			v.vars.Values[x.Name] = x.Choose(options[at])
		case x.IncludeAll:
			v.vars.Values[x.Name] = x.All(options...)
		case x.Type == "textbox":
			v.vars.Values[x.Name] = x.Choose(string(x.Current.Value))
		case len(options) > 0:
			v.vars.Values[x.Name] = x.Choose(options[0])
		default:
			return nil, fmt.Errorf("variable %s has no options and no All", x.Name)
		}
	}
	return v, nil
}

// options are what the variable offers.
func (v *View) options(ctx context.Context, source Source, x *dashboards.Variable) ([]string, error) {
	switch {
	case x.Selector() != "":
		q, err := v.selector(x)
		if err != nil {
			return nil, err
		}
		a, err := source.Ask(ctx, q)
		if err != nil {
			return nil, err
		}
		return filtered(a.Values, x.Regex)
	case x.Type == "custom":
		var out []string
		for _, o := range strings.Split(string(x.Query), ",") {
			_, value, labelled := strings.Cut(o, " : ")
			if !labelled {
				value = o
			}
			out = append(out, strings.TrimSpace(value))
		}
		if now := string(x.Current.Value); slices.Contains(out, now) { // what the dashboard opens with comes first
			out = append([]string{now}, out...)
		}
		return out, nil
	}
	return nil, nil
}

// filtered are the values that match, cut to the expression's first group where it has one.
func filtered(values []string, expr string) ([]string, error) {
	if expr == "" {
		return values, nil
	}
	re, err := regexp.Compile(strings.Trim(expr, "/"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range values {
		if m := re.FindStringSubmatch(s); m != nil {
			out = append(out, m[min(1, len(m)-1)])
		}
	}
	return out, nil
}

func (v *View) selector(x *dashboards.Variable) (Question, error) {
	expr, err := dashboards.Substitute(x.Selector(), v.vars)
	return Question{Expr: expr, From: v.vars.From, To: v.vars.To, Label: x.LabelName()}, err
}

// Asked is a query of a dashboard and the question that it becomes.
type Asked struct {
	dashboards.Query
	Question
}

// Questions are those of all panels, variables and annotations.
func (v *View) Questions() ([]Asked, error) {
	var out []Asked
	for _, q := range v.Dashboard.Queries() {
		ask, err := v.question(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Where, err)
		}
		out = append(out, Asked{q, ask})
	}
	return out, nil
}

func (v *View) question(q dashboards.Query) (Question, error) {
	if q.Variable != nil {
		return v.selector(q.Variable)
	}
	vars := v.vars
	step := ""
	switch {
	case q.Target != nil:
		step = q.Target.Interval
	case q.Annotation != nil:
		step = q.Annotation.Step
	}
	if least, err := model.ParseDuration(step); err == nil { // the least step that the author wants
		vars.Interval = max(vars.Interval, time.Duration(least))
	}
	expr, err := dashboards.Substitute(q.Expr, vars)
	out := Question{Expr: expr, From: vars.From, To: vars.To, Step: vars.Interval}
	if q.Target != nil && q.Target.Instant {
		out.Step = 0
	}
	return out, err
}

// tolerance is how far apart two right answers may be: not at all, but for what the proxy adds up
// in another order than one server does.
func tolerance(expr string) (relative float64, ties bool) {
	e, err := parser.NewParser(parser.Options{ExperimentalDurationExpr: true}).ParseExpr(expr)
	if err != nil {
		return 0, false
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			switch a.Op {
			case parser.SUM, parser.AVG:
				relative = max(relative, 1e-12)
			case parser.STDDEV, parser.STDVAR:
				relative = max(relative, 1e-9)
			case parser.TOPK, parser.BOTTOMK:
				ties = true
			}
		}
		return nil
	})
	return relative, ties
}
