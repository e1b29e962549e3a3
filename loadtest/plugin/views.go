package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// question is one view: a query and what the table calls it.
type question struct {
	name  string
	query model.Query
	// mayBeEmpty says that there need be nothing to show.
	mayBeEmpty bool
}

// questions are all views of the widest run, each view of the comparison of all runs that can be compared, and what is asked of the whole cluster.
func questions(runs []cluster.Experiment) []question {
	wide, team := []string{runs[0].Name}, runs[0].Team
	var out []question
	add := func(mayBeEmpty bool, name string, q model.Query) {
		if len(q.Experiments) == 0 && q.Type != model.Experiments && len(q.Teams) == 0 {
			q.Experiments = wide
		}
		out = append(out, question{strings.TrimSpace(string(q.Type) + " " + name), q, mayBeEmpty})
	}
	add(false, "of the cluster", model.Query{Type: model.Experiments})
	add(false, "by a part of a name", model.Query{Type: model.Experiments, Search: runs[0].Name[:4]})
	for _, kind := range model.QueryTypes {
		switch views := model.Views[kind]; {
		case kind == model.Experiments || kind == model.Compare || kind == model.PromQL || kind == model.GPUTimeSeries:
		case len(views) == 0:
			add(kind == model.Pending || kind == model.Stragglers || kind == model.Events, "", model.Query{Type: kind})
		default:
			for _, v := range views {
				add(kind == model.GPUHealth, v, model.Query{Type: kind, View: v})
			}
		}
	}
	add(false, "by experiment", model.Query{Type: model.GPUTimeSeries})
	add(false, "by node", model.Query{Type: model.GPUTimeSeries, GroupBy: []string{"node"}})
	add(false, "by GPU", model.Query{Type: model.GPUTimeSeries, GroupBy: []string{"node", "gpu"}})
	add(false, "by GPU, ten hottest", model.Query{Type: model.GPUTimeSeries, Metric: model.Temp, GroupBy: []string{"node", "gpu"}, Rank: "top", K: 10})
	compared := wide
	for _, r := range runs[1:min(len(runs), model.MaxCompared)] {
		compared = append(compared, r.Name)
	}
	for _, v := range model.Views[model.Compare] {
		add(false, fmt.Sprintf("%s of %d runs", v, len(compared)), model.Query{Type: model.Compare, View: v, Experiments: compared})
	}
	if team != "" {
		add(false, "table of its team", model.Query{Type: model.Cost, Teams: []string{team}})
		add(false, "of its team", model.Query{Type: model.Status, Teams: []string{team}})
	}
	add(false, "", model.Query{Type: model.PromQL, Expr: "avg by (node) (experiment:gpu:util{$__experiment})"})
	return out
}

// points is how wide a panel is.
const points = 1000

// ask answers one view several times. What was asked the first time is checked.
func (o *Options) ask(ctx context.Context, asker prom.Asker, q question, until time.Time) (View, error) {
	v := View{Name: q.name}
	settings, err := model.ParseSettings([]byte(`{"prices":{"default":2}}`))
	if err != nil {
		return v, err
	}
	raw, err := json.Marshal(q.query) // as the editor sends it: defaults are filled in where it is read
	if err != nil {
		return v, err
	}
	query, err := model.ParseQuery("A", string(q.query.Type), raw)
	if err != nil {
		return v, err
	}
	var took []time.Duration
	for n := range o.Times {
		to := until.Add(-time.Duration(n) * time.Second) // no answer can come out of a cache
		r := experiments.NewRun(asker, settings, query, to.Add(-o.Window), to)
		r.MaxPoints = points
		began := time.Now()
		frames, err := r.Do(ctx)
		took = append(took, time.Since(began))
		if err != nil {
			return v.of(took), err
		}
		v.Frames, v.Rows = len(frames), 0
		for _, f := range frames {
			if rows, err := f.RowLen(); err == nil {
				v.Rows = max(v.Rows, rows)
			}
		}
		if n > 0 {
			continue
		}
		executed := frames[0].Meta.ExecutedQueryString
		v.Queries = strings.Count(executed, "\n") + 1
		if err := sound(executed); err != nil {
			return v.of(took), err
		}
		if v.Rows == 0 && !q.mayBeEmpty {
			return v.of(took), errors.New("there is nothing to see, so that its time says nothing")
		}
	}
	return v.of(took), nil
}

// of puts the times in.
func (v View) of(took []time.Duration) View {
	slices.Sort(took)
	v.Median, v.Max = took[len(took)/2], took[len(took)-1]
	return v
}
