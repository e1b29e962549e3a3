package experiments

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// Columns state of nodes, the worst first.
const (
	nodeGone     = "gone"      // the cluster is seen, and the node is not one of it
	nodeNotReady = "not ready" // its kubelet says so
	nodeUnknown  = "unknown"   // its kubelet says nothing, or nothing is seen of the whole cluster
	nodeReady    = "ready"
)

var nodeStates = []string{nodeGone, nodeNotReady, nodeUnknown, nodeReady}

type nodeRow struct {
	node
	state      string
	cordoned   bool
	pods       int64
	held       float64
	gpus, util *float64
	xid        *int64
	xidText    string
	xidRank    int
}

// nodesTable has a row for each node that a pod of the experiment was on in the range. State,
// cordon, pods, GPUs held and capacity are those at its end; util is the mean over the range of the
// GPUs that the experiment held there; xid is the worst that any GPU of the node had in the range,
// the latest of equally bad ones. Nodes that the experiment is on come first, and of those the ones
// with trouble.
func nodesTable(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	if pods = onNode(pods); len(pods) == 0 {
		return r.nodeFrames(nil), r.Empty(ctx, NeedPods, "pods on nodes")
	}
	answers, err := r.askNodes(ctx, pods)
	if err != nil {
		return nil, err
	}
	xids, err := r.xidsOn(ctx, pods)
	if err != nil {
		return nil, err
	}
	rows := nodeRows(pods, answers)
	worstXid(rows, xids)
	list := make([]nodeRow, 0, len(rows))
	for _, row := range rows {
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b nodeRow) int {
		return cmp.Or(compareBool(a.pods == 0, b.pods == 0),
			cmp.Compare(slices.Index(nodeStates, a.state), slices.Index(nodeStates, b.state)),
			compareBool(a.xid == nil, b.xid == nil), cmp.Compare(a.xidRank, b.xidRank), compareBool(!a.cordoned, !b.cordoned),
			strings.Compare(a.cluster, b.cluster), strings.Compare(a.name, b.name))
	})
	return r.nodeFrames(limitRows(r, list, "nodes")), nil
}

// askNodes asks for what nodeRows makes rows of.
func (r *Run) askNodes(ctx context.Context, pods []Pod) ([][]prom.Series, error) {
	clusters := map[string]bool{}
	var seen []question
	for _, p := range pods {
		if !clusters[p.Cluster] {
			clusters[p.Cluster] = true
			seen = append(seen, r.at(Selector("cluster:nodes:count", OneOf("cluster", p.Cluster)), r.Until))
		}
	}
	highest := func(metric string, more ...string) []question {
		return fewOnNodes(pods, func(m ...string) question {
			return r.at("max by (cluster, node) ("+Selector(metric, append(m, more...)...)+")", r.Until)
		})
	}
	return r.each(ctx, seen,
		highest("node:ready:max"),
		highest("kube_node_status_condition", OneOf("condition", "Ready"), OneOf("status", "unknown")),
		highest("kube_node_spec_unschedulable"),
		highest("node:gpu_capacity:max"),
		r.chosenFewOnNodes(pods, func(m ...string) question {
			return r.at("count by (cluster, node) (group by (cluster, node, namespace, pod, uid) ("+Selector("experiment:pod:info", m...)+"))", r.Until)
		}),
		r.chosenFewOnNodes(pods, func(m ...string) question {
			return r.at("sum by (cluster, node) ("+Selector("experiment:pod:gpus", m...)+")", r.Until)
		}),
		r.chosenOnNodes(pods, func(m ...string) question {
			return r.at("avg by (cluster, node) (avg_over_time("+r.look(Selector("experiment:gpu:util", m...), r.back())+"))", r.Until)
		}),
	)
}

// nodeRows are the rows without Xids.
func nodeRows(pods []Pod, answers [][]prom.Series) map[node]*nodeRow {
	clusters := map[string]bool{}
	for _, s := range answers[0] {
		clusters[s.Labels["cluster"]] = s.Value() > 0
	}
	ready, unknown, cordoned, capacity := byNode(answers[1]), byNode(answers[2]), byNode(answers[3]), byNode(answers[4])
	here, held, util := byNode(answers[5]), byNode(answers[6]), byNode(answers[7])
	rows := map[node]*nodeRow{}
	for _, p := range pods {
		n := node{p.Cluster, p.Node}
		if rows[n] != nil {
			continue
		}
		row := &nodeRow{node: n, cordoned: cordoned[n] > 0, pods: int64(here[n]), held: held[n]}
		row.state = nodeNotReady
		switch up, known := ready[n]; {
		case !known && clusters[n.cluster]:
			row.state = nodeGone
		case !known, unknown[n] > 0:
			row.state = nodeUnknown
		case up > 0:
			row.state = nodeReady
		}
		if v, ok := capacity[n]; ok {
			row.gpus = &v
		}
		if v, ok := util[n]; ok {
			row.util = &v
		}
		rows[n] = row
	}
	return rows
}

// worstXid puts the worst Xid into each row, the latest of equally bad ones.
func worstXid(rows map[node]*nodeRow, xids []fault) {
	at := func(f fault) int64 { return f.points[len(f.points)-1].T }
	slices.SortFunc(xids, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.class.rank(), b.class.rank()), cmp.Compare(at(b), at(a)), cmp.Compare(a.xid, b.xid))
	})
	for _, f := range xids {
		if row := rows[f.node]; row != nil && row.xid == nil {
			row.xid, row.xidText, row.xidRank = &f.xid, f.text, f.class.rank()
		}
	}
}

func byNode(series []prom.Series) map[node]float64 {
	out := make(map[node]float64, len(series))
	for _, s := range series {
		out[nodeOf(s.Labels)] = s.Value()
	}
	return out
}

func (r *Run) nodeFrames(rows []nodeRow) data.Frames {
	n := len(rows)
	cluster, name, state, cordoned, pods := make([]string, n), make([]string, n), make([]string, n), make([]bool, n), make([]int64, n)
	held, gpus, util, xid, text := make([]float64, n), make([]*float64, n), make([]*float64, n), make([]*int64, n), make([]string, n)
	for i, row := range rows {
		cluster[i], name[i], state[i], cordoned[i], pods[i] = row.cluster, row.name, row.state, row.cordoned, row.pods
		held[i], gpus[i], util[i], xid[i], text[i] = row.held, row.gpus, row.util, row.xid, row.xidText
	}
	return data.Frames{table(
		column{"cluster", cluster, nil},
		column{"node", name, nodeLink(r.Settings)},
		column{"state", state, nil},
		column{"cordoned", cordoned, nil},
		column{"pods", pods, nil},
		column{"gpus_held", held, nil},
		column{"gpus", gpus, nil},
		column{"util", util, &data.FieldConfig{Unit: "percent"}},
		column{"xid", xid, nil},
		column{"xid_text", text, nil},
	)}
}
