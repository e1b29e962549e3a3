package experiments

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// presence says when the chosen experiments had pods on a node: times from and until, each a
// stretch.
type presence map[node][][2]int64

// overlaps says whether something from a to b on a node is theirs.
func (p presence) overlaps(n node, a, b int64) bool {
	return slices.ContainsFunc(p[n], func(s [2]int64) bool { return a <= s[1]+eventGrace.Milliseconds() && b >= s[0] })
}

// nodeEvents are nodes that were not ready and Xids, both while pods were there or soon after.
func (r *Run) nodeEvents(ctx context.Context, pods []Pod) ([]event, error) {
	pods = onNode(pods)
	const ready = `condition="Ready"`
	window := "[" + seconds(r.back()) + "]"
	answers, err := r.each(
		ctx,
		onNodes(pods, func(m ...string) question {
			of := Selector("kube_node_status_condition", append(m[:len(m):len(m)], ready, `status="true"`)...)
			return r.at("min by (cluster, node) (min_over_time("+of+window+")) == 0", r.Until)
		}),
		fewOnNodes(pods, func(m ...string) question {
			return r.at("max by (cluster, node) (max_over_time("+Selector("gpu:xid_errors:count5m", m...)+window+")) > 0", r.Until)
		}),
	)
	if err != nil {
		return nil, err
	}
	gauge, err := r.changedXids(ctx, pods)
	if err != nil {
		return nil, err
	}
	notReady, counted := nodesOf(answers[0]), nodesOf(answers[1])
	if len(notReady)+len(gauge)+len(counted) == 0 {
		return nil, nil
	}
	there, err := r.presence(ctx, slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(notReady, gauge, counted)), compareNodes)))
	if err != nil {
		return nil, err
	}
	out, err := r.notReadyEvents(ctx, notReady, there)
	if err != nil {
		return nil, err
	}
	xids, err := r.xidEvents(ctx, gauge, counted, there)
	return append(out, xids...), err
}

func compareNodes(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
}

// nodesOf has a pod without a name on each node of the series, each node once.
func nodesOf(series []prom.Series) []Pod {
	seen := map[node]bool{}
	var out []Pod
	for _, p := range podsOn(series) {
		if n := (node{p.Cluster, p.Node}); !seen[n] {
			seen[n] = true
			out = append(out, p)
		}
	}
	return out
}

// changedXids are the nodes that the pods are on, of which a GPU's gauge of the last Xid may have
// changed in the range; the gauge keeps an Xid for weeks. Over days the gauges of an experiment are
// much to read, thousands of series of which few ever change. But gpu:xid_last:info is there only
// while a gauge has an Xid, and its rule stands beside that of node:gpu_seen:count: where both have
// as many samples, the Xid was there all the time. Gauges are read where rules did not look at the
// node from the range's beginning to its end. What the gauges say at its end is read too: rules may
// not have seen it yet.
func (r *Run) changedXids(ctx context.Context, pods []Pod) ([]Pod, error) {
	window := "[" + seconds(r.back()) + "]"
	count := func(metric, by string) []question {
		return fewOnNodes(pods, func(m ...string) question {
			return r.at("max by ("+by+") (count_over_time("+Selector(metric, m...)+window+"))", r.Until)
		})
	}
	looked := func(at time.Time) []question {
		return fewOnNodes(pods, func(m ...string) question {
			return r.at("group by (cluster, node) ("+Selector("node:gpu_seen:count", m...)+")", at)
		})
	}
	const card = "cluster, node, gpu, UUID"
	answers, err := r.each(ctx, count("gpu:xid_last:info", card+", xid"), count("node:gpu_seen:count", "cluster, node"), looked(r.From),
		looked(r.Until),
		onNodes(pods, func(m ...string) question {
			return r.at("max by ("+card+") ("+Selector("DCGM_FI_DEV_XID_ERRORS", m...)+" < 2e9) > 0", r.Until)
		}))
	if err != nil {
		return nil, err
	}
	times, first, last := byNode(answers[1]), byNode(answers[2]), byNode(answers[3])
	recorded := map[string]bool{}
	var changed []prom.Series
	for _, s := range answers[0] {
		recorded[key(s.Labels, "cluster", "node", "gpu", "UUID", "xid")] = true
		if s.Value() != times[nodeOf(s.Labels)] {
			changed = append(changed, s)
		}
	}
	for _, s := range answers[4] {
		s.Labels["xid"] = strconv.FormatFloat(s.Value(), 'f', -1, 64)
		if !recorded[key(s.Labels, "cluster", "node", "gpu", "UUID", "xid")] {
			changed = append(changed, s)
		}
	}
	unlooked := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool {
		n := node{p.Cluster, p.Node}
		return first[n] > 0 && last[n] > 0
	})
	answers, err = r.each(ctx, onNodes(unlooked, func(m ...string) question {
		return r.at("max by (cluster, node) (max_over_time("+Selector("DCGM_FI_DEV_XID_ERRORS", m...)+window+")) > 0", r.Until)
	}))
	if err != nil {
		return nil, err
	}
	return nodesOf(slices.Concat(changed, answers[0])), nil
}

