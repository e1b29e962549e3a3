package experiments

import (
	"context"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// faultGrace is how long after a pod had a GPU a fault of it is still the pod's: Xids are
	// recorded each five minutes, of the five minutes before, and often the pod is gone by then.
	faultGrace = 10 * time.Minute
	// maxFaultyNodes is how many nodes are looked at for who held their GPUs.
	maxFaultyNodes = 500
	// cardsOfNode is how many GPUs a node has, mostly, and heldPoints at how many points at most
	// is asked who held one: those of the range, at its ends, and before it.
	cardsOfNode = 8
	heldPoints  = faultPoints + 60
)

// gpuHealth lists what was wrong in the range with the GPUs that the experiment held, the worst
// first; view count has how many of each class, 0 too, and view total how many there are.
//
// A fault is the experiment's where one of its pods held this GPU at most ten minutes before; where
// DCGM does not say who holds a GPU, where one of its pods with GPUs was on the node then. So on a
// node that is shared the faults of others' GPUs are left out, and an Xid that ended a pod is in.
// Column pod is who had the GPU when the error came; it is empty where pods followed each other too
// closely to tell, and where several were on the node. Times are as exact as the points that the
// range is looked at: a 240th of it, at least one Interval.
func gpuHealth(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	needs := NeedPods | NeedGPUs | NeedFaults
	if pods = onNode(pods); len(pods) == 0 {
		return r.healthFrames(nil, false), r.Empty(ctx, NeedPods, "pods on nodes")
	}
	faults, err := r.faultsOn(ctx, pods)
	if err != nil {
		return nil, err
	}
	if faults, err = r.ours(ctx, faults); err != nil {
		return nil, err
	}
	if len(faults) == 0 {
		// Whether none is the truth or nothing is measured is what Empty finds out.
		if err := r.Empty(ctx, needs, "faults of GPUs"); err != nil {
			return nil, err
		}
		held, err := r.Instant(ctx, "group by (cluster) (last_over_time("+Selector("experiment:pod:gpus", Chosen(r.Query)...)+
			"["+seconds(r.back())+"]))", r.Until)
		return r.healthFrames(nil, len(held) > 0), err
	}
	clusters := set{}
	for _, p := range pods {
		clusters[p.Cluster] = true
	}
	if err := r.unmeasured(ctx, clusters); err != nil {
		return nil, err
	}
	nodes := map[node]bool{}
	for _, f := range faults {
		if f.model == "" {
			nodes[f.node] = true
		}
	}
	models, err := r.models(ctx, nodes)
	if err != nil {
		return nil, err
	}
	for i := range faults {
		if faults[i].model == "" {
			faults[i].model = models[faults[i].node].name()
		}
	}
	slices.SortFunc(faults, compareFaults)
	return r.healthFrames(faults, true), nil
}

// hold is a pod that had a GPU, or was on a node with GPUs, at these points; ours if it is of what
// is chosen.
type hold struct {
	namespace, pod string
	ours           bool
	points         []prom.Point
}

func (r *Run) holdOf(s prom.Series) hold {
	return hold{s.Labels["namespace"], s.Labels["pod"], isChosen(r.Query, s.Labels), s.Points}
}

// within says whether the pod was there at some time after from until until, at points that stand
// for the step before them.
func (h hold) within(from, until int64, step time.Duration) bool {
	return slices.ContainsFunc(h.points, func(p prom.Point) bool { return p.T > from && p.T-step.Milliseconds() < until })
}

// isChosen says whether labels of a recorded series of an experiment are among what Chosen selects.
func isChosen(q model.Query, l map[string]string) bool {
	among := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	return among(q.Clusters, l["cluster"]) && among(q.Namespaces, l["namespace"]) && among(q.Experiments, l["experiment"]) &&
		(among(q.Teams, l["team"]) || l["team"] == "" && slices.Contains(q.Teams, unassigned))
}

// ours keeps the faults of GPUs that the chosen experiments held, with the pod that did and only
// the times at which it did. Who else held them is looked at too: an error that came before a pod
// is not the pod's.
func (r *Run) ours(ctx context.Context, faults []fault) ([]fault, error) {
	slices.SortFunc(faults, compareFaults)
	var faulty []Pod
	nodes := map[node]bool{}
	left := 0
	for _, f := range faults {
		if f.held || nodes[f.node] {
			continue
		}
		if len(nodes) == maxFaultyNodes {
			left++
			continue
		}
		nodes[f.node] = true
		faulty = append(faulty, Pod{Cluster: f.cluster, Node: f.node.name})
	}
	if left > 0 {
		r.LeftOut("%d faults are left out: more than %d nodes have any; choose a shorter time or fewer experiments.", left, maxFaultyNodes)
	}
	_, _, step := r.faultTimes()
	answers, err := r.each(ctx, r.held(faulty, "experiment:gpu:util", "cluster, node, gpu, UUID"),
		r.held(faulty, "experiment:pod:gpus", "cluster, node"))
	if err != nil {
		return nil, err
	}
	onGPU, told := r.holdsOf(answers[0])
	onNode := map[node][]hold{}
	for _, s := range answers[1] {
		onNode[nodeOf(s.Labels)] = append(onNode[nodeOf(s.Labels)], r.holdOf(s))
	}
	var out []fault
	for _, f := range faults {
		switch {
		case f.held:
		case f.gpu != "" && told[f.node]:
			f = f.during(onGPU[card{f.node, f.gpu, f.uuid}], step)
		default:
			f = f.during(onNode[f.node], step)
		}
		if len(f.points) > 0 {
			f.sum()
			out = append(out, f)
		}
	}
	return out, nil
}

