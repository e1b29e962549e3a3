package cluster

import (
	"sort"
	"strconv"

	"github.com/prometheus/common/model"
)

// Prometheus' own pages and pods. The pods are shown on the first nodes, since
// only those have a kubelet here, but outlive their reboots: real ones run on
// machines apart.

const (
	promServers = 2
	promLimit   = float64(1 << 34) // of memory, bytes
	promUsual   = 0.42             // share of the limit of a quiet server
	promSeries  = 980000.0         // in its head
	promReplay  = 90 * second      // of the log, at an ordinary start
)

// promLife begins with the end of the one before: the process is gone from from
// to back, and reads its log until ready.
type promLife struct {
	from, back, ready int64
	oom               bool
}

// promLives are the staged restarts of one server, by time.
func (m *Model) promLives(ord int) []promLife {
	if !m.tl.kinds[PrometheusOOMLoop] && !m.tl.kinds[PrometheusReplaying] {
		return nil
	}
	var out []promLife
	for _, e := range m.promEvents(PrometheusReplaying, ord) {
		out = append(out, promLife{e.from, e.from + min(5*second, (e.until-e.from)/10), e.until, false})
	}
	for _, e := range m.promEvents(PrometheusOOMLoop, ord) {
		kills := oomKills(e)
		period := (e.until - e.from) / int64(len(kills))
		for _, at := range kills {
			back := at + min(8*second, period/10)
			out = append(out, promLife{at, back, back + period*4/10, true})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].from < out[j].from })
	// Of troubles that overlap the first has its way.
	kept := out[:0]
	for _, l := range out {
		if n := len(kept); n == 0 || l.from > kept[n-1].ready {
			kept = append(kept, l)
		}
	}
	return kept
}

func (m *Model) promEvents(k Kind, ord int) []event {
	return m.tl.staged[eventKey{k, promInstance(ord)}]
}

func promInstance(ord int) string { return "10.0.0." + strconv.Itoa(10+ord) + ":9090" }

// oomKills are the moments at which a loop kills, the first at From.
func oomKills(e event) []int64 {
	n := max(1, int64(e.value))
	out := make([]int64, n)
	for i := range out {
		out[i] = e.from + (e.until-e.from)*int64(i)/n
	}
	return out
}

// promMemory is the working set of one server in bytes while a trouble decides
// it, 0 else; nil: none does.
func (m *Model) promMemory(ord int) *steps {
	var parts []*steps
	if evs := m.promEvents(PrometheusMemoryNearLimit, ord); len(evs) > 0 {
		parts = append(parts, levels(evs, func(e event) float64 { return e.value * promLimit }))
	}
	for _, e := range m.promEvents(PrometheusReplaying, ord) {
		parts = append(parts, stepsFromDeltas(ramp(e.from, e.until, 0.3*promLimit, 0.75*promLimit, 24)))
	}
	for _, e := range m.promEvents(PrometheusOOMLoop, ord) {
		kills := append(oomKills(e), e.until)
		for i := range kills[:len(kills)-1] {
			parts = append(parts, stepsFromDeltas(ramp(kills[i], kills[i+1], 0.35*promLimit, 0.995*promLimit, 24)))
		}
	}
	// More series are more memory; a server that this brings down is another trouble.
	for _, evs := range m.jumps() {
		for _, e := range evs {
			parts = append(parts, stepsFromDeltas(ramp(e.from, e.until, promUsual*promLimit, min(0.8, promUsual*e.value)*promLimit, 24)))
		}
	}
	return highest(parts)
}

// jumps are the staged CardinalityJumps of all jobs.
func (m *Model) jumps() [][]event {
	if !m.tl.kinds[CardinalityJump] {
		return nil
	}
	var out [][]event
	for _, job := range Jobs() {
		if evs := m.tl.staged[eventKey{CardinalityJump, job}]; len(evs) > 0 {
			out = append(out, evs)
		}
	}
	return out
}