// presence asks when pods of what is chosen were on nodes.
func (r *Run) presence(ctx context.Context, nodes []Pod) (presence, error) {
	step := r.eventStep()
	out := presence{}
	for _, lot := range lots(r, nodes) {
		answers, err := r.each(ctx, r.chosenOnNodes(lot, func(m ...string) question {
			return r.span("group by (cluster, node) ("+Selector("experiment:pod:info", m...)+")", r.From, r.Until, step)
		}))
		if err != nil {
			return nil, err
		}
		for _, s := range answers[0] {
			out[nodeOf(s.Labels)] = append(out[nodeOf(s.Labels)], stretches(s, step)...)
		}
	}
	return out, nil
}

// stretches are the times without a gap that a series has points, first and last.
func stretches(s prom.Series, step time.Duration) [][2]int64 {
	var out [][2]int64
	for _, p := range s.Points {
		if n := len(out); n > 0 && p.T-out[n-1][1] <= step.Milliseconds() {
			out[n-1][1] = p.T
		} else {
			out = append(out, [2]int64{p.T, p.T})
		}
	}
	return out
}

// notReadyEvents are regions: from when a node was not ready until it was again.
func (r *Run) notReadyEvents(ctx context.Context, nodes []Pod, there presence) ([]event, error) {
	step := r.eventStep()
	var out []event
	for _, lot := range lots(r, nodes) {
		answers, err := r.each(ctx, onNodes(lot, func(m ...string) question {
			of := Selector("kube_node_status_condition", append(m[:len(m):len(m)], `condition="Ready"`, `status="true"`)...)
			return r.span("max by (cluster, node) ("+of+") == 0", r.From, r.Until, step)
		}))
		if err != nil {
			return nil, err
		}
		for _, s := range answers[0] {
			n := nodeOf(s.Labels)
			for _, span := range stretches(s, step) {
				if !there.overlaps(n, span[0], span[1]) {
					continue
				}
				e := event{
					kind: "node", at: time.UnixMilli(span[0]).UTC(), until: time.UnixMilli(span[1]).UTC(), cluster: n.cluster,
					where: n.name,
				}
				if r.Until.Sub(e.until) < step {
					e.until, e.what = r.Until.UTC(), "still" // it may go on
				} else {
					e.until = e.until.Add(step)
				}
				out = append(out, e)
			}
		}
	}
	return out, nil
}

// card is one GPU.
type card struct {
	node
	gpu, uuid string
}

func cardOf(s prom.Series) card { return card{nodeOf(s.Labels), s.Labels["gpu"], s.Labels["UUID"]} }

