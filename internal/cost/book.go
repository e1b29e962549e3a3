package cost

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// maxLone is the part of a window's GPU samples that one replica may show alone. A replica that has
// just started shows few pods for some seconds; of shards that are taken for replicas each shows
// all of its pods alone, and every pod would be billed for half of its time.
const maxLone = 0.2

// lone reports whether a replica shows a pod, long enough for every other to have been scraped,
// that another one of those that count does not show.
func (s *source) lone(r reading, shown map[string]float64, name string) bool {
	if len(r.chosen) < 2 {
		return false
	}
	own := int64(0)
	for _, p := range s.replicas {
		if p.name == name {
			own = p.usual
		}
	}
	if shown[name]*float64(own) < 3*float64(s.union.usual) {
		return false
	}
	for other := range r.chosen {
		if shown[other] == 0 {
			return true
		}
	}
	return false
}

// book counts a stretch of windows into the ledger. It refuses where a window's pods are not all
// that the servers count in it.
func (r *run) book(ws []window, f *facts) error {
	r.requests(ws, f)
	pods := make([][]podKey, len(ws))
	for k := range f.running {
		pods[k.w] = append(pods[k.w], k.key)
	}
	for i, w := range ws {
		slices.SortFunc(pods[i], func(a, b podKey) int {
			return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
				cmp.Compare(a.uid, b.uid))
		})
		p := r.open(i, w, f)
		for _, k := range pods[i] {
			if err := p.hold(k); err != nil {
				return err
			}
		}
		if err := p.balance(); err != nil {
			return err
		}
		p.fleet()
		p.dark()
		r.l.cover(w, r.sources, p.readings, r.silentClusters())
	}
	return nil
}

// teamNode is a team on a node.
type teamNode struct {
	node nodeKey
	team string
}

// page is one window while it is counted.
type page struct {
	*run
	i        int
	w        window
	f        *facts
	readings []reading            // of each source
	of       map[replicaKey]int   // which source a replica is of
	counted  []amounts            // samples of each source
	lone     []amounts            // those of them of pods that one replica shows and another does not
	onNode   map[nodeKey]float64  // GPU ms
	ofTeam   map[teamNode]float64 // the same, by who pays
}

func (r *run) open(i int, w window, f *facts) *page {
	p := &page{
		run: r, i: i, w: w, f: f, readings: make([]reading, len(r.sources)), of: map[replicaKey]int{},
		counted: make([]amounts, len(r.sources)), lone: make([]amounts, len(r.sources)), onNode: map[nodeKey]float64{},
		ofTeam: map[teamNode]float64{},
	}
	for s, src := range r.sources {
		p.readings[s] = src.read(w, r.gap)
		for _, replica := range src.replicas {
			k := replicaKey{src.cluster, replica.name}
			// An address may have been another shard's at another time.
			if _, ok := p.of[k]; !ok || p.readings[s].chosen[replica.name] {
				p.of[k] = s
			}
		}
	}
	return p
}

// hold counts what a pod held.
func (p *page) hold(k podKey) error {
	f, i := p.f, p.i
	node := nodeKey{k.cluster, f.node[at[podKey]{k, i}]}
	devices, part := f.containers[at[podKey]{k, i}], f.partsOf(at[nodeKey]{node, i})
	units, cards := f.work[at[podKey]{k, i}], 0.0 // as the node hands them out, and what they are of its cards
	for _, d := range sortedDevices(devices) {
		units[ofGPUs] += devices[d]
		cards += devices[d] * part.of(d.resource)
	}
	if units[ofGPUs] == 0 { // it may have claimed some, which the servers do not count: they are no units
		ran := func(w int) bool { return f.running[at[podKey]{k, w}] != nil }
		if n, on := f.claims.of(k, i, ran); n > 0 {
			cards, node = n, on
		}
	}
	if cards == 0 && units.none() {
		return nil
	}
	ms, err := p.shown(k, units)
	if err != nil || ms == 0 {
		return err
	}
	h := holding{
		day: p.w.day, cluster: k.cluster, namespace: k.namespace, experiment: f.experiment[at[podKey]{k, i}],
		label: f.space[at[spaceKey]{spaceKey{k.cluster, k.namespace}, i}], model: f.model[at[nodeKey]{node, i}],
		class: f.class[at[nodeKey]{node, i}], ms: ms * cards, units: ms * units[ofGPUs],
	}
	switch {
	case cards > 0:
		p.onNode[node] += h.ms
		p.ofTeam[teamNode{node, p.l.owner(h.namespace, h.label).Team}] += h.ms
		nameless := k
		nameless.uid = ""
		h.active, h.measured = f.active[at[podKey]{nameless, i}]
		p.l.hold(h)
	case !p.hasGPUs(node):
		h.cores, h.gib = ms*units[ofCores], ms*units[ofMemory]/bytesPerGiB
		p.l.work(h)
	}
	return nil
}

