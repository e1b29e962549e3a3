package shard

import (
	"fmt"
	"slices"
)

// misconfigured lists what keeps the replica from being asked: that it is of another type than the
// configuration says, or external labels that its group does not name. Prometheus adds such a label
// to some answers (remote read, federate) and not to others, so without this rule the same series
// would have two identities. Empty where all is well or where external labels are not known.
func (r *Replica) misconfigured() []string {
	if r.Thanos() {
		return r.thanosMisconfigured()
	}
	r.up.mu.Lock()
	ext, isThanos := r.up.health.external, r.up.health.isThanos
	r.up.mu.Unlock()
	if isThanos {
		return []string{"it is a Thanos Query, which answers without stores that it cannot reach, and this is only looked for where its type says so; write type: thanos beside its url"}
	}
	if len(ext) == 0 {
		return nil
	}
	var why []string
	g := r.Shard.Group
	for _, name := range sortedKeys(ext) {
		value := ext[name]
		switch {
		case slices.Contains(g.ReplicaLabels, name):
		case g.Labels.Has(name) && g.Labels.Get(name) == value:
		case g.Labels.Has(name):
			why = append(why, fmt.Sprintf("its external label %s is %q and the labels of group %s say %q; make them equal, or move the shard to its own group",
				name, value, g.Name, g.Labels.Get(name)))
		default:
			why = append(why, r.advise(name, value))
		}
	}
	return why
}

// advise is the line to add for an external label that the group does not name. Whether it tells
// replicas apart or belongs to the whole group is seen from the group's other servers, as far as
// they are known.
func (r *Replica) advise(name, value string) string {
	g := r.Shard.Group
	others, equal := 0, true
	for _, s := range g.Shards {
		for _, o := range s.Replicas {
			if o.up == r.up {
				continue
			}
			o.up.mu.Lock()
			v, has := o.up.health.external[name]
			known := o.up.health.externalOK
			o.up.mu.Unlock()
			if known {
				others++
				equal = equal && has && v == value
			}
		}
	}
	labelsLine := fmt.Sprintf("%s: %q under labels", name, value)
	replicaLine := fmt.Sprintf("%s under replica_labels", name)
	head := fmt.Sprintf("its external label %s=%q is not among the labels of group %s; ", name, value, g.Name)
	switch {
	case others > 0 && equal:
		return head + "add " + labelsLine + ", since all servers of the group have it"
	case others > 0:
		return head + "add " + replicaLine + ", since the group's servers differ in it"
	default:
		return head + "add " + labelsLine + " if every server of the group has it, else " + replicaLine
	}
}

// Stores tells whether the server stores series with a label of that name, which is one of its
// group's labels or replica labels: then a query's text cannot be passed to it as it is. known is
// false until the server has said so.
func (r *Replica) Stores(name string) (stores, known bool) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	stores, known = r.up.health.stores[name]
	return stores, known
}

// Clean tells whether it is known that the server stores no label of a name that Spillway sets or
// removes itself.
func (r *Replica) Clean() bool {
	for _, name := range r.Shard.Group.ownLabels() {
		if stores, known := r.Stores(name); stores || !known {
			return false
		}
	}
	return true
}

// State is what is known of the replica: misconfigured takes precedence over up and down.
func (r *Replica) State() State {
	if len(r.misconfigured()) > 0 {
		return Misconfigured
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	if r.up.health.state == "" {
		return Unknown
	}
	return r.up.health.state
}

// Version is what the server calls itself; empty while not known.
func (r *Replica) Version() string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.health.version
}
