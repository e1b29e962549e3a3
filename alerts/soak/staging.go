package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const (
	day = 24 * time.Hour
	// lead is how old the cluster is when the soak begins: every node and process has started anew.
	lead = 20 * day
	// warmUp is evaluated before anything is staged or judged: rules compare with an hour ago.
	warmUp = 3 * time.Hour
	// apart is the least time between two incidents of one node, beyond what the first one keeps; a
	// quarter of it where none of them must raise anything.
	apart = 2 * time.Hour
	// wideEvery is how often something befalls a share of the fleet; hush is how long before and
	// after it nothing else is staged.
	wideEvery = 3 * day
	hush      = 3 * time.Hour
	// restart is how long a server of a roll-out is away.
	restart = 40 * time.Second
	// tries bounds the search for a node that is free.
	tries = 100
	// perRow is how many nodes bring one row of a lane with them, once there are more than the lane
	// has rows: so many nodes fail at once that it is a hundredth of the fleet at most, which is
	// where alerts about the fleet begin.
	perRow = 100
	// downAtOnce is how many nodes of a small fleet are down at once, unannounced: three are a
	// trouble of the fleet and page, as they should.
	downAtOnce = 2
)

// Incident is one thing that was staged.
type Incident struct {
	Name        string
	Target      string
	From, Until time.Time

	sort  *sort
	parts []string                 // of a job: job/instance, in the order of their restarts; of a row: nodes
	found map[string]time.Duration // by wanted alert, since From
}

func (i *Incident) node() string {
	node, _, _ := strings.Cut(i.Target, "/")
	return node
}

// end is when its consequences are over.
func (i *Incident) end() time.Time { return i.Until.Add(i.sort.keep) }

// troubles are what the model is told.
func (i *Incident) troubles() []cluster.Trouble {
	var out []cluster.Trouble
	switch i.sort.on {
	case aJob:
		turn := i.Until.Sub(i.From) / time.Duration(len(i.parts)+1)
		for n, s := range i.parts {
			at := i.From.Add(time.Duration(n) * turn)
			out = append(out, cluster.Trouble{Kind: i.sort.kind, Target: s, From: at, Until: at.Add(restart)})
		}
		return out
	case aRow:
		for _, node := range i.parts {
			out = append(out, cluster.Trouble{Kind: i.sort.kind, Target: node, From: i.From, Until: i.Until})
		}
		return out
	}
	out = []cluster.Trouble{{Kind: i.sort.kind, Target: i.Target, Value: i.sort.value, From: i.From, Until: i.Until}}
	for _, p := range i.sort.also {
		out = append(out, cluster.Trouble{Kind: p.kind, Target: i.Target, From: i.From.Add(-p.before), Until: i.Until.Add(p.after)})
	}
	return out
}

// drawing places incidents on nodes.
type drawing struct {
	rnd         *rand.Rand
	model       *cluster.Model // without anything staged
	from, until time.Time
	out         []*Incident
	wide        []*Incident
	busy        map[string][]cluster.Span // by node or server
	down        []cluster.Span            // of nodes that go away unannounced, the model's own too
	only        func(*sort) bool
}

// stage draws what happens in [from, until) and gives the model to which it does.
func stage(o Options, from, until time.Time) ([]*Incident, *cluster.Model, error) {
	m, err := cluster.New(o.Cluster)
	if err != nil {
		return nil, nil, err
	}
	d := &drawing{
		rnd: rand.New(rand.NewPCG(o.Seed, 1)), model: m, only: o.only, from: from, until: until,
		busy: map[string][]cluster.Span{},
	}
	for n := range o.Cluster.Nodes {
		for _, t := range m.Troubles(cluster.NodeDown, nodeName(n), from, until) {
			d.down = append(d.down, cluster.Span{From: t.From, Until: t.Until})
		}
	}
	d.fleet(o.Cluster.Nodes)
	for _, l := range []lane{failing, working} {
		for range width[l].rows {
			d.row(l, false)
		}
	}
	// What befalls many servers, or the only one of its sort, is as frequent in a fleet as in a
	// small cluster, and is placed while there is room for it.
	for _, l := range []lane{failing, working} {
		for range o.Cluster.Nodes/perRow - width[l].rows {
			d.row(l, true)
		}
	}
	slices.SortStableFunc(d.out, func(a, b *Incident) int { return a.From.Compare(b.From) })
	for _, i := range d.out {
		o.Cluster.Troubles = append(o.Cluster.Troubles, i.troubles()...)
	}
	if m, err = cluster.New(o.Cluster); err != nil {
		return nil, nil, fmt.Errorf("stage %d incidents: %w", len(d.out), err)
	}
	return d.out, m, nil
}

func nodeName(n int) string { return fmt.Sprintf("gpu-%05d", n) }

// between is a time from a to b, whole seconds.
func (d *drawing) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.rnd.Int64N(int64(b-a)/int64(time.Second)+1))*time.Second
}

