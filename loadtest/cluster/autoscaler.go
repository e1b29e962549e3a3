package cluster

import (
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// JobAutoscaler is the cluster autoscaler's page, with the labels of its release
// 1.36 (gpu_resource_name, gpu_name and dra_drivers on what it did) and with
// --emit-per-nodegroup-metrics.
const JobAutoscaler = "cluster-autoscaler"

// Its main loop runs each ten seconds.
const autoscalerLoop = 10 * second

var (
	autoscalerLEs, autoscalerBounds = exponentialLEs(0.01, 1.5, 30)
	autoscalerFunctions             = []string{"main", "updateClusterState", "filterOutSchedulable", "findUnneeded", "scaleUp", "scaleDown"}
)

// exponentialLEs are the labels of n bounds, each factor times the one before.
func exponentialLEs(start, factor float64, n int) ([]string, []float64) {
	var les []string
	var bounds []float64
	for range n {
		les, bounds = append(les, strconv.FormatFloat(start, 'g', -1, 64)), append(bounds, start)
		start *= factor
	}
	return append(les, "+Inf"), bounds
}

func autoscalerFamilies(d Detail) []family {
	c, g := model.MetricTypeCounter, model.MetricTypeGauge
	fams := []family{
		{"cluster_autoscaler_cluster_safe_to_autoscale", "Whether or not cluster is healthy enough for autoscaling. 1 if it is, 0 otherwise.", g, one(1)},
		{"cluster_autoscaler_nodes_count", "Number of nodes in cluster.", g, emitAutoscalerNodes},
		{"cluster_autoscaler_node_groups_count", "Number of node groups managed by CA.", g, func(p *page, e *emitter) {
			e.add(curve{base: float64(len(p.nodeGroups()))}, "node_group_type", "autoscaled")
			e.add(curve{}, "node_group_type", "autoprovisioned")
		}},
		{"cluster_autoscaler_unschedulable_pods_count", "Number of unschedulable pods in the cluster.", g, func(p *page, e *emitter) {
			e.add(curve{kind: gauge, k: 1, st: p.waitingPods()}, "type", "unschedulable")
			e.add(curve{}, "type", "scheduler_unprocessed")
		}},
		{"cluster_autoscaler_max_nodes_count", "Maximum number of nodes in all node groups.", g, func(p *page, e *emitter) {
			e.add(curve{base: float64(p.m.o.Nodes + p.m.o.Nodes/10)})
		}},
		{"cluster_autoscaler_last_activity", "Last time certain part of CA logic executed.", g, emitLastActivity},
		{
			"cluster_autoscaler_function_duration_seconds", "Time taken by various parts of CA main loop.", model.MetricTypeHistogram,
			emitAutoscalerDurations,
		},
		{"cluster_autoscaler_errors_total", "The number of CA loops failed due to an error.", c, func(_ *page, e *emitter) {
			for _, t := range []string{"cloudProviderError", "apiCallError", "internalError"} {
				e.add(curve{}, "type", t)
			}
		}},
		{"cluster_autoscaler_scaled_up_nodes_total", "Number of nodes added by CA.", c, emitScaled(0.0004)},
		{
			"cluster_autoscaler_scaled_down_nodes_total", "Number of nodes removed by CA, by reason.", c,
			emitScaled(0.0003, "reason", "empty"),
		},
		{"cluster_autoscaler_failed_scale_ups_total", "Number of times scale-up operation has failed.", c, emitFailedScaleUps},
		{"cluster_autoscaler_unneeded_nodes_count", "Number of nodes currently considered unneeded by CA.", g, one(0)},
		{"cluster_autoscaler_scale_down_in_cooldown", "Whether or not the scale down is in cooldown. 1 if its, 0 otherwise.", g, one(0)},
		{"cluster_autoscaler_node_group_backoff_status", "Whether or not node group is backoff for not autoscaling. 1 if it is, 0 otherwise.", g, emitBackoff},
		{"cluster_autoscaler_node_group_healthiness", "Whether or not node group is healthy enough for autoscaling. 1 if it is, 0 otherwise.", g, eachNodeGroup(func(nodeGroup) float64 { return 1 })},
		{
			"cluster_autoscaler_node_group_min_count", "Minimum number of nodes in the node group.", g,
			eachNodeGroup(func(nodeGroup) float64 { return 0 }),
		},
		{
			"cluster_autoscaler_node_group_max_count", "Maximum number of nodes in the node group.", g,
			eachNodeGroup(func(n nodeGroup) float64 { return float64(n.nodes + n.nodes/10 + 1) }),
		},
		{
			"cluster_autoscaler_node_group_target_count", "Target number of nodes in the node group by CA.", g,
			eachNodeGroup(func(n nodeGroup) float64 { return float64(n.nodes) }),
		},
	}
	fams = append(fams, processFamilies(d)...)
	if d == Full {
		fams = append(fams, fromSchema("runtime", d, exporterClock)...)
	}
	return fams
}

func one(v float64) func(*page, *emitter) {
	return func(_ *page, e *emitter) { e.add(curve{base: v}) }
}

// nodeGroup is the machines of one GPU model.
type nodeGroup struct {
	name, product string
	nodes         int
}

// nodeGroups lists them in the order of Options.GPUModels; those of models that
// chance gave to no rack are empty, as reserve pools are.
func (p *page) nodeGroups() []nodeGroup {
	m := p.m
	var out []nodeGroup
	for _, name := range m.o.GPUModels {
		out = append(out, nodeGroup{"gpu-" + strings.ToLower(name), gpuModels[name].product, 0})
	}
	for n := 0; n < m.o.Nodes; n += m.o.NodesPerRack {
		product := m.gpuModel(n).product
		for i := range out {
			if out[i].product == product {
				out[i].nodes += min(m.o.NodesPerRack, m.o.Nodes-n)
				break
			}
		}
	}
	return out
}

func eachNodeGroup(value func(nodeGroup) float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for _, n := range p.nodeGroups() {
			e.add(curve{base: value(n)}, "node_group", n.name)
		}
	}
}

