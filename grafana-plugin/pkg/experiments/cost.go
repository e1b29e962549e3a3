package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	commonmodel "github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// spent is what one experiment took of one model of GPU in one cluster.
type spent struct {
	team, experiment, cluster, model string
	hours, idle                      float64
	cost                             *float64 // nil: no price
}

// hoursUnit shows GPU hours as a number with h behind it: Grafana's own unit of hours makes weeks
// of 200.
const hoursUnit = "suffix: h"

// mostMeasured is the share of GPU hours from which on all counts as measured: the first moments of
// a pod are measured a little later.
const mostMeasured = 0.95

// unknownModel is shown where neither DCGM nor the node's labels say which GPUs it has.
const unknownModel = "unknown"

// cost is what was held in the range: GPU hours, those of them in which the GPU was idle, and the
// money where there are prices. GPU hours are exact as long as the rules are evaluated in each
// Interval, of which each sample is one; notices say where they were not. A range that is shorter
// than one has its share of the last. Of a pod of which nothing is measured nothing is idle; GPUs
// beside others of their pod that are measured count as these do. A notice says how much was not
// measured.
func cost(ctx context.Context, r *Run) (data.Frames, error) {
	const by = "team, experiment, cluster, node"
	from, share := r.From, 1.0
	if interval := r.Settings.Interval(); r.length() < interval {
		from, share = r.Until.Add(-interval), r.length().Hours()/interval.Hours()
	}
	answers, err := r.each(ctx, scaled(share, r.gpuHours(Chosen(r.Query), by, from, r.Until, maxHoursParts)...))
	if err != nil {
		return nil, err
	}
	hours := answers[0]
	if len(hours) == 0 {
		return r.costFrames(nil), r.Empty(ctx, NeedPods|NeedHours, "GPU hours")
	}
	held, nodes, clusters := 0.0, map[node]bool{}, set{}
	for _, s := range hours {
		held += s.Value()
		nodes[nodeOf(s.Labels)], clusters[s.Labels["cluster"]] = true, true
	}
	// Idle hours are looked at in each Interval, whether there was an evaluation or not.
	rate, err := r.evaluated(ctx, holding{"GPU hours and cost", "this time", Chosen(r.Query), clusters, r.From, r.Until, held})
	if err != nil {
		return nil, err
	}
	questions, step := r.idleHours(Chosen(r.Query), by, from, r.Until, held)
	answers, err = r.each(ctx, scaled(share*rate, questions...))
	if err != nil {
		return nil, err
	}
	seen, err := r.each(ctx, []question{r.measured(Chosen(r.Query), min(r.back(), mostBack))})
	if err != nil { // it is for a notice alone
		if r.Alert || ctx.Err() != nil {
			return nil, err
		}
		seen = [][]prom.Series{nil}
	}
	if step > wholeSeconds(r.Settings.Interval()) {
		r.Notice(data.NoticeSeverityInfo, "Idle GPU hours are an estimate from one look each %s; choose a shorter time or fewer experiments for all of them.",
			commonmodel.Duration(step))
	}
	if len(answers[0]) == 0 {
		// Where there is no DCGM it is always so, and what is held costs the same.
		r.Notice(data.NoticeSeverityWarning, "The use of these GPUs was not measured (there is no experiment:gpu:util), so that none of them counts as idle; "+
			"the health check of the datasource says why.")
	} else if seen := seen[0]; len(seen) > 0 && seen[0].Value() < mostMeasured {
		r.LeftOut("The use of %.0f %% of these GPU hours was not measured: GPUs beside measured ones of their pod count as "+
			"these do, and none of the others as idle; the health check of the datasource says why.", max(1, 100*(1-seen[0].Value())))
	}
	models, err := r.models(ctx, nodes)
	if err != nil {
		return nil, err
	}
	if err := r.changed(ctx, models); err != nil {
		return nil, err
	}
	return r.costFrames(r.bill(hours, answers[0], models)), nil
}