// highest is the greatest of the steps at each time; nil where there are none.
func highest(parts []*steps) *steps {
	if len(parts) == 0 {
		return nil
	}
	var at []int64
	for _, s := range parts {
		at = append(at, s.at...)
	}
	sort.Slice(at, func(i, j int) bool { return at[i] < at[j] })
	out := &steps{}
	for i, t := range at {
		if i > 0 && at[i-1] == t {
			continue
		}
		v := 0.0
		for _, s := range parts {
			v = max(v, s.level(t))
		}
		out.push(t, v)
	}
	return out
}

// replays are when each start of the page's process within its window, the last
// before it included, is done with its log.
func (p *page) replays() []promLife {
	lives := p.m.promLives(p.t.ord)
	var out []promLife
	for _, at := range p.pr.starts {
		l := promLife{from: at, back: at, ready: at + promReplay}
		for _, s := range lives {
			if s.back == at {
				l = s
			}
		}
		out = append(out, l)
	}
	return out
}

func prometheusReactions() map[string]reaction {
	return map[string]reaction{
		"prometheus_ready": func(p *page) change {
			st := &steps{}
			for _, l := range p.replays() {
				st.push(l.back, 0)
				st.push(l.ready, 1)
			}
			return change{each: func(s *series) { s.curve = curve{kind: gauge, k: 1, st: st, whole: true} }}
		},
		"prometheus_tsdb_data_replay_duration_seconds": func(p *page) change {
			st := &steps{}
			for _, l := range p.replays() {
				st.push(l.back, 0)
				st.push(l.ready, float64(l.ready-l.back)/1000)
			}
			return change{each: func(s *series) { s.curve = curve{kind: gauge, k: 1, st: st} }}
		},
		"prometheus_tsdb_head_series": func(p *page) change {
			return change{each: func(s *series) {
				// Of a quiet head a thousandth comes and goes within minutes. More would be
				// forecast to be a runaway by whoever has seen a few minutes of it.
				s.curve.base, s.curve.amp = promSeries, promSeries/1000
				var parts []*steps
				for _, l := range p.replays() {
					parts = append(parts, stepsFromDeltas(ramp(l.back, l.ready, 0, s.curve.base, 24)))
				}
				for _, evs := range p.m.jumps() {
					for _, e := range evs {
						parts = append(parts, stepsFromDeltas(ramp(e.from, e.until, s.curve.base, s.curve.base*e.value, 240)))
					}
				}
				s.curve.over = highest(parts)
			}}
		},
		"prometheus_tsdb_head_samples_appended_total": func(p *page) change {
			var evs []event
			for _, l := range p.replays() {
				evs = append(evs, event{from: l.back, until: l.ready})
			}
			st := active(evs)
			return change{each: func(s *series) { s.curve.held(st) }}
		},
		"prometheus_http_requests_total": func(p *page) change {
			var evs []event
			for _, l := range p.m.promLives(p.t.ord) {
				evs = append(evs, event{from: l.back, until: l.ready})
			}
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				if s.label("code") == "503" && s.label("handler") != "/metrics" {
					s.curve.more(p.pr, levels(evs, func(event) float64 { return 2 }))
				}
			}}
		},
		"prometheus_http_request_duration_seconds": func(p *page) change {
			evs := byTime(append(append([]event{}, p.troubles(PrometheusMemoryNearLimit)...), p.troubles(PrometheusOOMLoop)...))
			if len(evs) == 0 {
				return change{}
			}
			drag := slower(evs, 0.3, func(event, *series) dist { return dist{45, 0.4} })
			return change{each: func(s *series) {
				if s.label("handler") == "/api/v1/series" {
					drag(s)
				}
			}}
		},
		"process_resident_memory_bytes": promHeap(0.9),
		"go_memstats_heap_inuse_bytes":  promHeap(0.7),
	}
}

// promHeap is a part of what the container's working set is.
func promHeap(part float64) reaction {
	return func(p *page) change {
		st := p.m.promMemory(p.t.ord)
		return change{each: func(s *series) {
			s.curve.base, s.curve.amp, s.curve.whole = part*promUsual*promLimit, 0.03*part*promLimit, true
			if st != nil {
				s.curve.over = times(st, part)
			}
		}}
	}
}

