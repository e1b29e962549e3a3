package cluster

import "slices"

// Work that is planned: nothing of it is a fault, and nobody should drain a node for it.
const (
	// NodeUpgrade: the node is cordoned at From, its gangs are evicted, in the middle third of the
	// time it is rebooted, and it comes back with the next driver; at Until it is given back.
	// Target is the node.
	NodeUpgrade Kind = "NodeUpgrade"
	// NodeAbsent: cluster-autoscaler gives the node back. At From it is cordoned and marked for it,
	// its gangs are evicted; two minutes later it is gone: from the control plane, from service
	// discovery and from the probers' list. At Until it joins again, as new. Target is the node.
	NodeAbsent Kind = "NodeAbsent"
)

const (
	drainAfter  = 30 * second  // how long an eviction takes that somebody asks for
	leavesAfter = 120 * second // how long a node stays that was given up
	// How long after a node's boot its driver is loaded, its device plugin has registered and its
	// dcgm-exporter answers.
	pluginAfter = 90 * second
)

// drivers are the versions that upgrades go through, the one from the start first.
var drivers = []string{"570.86.15", "570.124.06", "570.172.08", "580.65.06", "580.95.05"}

// reboot is when a node is down for planned work.
func (a *ailment) reboot() (event, bool) {
	switch a.kind {
	case NodeUpgrade:
		third := (a.until - a.from) / 3
		return event{from: a.from + third, until: a.until - third}, true
	case NodeAbsent:
		return event{from: a.from + leavesAfter, until: a.until}, true
	}
	return event{}, false
}

// planned are the spans of planned work on a node that kind chooses, by time.
func (m *Model) planned(node int, kind Kind, part func(*ailment) event) []event {
	var out []event
	for i := range m.ill[node] {
		if a := &m.ill[node][i]; a.kind == kind {
			out = append(out, part(a))
		}
	}
	return spans(out)
}

// absent are the spans in which the cluster does not have a node.
func (m *Model) absent(node int) []event {
	if node < 0 {
		return nil
	}
	return m.planned(node, NodeAbsent, func(a *ailment) event { return event{from: a.from + leavesAfter, until: a.until} })
}

// bare are the spans in which a node is up without its driver, after planned work.
func (m *Model) bare(node int) []event {
	var out []event
	for i := range m.ill[node] {
		if r, ok := m.ill[node][i].reboot(); ok {
			out = append(out, event{from: r.until, until: r.until + pluginAfter})
		}
	}
	return spans(out)
}

// within says whether t is in one of the spans.
func within(spans []event, t int64) bool {
	return slices.ContainsFunc(spans, func(e event) bool { return t >= e.from && t < e.until })
}

// driverSpan is the driver of a node in a span.
type driverSpan struct {
	from, until int64
	version     string
}

// driversOf lists the drivers of a node, by time, without gaps.
func (m *Model) driversOf(node int) []driverSpan {
	out := []driverSpan{{0, never, drivers[0]}}
	for i := range m.ill[node] {
		a := &m.ill[node][i]
		if a.kind != NodeUpgrade {
			continue
		}
		r, _ := a.reboot()
		out[len(out)-1].until = r.until
		out = append(out, driverSpan{r.until, never, drivers[min(len(out), len(drivers)-1)]})
	}
	return out
}

// created is when the node last joined the cluster, in spans.
func (m *Model) created(node int) []event {
	out := []event{{from: m.start, until: never}}
	for _, a := range m.absent(node) {
		out[len(out)-1].until = a.until
		out = append(out, event{from: a.until, until: never})
	}
	return out
}
