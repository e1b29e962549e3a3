package cluster

import "strings"

// How node_exporter's and cadvisor's families follow the troubles of a node.

// nodeReactions are those of node_exporter.
func nodeReactions() map[string]reaction {
	arp := func(f func(p *page, s *series, filling, full []event)) reaction {
		return func(p *page) change {
			filling, full := p.host.of(-1, NodeARPTableFilling), p.host.of(-1, NodeARPTableOverflow)
			if len(filling)+len(full) == 0 || p.m.o.NodeExporterOffHost {
				return change{}
			}
			return change{each: func(s *series) { f(p, s, filling, full) }}
		}
	}
	entries := arp(func(_ *page, s *series, filling, full []event) {
		if s.label("device") == "eth0" || s.label("subsystem") == "arp_cache" {
			s.curve.over = arpEntries(filling, full)
		}
	})
	refused := func(each float64) reaction {
		return arp(func(p *page, s *series, _, full []event) {
			if s.label("subsystem") == "arp_cache" && len(full) > 0 {
				s.curve.more(p.machine, pace(full, func(e event) float64 { return each * e.or(30) / 60 }))
			}
		})
	}
	sent := func(unit float64) reaction {
		return func(p *page) change {
			if p.host.surge == nil {
				return change{}
			}
			return change{each: func(s *series) {
				if s.label("device") == "eth0" {
					s.curve.more(p.machine, p.host.surge)
					s.curve.k = 1 / unit
				}
			}}
		}
	}
	return map[string]reaction{
		"node_arp_entries":                      entries,
		"node_lnstat_entries_total":             entries,
		"node_lnstat_table_fulls_total":         refused(1),
		"node_lnstat_unresolved_discards_total": refused(3),
		"node_network_transmit_bytes_total":     sent(1),
		"node_network_transmit_packets_total":   sent(bytesPerPacket),
	}
}

// arpLimit is gc_thresh3 of schema/node.txt.
const arpLimit = 8192

// arpEntries is how many neighbours eth0 has while its table fills or is full.
func arpEntries(filling, full []event) *steps {
	const stairs = 16
	st := during(full, func(event) float64 { return arpLimit })
	var d []delta
	for _, e := range spansKeepingValue(filling) {
		end := e.or(0.9) * arpLimit
		was := 0.0
		for i := range int64(stairs) {
			at := e.from + (e.until-e.from)*i/(4*stairs)
			if i > 0 && at == e.from+(e.until-e.from)*(i-1)/(4*stairs) {
				continue
			}
			v := float64(int(300 + (end-300)*float64(i+1)/stairs))
			d = append(d, delta{at, v - was})
			was = v
		}
		d = append(d, delta{e.until, -was})
	}
	if d == nil {
		return st
	}
	ramp := stepsFromDeltas(d)
	if st == nil {
		return ramp
	}
	return upper(ramp, st)
}

// spansKeepingValue cuts each event where the next one begins.
func spansKeepingValue(ev []event) []event {
	out := make([]event, 0, len(ev))
	for i, e := range ev {
		if i+1 < len(ev) {
			e.until = min(e.until, ev[i+1].from)
		}
		if e.from < e.until {
			out = append(out, e)
		}
	}
	return out
}

// upper is the greater of two levels at each time.
func upper(a, b *steps) *steps {
	out := &steps{}
	for _, at := range sum(a, b).at {
		out.push(at, max(a.level(at), b.level(at)))
	}
	return out
}

// cadvisorReactions are those of cadvisor.
func cadvisorReactions() map[string]reaction {
	sent := func(unit float64) reaction {
		return func(p *page) change {
			if len(p.m.surges) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				for i := range p.host.pods {
					q := &p.host.pods[i]
					if q.name != s.label("pod") || q.space.name != s.label("namespace") || q.a.started != s.from {
						continue
					}
					if st := p.m.jumped(q); st != nil {
						s.curve.more(s.curve.pr, st)
						s.curve.k = 1 / unit
					}
				}
			}}
		}
	}
	return map[string]reaction{
		"container_network_transmit_bytes_total":   sent(1),
		"container_network_transmit_packets_total": sent(bytesPerPacket),
	}
}

// filesystemLives calls f for each stretch of a file system's time: gone is
// the text of the error that node_exporter meets, "" where there is none.
func filesystemLives(p *page, mountpoint string, f func(from, until int64, gone string)) {
	if mountpoint != scratch {
		f(0, never, "")
		return
	}
	broken := spans(p.host.of(-1, NodeDiskError))
	without(broken, 0, never, func(from, until int64) { f(from, until, "") })
	for _, b := range broken {
		f(b.from, b.until, "input/output error")
	}
}

// onHost takes from a family what a node_exporter outside the host's network
// namespace cannot see.
func onHost(f family) family {
	inner := f.emit
	sysctl, lnstat := strings.HasPrefix(f.name, "node_sysctl_"), strings.HasPrefix(f.name, "node_lnstat_")
	if !sysctl && !lnstat && f.name != "node_arp_entries" && f.name != "node_scrape_collector_success" {
		return f
	}
	f.emit = func(p *page, e *emitter) {
		if !p.m.o.NodeExporterOffHost {
			inner(p, e)
			return
		}
		sink := e.sink
		e.sink = func(s *series) {
			if sub := s.label("subsystem"); sysctl || sub == "arp_cache" || sub == "ndisc_cache" {
				return
			}
			if s.label("collector") == "sysctl" {
				s.curve = curve{} // it fails
			}
			sink(s)
		}
		if f.name == "node_arp_entries" {
			emitOwnNeighbour(p, e)
		} else {
			inner(p, e)
		}
		e.sink = sink
	}
	return f
}

// emitOwnNeighbour: a pod knows its gateway, and forgets it when nothing was
// sent for a while: then the series is gone.
func emitOwnNeighbour(p *page, e *emitter) {
	const turn = 600 * second
	for n := p.from/turn - 1; n*turn <= p.until; n++ {
		h := hash(p.h, 'a', uint64(n))
		known := n*turn + int64(between(h, 0.1, 0.4)*float64(turn))
		e.addIn(known, (n+1)*turn, curve{base: 1}, "device", "eth0")
	}
}