// bill adds up by team, experiment, cluster and model, and puts the prices to it. The most GPU
// hours first, then by name.
func (r *Run) bill(hours, idle []prom.Series, models map[node]gpuModel) []spent {
	type what struct{ team, experiment, cluster, model string }
	of := func(l map[string]string) what {
		return what{cmp.Or(l["team"], unassigned), l["experiment"], l["cluster"], cmp.Or(models[nodeOf(l)].name(), unknownModel)}
	}
	sums := map[what]*spent{}
	for _, s := range hours {
		w := of(s.Labels)
		if sums[w] == nil {
			sums[w] = &spent{team: w.team, experiment: w.experiment, cluster: w.cluster, model: w.model}
		}
		sums[w].hours += s.Value()
	}
	for _, s := range idle {
		// What was measured of a pod that held nothing was measured a moment after its end.
		if w := of(s.Labels); sums[w] != nil {
			sums[w].idle += s.Value()
		}
	}
	free := map[string]bool{}
	rows := make([]spent, 0, len(sums))
	for _, s := range sums {
		s.idle = min(s.idle, s.hours)
		if price, ok := r.price(s.model); ok {
			money := s.hours * price
			s.cost = &money
		} else if len(r.Settings.Prices) > 0 {
			free[s.model] = true
		}
		rows = append(rows, *s)
	}
	if len(free) > 0 {
		r.LeftOut("There is no price for %s, so that its cost is left out; add it to the datasource's prices, or a price for default.",
			strings.Join(slices.Sorted(maps.Keys(free)), ", "))
	}
	slices.SortFunc(rows, func(a, b spent) int {
		return cmp.Or(cmp.Compare(b.hours, a.hours), strings.Compare(a.team, b.team), strings.Compare(a.experiment, b.experiment),
			strings.Compare(a.cluster, b.cluster),
			strings.Compare(a.model, b.model))
	})
	return rows
}

// price is that of one hour of a GPU. GPU operators write a model's name with dashes for spaces, so
// that both are one.
func (r *Run) price(model string) (float64, bool) {
	if p, ok := r.Settings.Prices[model]; ok {
		return p, true
	}
	dashed := strings.ReplaceAll(model, " ", "-")
	for _, name := range slices.Sorted(maps.Keys(r.Settings.Prices)) {
		if strings.ReplaceAll(name, " ", "-") == dashed {
			return r.Settings.Prices[name], true
		}
	}
	p, ok := r.Settings.Prices["default"]
	return p, ok
}

// gpuModel is how the GPUs of a node are called: by DCGM, and by the node's labels. Empty is not
// known.
type gpuModel struct{ dcgm, label string }

// name is DCGM's word, else that of the labels.
func (m gpuModel) name() string { return cmp.Or(m.dcgm, m.label) }

// models says which GPUs the nodes have. It looks at the end of the range first, and then back
// through the range for the nodes that have gone and for those of which DCGM says nothing, no
// further at a time than a proxy lets one; what cannot be asked for is left out. There it looks now
// and then, and at each sample of the nodes of which nothing was found so: those that were there
// between two looks, with few samples. Of a node with several models it is the first by name.
func (r *Run) models(ctx context.Context, nodes map[node]bool) (map[node]gpuModel, error) {
	out := map[node]gpuModel{}
	missing := withoutModel(nodes, out)
	if err := r.modelsOf(ctx, missing, out, r.Until, func(s string) string { return s }); err != nil {
		return nil, err
	}
	from := r.Until.Add(-r.back())
	for end := r.Until; end.After(from); end = end.Add(-mostBack) {
		d := min(mostBack, end.Sub(from))
		looks := []string{r.look("", d)}
		if each := "[" + seconds(d) + "]"; each != looks[0] {
			looks = append(looks, each)
		}
		for _, look := range looks {
			if missing = withoutModel(nodes, out); len(missing) == 0 {
				return out, nil
			}
			err := r.modelsOf(ctx, missing, out, end, func(s string) string { return "last_over_time(" + s + look + ")" })
			if err != nil && (ctx.Err() != nil || errors.Is(err, ErrPanic)) {
				return nil, err
			} else if err != nil {
				r.LeftOut("The models of the GPUs of %d nodes that have gone, or that DCGM says nothing of, are left out, "+
					"since they cannot be asked for: %v", len(missing), err)
				return out, nil
			}
		}
	}
	return out, nil
}