// shown is for how long a pod that has so much was shown, in milliseconds.
func (p *page) shown(k podKey, has amounts) (ms float64, err error) {
	shown := p.f.running[at[podKey]{k, p.i}]
	for _, name := range sortedKeys(shown) {
		s, ok := p.of[replicaKey{k.cluster, name}]
		if !ok {
			return 0, fmt.Errorf("pod %s/%s is shown by kube-state-metrics at %s, of which up{%s} knows nothing: do both have the labels %s and %s?", k.namespace, k.name, name,
				p.o.Names.Selector, p.o.Names.ClusterLabel, p.o.Names.ReplicaLabel)
		}
		if !p.readings[s].chosen[name] {
			continue
		}
		lone := p.sources[s].lone(p.readings[s], shown, name)
		for which, n := range has {
			p.counted[s][which] += shown[name] * n
			if lone {
				p.lone[s][which] += shown[name] * n
			}
		}
		ms += shown[name] * p.readings[s].share()
	}
	if longest := float64(p.w.to - p.w.from); ms > 1.1*longest {
		return 0, fmt.Errorf("pod %s/%s (%s) is counted for longer than %s from %s on, which is all there is: do several of what --shard-label=%s tells apart show the same pods? Then they are replicas",
			k.namespace, k.name, k.uid, time.Duration(p.w.to-p.w.from)*time.Millisecond,
			time.UnixMilli(p.w.from).UTC().Format(time.RFC3339), p.o.Names.ShardLabel)
	}
	return ms, nil
}

// balance compares what was counted with what the servers say was allocated.
func (p *page) balance() error {
	allocated := make([]amounts, len(p.sources))
	for k, v := range p.f.allocated {
		if s, ok := p.of[k.key]; ok && k.w == p.i && p.readings[s].chosen[k.key.name] {
			for which := range v {
				allocated[s][which] += v[which]
			}
		}
	}
	for s, src := range p.sources {
		for which, of := range hoursOf {
			counted, allocated := p.counted[s][which], allocated[s][which]
			if p.lone[s][which] > counted*maxLone {
				return fmt.Errorf("the kube-state-metrics of %s, %s, do not show the same pods from %s on: if each has a part of them, as with its flag --shard, name the label that tells the parts apart with --shard-label",
					cmp.Or(src.cluster, "the cluster"), strings.Join(sortedKeys(p.readings[s].chosen), " and "),
					time.UnixMilli(p.w.from).UTC().Format(time.RFC3339))
			}
			if math.Abs(counted-allocated) > 1e-6*max(of.one, allocated) {
				share := p.readings[s].share() / float64(hourMillis) / of.one
				return &Imbalance{
					Cluster: src.cluster, From: time.UnixMilli(p.w.from).In(p.o.Range.Location),
					To: time.UnixMilli(p.w.to).In(p.o.Range.Location), Of: of.name,
					Billed: counted * share, Allocated: allocated * share,
				}
			}
		}
		p.l.allocated += allocated[s][ofGPUs] * p.readings[s].share()
	}
	return nil
}
