package experiments

import (
	"context"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// faultGrace is how long after a pod had a GPU a fault of it is still the pod's: Xids are recorded each five minutes, of the five minutes before, and often
	// the pod is gone by then.
	faultGrace = 10 * time.Minute
	// maxFaultyNodes is how many nodes are looked at for who held their GPUs.
	maxFaultyNodes = 500
)

// gpuHealth lists what was wrong in the range with the GPUs that the experiment held, the worst first; view count has how many of each class, 0 too.
//
// A fault is the experiment's where one of its pods held this GPU at most ten minutes before; where DCGM does not say who holds a GPU, where one of its pods with GPUs
// was on the node then. So on a node that is shared the faults of others' GPUs are left out, and an Xid that ended a pod is in. Times are as exact as the points
// that the range is looked at: a 240th of it, at least one Interval.
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
		held, err := r.Instant(ctx, "group by (cluster) (last_over_time("+r.look(Selector("experiment:pod:gpus", Chosen(r.Query)...), r.length())+"))", r.Until)
		return r.healthFrames(nil, len(held) > 0), err
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
			faults[i].model = models[faults[i].node]
		}
	}
	slices.SortFunc(faults, compareFaults)
	return r.healthFrames(faults, true), nil
}

// hold is a pod that had a GPU, or was on a node with GPUs, at these points.
type hold struct {
	pod    string
	points []prom.Point
}

// ours keeps the faults of GPUs that the chosen experiments held, with the pod that did and only the times at which it did.
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
		r.Notice(data.NoticeSeverityWarning, "%d faults are left out: more than %d nodes have any; choose a shorter time or fewer experiments.", left, maxFaultyNodes)
	}
	first, last, step := r.faultTimes()
	// A hold may have ended before the range and the fault have come in it.
	first = first.Add(-faultGrace - step)
	held := func(metric, by string) []question {
		return onNodes(faulty, func(m ...string) question {
			return r.span("group by ("+by+") (last_over_time("+Selector(metric, append(m, Chosen(r.Query)...)...)+"["+seconds(step)+"]))", first, last, step)
		})
	}
	answers, err := r.each(ctx, held("experiment:gpu:util", "cluster, node, gpu, UUID, namespace, pod"), held("experiment:pod:gpus", "cluster, node, namespace, pod"))
	if err != nil {
		return nil, err
	}
	onGPU, onNode, told := map[string][]hold{}, map[node][]hold{}, map[node]bool{}
	for _, s := range answers[0] {
		k := key(s.Labels, "cluster", "node", "gpu", "UUID")
		onGPU[k] = append(onGPU[k], hold{s.Labels["pod"], s.Points})
		told[nodeOf(s.Labels)] = true
	}
	for _, s := range answers[1] {
		onNode[nodeOf(s.Labels)] = append(onNode[nodeOf(s.Labels)], hold{s.Labels["pod"], s.Points})
	}
	var out []fault
	for _, f := range faults {
		switch {
		case f.held:
		case f.gpu != "" && told[f.node]:
			f = f.during(onGPU[key(map[string]string{"cluster": f.cluster, "node": f.node.name, "gpu": f.gpu, "UUID": f.uuid}, "cluster", "node", "gpu", "UUID")], step)
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

// during is the fault at those points at which one of holds was there, at most faultGrace before; its pod is the one that held last, none where there were several.
func (f fault) during(holds []hold, step time.Duration) fault {
	all := f.points
	f.points, f.pod = nil, ""
	for _, p := range all {
		var pods []string
		newest := int64(0)
		for _, h := range holds {
			for _, at := range h.points {
				// Point T stands for (T-step, T], of the fault as of the hold.
				if at.T-step.Milliseconds() >= p.T || at.T < p.T-step.Milliseconds()-faultGrace.Milliseconds() {
					continue
				}
				switch t := min(at.T, p.T); {
				case t > newest:
					newest, pods = t, []string{h.pod}
				case t == newest && !slices.Contains(pods, h.pod):
					pods = append(pods, h.pod)
				}
			}
		}
		if len(pods) == 0 {
			continue
		}
		f.points = append(f.points, p)
		if f.pod = ""; len(pods) == 1 {
			f.pod = pods[0]
		}
	}
	return f
}

func (r *Run) healthFrames(faults []fault, held bool) data.Frames {
	if r.Query.View == "count" {
		if !held {
			return emptyFrames(data.FrameTypeNumericMulti)
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
	cluster, on, gpu, uuid, model, pod := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
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
		column{"pod", pod, dashboard(r.Settings.PodDashboard, "Pods that wait", "cluster")},
		column{"fault", name, nil},
		column{"class", class, nil},
		column{"value", value, nil},
		column{"since", since, nil},
		column{"text", text, nil},
		column{"action", action, nil},
	)}
}