// changed says of how many nodes the GPUs became those of another model, as where a machine is
// replaced under its name: models knows the last one, and prices all of their hours by it. A node
// that has several at once is none of them. Only what bears another name is looked at, so that each
// sample can be.
func (r *Run) changed(ctx context.Context, models map[node]gpuModel) error {
	d := seconds(min(r.back(), mostBack))
	other := func(metric, label, known string, m []string) string {
		return fmt.Sprintf("group by (cluster, node) (last_over_time(%s[%s])) unless count by (cluster, node) (group by (cluster, node, %s) (%s)) > 1",
			Selector(metric, append(m[:len(m):len(m)], not(label, known))...), d, label, Selector(metric, m...))
	}
	alike := map[gpuModel][]Pod{}
	for n, m := range models {
		alike[m] = append(alike[m], Pod{Cluster: n.cluster, Node: n.name})
	}
	var questions []question
	for model, pods := range alike {
		questions = append(questions, fewOnNodesBeside(0, 4, pods, func(m ...string) question {
			var either []string
			if model.dcgm != "" {
				either = append(either, other("node_model:gpu_util_percent:count", "modelName", model.dcgm, m))
			}
			if model.label != "" {
				either = append(either, other("node:gpu_model:info", "model", model.label, m))
			}
			return r.at(strings.Join(either, " or "), r.Until)
		})...)
	}
	answers, err := r.each(ctx, questions)
	if err != nil { // it is for a notice alone
		if r.Alert || ctx.Err() != nil || errors.Is(err, ErrPanic) {
			return err
		}
		return nil
	}
	found := map[node]bool{}
	for _, s := range answers[0] {
		found[nodeOf(s.Labels)] = true
	}
	if len(found) > 0 {
		r.LeftOut("The GPUs of %d nodes became those of another model in this time, and all of their hours are counted, and priced, as hours of the last one; choose a time before or after.", len(found))
	}
	return nil
}

// withoutModel are those of nodes of which DCGM's word is not known yet: labels write models in
// their own way.
func withoutModel(nodes map[node]bool, models map[node]gpuModel) []Pod {
	var out []Pod
	for n := range nodes {
		if models[n].dcgm == "" {
			out = append(out, Pod{Cluster: n.cluster, Node: n.name})
		}
	}
	return out
}

// modelsOf puts the models of nodes into out, as they were at a time by what look makes of a
// selector. Labels are not asked for where they are known: they may be all that is known of many
// nodes.
func (r *Run) modelsOf(ctx context.Context, nodes []Pod, out map[node]gpuModel, at time.Time, look func(selector string) string) error {
	dcgm := func(m []string) string {
		return "group by (cluster, node, modelName) (" + look(Selector("node_model:gpu_util_percent:count", m...)) + ")"
	}
	var labelled, others []Pod
	for _, n := range nodes {
		if out[node{n.Cluster, n.Node}].label != "" {
			labelled = append(labelled, n)
		} else {
			others = append(others, n)
		}
	}
	answers, err := r.each(ctx, append(
		fewOnNodesBeside(0, 1, labelled, func(m ...string) question { return r.at(dcgm(m), at) }),
		fewOnNodesBeside(0, 2, others, func(m ...string) question {
			return r.at(dcgm(m)+" or group by (cluster, node, model) ("+look(Selector("node:gpu_model:info", m...))+")", at)
		})...))
	if err != nil {
		return err
	}
	first := func(known *string, name string) {
		if *known == "" || name != "" && name < *known {
			*known = name
		}
	}
	for _, s := range answers[0] {
		m := out[nodeOf(s.Labels)]
		first(&m.dcgm, s.Labels["modelName"])
		first(&m.label, s.Labels["model"])
		if m != (gpuModel{}) {
			out[nodeOf(s.Labels)] = m
		}
	}
	return nil
}

