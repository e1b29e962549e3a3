package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// past is the cluster and the moments at which it is looked at.
type past struct {
	model *cluster.Model
	// runs are the widest experiment and the next widest ones that run beside it.
	runs []cluster.Experiment
	// At whole all pods of the widest experiment run; at torn, a little later, half of them wait
	// for nodes, as they do since whole.
	whole, torn time.Time
	// slow is how many of its GPUs do half of their work.
	slow int
}

// tornFor is how long the experiment is torn when that is looked at: rules have recorded it then,
// and servers have scraped it more than once.
func (o *Options) tornFor() time.Duration { return 5 * max(o.Interval, time.Minute) }

// ranFor is how long it has run before that, at least; what goes wrong with nodes and GPUs begins
// then, and is over at whole.
func (o *Options) ranFor() time.Duration { return max(o.Window/4, 5*time.Minute) }

// findPast makes the cluster and finds a time at which its widest experiment has run for a while,
// and would run on if its pods were not taken from it.
func (o *Options) findPast(now time.Time) (*past, error) {
	options := cluster.Options{
		Seed: o.Seed, Cluster: "jaguar", Nodes: o.Nodes, FirstGang: o.Gang, Detail: cluster.Lean,
		Start: now.Add(-20 * 24 * time.Hour), APIServers: 2,
	}
	calm, err := cluster.New(options)
	if err != nil {
		return nil, fmt.Errorf("make the cluster: %w", err)
	}
	for k := range 10 * 24 * 4 {
		torn := now.Add(-time.Duration(k) * 15 * time.Minute)
		p := &past{whole: torn.Add(-o.tornFor()), torn: torn}
		wide, ok := o.widest(calm, p.whole, torn)
		if !ok {
			continue
		}
		p.stage(o, &options, wide[0])
		if p.model, err = cluster.New(options); err != nil {
			return nil, fmt.Errorf("stage what is looked at: %w", err)
		}
		p.runs, ok = o.widest(p.model, p.whole, p.whole)
		if ok && waiting(p.model, p.runs[0], torn) == o.Gang/2 && o.steady(p) && o.begins(p) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the experiment of %d nodes runs at no time of ten days; choose another seed", o.Gang)
}

// widest are the experiments that run at a moment, for ranFor and longer, and until another one at
// least, the widest first; false where the one of Gang nodes is not the first of several.
func (o *Options) widest(m *cluster.Model, at, until time.Time) ([]cluster.Experiment, bool) {
	runs := slices.DeleteFunc(m.Experiments(at.Add(-o.Window), at), func(e cluster.Experiment) bool {
		return !slices.ContainsFunc(e.Runs,
			func(s cluster.Span) bool { return s.From.Before(at.Add(-o.ranFor())) && !s.Until.Before(until) })
	})
	slices.SortStableFunc(runs, func(a, b cluster.Experiment) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	return runs, len(runs) > 1 && len(runs[0].Nodes) == o.Gang
}

// steady tells whether the pods of the experiment that is looked at were there, and no others of
// its, for all the time that views of it look at.
func (o *Options) steady(p *past) bool {
	n := 0
	for _, pod := range p.model.Pods(p.whole.Add(-o.Window-before), p.whole) {
		if pod.Gang == p.runs[0].Name {
			n++
		}
	}
	return n == o.Gang
}

// begins tells whether one of the runs that are compared began well after the first sample: nothing
// is drawn of those that may be older than what is known.
func (o *Options) begins(p *past) bool {
	known := p.whole.Add(-o.Window - before/2)
	return slices.ContainsFunc(compared(p.runs), func(e cluster.Experiment) bool { return e.Runs[0].From.After(known) })
}

// waiting is how many pods of an experiment have no node at a moment.
func waiting(m *cluster.Model, e cluster.Experiment, at time.Time) int {
	n := 0
	for _, p := range m.Pods(at, at) {
		if p.Gang == e.Name && p.Removed.After(at) && (p.Scheduled.IsZero() || p.Scheduled.After(at)) {
			n++
		}
	}
	return n
}

// everyNode is how many nodes of the experiment there are for each that has a slow GPU.
const everyNode = 10

// stage adds what views of troubles have to show: slow GPUs all the time; an Xid and memory that
// waits for a reset, which the pod outlives; a node that is not ready, for less than it takes to
// evict its pods; and after whole the loss of all pods, of which half get no node again.
func (p *past) stage(o *Options, options *cluster.Options, e cluster.Experiment) {
	begin := p.whole.Add(-o.ranFor())
	options.Troubles = []cluster.Trouble{
		{Kind: cluster.GPURowRemapPending, Target: e.Nodes[1] + "/2", From: begin, Until: begin.Add(5 * time.Minute)},
		{Kind: cluster.NodeNotReady, Target: e.Nodes[0], From: begin, Until: begin.Add(4 * time.Minute)},
		{Kind: cluster.GangHalfPending, Target: e.Name, From: p.whole.Add(time.Second), Until: p.torn.Add(2 * time.Minute)},
	}
	p.slow = 0
	for i := 0; i < len(e.Nodes); i += everyNode {
		p.slow++
		options.Troubles = append(options.Troubles, cluster.Trouble{
			Kind: cluster.GPUSlow, Target: fmt.Sprintf("%s/%d", e.Nodes[i], i/everyNode%e.GPUs), From: p.whole.Add(-o.Window - before),
			Until: p.torn.Add(2 * time.Minute),
		})
	}
}
