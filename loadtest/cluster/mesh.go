package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// node-mesh: a few probers, each of which knocks at all nodes through the pod
// network and says on one page how it went.

// probers is how many there are: enough that one broken prober is outvoted.
const probers = 4

// proberBlip is a knock that one prober alone did not get through. It is drawn
// from the seed, for each prober and node, and cannot be staged.
const proberBlip Kind = "proberBlip"

func init() {
	recurrences[proberBlip] = recurring{2 * 24 * time.Hour, 5 * 24 * time.Hour, 20 * time.Second, 90 * time.Second}
}

func proberNode(prober, node int) string { return strconv.Itoa(prober) + "/" + strconv.Itoa(node) }

func meshFamilies() []family {
	g := model.MetricTypeGauge
	const timeout = 2.0
	return []family{
		{
			"probe_duration_seconds", "How long the probe took to complete, in seconds.", g,
			eachProbe(func(e *emitter, lost []event, h uint64, name string) {
				c := wave(curve{kind: gauge, base: between(mix(h), 0.0004, 0.0011), amp: 0.0002}, h)
				c.over = during(lost, func(event) float64 { return timeout })
				e.add(c, "node", name)
			}),
		},
		{"probe_success", "Whether the probe succeeded.", g, eachProbe(func(e *emitter, lost []event, _ uint64, name string) {
			c := curve{base: 1}
			if len(lost) > 0 {
				c = curve{kind: gauge, base: 1, k: -1, st: during(lost, once)}
			}
			e.add(c, "node", name)
		})},
	}
}

// eachProbe calls f for each node with the spans in which the prober does not
// reach it.
func eachProbe(f func(e *emitter, lost []event, h uint64, name string)) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for n := range p.m.o.Nodes {
			name := p.m.nodeName(n)
			ev := slices.Concat(
				p.m.tl.events(NodeDown, name, p.from, p.until+1),
				p.m.tl.events(proberBlip, proberNode(p.t.ord, n), p.from, p.until+1),
			)
			for _, a := range p.m.ill[n] {
				// Which probers fail is the same for the whole of the trouble.
				rank := (p.t.ord + int(hash(p.m.seed, uint64(a.from))%probers)) % probers
				if a.kind == NodeCutOff || a.kind == NodeUnreachable && float64(rank) < a.or(1)*probers {
					ev = append(ev, a.event)
				}
			}
			slices.SortFunc(ev, func(a, b event) int { return int(a.from - b.from) })
			e.absent = p.m.absent(n)
			f(e, spans(ev), hash(p.h, uint64(n)), name)
		}
		e.absent = nil
	}
}
