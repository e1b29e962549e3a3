package cost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	maxWindows    = 24  // of one query
	maxNamespaces = 200 // of one query, or nodes
)

// run is one bill in the making.
type run struct {
	o       Options
	q       queries
	sources []*source
	empty   []string          // replicas that were left out, since they showed no pod
	silent  []*source         // of which no scrape was answered
	blank   []*source         // which answered, and showed no pod and no node
	lost    []string          // clusters that were there before
	unasked string            // why those are not known
	gap     int64             // Options.MaxGap in ms
	size    map[string][2]int // windows, and namespaces or nodes, that a query may have, by its name: what the server did not refuse
	l       *ledger
	found   found
}

// scrapes finds the sources and the times of their scrapes, a little before and after the range
// too: the scrape before its beginning stands for it, the one after its end tells whether the last
// one was followed by a pause.
func (r *run) scrapes(ctx context.Context) error {
	from := r.o.Range.From.UnixMilli() - r.gap
	to := min(r.o.Range.To.UnixMilli()+r.gap, r.o.Now().UnixMilli())
	var all []series
	step := 24 * hourMillis
	for at := from; at < to; {
		end := min(at+step, to)
		found, err := r.o.Client.samples(ctx, r.o.Names.up(millis(end-at)), end-1)
		var no *refusal
		if errors.As(err, &no) && step > hourMillis {
			step /= 2
			continue
		}
		if err != nil {
			return fmt.Errorf("the scrapes of kube-state-metrics: %w", err)
		}
		all = append(all, found...)
		at = end
	}
	if err := r.arrange(ctx, all); err != nil {
		return err
	}
	if err := r.vanished(ctx, all); err != nil {
		return err
	}
	if err := r.leaveOut(ctx); err != nil {
		return err
	}
	if len(r.sources) == 0 && len(r.blank) > 0 {
		return fmt.Errorf("%s: is the target that shows them up? --kube-state-metrics.selector chooses it", r.blank[0].answeredOnly())
	}
	if len(r.sources) == 0 {
		return fmt.Errorf("no scrape of kube-state-metrics was found from %s to %s: is up{%s} there? --kube-state-metrics.selector chooses another",
			r.o.Range.From.Format(time.RFC3339), r.o.Range.To.Format(time.RFC3339), r.o.Names.Selector)
	}
	return r.settleAll()
}

// millis is a duration as PromQL writes it.
func millis(ms int64) string { return strconv.FormatInt(ms, 10) + "ms" }

// stretches cuts windows into runs of equal length, one directly after the other, of at most
// maxWindows: what one range query can ask for.
func stretches(ws []window) [][]window {
	var out [][]window
	for len(ws) > 0 {
		n := 1
		for n < len(ws) && n < maxWindows && ws[n].from == ws[n-1].to && ws[n].to-ws[n].from == ws[0].to-ws[0].from {
			n++
		}
		out = append(out, ws[:n])
		ws = ws[n:]
	}
	return out
}

// row is a sample of an answer: the series' labels, the index of the window in its stretch, and the
// value.
type rowFunc func(labels map[string]string, w int, v float64) error

// ask puts a query for a stretch of windows and some values of its label, in as many parts as the
// server wants, and calls row for every sample. Values of the same series in parts of different
// namespaces come one after the other: row adds up.
func (r *run) ask(ctx context.Context, q query, ws []window, in []string, row rowFunc) error {
	if q.label() != "" && len(in) == 0 {
		return nil
	}
	return r.part(ctx, q, ws, 0, in, row)
}

