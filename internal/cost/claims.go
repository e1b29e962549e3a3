package cost

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// GPUs that pods have through ResourceClaims (dynamic resource allocation, DRA) are no resource
// that a container requests or a node has, and kube-state-metrics does not count them. Which pod
// has which card, or which slice of one, dcgm-exporter says; how long the pod ran,
// kube-state-metrics. A pod keeps its claims for life, so that a window in which the exporter was
// silent takes them from the nearest one of the same pod.

// claimMetric is what every GPU has, whose labels say who has it: the activity is not there while a
// job measures its own.
const claimMetric = "DCGM_FI_DEV_GPU_TEMP"

// sliceLabel and profileLabel are those of a slice of MIG on dcgm-exporter's series.
const sliceLabel, profileLabel = "GPU_I_ID", "GPU_I_PROFILE"

// claimQueries are what is asked about claims; shares and again in steps of a minute, and only
// where they matter.
type claimQueries struct {
	claimants, claims, cuts, shares, again query
}

func (n Names) claimQueries() claimQueries {
	by := func(labels ...string) string {
		return "by (" + n.ClusterLabel + ", " + strings.Join(labels, ", ") + ")"
	}
	claimed := func(in string) string {
		return claimMetric + "{" + join(`dra_driver_name!="",pod!=""`, "dra_claim_namespace!~"+strconv.Quote(n.AdminNamespaces), in) + "}"
	}
	last := func(series, d string) string { return "last_over_time(" + series + "[" + d + "])" }
	// average is the mean of an expression while it has a value.
	average := func(expr, d string) string { return "avg_over_time((" + expr + ")[" + d + ":1m])" }
	group := func(of string, labels ...string) string { return "group " + by(labels...) + " (" + of + ")" }
	card := []string{"node", "gpu", sliceLabel}
	ofPod := append([]string{"namespace", "pod"}, card...)
	return claimQueries{
		claimants: query{name: "claimants", text: func(d, _ string) string { return group(last(claimed(""), d), "namespace") }},
		claims: query{name: "claims", byNamespace: true, text: func(d, in string) string {
			return group(last(claimed(in), d), append(ofPod, profileLabel)...)
		}},
		// Where a slice was claimed.
		cuts: query{name: "cuts", text: func(d, _ string) string {
			return group(last(claimMetric+"{"+sliceLabel+`!=""}`, d), append(card, profileLabel)...)
		}},
		// Where two pods claimed the same card or slice within a window.
		shares: query{name: "shares", byNode: true, text: func(d, in string) string {
			each := group(claimed(in), ofPod...)
			on := "on (" + n.ClusterLabel + ", " + strings.Join(card, ", ") + ")"
			return average(each+" / "+on+" group_left () count "+by(card...)+" ("+each+")", d)
		}},
		// Where two pods of one name ran within a window: how many they had.
		again: query{name: "again", byNamespace: true, text: func(d, in string) string {
			return average("count "+by("namespace", "pod")+" ("+group(claimed(in), ofPod...)+")", d)
		}},
	}
}

var sliceProfile = regexp.MustCompile(`^([1-7])g\b`)

// cardKey is a card of a node, or with slice one of its slices.
type cardKey struct {
	node       nodeKey
	gpu, slice string
}

// claim is what a pod has of a card.
type claim struct {
	card  cardKey
	share float64 // of the card or slice: 1 where no other pod had it too
}

// claims are what the exporters say about one stretch of windows.
type claims struct {
	pods  map[at[podKey]][]claim  // without uid, in order
	size  map[cardKey]float64     // sevenths of slices
	cut   map[at[cardKey]]float64 // sevenths of all slices of a card, without slice
	cards map[at[nodeKey]]float64 // how many a node has
	nodes map[nodeKey]bool        // on which any are claimed
	again map[at[podKey]]float64  // cards or slices that pods of one name had, one after the other
}

