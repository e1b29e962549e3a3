package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// minPresence is the share of the time of the GPU that was held longest, of those that the
// experiment held last, for which a GPU must have been held to be compared with others: one that
// came a moment ago has seen the start only.
const minPresence = 0.25

// firstMoments is for how long a node must have been held of which it is told that it was not
// measured: what begins is measured a little later.
const firstMoments = 5 * time.Minute

// straggler is a GPU that did less than the others of its experiment.
type straggler struct {
	cluster, node, gpu, uuid, pod string
	value, median, share          float64
}

// byHeldGPU are the labels of a GPU of an experiment while one pod had it.
var byHeldGPU = []string{"cluster", "namespace", "experiment", "node", "gpu", "UUID", "pod"}

// stragglers are the GPUs whose average over the range is below StragglerBelow times the median of
// those of their experiment, in whatever clusters it runs; the worst first. What a GPU did is taken
// by the medians of the moments in which it was held, since a run that went on elsewhere may do
// more there; and that by the median of all GPUs, since where use comes in bursts, each GPU's at
// times of its own, the medians of moments say little of anybody. A GPU that several pods of the
// experiment held one after the other counts once, with the pod that had it longest.
func stragglers(ctx context.Context, r *Run) (data.Frames, error) {
	selector, by := Selector("experiment:gpu:"+string(r.Query.Metric), Chosen(r.Query)...), strings.Join(byHeldGPU, ", ")
	of := func(what, over, expr string) string {
		return fmt.Sprintf("%s by (%s) (%s_over_time(%s))", what, by, over, r.lookAt(expr, r.back()))
	}
	median := selector + " * 0 + on (namespace, experiment) group_left () quantile by (namespace, experiment) (0.5, " + selector + " * 1)"
	answers, err := r.each(ctx,
		[]question{r.at(of("sum", "sum", selector)+" or "+labelled(of("sum", "sum", median), "median"), r.Until)},
		[]question{r.at(of("sum", "count", selector)+" or "+labelled(of("max", "max", "timestamp("+selector+")"), "last")+
			" or "+labelled(r.unjudged(selector), "unmeasured"), r.Until)})
	if err != nil {
		return nil, err
	}
	if len(answers[0]) == 0 {
		return r.stragglerFrames(nil), r.Empty(ctx, NeedPods|NeedGPUs, "GPUs with this metric")
	}
	rows, short, still := r.findStragglers(answers[0], answers[1])
	if short > 0 {
		r.Notice(data.NoticeSeverityInfo, "%d GPUs are left out, which were held for less than %g %% of the time that others of their experiment were.", short, 100*minPresence)
	}
	if still > 0 {
		r.Notice(data.NoticeSeverityInfo, "%d GPUs are left out, which were held while most GPUs of their experiment did nothing.", still)
	}
	measured := ""
	if n := told(answers[1], nil, "unmeasured")["unmeasured"][""]; n > 0 {
		measured = " that was measured"
		r.LeftOut("The GPUs of %g nodes are left out, or judged by less than half of the time in which they were held, since this metric "+
			"of them was not measured: the slowest may be among them; the health check of the datasource says why.", n)
	}
	if len(rows) == 0 {
		r.Notice(data.NoticeSeverityInfo, "No GPU%s is below %g %% of the median of its experiment.", measured, 100*r.Settings.StragglerBelow)
	}
	return r.stragglerFrames(limitRows(r, rows, "GPUs")), nil
}

// unjudged counts the nodes on which GPUs were held for firstMoments, and of which the series of
// selector are fewer than half of these.
func (r *Run) unjudged(selector string) string {
	of := func(what, over, selector string) string {
		return fmt.Sprintf("%s by (cluster, node) (%s_over_time(%s))", what, over, r.look(selector, r.back()))
	}
	gpus := Selector("experiment:pod:gpus", Chosen(r.Query)...)
	return fmt.Sprintf("count(%[1]s unless on (cluster, node) %[2]s >= 0.5 * %[1]s and on (cluster, node) %[3]s > %[4]d)",
		of("sum", "sum", gpus), of("sum", "count", selector), of("max", "count", gpus), max(1, firstMoments/r.lookStep(r.back())))
}

// labelled gives the series of an expression a label of this name, so that those of several stand
// in one answer.
func labelled(expr, name string) string {
	return fmt.Sprintf(`label_replace(%s, %q, "yes", "", "")`, expr, name)
}

