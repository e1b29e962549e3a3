package cost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What a bill does not find it does not bill, and a total that is too small looks like any other.
// Some of what is missing can be seen by something else that is there: the bill says so.

// found is what there was in the time of a bill.
type found struct {
	models    bool // nodes with a GPU model
	offered   bool // nodes that offered the resource, or one of its slices
	requested bool // pods that requested or claimed any of it
	worked    bool // pods that requested cores or memory
	// By cluster and day, the same: one cluster's pods say nothing about another's.
	offeredOn, requestedOn map[at[string]]bool
	exportedOn             map[at[string]]bool // requests of anything, of the days on which none wanted what it offered
	// For how long, in ms, nodes with a model offered none, and nobody told of their cards.
	dark map[nodeKey]float64
}

// dark looks for nodes with a model of whose GPUs nothing is known.
func (p *page) dark() {
	one := func(string) float64 { return 1 }
	for k := range p.f.model {
		if k.w != p.i || p.f.model[k] == "" || p.f.claims.cards[k] > 0 || p.f.claims.nodes[k.key] || p.onNode[k.key] > 0 ||
			p.samples(k.key, p.f.fleet[capacity][k], one) > 0 {
			continue
		}
		p.found.dark[k.key] += p.samples(k.key, p.f.fleet[seen][k], one)
	}
}

// requests looks which clusters offered something in a stretch, of one day, and which pods wanted
// any.
func (r *run) requests(ws []window, f *facts) {
	for k, of := range f.fleet[capacity] {
		for _, v := range of {
			if v > 0 {
				r.found.offeredOn[at[string]{k.key.cluster, ws[k.w].day}] = true
			}
		}
	}
	for k := range f.containers {
		r.found.requestedOn[at[string]{k.key.cluster, ws[k.w].day}] = true
	}
	for k := range f.claims.pods {
		r.found.requestedOn[at[string]{k.key.cluster, ws[k.w].day}] = true
	}
}

// idleDays is for how many days at the end a cluster's GPUs are unrequested before that is told
// where its pods request other resources: more than a long weekend.
const idleDays = 5

// unwanted are the days, by cluster, on which it offered something and no pod of it wanted any.
func (r *run) unwanted() map[string][]int {
	of := map[string][]int{}
	for i := range r.l.days {
		for c := range clustersAt(r.found.offeredOn, i) {
			if !r.found.requestedOn[at[string]{c, i}] {
				of[c] = append(of[c], i)
			}
		}
	}
	return of
}

// exported looks on which of those days pods requested anything else.
func (r *run) exported(ctx context.Context) error {
	n, of, days := r.o.Names, r.unwanted(), map[int]bool{}
	for _, list := range of {
		for _, i := range list {
			days[i] = true
		}
	}
	q := query{name: "requests of anything", text: func(d, _ string) string {
		return "group by (" + n.ClusterLabel + ") (last_over_time(kube_pod_container_resource_requests{" +
			join(n.Selector, oneOf(n.ClusterLabel, sortedKeys(of))) + "}[" + d + "]))"
	}}
	for _, stretch := range stretches(slices.DeleteFunc(windows(r.l.days), func(w window) bool { return !days[w.day] })) {
		if !r.found.requested {
			break
		}
		err := r.ask(ctx, q, stretch, nil, func(m map[string]string, w int, _ float64) error {
			r.found.exportedOn[at[string]{m[n.ClusterLabel], stretch[w].day}] = true
			return nil
		})
		var no *refusal
		if err != nil && !errors.As(err, &no) { // what is not known is told
			return err
		}
	}
	return nil
}

// unrequested are sentences about clusters that offered something on days on which no pod of them
// wanted any: days on which no request of anything was exported, and many up to the end.
func (r *run) unrequested() (said []string) {
	unwanted := r.unwanted()
	for _, c := range sortedKeys(unwanted) {
		last := -1 // day on which a pod wanted any
		for i := range r.l.days {
			if r.found.requestedOn[at[string]{c, i}] {
				last = i
			}
		}
		idle := slices.DeleteFunc(slices.Clone(unwanted[c]), func(i int) bool { return i < last })
		var days []string
		for _, i := range unwanted[c] {
			if !r.found.exportedOn[at[string]{c, i}] || i > last && len(idle) >= idleDays {
				days = append(days, r.l.days[i].Name)
			}
		}
		if len(days) == 0 {
			continue
		}
		who := "No pod"
		if c != "" {
			who += " of " + visible(c)
		}
		said = append(said, fmt.Sprintf("%s requested %s on %s: if some did, was kube_pod_container_resource_requests exported then?",
			who, r.o.Names.Resource, someOf(days)))
	}
	return said
}

// notes are sentences about what is probably missing.
func (r *run) notes() (said []string) {
	f, resource := &r.found, r.o.Names.Resource
	said = append(r.unheard(), r.gone()...)
	if len(r.empty) > 0 {
		said = append(said, fmt.Sprintf("Targets of kube-state-metrics that showed no pod are no replicas and were left out: %s.", someOf(r.empty)))
	}
	if f.models && !f.offered {
		said = append(said, fmt.Sprintf("Nodes have a GPU model, and none offered %s: is that how kube-state-metrics spells the resource (--resource)?", resource))
	}
	if (f.models || f.offered) && !f.requested {
		said = append(said, fmt.Sprintf("No pod requested %s: if some did, is kube_pod_container_resource_requests exported, and the resource spelled so (--resource)?", resource))
	}
	if f.requested {
		said = append(said, r.unrequested()...)
	}
	if r.o.Directory.billsWork() && !f.worked {
		said = append(said, "No pod requested cores or memory, which have a price: does a rule drop "+
			`kube_pod_container_resource_requests{resource=~"cpu|memory"}?`)
	}
	names := map[string]bool{}
	for k, ms := range f.dark {
		if ms > 0.9*float64(hourMillis) { // a node that boots has none for some minutes
			names[strings.TrimPrefix(k.cluster+"/"+k.name, "/")] = true
		}
	}
	if f.offered && len(names) > 0 {
		said = append(said, fmt.Sprintf(
			"Nodes with a GPU model that for an hour or longer offered no %s, and of whose cards no exporter told, are in no capacity and cost nothing here: %s.",
			resource, someOf(sortedKeys(names))))
	}
	return said
}

// namesShown is how many names a sentence has.
const namesShown = 10

// someOf are names, and how many more there are.
func someOf(names []string) string {
	more := ""
	if n := len(names); n > namesShown {
		names, more = names[:namesShown], fmt.Sprintf(" and %d more", n-namesShown)
	}
	return visible(strings.Join(names, ", ")) + more
}
