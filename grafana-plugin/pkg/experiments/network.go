package experiments

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// rateWindow is that of the recorded rates, and the least of those that stand in for them.
const rateWindow = 5 * time.Minute

// windowOf is the window of rates that are looked at in steps: a step, and a sample more, from
// which what came in the step rises. So nothing comes between two windows.
func (r *Run) windowOf(step time.Duration) string {
	if w := step + r.Settings.Interval(); w > rateWindow {
		return seconds(w)
	}
	return "5m"
}

// ethernet are the interfaces that the mixin counts: not the loopback, not IP over InfiniBand, not
// bonds and bridges over counted ones (_config.network.ethernet).
const ethernet = `device!~"lo|ib.*|bond.*|br.*|vlan.*|.*[.].*"`

// traffic is one direction of one view of the network. Either expression has the labels cluster and
// node and selects nodes by the matchers that it is given.
type traffic struct {
	direction string
	// recorded is cheap: one series for each node. raw is asked of nodes of which nothing is
	// recorded; empty: there is no other.
	recorded, raw expression
}

// expression is PromQL of the nodes of matchers.
type expression struct {
	// at is the value at a moment; window is that of its rates, if it has any.
	at func(window string, matchers ...string) string
	// mean is the average over the range.
	mean func(r *Run, matchers ...string) string
}

type networkView struct {
	unit    string
	need    Need
	noun    string
	traffic []traffic
}

var networkViews = map[string]networkView{
	"infiniband": {"Bps", NeedInfiniband, "InfiniBand traffic", []traffic{
		{"received", metricOf("node:infiniband_received_bytes:rate5m"), rateOf("node_infiniband_port_data_received_bytes_total")},
		{"transmitted", metricOf("node:infiniband_transmitted_bytes:rate5m"), rateOf("node_infiniband_port_data_transmitted_bytes_total")},
	}},
	"ethernet": {"Bps", NeedEthernet, "Ethernet traffic", []traffic{
		{"received", metricOf("node:ethernet_received_bytes:rate5m"), rateOf("node_network_receive_bytes_total", ethernet)},
		{"transmitted", metricOf("node:ethernet_transmitted_bytes:rate5m"), rateOf("node_network_transmit_bytes_total", ethernet)},
	}},
	// DCGM's field is a rate already, of each GPU, and once for each pod that shares one; from
	// 1e14 on it is one of DCGM's signs for "no value".
	"nvlink": {"Bps", NeedNVLink, "NVLink traffic", []traffic{
		{"received", gaugeOf("DCGM_FI_PROF_NVLINK_RX_BYTES"), expression{}},
		{"transmitted", gaugeOf("DCGM_FI_PROF_NVLINK_TX_BYTES"), expression{}},
	}},
	// Each a second. What the links did stands where the other views have the direction.
	"errors": {"cps", NeedInfiniband, "errors of InfiniBand", []traffic{
		{"link down", rateOf("node_infiniband_link_downed_total"), expression{}},
		{"link recovered", rateOf("node_infiniband_link_error_recovery_total"), expression{}},
		{"received", rateOf("node_infiniband_port_errors_received_total"), expression{}},
	}},
}

func metricOf(name string) expression {
	return looked(func(m ...string) string { return "max by (cluster, node) (" + Selector(name, m...) + ")" })
}

func gaugeOf(name string) expression {
	return looked(func(m ...string) string {
		return "sum by (cluster, node) (max by (cluster, node, gpu, UUID) (" + Selector(name, m...) + " < 1e14))"
	})
}

// looked is an expression whose mean is that of looks at it.
func looked(at func(matchers ...string) string) expression {
	return expression{
		func(_ string, m ...string) string { return at(m...) },
		func(r *Run, m ...string) string { return "avg_over_time(" + r.lookAt(at(m...), r.back()) + ")" },
	}
}