func (r *run) part(ctx context.Context, q query, ws []window, offset int, in []string, row rowFunc) error {
	limit, ok := r.size[q.name]
	if !ok {
		limit = [2]int{maxWindows, maxNamespaces}
	}
	if n := limit[0]; len(ws) > n {
		if err := r.part(ctx, q, ws[:n], offset, in, row); err != nil {
			return err
		}
		return r.part(ctx, q, ws[n:], offset+n, in, row)
	}
	if n := limit[1]; q.label() != "" && len(in) > n {
		if err := r.part(ctx, q, ws, offset, in[:n], row); err != nil {
			return err
		}
		return r.part(ctx, q, ws, offset, in[n:], row)
	}
	matcher := ""
	if q.label() != "" {
		matcher = oneOf(q.label(), in)
	}
	length := ws[0].to - ws[0].from
	// The range is open at its beginning and closed at its end: a millisecond earlier it is the
	// window.
	first := ws[0].to - 1
	found, err := r.o.Client.rangeQuery(ctx, q.text(millis(length), matcher), first, ws[len(ws)-1].to-1, length)
	var no *refusal
	switch {
	case errors.As(err, &no) && len(ws) > 1:
		r.size[q.name] = [2]int{(len(ws) + 1) / 2, limit[1]}
		r.o.Client.say("the query for %s is halved to %d windows: %v", q.name, r.size[q.name][0], err)
		return r.part(ctx, q, ws, offset, in, row)
	case errors.As(err, &no) && len(in) > 1:
		r.size[q.name] = [2]int{limit[0], (len(in) + 1) / 2}
		r.o.Client.say("the query for %s is halved to %d %ss: %v", q.name, r.size[q.name][1], q.label(), err)
		return r.part(ctx, q, ws, offset, in, row)
	case errors.As(err, &no):
		return fmt.Errorf("the smallest query for %s, one of an hour at most, is refused: %w; raise that limit for the caller of this bill", q.name, err)
	case err != nil:
		return fmt.Errorf("the query for %s: %w", q.name, err)
	}
	for _, s := range found {
		for _, v := range s.Values {
			w := int((v.t - first) / length)
			if (v.t-first)%length != 0 || w < 0 || w >= len(ws) {
				return fmt.Errorf("the query for %s: an answer for %s, which was not asked for", q.name, time.UnixMilli(v.t).UTC())
			}
			if math.IsNaN(v.v) || math.IsInf(v.v, 0) || v.v < 0 {
				return fmt.Errorf("the query for %s: the value %v of %v cannot be counted", q.name, v.v, s.Metric)
			}
			if err := row(s.Metric, offset+w, v.v); err != nil {
				return err
			}
		}
	}
	return nil
}

// podKey is one pod: its name may be used again, its uid not.
type podKey struct{ cluster, namespace, name, uid string }

// at is a window of a stretch for something.
type at[K comparable] struct {
	key K
	w   int
}

type replicaKey struct{ cluster, name string }

type nodeKey struct{ cluster, name string }

type spaceKey struct{ cluster, name string }

// facts is what the servers say about one stretch of windows.
type facts struct {
	running    map[at[podKey]]map[string]float64 // samples, by replica
	containers map[at[podKey]]map[device]float64 // GPUs and slices, by container
	node       map[at[podKey]]string
	experiment map[at[podKey]]string
	space      map[at[spaceKey]]string // the team that the namespace's label names
	model      map[at[nodeKey]]string
	class      map[at[nodeKey]]string // spot, on-demand, …
	shared     map[at[nodeKey]]bool   // whether what the node hands out as GPUs are parts of them
	parts      map[at[nodeKey]]parts  // of nodes that share cards
	active     map[at[podKey]]float64 // without uid
	allocated  map[at[replicaKey]]amounts
	work       map[at[podKey]]amounts                // cores and bytes, only where they have a price
	fleet      [4]map[at[nodeKey]]map[device]float64 // capacity, allocatable, ready, seen: samples, by replica and resource
	reserved   map[at[nodeKey]]reservations
	claims     claims
}

const (
	capacity = iota
	allocatable
	ready
	seen
)

// partsOf is what the devices of a node are of its cards.
func (f *facts) partsOf(k at[nodeKey]) parts {
	if p, ok := f.parts[k]; ok {
		return p
	}
	return whole
}