// readClaims asks who has what, and returns the namespaces.
func (r *run) readClaims(c *claims, do asking) (namespaces map[string]bool) {
	n := r.o.Names
	namespaces = map[string]bool{}
	do(r.q.claimants, nil, func(m map[string]string, _ int, _ float64) error {
		namespaces[m["namespace"]] = true
		return nil
	})
	if len(namespaces) == 0 {
		return namespaces
	}
	*c = claims{pods: map[at[podKey]][]claim{}, size: map[cardKey]float64{}, cut: map[at[cardKey]]float64{}, nodes: map[nodeKey]bool{}}
	cardOf := func(m map[string]string) cardKey {
		k := cardKey{nodeKey{m[n.ClusterLabel], m["node"]}, m["gpu"], m[sliceLabel]}
		if of := sliceProfile.FindStringSubmatch(m[profileLabel]); of != nil {
			c.size[k], _ = strconv.ParseFloat(of[1], 64) // it is a digit
		}
		return k
	}
	holders, shared := map[at[cardKey]]int{}, map[string]bool{}
	do(r.q.claims, sortedKeys(namespaces), func(m map[string]string, w int, _ float64) error {
		pod, card := at[podKey]{podKey{m[n.ClusterLabel], m["namespace"], m["pod"], ""}, w}, cardOf(m)
		c.pods[pod] = append(c.pods[pod], claim{card, 1})
		c.nodes[card.node] = true
		if holders[at[cardKey]{card, w}]++; holders[at[cardKey]{card, w}] == 2 {
			shared[card.node.name] = true
		}
		return nil
	})
	if len(c.size) > 0 {
		do(r.q.cuts, nil, func(m map[string]string, w int, _ float64) error {
			k := cardOf(m)
			size := c.size[k]
			k.slice = ""
			c.cut[at[cardKey]{k, w}] += size
			return nil
		})
	}
	do(r.q.shares, sortedKeys(shared), func(m map[string]string, w int, v float64) error {
		pod, card := at[podKey]{podKey{m[n.ClusterLabel], m["namespace"], m["pod"], ""}, w}, cardOf(m)
		for i := range c.pods[pod] {
			if c.pods[pod][i].card == card {
				c.pods[pod][i].share = v
			}
		}
		return nil
	})
	for _, of := range c.pods {
		slices.SortFunc(of, func(a, b claim) int { // floats do not add up to the same in another order
			return cmp.Or(cmp.Compare(a.card.node.name, b.card.node.name), cmp.Compare(a.card.gpu, b.card.gpu),
				cmp.Compare(a.card.slice, b.card.slice))
		})
	}
	return namespaces
}

// readAgain asks about names under which several pods ran within a window: the exporter knows no
// uid, and what the one had is not the other's too.
func (r *run) readAgain(f *facts, do asking) {
	n := r.o.Names
	uids, names, namespaces := map[at[podKey]]int{}, map[at[podKey]]bool{}, map[string]bool{}
	for k := range f.running {
		k.key.uid = ""
		if uids[k]++; uids[k] == 2 && f.claims.pods[k] != nil {
			names[k], namespaces[k.key.namespace] = true, true
		}
	}
	do(r.q.again, sortedKeys(namespaces), func(m map[string]string, w int, v float64) error {
		if k := (at[podKey]{podKey{m[n.ClusterLabel], m["namespace"], m["pod"], ""}, w}); names[k] {
			if f.claims.again == nil {
				f.claims.again = map[at[podKey]]float64{}
			}
			f.claims.again[k] = v
		}
		return nil
	})
}

// of is how many cards a pod has, and on which node: as the exporter says of the window, else of
// the nearest one in which the same pod ran.
func (c *claims) of(k podKey, w int, ran func(w int) bool) (cards float64, node nodeKey) {
	if len(c.pods) == 0 {
		return 0, nodeKey{}
	}
	k.uid = ""
	at, ok := at[podKey]{k, w}, false
	for away := 0; away < maxWindows && !ok; away++ {
		for _, near := range []int{w - away, w + away} {
			if at.w = near; len(c.pods[at]) > 0 && (away == 0 || ran(near)) {
				ok = true
				break
			}
		}
	}
	if !ok {
		return 0, nodeKey{}
	}
	for _, claim := range c.pods[at] {
		cards += claim.share * c.part(claim.card, at.w)
		node = claim.card.node
	}
	if v, ok := c.again[at]; ok {
		cards *= v / float64(len(c.pods[at]))
	}
	return cards, node
}

// part is what a slice is of its card: of all slices that it is cut into, which may leave a part of
// it to nobody (two of 3g). Where it was cut anew within a window they are more than seven.
func (c *claims) part(k cardKey, w int) float64 {
	size := c.size[k]
	if size == 0 {
		return 1
	}
	k.slice = ""
	return size / max(size, min(sevenths, c.cut[at[cardKey]{k, w}]))
}