// rateOf is a counter's. For its mean the counter is looked at and not its rate: nothing comes
// between two looks. Looks stand at multiples of their step: what came after the last one is added,
// with what came up to a step before it, once more. What there was no second look at has none.
func rateOf(name string, more ...string) expression {
	of := func(m []string) string { return Selector(name, append(m[:len(m):len(m)], more...)...) }
	return expression{
		func(window string, m ...string) string {
			return fmt.Sprintf("sum by (cluster, node) (rate(%s[%s]))", of(m), window)
		},
		func(r *Run, m ...string) string {
			d := max(r.back(), rateWindow)
			step := r.lookStep(d)
			last := step + r.Settings.Interval()
			looks := fmt.Sprintf("%s[%s:%s]", of(m), seconds(d), seconds(step))
			return fmt.Sprintf("sum by (cluster, node) ((rate(%[1]s) or 0 * count_over_time(%[1]s)) + "+
				"(rate(%[2]s[%[3]s]) * %.6[4]g or 0 * count_over_time(%[1]s)))", looks, of(m), seconds(last), float64(last)/float64(d))
		},
	}
}

// network is the traffic of the experiment's nodes, a line for each node and direction: in bytes a
// second, or errors a second. It is the node's traffic, of whoever else is on the node too:
// node_exporter does not know pods. Where steps are long, so are the windows of rates that are not
// recorded, so that errors between two points are seen.
//
// Where there are more lines than may be drawn, or the query ranks nodes, those with the largest
// (smallest) average of all directions are drawn, both directions of each.
func network(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	view := networkViews[r.Query.View]
	if pods = onNode(pods); len(pods) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods, "pods on nodes")
	}
	recorded, raw := make([]expression, len(view.traffic)), make([]expression, len(view.traffic))
	for i, t := range view.traffic {
		recorded[i], raw[i] = t.recorded, t.raw
	}
	means, err := r.networkMeans(ctx, pods, recorded)
	if err != nil {
		return nil, err
	}
	isRecorded := map[node]bool{}
	for _, s := range means {
		isRecorded[nodeOf(s.Labels)] = true
	}
	if raw[0].at != nil {
		others := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return isRecorded[node{p.Cluster, p.Node}] })
		more, err := r.networkMeans(ctx, others, raw)
		if err != nil {
			return nil, err
		}
		means = append(means, more...)
	}
	if len(means) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods|view.need, view.noun)
	}
	var drawn, drawnRaw []Pod // only cluster and node count
	for _, s := range r.pick(means, []string{"cluster", "node"}, max(1, r.Settings.MaxSeries/len(recorded)), "nodes") {
		if p := (Pod{Cluster: s.Labels["cluster"], Node: s.Labels["node"]}); isRecorded[nodeOf(s.Labels)] {
			drawn = append(drawn, p)
		} else {
			drawnRaw = append(drawnRaw, p)
		}
	}
	lines, window := make([][]question, len(recorded)), r.windowOf(r.Step())
	for i := range lines {
		ask := func(expr expression) func(m ...string) question {
			return func(m ...string) question { return r.span(expr.at(window, m...), r.From, r.Until, r.Step()) }
		}
		lines[i] = append(onNodes(drawn, ask(recorded[i])), onNodes(drawnRaw, ask(raw[i]))...)
	}
	answers, err := r.each(ctx, lines...)
	if err != nil {
		return nil, err
	}
	var series []prom.Series
	for i, answer := range answers {
		for _, s := range answer {
			s.Labels["direction"] = view.traffic[i].direction
			series = append(series, s)
		}
	}
	by := []string{"cluster", "node", "direction"}
	return timeSeries(series, r.Step(), view.unit, func(l map[string]string) string { return legend(l, by) }), nil
}

// networkMeans has the average over the range of what all expressions give together, a series for
// each node.
func (r *Run) networkMeans(ctx context.Context, pods []Pod, list []expression) ([]prom.Series, error) {
	questions := make([][]question, len(list))
	for i, expr := range list {
		// The names stand up to four times in a question: the bound leaves room for two.
		questions[i] = exactly(nodeScopes(0, 2, pods), func(m ...string) question { return r.at(expr.mean(r, m...), r.Until) })
	}
	answers, err := r.each(ctx, questions...)
	if err != nil {
		return nil, err
	}
	sums := map[node]int{}
	var out []prom.Series
	for _, answer := range answers {
		for _, s := range answer {
			if i, ok := sums[nodeOf(s.Labels)]; ok {
				out[i].Points = []prom.Point{{T: s.Points[0].T, V: out[i].Value() + s.Value()}}
				continue
			}
			sums[nodeOf(s.Labels)] = len(out)
			out = append(out, s)
		}
	}
	return out, nil
}