// read asks for all that one stretch needs.
func (r *run) read(ctx context.Context, ws []window) (*facts, error) {
	f := &facts{
		running: map[at[podKey]]map[string]float64{}, containers: map[at[podKey]]map[device]float64{},
		node: map[at[podKey]]string{}, experiment: map[at[podKey]]string{}, space: map[at[spaceKey]]string{},
		model: map[at[nodeKey]]string{}, class: map[at[nodeKey]]string{}, shared: map[at[nodeKey]]bool{}, parts: map[at[nodeKey]]parts{},
		active: map[at[podKey]]float64{}, allocated: map[at[replicaKey]]amounts{}, work: map[at[podKey]]amounts{},
		reserved: map[at[nodeKey]]reservations{},
	}
	var err error
	do := func(q query, namespaces []string, row rowFunc) {
		if err == nil {
			err = r.ask(ctx, q, ws, namespaces, row)
		}
	}
	claimants := r.readClaims(&f.claims, do)
	r.readPods(f, claimants, do)
	if err == nil {
		err = r.phased(ws, f, do)
	}
	r.readAgain(f, do)
	r.readNodes(f, do)
	return f, err
}

// asking asks one query in some namespaces, nil for all, and hands over the rows of its answer;
// once one has failed it asks nothing.
type asking func(q query, namespaces []string, row rowFunc)

// readPods asks for what pods and namespaces there are, and what they hold; seen are those
// namespaces of which it is known already.
func (r *run) readPods(f *facts, seen map[string]bool, do asking) {
	n := r.o.Names
	pod := func(m map[string]string, w int) at[podKey] {
		return at[podKey]{podKey{m[n.ClusterLabel], m["namespace"], m["pod"], m["uid"]}, w}
	}
	do(r.q.namespaces, nil, func(m map[string]string, _ int, _ float64) error {
		seen[m["namespace"]] = true
		return nil
	})
	if r.o.Directory.billsWork() {
		do(r.q.workNames, nil, func(m map[string]string, _ int, _ float64) error {
			seen[m["namespace"]] = true
			return nil
		})
	}
	spaces := sortedKeys(seen)
	do(r.q.requests, spaces, func(m map[string]string, w int, v float64) error {
		k := pod(m, w)
		put(f.containers, k, device{m["container"], m["resource"]}, v, math.Max) // a pod has no node at first: the same container twice
		f.node[k] = max(f.node[k], m["node"])
		r.found.requested = true
		return nil
	})
	do(r.q.running, spaces, func(m map[string]string, w int, v float64) error {
		put(f.running, pod(m, w), m[n.ReplicaLabel], v, plus)
		return nil
	})
	do(r.q.allocated, spaces, func(m map[string]string, w int, v float64) error {
		k := at[replicaKey]{replicaKey{m[n.ClusterLabel], m[n.ReplicaLabel]}, w}
		a := f.allocated[k]
		a[ofGPUs] += v
		f.allocated[k] = a
		return nil
	})
	if r.o.Directory.billsWork() {
		r.readWork(f, spaces, pod, do)
	}
	if r.l.needs(Experiment) {
		do(r.q.podLabels, spaces, func(m map[string]string, w int, _ float64) error {
			k := pod(m, w)
			f.experiment[k] = max(f.experiment[k], firstOf(m, n.ExperimentLabels))
			return nil
		})
	}
	// Whose a namespace is matters whatever rows are told apart by: for budgets and reservations.
	do(r.q.namespaceLabels, spaces, func(m map[string]string, w int, _ float64) error {
		k := at[spaceKey]{spaceKey{m[n.ClusterLabel], m["namespace"]}, w}
		f.space[k] = max(f.space[k], firstOf(m, n.TeamLabels))
		return nil
	})
	if !r.o.NoIdle {
		do(r.q.active, spaces, func(m map[string]string, w int, v float64) error {
			f.active[pod(m, w)] = v
			return nil
		})
	}
}

