package cluster

import (
	"slices"
	"sort"
	"strings"
)

// gpuModel is what differs between cards in their readings.
type gpuModel struct {
	name, product string
	fbMiB         float64
	idleW, busyW  float64
	// Memory of a slice of MIG of one seventh of the GPU, and of three.
	slice1, slice3 string
	// nvlink5 says that its links count recoveries that succeed and that fail, and no replays.
	nvlink5 bool
}

var gpuModels = map[string]gpuModel{
	"A100": {"NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", 81920, 60, 310, "10gb", "40gb", false},
	"H100": {"NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", 81559, 75, 520, "10gb", "40gb", false},
	"H200": {"NVIDIA H200", "NVIDIA-H200", 143771, 80, 540, "18gb", "71gb", false},
	"B200": {"NVIDIA B200", "NVIDIA-B200", 183359, 140, 720, "23gb", "90gb", true},
}

func knownModels() string {
	var s []string
	for k := range gpuModels {
		s = append(s, k)
	}
	sort.Strings(s)
	return strings.Join(s, ", ")
}

func (m *Model) gpuModel(node int) gpuModel {
	return gpuModels[m.o.GPUModels[hash(m.seed, 'g', uint64(m.rack(node)))%uint64(len(m.o.GPUModels))]]
}

// nodeState is what happened on one node since its last boot before the window.
type nodeState struct {
	node    int
	machine process
	down    []event           // NodeDown in the window
	pods    []pod             // those that exist in the window, system pods first
	works   map[device]*steps // intensity of each device, 0 idle to 1
	held    map[device]*steps // the same, of a pod that does nothing too
	load    *steps            // their sum
	running *steps            // pods running
	xids    [][]event
	ill     []ailment // staged troubles, by time
	gangs   *steps    // pods of experiments running
	sent    *steps    // bytes a second that pods send to the internet
	surge   *steps    // those of them that are too many; nil: none ever
}

// intensity is how hard an experiment drives its GPUs, in 64ths as steps want it.
func (e *experiment) intensity() float64 { return float64(40+hash(e.hash, 40)%25) / 64 }

// host works out the state of a node for a window. It walks the experiments
// since the node's last boot: some hundreds at most.
func (m *Model) host(node int, from, until int64) *nodeState {
	s := &nodeState{
		node: node, works: map[device]*steps{}, held: map[device]*steps{}, xids: make([][]event, m.o.GPUsPerNode), ill: m.ill[node],
	}
	name := m.nodeName(node)
	ev := m.tl.events(NodeDown, name, from-lookBack, until+1)
	s.machine.starts = m.tl.starts(ev, from, until)
	for _, e := range ev {
		if e.until > from && e.from <= until {
			s.down = append(s.down, e)
		}
	}
	boot := s.machine.starts[0]

	m.systemPods(node, s.machine.starts, until, func(p *pod) { s.pods = append(s.pods, *p) })
	o := occupation{m: m, s: s, busy: map[device][]delta{}, idle: map[device][]delta{}, out: egress{m: m}}
	o.running = append(o.running, delta{boot, float64(len(s.pods))})
	for _, pi := range m.byNode[node] {
		p := &m.pools[pi]
		exps := m.experiments(p, boot, until)
		for i := range exps {
			e := &exps[i]
			for n := range e.attempts {
				o.attempt(p, e, &e.attempts[n])
			}
			e.pods(from, until, func(q *pod) {
				if q.node == node {
					s.pods = append(s.pods, *q)
				}
			})
		}
	}
	for _, a := range s.ill {
		if x := a.xid(); x != 0 && a.from > boot {
			s.xids[a.gpu] = append(s.xids[a.gpu], event{from: a.from, value: x})
		}
	}
	o.devices()
	s.gangs = stepsFromDeltas(slices.Clone(o.running[1:]))
	s.running = stepsFromDeltas(o.running)
	s.sent, s.surge = o.out.steps()
	return s
}

// occupation is what experiments take of a node, as it is collected.
type occupation struct {
	m          *Model
	s          *nodeState
	busy, idle map[device][]delta // what pods hold, and what of it does nothing
	running    []delta            // pods, the node's own first
	out        egress
}

// attempt adds what one attempt of an experiment takes of the node.
func (o *occupation) attempt(p *pool, e *experiment, a *attempt) {
	m, node := o.m, o.s.node
	own := a.of(e, node-p.first)
	if own.ended <= own.started {
		return
	}
	works := min(a.works(e), a.ended)
	o.running = append(o.running, delta{own.started, 1}, delta{a.ended, -1})
	o.out.pod(e, a)
	for _, l := range m.lanes(node, p, e.intensity()) {
		g, x := l.device, l.load
		at := own.started
		if at < works { // it has its node and waits for the others
			o.idle[g] = append(o.idle[g], delta{at, -x}, delta{works, x})
		}
		if node == p.first { // rank 0 restarts in place
			for _, r := range a.inPlace {
				o.busy[g] = append(o.busy[g], delta{at, x}, delta{r.died, -x})
				at = r.back
			}
		}
		o.busy[g] = append(o.busy[g], delta{at, x}, delta{a.ended, -x})
		m.idleSpans(e, a, node == p.first, func(from, until int64) {
			o.idle[g] = append(o.idle[g], delta{from, -x}, delta{until, x})
		})
	}
	if a.failed && a.xid != 0 && node == p.first && a.ended > o.s.machine.starts[0] {
		o.s.xids[p.gpu] = append(o.s.xids[p.gpu], event{from: a.ended, value: a.xid})
	}
}

