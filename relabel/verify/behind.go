package verify

import "github.com/spillwayproject/spillway/relabel/inventory"

// behind says where stored series do not show what a rule takes, since it is in force there.
func (n *need) behind(s *seen, src inventory.Source) {
	if n.spellingOnly && inventory.BehindRules(src) {
		n.takes = s.takes
		if n.takes == nil {
			n.takes = map[*rule]map[string]bool{}
		}
	}
}

// judgeBehind makes up the series of one metric as without stored ones, for the rules that take
// nothing of what is stored of it: either they have nothing to take, or it is gone already.
func (n *need) judgeBehind(name string, losses map[*rule]*loss) {
	if n.takes == nil {
		return
	}
	as, made := *n, map[*rule]*loss{}
	as.spellingOnly, as.takes, as.unseen = false, nil, true
	as.judgeName(name, made)
	for ru, l := range made {
		if n.takes[ru][name] {
			continue
		}
		if have := losses[ru]; have != nil {
			have.join(l)
		} else {
			losses[ru] = l
		}
	}
}

// join adds what is lost of another metric to the same rule.
func (l *loss) join(o *loss) {
	l.all, l.some, l.older, l.stays = l.all || o.all, l.some || o.some, l.older || o.older, l.stays || o.stays
	l.maybe, l.unmentioned, l.always = l.maybe || o.maybe, l.unmentioned || o.unmentioned, l.always || o.always
	l.foreign, l.inf = l.foreign || o.foreign, l.inf || o.inf
	l.quantileBuckets, l.typed = l.quantileBuckets || o.quantileBuckets, l.typed || o.typed
	l.values, l.labels, l.metrics = union(l.values, o.values), union(l.labels, o.labels), union(l.metrics, o.metrics)
}