// deck are the sorts of a lane, in another order each time; single are only those that befall one
// node, GPU or server of many.
func (d *drawing) deck(l lane, single bool) []*sort {
	var out []*sort
	for i := range catalogue {
		s := &catalogue[i]
		if single && (s.on == aJob || s.on == aRow || s.of != "") {
			continue
		}
		if s.lane == l && (d.only == nil || d.only(s)) {
			out = append(out, s)
		}
	}
	d.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// fleet places what befalls a share of the fleet: one each few days, the first on the first day.
func (d *drawing) fleet(nodes int) {
	var deck []*sort
	for at := d.from; ; at = at.Add(wideEvery) {
		if len(deck) == 0 {
			if deck = d.deck(wide, false); len(deck) == 0 {
				return
			}
		}
		s := deck[0]
		deck = deck[1:]
		i := &Incident{Name: s.name, sort: s, Target: "fleet", From: at.Add(d.between(12*time.Hour, 18*time.Hour))}
		i.Until = i.From.Add(d.between(s.least, s.most))
		if i.end().After(d.until) {
			return
		}
		if nodes >= s.nodes {
			d.out, d.wide = append(d.out, i), append(d.wide, i)
		}
	}
}

// row places incidents of a lane one after another.
func (d *drawing) row(l lane, single bool) {
	w := width[l]
	at := d.from.Add(d.between(0, w.most))
	var deck []*sort
	for tooLong := 0; at.Before(d.until) && tooLong < len(catalogue); {
		if len(deck) == 0 {
			if deck = d.deck(l, single); len(deck) == 0 {
				return
			}
		}
		s := deck[0]
		i := &Incident{Name: s.name, sort: s, From: at, Until: at.Add(d.between(s.least, s.most))}
		if i.end().After(d.until) {
			i.Until = at.Add(s.least)
		}
		if over := d.hushed(i); over != nil {
			at = over.Until.Add(hush)
			continue
		}
		deck = deck[1:]
		if i.end().After(d.until) {
			tooLong++ // another sort may be shorter
			continue
		}
		if d.place(i) {
			d.out = append(d.out, i)
			at = i.Until
		}
		at = at.Add(d.between(w.least, w.most))
	}
}

// hushed is what befalls the fleet about that time, if anything does.
func (d *drawing) hushed(i *Incident) *Incident {
	for _, w := range d.wide {
		if i.end().After(w.From.Add(-hush)) && i.From.Before(w.Until.Add(hush)) {
			return w
		}
	}
	return nil
}

// place finds a target that is free.
func (d *drawing) place(i *Incident) bool {
	gap := apart
	if len(i.sort.want) == 0 {
		gap = apart / 4
	}
	whole := cluster.Span{From: i.From.Add(-gap), Until: i.end().Add(gap)}
	if i.sort.down && d.crowded(i) {
		return false
	}
	for range tries {
		key := ""
		switch i.sort.on {
		case aNode, aGPU:
			key = nodeName(d.rnd.IntN(d.model.Options().Nodes))
			// What a reboot would hide or end is not staged: it would be missed with good reason.
			if len(i.sort.want) > 0 && len(d.model.Troubles(cluster.NodeDown, key, whole.From, whole.Until)) > 0 {
				continue
			}
			i.Target = key
			if i.sort.on == aGPU {
				i.Target = fmt.Sprintf("%s/%d", key, d.rnd.IntN(d.model.Options().GPUsPerNode))
			}
		case aServer:
			targets := d.model.Targets()
			t := targets[d.rnd.IntN(len(targets))]
			if i.sort.of != "" && t.Job != i.sort.of {
				t = targets[slices.IndexFunc(targets, func(x cluster.Target) bool { return x.Job == i.sort.of })]
			}
			key = t.Job + "/" + t.Instance
			i.Target = key
		case aJob:
			targets := d.model.Targets()
			key = targets[d.rnd.IntN(len(targets))].Job
			i.Target, i.parts = key, nil
			for _, t := range targets {
				if t.Job == key {
					i.parts = append(i.parts, t.Job+"/"+t.Instance)
				}
			}
		case aRow:
			n := d.model.Options().Nodes
			first, row := d.rnd.IntN(n), max(1, n/4)
			i.Target, i.parts = fmt.Sprintf("%s+%d", nodeName(first), row), nil
			for k := range row {
				i.parts = append(i.parts, nodeName((first+k)%n))
			}
		}
		keys := []string{key}
		if i.sort.on == aRow {
			keys = i.parts
		}
		if d.free(keys, whole) {
			for _, key := range keys {
				d.busy[key] = append(d.busy[key], whole)
			}
			if i.sort.down {
				d.down = append(d.down, cluster.Span{From: i.From, Until: i.end()})
			}
			return true
		}
	}
	return false
}

// crowded says whether as many nodes as may be are down, unannounced, at some moment of the
// incident or until alerts about it are over.
func (d *drawing) crowded(i *Incident) bool {
	most, own := max(downAtOnce, d.model.Options().Nodes/perRow), cluster.Span{From: i.From, Until: i.end().Add(ofCount)}
	at := func(t time.Time) (n int) {
		for _, s := range d.down {
			if !t.Before(s.From) && t.Before(s.Until.Add(ofCount)) {
				n++
			}
		}
		return n
	}
	if at(own.From) >= most {
		return true
	}
	return slices.ContainsFunc(d.down, func(s cluster.Span) bool {
		return s.From.After(own.From) && s.From.Before(own.Until) && at(s.From) >= most
	})
}

// free says whether nothing befalls any of them within the span.
func (d *drawing) free(keys []string, whole cluster.Span) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		return slices.ContainsFunc(d.busy[key], func(s cluster.Span) bool {
			return whole.Until.After(s.From) && whole.From.Before(s.Until)
		})
	})
}