// told are the values of series by the labels of by, those with one of the labels of kinds apart.
func told(series []prom.Series, by []string, kinds ...string) map[string]map[string]float64 {
	out := map[string]map[string]float64{"": {}}
	for _, s := range series {
		kind := ""
		for _, k := range kinds {
			if s.Labels[k] != "" {
				kind = k
			}
		}
		if out[kind] == nil {
			out[kind] = map[string]float64{}
		}
		out[kind][key(s.Labels, by...)] = s.Value()
	}
	return out
}

// held is a GPU of an experiment over all pods that had it: sums over the looks at which it was
// held, how many those are, at most with one pod, and the last of them.
type held struct {
	straggler
	sum, medians, count, longest, last float64
}

// findStragglers takes sums and counts of samples by GPU and pod; those labelled median are sums of
// the medians of the same looks, those labelled last the times of the last of them; of nodes it
// takes nothing. short is how many GPUs were not held long enough to be judged, still how many were
// held only while the median did nothing, as before the first step or in an attempt that hung.
func (r *Run) findStragglers(sums, counts []prom.Series) (rows []straggler, short, still int) {
	sum, last := told(sums, byHeldGPU, "median"), told(counts, byHeldGPU, "last")["last"]
	// An experiment of one name in two namespaces is two; in two clusters it is one.
	experiments := map[string]map[string]*held{}
	for _, s := range counts {
		l := s.Labels
		if l["last"] != "" || l["unmeasured"] != "" {
			continue
		}
		all := experiments[key(l, "namespace", "experiment")]
		if all == nil {
			all = map[string]*held{}
			experiments[key(l, "namespace", "experiment")] = all
		}
		k := key(l, "cluster", "node", "gpu", "UUID")
		if all[k] == nil {
			all[k] = &held{straggler: straggler{cluster: l["cluster"], node: l["node"], gpu: l["gpu"], uuid: l["UUID"]}}
		}
		g, n, pod := all[k], s.Value(), key(l, byHeldGPU...)
		g.sum, g.medians, g.count = g.sum+sum[""][pod], g.medians+sum["median"][pod], g.count+n
		g.last = max(g.last, last[pod])
		if n > g.longest || n == g.longest && l["pod"] < g.pod {
			g.longest, g.pod = n, l["pod"]
		}
	}
	for _, all := range experiments {
		least := minPresence * r.mostOfLast(all)
		var judged []*held
		for _, g := range all {
			if g.count < least {
				short++
				continue
			}
			judged = append(judged, g)
		}
		alone := inBursts(judged)
		if !alone {
			n := len(judged)
			judged = slices.DeleteFunc(judged, func(g *held) bool { return g.medians == 0 })
			still += n - len(judged)
		}
		for _, g := range shares(judged, alone) {
			if g.share < r.Settings.StragglerBelow {
				g.value = g.sum / g.count
				rows = append(rows, g.straggler)
			}
		}
	}
	slices.SortFunc(rows, func(a, b straggler) int {
		return cmp.Or(cmp.Compare(a.share, b.share), strings.Compare(a.cluster, b.cluster), strings.Compare(a.node, b.node),
			strings.Compare(a.gpu, b.gpu),
			strings.Compare(a.uuid, b.uuid), strings.Compare(a.pod, b.pod))
	})
	return rows, short, still
}

// inBursts tells whether most of those GPUs that did anything did so while the median did nothing:
// each works at times of its own, and medians of moments say nothing of anybody.
func inBursts(gpus []*held) bool {
	did, apart := 0, 0
	for _, g := range gpus {
		if g.sum > 0 {
			did++
			if g.medians == 0 {
				apart++
			}
		}
	}
	return did == 0 || 2*apart > did
}

// shares gives the GPUs of an experiment what their median did, and their shares of it: by the
// medians of the moments in which each was held, or by their averages alone. The shares are 1 where
// that median is 0.
func shares(gpus []*held, alone bool) []*held {
	all := make([]float64, len(gpus))
	for i, g := range gpus {
		if g.share = g.sum / g.medians; alone {
			g.share = g.sum / g.count
		}
		all[i] = g.share
	}
	slices.Sort(all)
	if n := len(all); n > 0 {
		median := (all[(n-1)/2] + all[n/2]) / 2
		for _, g := range gpus {
			if g.median = median; !alone {
				g.median *= g.medians / g.count
			}
			if g.share /= median; median == 0 {
				g.share = 1
			}
		}
	}
	return gpus
}

// mostOfLast is the largest count of the GPUs that an experiment held last.
func (r *Run) mostOfLast(gpus map[string]*held) float64 {
	last, most := 0.0, 0.0
	for _, g := range gpus {
		last = max(last, g.last)
	}
	for _, g := range gpus {
		if g.last >= last-r.lookStep(r.back()).Seconds() {
			most = max(most, g.count)
		}
	}
	return most
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
