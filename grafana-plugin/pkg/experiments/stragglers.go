package experiments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// minPresence is the share of the longest-held GPU's time that a GPU of the experiment must have
// been held to be compared with others: one that came a moment ago has seen the start only.
const minPresence = 0.25

// straggler is a GPU that did less than the others of its experiment.
type straggler struct {
	cluster, node, gpu, uuid, pod string
	value, median, share          float64
}

// stragglers are the GPUs whose average over the range is below StragglerBelow times the median of
// those of their experiment, in whatever clusters it runs; the worst first. A GPU that several pods
// of the experiment held one after the other counts once, with the pod that had it longest.
func stragglers(ctx context.Context, r *Run) (data.Frames, error) {
	selector := Selector("experiment:gpu:"+string(r.Query.Metric), Chosen(r.Query)...)
	of := func(what string) question {
		return r.at(fmt.Sprintf("sum by (cluster, namespace, experiment, node, gpu, UUID, pod) (%s(%s))", what, r.look(selector, r.back())), r.Until)
	}
	answers, err := r.each(ctx, []question{of("sum_over_time")}, []question{of("count_over_time")})
	if err != nil {
		return nil, err
	}
	if len(answers[1]) == 0 {
		return r.stragglerFrames(nil), r.Empty(ctx, NeedPods|NeedGPUs, "GPUs with this metric")
	}
	rows, short := r.findStragglers(answers[0], answers[1])
	if short > 0 {
		r.Notice(data.NoticeSeverityInfo, "%d GPUs are left out, which were held for less than %g %% of the time that others of their experiment were.", short, 100*minPresence)
	}
	if len(rows) == 0 {
		r.Notice(data.NoticeSeverityInfo, "No GPU is below %g %% of the median of its experiment.", 100*r.Settings.StragglerBelow)
	}
	return r.stragglerFrames(limitRows(r, rows, "GPUs")), nil
}

// findStragglers takes sums and counts of samples by GPU and pod. short is how many GPUs were not
// held long enough to be judged.
func (r *Run) findStragglers(sums, counts []prom.Series) (rows []straggler, short int) {
	labels := []string{"cluster", "namespace", "experiment", "node", "gpu", "UUID", "pod"}
	sum := map[string]float64{}
	for _, s := range sums {
		sum[key(s.Labels, labels...)] = s.Value()
	}
	type gpu struct {
		straggler
		sum, count, longest float64
	}
	// An experiment of one name in two namespaces is two; in two clusters it is one.
	experiments := map[string]map[string]*gpu{}
	for _, s := range counts {
		l := s.Labels
		all := experiments[key(l, "namespace", "experiment")]
		if all == nil {
			all = map[string]*gpu{}
			experiments[key(l, "namespace", "experiment")] = all
		}
		k := key(l, "cluster", "node", "gpu", "UUID")
		if all[k] == nil {
			all[k] = &gpu{straggler: straggler{cluster: l["cluster"], node: l["node"], gpu: l["gpu"], uuid: l["UUID"]}}
		}
		g, n := all[k], s.Value()
		g.sum += sum[key(l, labels...)]
		g.count += n
		if n > g.longest || n == g.longest && l["pod"] < g.pod {
			g.longest, g.pod = n, l["pod"]
		}
	}
	for _, all := range experiments {
		most := 0.0
		for _, g := range all {
			most = max(most, g.count)
		}
		var judged []*gpu
		var values []float64
		for _, k := range slices.Sorted(maps.Keys(all)) {
			g := all[k]
			if g.count < minPresence*most {
				short++
				continue
			}
			g.value = g.sum / g.count
			judged, values = append(judged, g), append(values, g.value)
		}
		m := median(values)
		for _, g := range judged {
			if g.value < r.Settings.StragglerBelow*m {
				g.median, g.share = m, g.value/m
				rows = append(rows, g.straggler)
			}
		}
	}
	slices.SortFunc(rows, func(a, b straggler) int {
		return cmp.Or(cmp.Compare(a.share, b.share), strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node),
			strings.Compare(a.gpu, b.gpu),
			strings.Compare(a.uuid, b.uuid), strings.Compare(a.pod, b.pod))
	})
	return rows, short
}

// median is the middle value, or the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

func (r *Run) stragglerFrames(rows []straggler) data.Frames {
	n := len(rows)
	cluster, on, gpu, uuid, pod := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	value, mid, share := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, s := range rows {
		cluster[i], on[i], gpu[i], uuid[i], pod[i] = s.cluster, s.node, s.gpu, s.uuid, s.pod
		value[i], mid[i], share[i] = s.value, s.median, s.share
	}
	unit := &data.FieldConfig{Unit: r.Query.Metric.Unit()}
	return data.Frames{table(
		column{"cluster", cluster, nil},
		column{"node", on, nodeLink(r.Settings)},
		column{"gpu", gpu, gpuLink(r.Settings)},
		column{"UUID", uuid, nil},
		column{"pod", pod, podOnlyLink(r.Settings)},
		column{"value", value, unit},
		column{"median", mid, unit},
		column{"share", share, &data.FieldConfig{Unit: "percentunit"}},
	)}
}