// promPods are the pods of the servers that a node shows: one for each.
func (m *Model) promPods(node int, yield func(*pod)) {
	for ord := range promServers {
		if ord%m.o.Nodes != node {
			continue
		}
		h := hash(m.seed, 'm', 'p', uint64(ord))
		created := m.start + 30*second
		q := pod{
			space: m.spaceNamed("monitoring"), name: "prometheus-k8s-" + strconv.Itoa(ord), uid: uuid(h), container: "prometheus",
			app:  "prometheus",
			node: node, rank: 40 + ord, owner: [2]string{"StatefulSet", "prometheus-k8s"}, prom: &promPod{memory: m.promMemory(ord)},
			a: attempt{created: created, scheduled: created, started: created + 20*second, ended: never, removed: never},
		}
		q.prom.starts = []int64{q.a.started}
		var kills []int64
		for _, l := range m.promLives(ord) {
			reason := "Completed"
			if l.oom {
				reason = "OOMKilled"
				kills = append(kills, l.from)
			}
			q.a.inPlace = append(q.a.inPlace, inPlace{died: l.from, back: l.back, ready: l.ready, reason: reason})
			q.prom.starts = append(q.prom.starts, l.back)
		}
		if kills != nil {
			q.prom.kills = counts(kills)
		}
		yield(&q)
	}
}

// promPod is what a Prometheus server's pod has beside other daemons'.
type promPod struct {
	memory *steps // promMemory
	kills  *steps // by the kernel; nil: none
	starts []int64
}

// container is what a family of cadvisor shows of the server's container, given
// what it would show of another daemon's.
func (q *promPod) container(f *cadvisorField, c curve) curve {
	part := 0.0
	switch f.name {
	case "container_memory_working_set_bytes":
		part = 1
	case "container_memory_usage_bytes":
		part = 1.0 / 0.995 // a killed one is at its limit by this
	case "container_memory_rss":
		part = 0.95
	case "container_memory_cache":
		part = 0.08
	case "container_spec_memory_limit_bytes":
		return curve{base: promLimit}
	case "container_oom_events_total":
		if q.kills != nil {
			// The kernel counts for the pod, through all lives of its container.
			c = curve{}
			c.more(&process{q.starts[:1]}, q.kills)
		}
		return c
	}
	if part == 0 {
		return c
	}
	c.base, c.amp = part*promUsual*promLimit, 0.03*part*promLimit
	if q.memory != nil {
		c.over = times(q.memory, part)
	}
	return c
}

// jumpName is a family that no exporter has by that name: it stands for
// whatever a release added.
const jumpName = "request_debug_total"

// jumpLife is how long one request's id is counted.
const jumpLife = 10 * 60 * second

// jumpFamily adds a label with ids to the pages of a job while a trouble says
// so. Each id lives for ten minutes, as labels of this sort do: it is the churn
// that fills heads.
func jumpFamily(job string, others []family) family {
	return family{jumpName, "Requests by their id.", model.MetricTypeCounter, func(p *page, e *emitter) {
		if !p.m.tl.kinds[CardinalityJump] {
			return
		}
		for _, ev := range p.m.tl.staged[eventKey{CardinalityJump, job}] {
			if ev.until <= p.from || ev.from > p.until {
				continue
			}
			n := 0
			q := p.m.compiler(ev.from, ev.from, false).page(p.t)
			q.collect(others, func(s *series) {
				if ev.from >= s.from && ev.from < s.until {
					n++
				}
			})
			n = int(float64(n) * (ev.value - 1))
			first := max(ev.from, p.from-(p.from-ev.from)%jumpLife)
			for from := first; from < ev.until && from <= p.until; from += jumpLife {
				pr := &process{[]int64{from}}
				for i := range n {
					id := strconv.FormatUint(hash(p.h, 'j', uint64(from), uint64(i))>>20, 16)
					e.addIn(from, min(from+jumpLife, ev.until), curve{kind: counter, base: 0.01, whole: true, pr: pr}, "request_id", id)
				}
			}
		}
	}}
}