// held asks which pods had what a recorded series says, by its labels, at the points at which
// faults are looked for; each point stands for all since the one before.
func (r *Run) held(nodes []Pod, metric, by string) []question {
	first, last, step := r.faultTimes()
	// A hold may have ended before the range and the fault have come in it; and who was there is
	// looked at two steps before what is asked.
	first = first.Add(-faultGrace - 3*step)
	return onNodes(nodes, func(m ...string) question {
		return r.span("group by ("+by+", namespace, pod, experiment, team) (last_over_time("+Selector(metric, m...)+"["+seconds(step)+"]))", first, last, step)
	})
}

// holdsOf are the holds of each card, and on which nodes any of them is ours.
func (r *Run) holdsOf(series []prom.Series) (holds map[card][]hold, told map[node]bool) {
	holds, told = map[card][]hold{}, map[node]bool{}
	for _, s := range series {
		h := r.holdOf(s)
		holds[cardOf(s)] = append(holds[cardOf(s)], h)
		told[nodeOf(s.Labels)] = told[nodeOf(s.Labels)] || h.ours
	}
	return holds, told
}

// during is the fault at those points at which one of holds that are ours was there, at most
// faultGrace before. Its pod is who was there when the last of them came: none where that cannot be
// told.
func (f fault) during(holds []hold, step time.Duration) fault {
	points, came := f.points, f.came
	f.points, f.came, f.pod = nil, nil, ""
	for i, p := range points {
		var who []hold
		known := true
		if came != nil {
			who, known = holdersWithin(holds, came[i][0], came[i][1], step)
		}
		if len(who) == 0 {
			last := p.T
			if came != nil {
				last = came[i][1]
			}
			who, known = holdersAt(holds, last, step), true
		}
		if !slices.ContainsFunc(who, func(h hold) bool { return h.ours }) {
			continue
		}
		f.points = append(f.points, p)
		if came != nil {
			f.came = append(f.came, came[i])
		}
		if f.pod = ""; known && samePod(who) {
			f.pod = who[0].pod
		}
	}
	return f
}

// holdersWithin are those who were there at some time after from until until. They are known to
// have been there when something came in between if it is one pod, which was there before: one that
// came in between may have come after it.
func holdersWithin(holds []hold, from, until int64, step time.Duration) (who []hold, known bool) {
	for _, h := range holds {
		if h.within(from, until, step) {
			who = append(who, h)
		}
	}
	before := from - 2*step.Milliseconds()
	return who, samePod(who) && slices.ContainsFunc(who, func(h hold) bool {
		return slices.ContainsFunc(h.points, func(p prom.Point) bool { return before < p.T && p.T <= from })
	})
}

// holdersAt are those who were there last at a point, at most faultGrace before what it stands for.
func holdersAt(holds []hold, t int64, step time.Duration) []hold {
	var who []hold
	newest := int64(0)
	for _, h := range holds {
		last := int64(0)
		for _, p := range h.points {
			if p.T-step.Milliseconds() < t && p.T >= t-step.Milliseconds()-faultGrace.Milliseconds() {
				last = max(last, min(p.T, t))
			}
		}
		switch {
		case last == 0 || last < newest:
		case last > newest:
			newest, who = last, []hold{h}
		default:
			who = append(who, h)
		}
	}
	return who
}

// samePod says whether all holds are of one pod.
func samePod(holds []hold) bool {
	return len(holds) > 0 && !slices.ContainsFunc(holds,
		func(h hold) bool { return h.namespace != holds[0].namespace || h.pod != holds[0].pod })
}

func (r *Run) healthFrames(faults []fault, held bool) data.Frames {
	if r.Query.View == "total" || r.Query.View == "count" {
		if !held {
			return emptyFrames(data.FrameTypeNumericMulti)
		}
		if r.Query.View == "total" {
			return data.Frames{number(float64(len(faults)), nil, "none")}
		}
		counts := map[Class]float64{}
		classes := slices.Clone(Classes)
		for _, f := range faults {
			counts[f.class]++
			if !slices.Contains(classes, f.class) {
				classes = append(classes, f.class) // a site's own
			}
		}
		var frames data.Frames
		for _, c := range classes {
			frames = append(frames, number(counts[c], data.Labels{"class": string(c)}, "none"))
		}
		return frames
	}
	faults = limitRows(r, faults, "faults")
	n := len(faults)
	cluster, on, gpu, uuid, model, pod := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n),
		make([]string, n)
	name, class, text, action := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	value, since := make([]float64, n), make([]time.Time, n)
	for i, f := range faults {
		cluster[i], on[i], gpu[i], uuid[i], model[i], pod[i] = f.cluster, f.node.name, f.gpu, f.uuid, f.model, f.pod
		name[i], class[i], text[i], action[i] = f.name, string(f.class), f.sentence(), f.action
		value[i], since[i] = f.value, time.UnixMilli(min(f.points[0].T, r.Until.UnixMilli())).UTC()
	}
	return data.Frames{table(
		column{"cluster", cluster, nil},
		column{"node", on, nodeLink(r.Settings)},
		column{"gpu", gpu, gpuLink(r.Settings)},
		column{"UUID", uuid, nil},
		column{"model", model, nil},
		column{"pod", pod, podOnlyLink(r.Settings)},
		column{"fault", name, nil},
		column{"class", class, nil},
		column{"value", value, nil},
		column{"since", since, nil},
		column{"text", text, nil},
		column{"action", action, nil},
	)}
}