// emitAutoscalerNodes counts as kube-state-metrics shows the nodes.
func emitAutoscalerNodes(p *page, e *emitter) {
	var lost []delta
	for n := range p.m.o.Nodes {
		s := nodeState{ill: p.m.ill[n]}
		unready := s.of(-1, NodeNotReady)
		for _, ev := range p.m.tl.events(NodeDown, p.m.nodeName(n), p.from-readyAfter, p.until+1) {
			if ev.until-ev.from > notReadyAfter {
				unready = append(unready, event{from: ev.from + notReadyAfter, until: ev.until + readyAfter})
			}
		}
		for _, ev := range spans(byTime(unready)) {
			lost = append(lost, delta{ev.from, 1}, delta{ev.until, -1})
		}
	}
	st := stepsFromDeltas(lost)
	e.add(curve{kind: gauge, base: float64(p.m.o.Nodes), k: -1, st: st}, "state", "ready")
	e.add(curve{kind: gauge, k: 1, st: st}, "state", "unready")
	for _, state := range []string{"notStarted", "longUnregistered", "unregistered"} {
		e.add(curve{}, "state", state)
	}
}

// emitLastActivity: a loop that stands still keeps the time of its last round.
func emitLastActivity(p *page, e *emitter) {
	var stuck *steps
	if evs := p.troubles(AutoscalerStuck); len(evs) > 0 {
		var d []delta
		end := int64(0)
		for _, ev := range evs {
			if from := max(ev.from, end); from < ev.until {
				at := float64(ev.from-ev.from%autoscalerLoop) / 1000
				d = append(d, delta{from, at}, delta{ev.until, -at})
				end = ev.until
			}
		}
		stuck = stepsFromDeltas(d)
	}
	for _, a := range []string{"main", "autoscaling", "scaleUp", "scaleDown"} {
		e.add(curve{kind: now, a: autoscalerLoop, over: stuck}, "activity", a)
	}
}

func emitAutoscalerDurations(p *page, e *emitter) {
	evs := p.troubles(AutoscalerStuck)
	for i, f := range autoscalerFunctions {
		pairs := []string{"function", f}
		_, h := e.weight(pairs)
		c := e.rate(1000/float64(autoscalerLoop), true, h, p.pr)
		if len(evs) > 0 {
			c.held(active(evs))
		}
		// main is the whole of which the others are parts.
		e.histogram(0, never, c, dist{0.9 / float64(i+1), 0.5}, autoscalerLEs, autoscalerBounds, pairs...)
	}
}

func emitScaled(perSecond float64, more ...string) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for _, n := range p.nodeGroups() {
			pairs := append(append([]string{}, more...), "gpu_resource_name", "nvidia.com/gpu", "gpu_name", n.product, "dra_drivers", "")
			w, h := e.weight(pairs)
			e.add(e.rate(perSecond*w, true, h, p.pr), pairs...)
		}
	}
}

// outOfMachines is what a provider says that has no such machines left.
const outOfMachines = "OUT_OF_RESOURCES"

// emitFailedScaleUps: it is the first node group that is asked for in vain.
func emitFailedScaleUps(p *page, e *emitter) {
	evs := p.troubles(AutoscalerScaleUpFailing)
	for i, n := range p.nodeGroups() {
		for _, reason := range []string{"cloudProviderError", "timeout"} {
			c := curve{}
			if i == 0 && reason == "cloudProviderError" && len(evs) > 0 {
				c.more(p.pr, levels(evs, func(ev event) float64 { return ev.value / 60 }))
			}
			e.add(c, "reason", reason, "gpu_resource_name", "nvidia.com/gpu", "gpu_name", n.product, "dra_drivers", "")
		}
	}
}

func emitBackoff(p *page, e *emitter) {
	evs := p.troubles(AutoscalerScaleUpFailing)
	for i, n := range p.nodeGroups() {
		if i == 0 && len(evs) > 0 {
			c := curve{}
			c.set(1, active(evs))
			e.addIn(evs[0].from, never, c, "node_group", n.name, "reason", outOfMachines)
		}
		e.add(curve{}, "node_group", n.name, "reason", "")
	}
}
