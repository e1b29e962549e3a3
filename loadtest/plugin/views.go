package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// question is one view: a query and what the table calls it.
type question struct {
	name  string
	query model.Query
	// torn says that it is asked when half of the experiment waits for nodes, and not when all of
	// it runs.
	torn bool
	// empty says that there must be nothing to show: what takes time then is to find out whether
	// something is not set up.
	empty bool
}

// nobody is a name that no experiment has.
const nobody = "nobody"

// questions are all views of the widest run, each view of the comparison of all runs that can be
// compared, what is asked of the whole cluster, and views with nothing to show.
func questions(runs []cluster.Experiment) []question {
	wide, team := []string{runs[0].Name}, runs[0].Team
	var out []question
	add := func(name string, q model.Query) *question {
		if len(q.Experiments) == 0 && q.Type != model.Experiments && len(q.Teams) == 0 {
			q.Experiments = wide
		}
		out = append(out, question{name: strings.TrimSpace(string(q.Type) + " " + name), query: q})
		return &out[len(out)-1]
	}
	add("of the cluster", model.Query{Type: model.Experiments})
	add("by a part of a name", model.Query{Type: model.Experiments, Search: runs[0].Name[:4]})
	for _, kind := range model.QueryTypes {
		switch views := model.Views[kind]; {
		case kind == model.Experiments || kind == model.Compare || kind == model.PromQL || kind == model.GPUTimeSeries:
		case len(views) == 0:
			add("", model.Query{Type: kind}).torn = kind == model.Pending || kind == model.Events
		default:
			for _, v := range views {
				add(v, model.Query{Type: kind, View: v})
			}
		}
	}
	add("by experiment", model.Query{Type: model.GPUTimeSeries})
	add("by node", model.Query{Type: model.GPUTimeSeries, GroupBy: []string{"node"}})
	add("by GPU", model.Query{Type: model.GPUTimeSeries, GroupBy: []string{"node", "gpu"}})
	add("by GPU, ten hottest", model.Query{
		Type: model.GPUTimeSeries, Metric: model.Temp, GroupBy: []string{"node", "gpu"}, Rank: "top",
		K: 10,
	})
	var names []string
	for _, r := range compared(runs) {
		names = append(names, r.Name)
	}
	for _, v := range model.Views[model.Compare] {
		add(fmt.Sprintf("%s of %d runs", v, len(names)), model.Query{Type: model.Compare, View: v, Experiments: names})
	}
	if team != "" {
		add("table of its team", model.Query{Type: model.Cost, Teams: []string{team}})
		add("of its team", model.Query{Type: model.Status, Teams: []string{team}})
	}
	add("", model.Query{Type: model.PromQL, Expr: "avg by (node) (experiment:gpu:util{$__experiment})"})
	add("while all run (empty)", model.Query{Type: model.Pending}).empty = true
	add("of nobody (empty)", model.Query{Type: model.Pods, Experiments: []string{nobody}}).empty = true
	add("of nobody (empty)", model.Query{Type: model.GPUTimeSeries, Experiments: []string{nobody}}).empty = true
	return out
}

// compared are the runs that are put beside each other: the widest ones.
func compared(runs []cluster.Experiment) []cluster.Experiment {
	return runs[:min(len(runs), model.MaxCompared)]
}

// points is how wide a panel is.
const points = 1000

// ask answers one view several times, with a range that ends at until, and looks at each answer.
func (o *Options) ask(ctx context.Context, asker prom.Asker, q question, until time.Time) View {
	v := View{Name: q.name}
	query, settings, err := q.read()
	if err != nil {
		v.Err = err
		return v
	}
	var took []time.Duration
	for n := range o.Times {
		to := until.Add(-time.Duration(n) * time.Second) // no answer can come out of a cache
		r := experiments.NewRun(asker, settings, query, to.Add(-o.Window), to)
		r.MaxPoints = points
		began := time.Now()
		frames, err := r.Do(ctx)
		took = append(took, time.Since(began))
		if err == nil {
			err = v.see(q, frames)
		}
		if err != nil {
			v.Took = bench.Summary(took, err)
			return v
		}
	}
	v.Took = bench.Summary(took, nil)
	return v
}

// read is the query as the editor sends it, with defaults filled in where it is read.
func (q question) read() (query model.Query, settings model.Settings, err error) {
	if settings, err = model.ParseSettings([]byte(`{"prices":{"default":2}}`)); err != nil {
		return query, settings, err
	}
	raw, err := json.Marshal(q.query)
	if err != nil {
		return query, settings, err
	}
	query, err = model.ParseQuery("A", string(q.query.Type), raw)
	return query, settings, err
}

// see counts what an answer has. An error is an answer whose time says nothing: one with nothing to
// see, or with something where there must be nothing, or of what was not recorded.
func (v *View) see(q question, frames data.Frames) error {
	v.Frames, v.Rows = len(frames), 0
	for _, f := range frames {
		if rows, err := f.RowLen(); err == nil {
			v.Rows = max(v.Rows, rows)
		}
	}
	executed := frames[0].Meta.ExecutedQueryString
	v.Queries = strings.Count(executed, "\n") + 1
	switch {
	case q.empty && v.Rows > 0:
		return fmt.Errorf("there are %d rows, where nothing should be to see", v.Rows)
	case q.empty && len(frames[0].Meta.Notices) == 0:
		return errors.New("there is nothing to see and nothing says so")
	case !q.empty && v.Rows == 0:
		return errors.New("there is nothing to see, so that its time says nothing")
	}
	return sound(executed)
}