// devices gives the node's GPUs, and slices of them, what was collected, and puts Xids by time.
func (o *occupation) devices() {
	s := o.s
	for _, d := range o.m.devices(s.node) {
		if d.slice >= 0 {
			o.device(d)
		}
	}
	var load []delta
	for g := range o.m.o.GPUsPerNode {
		o.device(device{g, -1})
		load = append(load, o.busy[device{g, -1}]...)
		sort.Slice(s.xids[g], func(i, j int) bool { return s.xids[g][i].from < s.xids[g][j].from })
	}
	s.load = stepsFromDeltas(load)
}

func (o *occupation) device(d device) {
	s := o.s
	s.held[d] = stepsFromDeltas(o.busy[d])
	s.works[d] = s.held[d]
	if len(o.idle[d]) > 0 {
		o.busy[d] = append(o.busy[d], o.idle[d]...)
		s.works[d] = stepsFromDeltas(o.busy[d])
	}
	s.works[d] = slowed(s.works[d], s.of(d.gpu, GPUSlow), func(e event) float64 { return e.or(0.5) })
}

// holder is the pod that a GPU is given to in [from, until); nil: none.
type holder struct {
	from, until int64
	pod         *pod
}

func (s *nodeState) busy(d device) *steps    { return s.works[d] }
func (s *nodeState) holding(d device) *steps { return s.held[d] }

// holders lists who has a device, without gaps, over the window and beyond. Of pods that share a
// GPU it names one at a time, as dcgm-exporter does: that of the lowest part.
func (s *nodeState) holders(d device) []holder {
	var busy []holder
	shared := false
	for i := range s.pods {
		p := &s.pods[i]
		if p.exp == nil || d.gpu < p.gpu || d.gpu >= p.gpu+p.gpus || p.a.ended <= p.a.started || d.slice >= 0 && p.pool.part != d.slice {
			continue
		}
		shared = shared || d.slice < 0 && p.pool.parts > 0
		busy = append(busy, holder{p.a.started, p.a.ended, p})
	}
	sort.Slice(busy, func(i, j int) bool { return busy[i].from < busy[j].from })
	if shared {
		busy = lowest(busy)
	}
	var out []holder
	at := int64(0)
	for _, h := range busy {
		if h.from > at {
			out = append(out, holder{at, h.from, nil})
		}
		out = append(out, h)
		at = h.until
	}
	return append(out, holder{at, never, nil})
}

// lowest leaves of spans that overlap the one of the lowest part.
func lowest(busy []holder) []holder {
	var at []int64
	for _, h := range busy {
		at = append(at, h.from, h.until)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	var out []holder
	for i := range len(at) - 1 {
		var best *pod
		for _, h := range busy {
			if h.from <= at[i] && h.until > at[i] && (best == nil || h.pod.pool.part < best.pool.part) {
				best = h.pod
			}
		}
		if n := len(out) - 1; best != nil && n >= 0 && out[n].pod == best && out[n].until == at[i] {
			out[n].until = at[i+1]
		} else if best != nil {
			out = append(out, holder{at[i], at[i+1], best})
		}
	}
	return out
}

// clusterState is what the control plane's pages share.
type clusterState struct {
	requests []request
	hosts    func(int) *nodeState
}

// compiler prepares pages for one window. With keep it remembers the nodes'
// states, for a caller who asks for each page several times.
type compiler struct {
	m           *Model
	from, until int64
	keep        bool
	hosts       map[int]*nodeState
	cluster     *clusterState
}

func (m *Model) compiler(from, until int64, keep bool) *compiler {
	c := &compiler{m: m, from: from, until: until, keep: keep, hosts: map[int]*nodeState{}}
	c.cluster = &clusterState{hosts: c.host}
	return c
}

func (c *compiler) host(n int) *nodeState {
	if s, ok := c.hosts[n]; ok {
		return s
	}
	s := c.m.host(n, c.from, c.until)
	if c.keep {
		c.hosts[n] = s
	}
	return s
}

func (c *compiler) page(t *Target) *page {
	m := c.m
	id := t.Job + "/" + t.Instance
	p := &page{m: m, t: t, h: hashString(m.seed, id), from: c.from, until: c.until, node: t.node, cluster: c.cluster}
	if t.Job == JobAPIServerSLIs {
		id = JobAPIServer + "/" + t.Instance // it is a page of the same process
	}
	restarts := m.tl.events(ProcessRestart, id, c.from-lookBack, c.until+1)
	for _, e := range restarts {
		if e.until > c.from && e.from <= c.until {
			p.down = append(p.down, e)
		}
	}
	down, reborn := m.outages(t)
	p.down = append(p.down, down...)
	restarts = append(restarts, reborn...)
	if t.node >= 0 {
		p.host = c.host(t.node)
		p.machine = &p.host.machine
		p.down = append(p.down, p.host.down...)
		p.down = append(p.down, p.host.of(-1, NodeCutOff)...)
		restarts = append(restarts, m.tl.events(NodeDown, m.nodeName(t.node), c.from-lookBack, c.until+1)...)
	}
	p.pr = &process{m.tl.starts(restarts, c.from, c.until)}
	if t.Job == JobDCGM {
		p.down = append(p.down, p.host.of(-1, GPUExporterGone)...)
		p.down = append(p.down, m.bare(t.node)...)
	}
	if t.Job == JobAPIServer && c.cluster.requests == nil {
		c.cluster.requests = m.requests()
	}
	return p
}

// answers says whether the target can be scraped at t.
func (p *page) answers(t int64) bool {
	for _, e := range p.down {
		if t >= e.from && t < e.until {
			return false
		}
	}
	return true
}