func (r *Run) costFrames(rows []spent) data.Frames {
	priced := len(r.Settings.Prices) > 0
	if r.Query.View == "total" {
		return r.costTotal(rows, priced)
	}
	rows = limitRows(r, rows, "rows")
	n := len(rows)
	team, experiment, cluster, model := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	hours, idle, share, money := make([]float64, n), make([]float64, n), make([]float64, n), make([]*float64, n)
	for i, s := range rows {
		team[i], experiment[i], cluster[i], model[i] = s.team, s.experiment, s.cluster, s.model
		hours[i], idle[i], money[i] = s.hours, s.idle, s.cost
		if s.hours > 0 {
			share[i] = s.idle / s.hours
		}
	}
	columns := []column{
		{"team", team, nil},
		{"experiment", experiment, experimentLinks(r.Settings,
			map[string]string{"experiment": "experiment", "team": "team", "cluster": "cluster"})},
		{"cluster", cluster, nil},
		{"model", model, nil},
		{"gpu_hours", hours, &data.FieldConfig{Unit: hoursUnit}},
		{"idle_gpu_hours", idle, &data.FieldConfig{Unit: hoursUnit}},
		{"idle_share", share, &data.FieldConfig{Unit: "percentunit"}},
	}
	if priced {
		columns = append(columns, column{"cost", money, &data.FieldConfig{Unit: currencyUnit(r.Settings.Currency)}})
	}
	return data.Frames{table(columns...)}
}

// costTotal is one number each. Where a model has no price, what is known is summed.
func (r *Run) costTotal(rows []spent, priced bool) data.Frames {
	var hours, idle, money float64
	for _, s := range rows {
		hours, idle = hours+s.hours, idle+s.idle
		if s.cost != nil {
			money += *s.cost
		}
	}
	if len(rows) == 0 {
		return emptyFrames(data.FrameTypeNumericMulti)
	}
	frames := data.Frames{}
	if priced {
		frames = append(frames, number(money, data.Labels{"what": "cost"}, currencyUnit(r.Settings.Currency)))
	}
	return append(frames, number(hours, data.Labels{"what": "gpu_hours"}, hoursUnit),
		number(idle, data.Labels{"what": "idle_gpu_hours"}, hoursUnit))
}

// number is a frame of type numeric-multi: one value with its labels.
func number(value float64, labels data.Labels, unit string) *data.Frame {
	field := data.NewField("Value", labels, []float64{value})
	field.Config = &data.FieldConfig{Unit: unit}
	f := data.NewFrame("", field)
	f.Meta = &data.FrameMeta{Type: data.FrameTypeNumericMulti, TypeVersion: data.FrameTypeVersion{0, 1}}
	return f
}

// currencyUnit is Grafana's name for a unit of money: one of its own where it has one, else the
// three letters before the amount.
func currencyUnit(code string) string {
	if slices.Contains([]string{
		"BGN", "BRL", "CHF", "CZK", "DKK", "EUR", "GBP", "IDR", "ILS", "INR", "ISK", "JPY", "KRW", "MYR", "NOK", "PHP", "PLN", "PYG", "RUB",
		"SEK", "TRY", "UAH", "USD", "UYU", "VND",
		"XPF", "ZAR",
	}, code) {
		return "currency" + code
	}
	return "currency:" + code
}

// limitRows returns the first Limit rows, at most MaxRows of the settings; a notice says how many
// were left out.
func limitRows[T any](r *Run, rows []T, what string) []T {
	limit := r.Settings.MaxRows
	if r.Query.Limit > 0 {
		limit = min(limit, r.Query.Limit)
	}
	if len(rows) <= limit {
		return rows
	}
	text := fmt.Sprintf("%d of %d %s are left out; choose fewer experiments, or raise the query's limit or the datasource's maxRows.",
		len(rows)-limit, len(rows), what)
	if limit == r.Query.Limit {
		r.Notice(data.NoticeSeverityWarning, "%s", text)
	} else {
		r.LeftOut("%s", text)
	}
	return rows[:limit]
}