// xidEvents are new Xids of cards that the chosen experiments held. The gauge keeps the last one,
// so only a change counts, by card whatever pod held it; where the rules count Xids, a second equal
// one is seen too.
func (r *Run) xidEvents(ctx context.Context, gauge, counted []Pod, there presence) ([]event, error) {
	step := r.eventStep()
	type xidOf struct {
		card
		xid string
	}
	seen := map[xidOf]*fault{}
	// It came at most early before t; who had the card then may be recorded late after it.
	add := func(c card, xid string, t int64, early, late time.Duration) {
		f := seen[xidOf{c, xid}]
		if f == nil {
			f = &fault{node: c.node, gpu: c.gpu, uuid: c.uuid, name: xid}
			seen[xidOf{c, xid}] = f
		}
		if !slices.ContainsFunc(f.points, func(old prom.Point) bool { return max(t-old.T, old.T-t) < sameXid.Milliseconds() }) {
			f.points = append(f.points, prom.Point{T: t, V: 1})
			f.came = append(f.came, [2]int64{t - early.Milliseconds(), t + late.Milliseconds()})
		}
	}
	for _, lot := range lots(r, gauge) {
		answers, err := r.each(ctx, onNodes(lot, func(m ...string) question {
			// A little more, to know what the gauge said before.
			return r.span("max by (cluster, node, gpu, UUID) ("+Selector("DCGM_FI_DEV_XID_ERRORS", m...)+" < 2e9)", r.From.Add(-eventGrace),
				r.Until, step)
		}))
		if err != nil {
			return nil, err
		}
		for _, s := range answers[0] {
			for i := 1; i < len(s.Points); i++ {
				if p := s.Points[i]; p.V > 0 && p.V != s.Points[i-1].V {
					add(cardOf(s), strconv.FormatFloat(p.V, 'f', -1, 64), p.T, step+seenLate, seenLate)
				}
			}
		}
	}
	for _, lot := range lots(r, counted) {
		answers, err := r.each(ctx, onNodes(lot, func(m ...string) question {
			return r.span("max by (cluster, node, gpu, UUID, xid) ("+Selector("gpu:xid_errors:count5m", m...)+")", r.From, r.Until, step)
		}))
		if err != nil {
			return nil, err
		}
		for _, s := range answers[0] {
			for _, span := range stretches(s, step) {
				add(cardOf(s), s.Labels["xid"], span[0], xidWindow+step+seenLate, 0)
			}
		}
	}
	faults, err := r.ofOurCards(ctx, slices.Collect(maps.Values(seen)), there)
	var out []event
	for _, f := range faults {
		var names []string
		if f.gpu != "" {
			names = []string{f.gpu}
		}
		for _, p := range f.points {
			out = append(out, event{
				kind: "xid", at: time.UnixMilli(p.T).UTC(), cluster: f.cluster, where: f.node.name, what: f.name, names: names,
			})
		}
	}
	return out, err
}

// ofOurCards keeps what came while the chosen experiments were on its node, or soon after, and
// where it names a card and it is known which ones they held there, on one of these. Who held the
// cards is as exact as in gpuHealth, and let go of lot by lot: a node has a series for each.
func (r *Run) ofOurCards(ctx context.Context, faults []*fault, there presence) ([]fault, error) {
	found := map[node][]fault{}
	nodes := map[node]Pod{}
	for _, f := range faults {
		ours := fault{node: f.node, gpu: f.gpu, uuid: f.uuid, name: f.name}
		for i, p := range f.points {
			if there.overlaps(f.node, p.T, p.T) {
				ours.points, ours.came = append(ours.points, p), append(ours.came, f.came[i])
			}
		}
		if len(ours.points) > 0 {
			found[f.node] = append(found[f.node], ours)
			nodes[f.node] = Pod{Cluster: f.cluster, Node: f.node.name}
		}
	}
	_, _, step := r.faultTimes()
	var out []fault
	for lot := range slices.Chunk(slices.SortedFunc(maps.Values(nodes), compareNodes), pointsAtOnce/(cardsOfNode*heldPoints)) {
		answers, err := r.each(ctx, r.held(lot, "experiment:gpu:util", "cluster, node, gpu, UUID"))
		if err != nil {
			return nil, err
		}
		holds, told := r.holdsOf(answers[0])
		for _, p := range lot {
			n := node{p.Cluster, p.Node}
			for _, f := range found[n] {
				if f.gpu != "" && told[n] { // the kernel's log names none
					f = f.during(holds[card{n, f.gpu, f.uuid}], step)
				}
				out = append(out, f)
			}
		}
	}
	return out, nil
}