// readNodes asks for what nodes offer, and what of their cards that is.
func (r *run) readNodes(f *facts, do asking) {
	n := r.o.Names
	gke := map[at[nodeKey]]string{}
	do(r.q.nodeLabels, nil, func(m map[string]string, w int, _ float64) error {
		k := at[nodeKey]{nodeKey{m[n.ClusterLabel], m["node"]}, w}
		model := m[n.ModelLabel]
		if of := sharedModel.FindStringSubmatch(model); of != nil {
			model, f.shared[k] = of[1], true
		}
		if firstOf(m, gkeShares) != "" {
			f.shared[k] = true
		}
		f.model[k], gke[k] = max(f.model[k], model), max(gke[k], m[gkeModel])
		f.class[k] = max(f.class[k], classOf(firstOf(m, n.ClassLabels)))
		return nil
	})
	// A node that joins has GKE's name first, and feature discovery's later in the same window.
	for k, model := range gke {
		f.model[k] = cmp.Or(f.model[k], model)
		r.found.models = r.found.models || f.model[k] != ""
	}
	sliced := false
	for i, q := range []query{r.q.capacity, r.q.allocatable, r.q.ready, r.q.seen} {
		f.fleet[i] = map[at[nodeKey]]map[device]float64{}
		do(q, nil, func(m map[string]string, w int, v float64) error {
			sliced = sliced || v > 0 && (sizeOf(m["resource"]) > 0 || m["resource"] == sharedResource)
			r.found.offered = r.found.offered || v > 0 && i == capacity
			put(f.fleet[i], at[nodeKey]{nodeKey{m[n.ClusterLabel], m["node"]}, w}, device{m[n.ReplicaLabel], m["resource"]}, v, plus)
			return nil
		})
	}
	do(r.q.reservations, nil, func(m map[string]string, w int, v float64) error {
		k := at[nodeKey]{nodeKey{m[n.ClusterLabel], m["node"]}, w}
		if f.reserved[k] == nil {
			f.reserved[k] = reservations{}
		}
		put(f.reserved[k], m["effect"], device{m[n.ReplicaLabel], m["value"]}, v, plus)
		return nil
	})
	if len(f.claims.pods) > 0 {
		r.found.offered, r.found.requested = true, true
	}
	if len(f.shared) == 0 && !sliced && len(f.claims.pods) == 0 && !f.offersNone() {
		return
	}
	devices, cards := map[at[nodeKey]]map[string]float64{}, map[at[nodeKey]]float64{}
	do(r.q.devices, nil, func(m map[string]string, w int, v float64) error {
		put(devices, at[nodeKey]{nodeKey{m[n.ClusterLabel], m["node"]}, w}, m["resource"], v, plus)
		return nil
	})
	do(r.q.cards, nil, func(m map[string]string, w int, v float64) error {
		cards[at[nodeKey]{nodeKey{m[n.ClusterLabel], m["node"]}, w}] = v
		return nil
	})
	f.claims.cards = cards
	for k, of := range devices {
		slices := 0.0
		for resource, v := range of {
			slices += v * sizeOf(resource)
		}
		f.parts[k] = partsOf(f.shared[k], cards[k], float64(n.CardsPerNode), of[n.Resource], of[sharedResource], slices)
	}
}

// offersNone reports whether the device plugin of a node with a model offers none of its cards: it
// is dead, and how many there are the exporter may know.
func (f *facts) offersNone() bool {
	for k, of := range f.fleet[capacity] {
		if f.model[k] != "" && !slices.ContainsFunc(slices.Collect(maps.Values(of)), func(v float64) bool { return v > 0 }) {
			return true
		}
	}
	return false
}

func plus(a, b float64) float64 { return a + b }

// put joins v to what m holds for two keys.
func put[K, L comparable](m map[K]map[L]float64, k K, inner L, v float64, joined func(a, b float64) float64) {
	if m[k] == nil {
		m[k] = map[L]float64{}
	}
	m[k][inner] = joined(m[k][inner], v)
}

// firstOf is the first label that is there.
func firstOf(m map[string]string, names []string) string {
	for _, n := range names {
		if v := m[n]; v != "" {
			return v
		}
	}
	return ""
}
