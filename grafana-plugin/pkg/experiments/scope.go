package experiments

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// maxPods is how many pods one query of a panel looks at; the largest experiments have a pod
	// for each node.
	maxPods = 20_000
	// maxNamesBytes is how many bytes of names stand in one question: the proxy's max_query_bytes
	// is 64 KiB. Where a name must be escaped, as ip-10-0-0-1.internal must, the proxy compiles the
	// expression; ten characters of names cost one of the 8,000 units of its bound regex_cost.
	maxNamesBytes = 24 << 10
	// minEscapedBytes is that where names must be escaped and most of the bound is taken by what is
	// chosen, which stands in the same selector.
	minEscapedBytes = 512
)

// namesBound is how many bytes of these names stand in one selector, of which beside are compiled
// anyway.
func namesBound(escaped bool, beside int) int {
	if escaped {
		return max(minEscapedBytes, maxNamesBytes-beside)
	}
	return maxNamesBytes
}

// mustEscape says whether a name has characters that mean something in a regular expression.
func mustEscape(name string) bool { return regexp.QuoteMeta(name) != name }

// Pod is one pod of an experiment, as experiment:pod:info has it.
type Pod struct {
	Cluster, Namespace, Name, UID, Experiment, Team string
	// Node is empty while the pod waits.
	Node string
}

// PodsIn returns the pods of the chosen experiments that were there at some time in the panel's
// range, each uid once: with its node where it ever had one. Of a range shorter than two Intervals
// it is those of the two before its end: no rule looked in between. Sorted by cluster, namespace,
// name, uid.
func (r *Run) PodsIn(ctx context.Context) ([]Pod, error) {
	return r.pods(ctx, fmt.Sprintf("last_over_time(%s[%s])", Selector("experiment:pod:info", Chosen(r.Query)...), seconds(r.back())))
}

// PodsNow returns those that are there at the end of the range.
func (r *Run) PodsNow(ctx context.Context) ([]Pod, error) {
	return r.pods(ctx, Selector("experiment:pod:info", Chosen(r.Query)...))
}

func (r *Run) pods(ctx context.Context, expr string) ([]Pod, error) {
	series, err := r.Instant(ctx, "group by (cluster, namespace, pod, uid, experiment, team, node) ("+expr+")", r.Until)
	if err != nil {
		return nil, err
	}
	if len(series) > maxPods {
		return nil, fmt.Errorf("%d pods are chosen, and at most %d are looked at; choose experiments, a cluster or a shorter time", len(series), maxPods)
	}
	pods := make([]Pod, 0, len(series))
	for _, s := range series {
		l := s.Labels
		pods = append(pods, Pod{l["cluster"], l["namespace"], l["pod"], l["uid"], l["experiment"], l["team"], l["node"]})
	}
	// Of one uid the one with a node stands first.
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID),
			cmp.Compare(a.Experiment, b.Experiment), cmp.Compare(b.Node, a.Node))
	})
	return slices.CompactFunc(pods, func(a, b Pod) bool { a.Node, a.Team, b.Node, b.Team = "", "", "", ""; return a == b }), nil
}

// scope is names that share the values of outer labels.
type scope struct {
	outer []string
	names []string
}

// scopes groups names by their outer labels and cuts what is too long for one query; empty names
// are left out. Sorted.
func scopes(pods []Pod, of func(Pod) (outer []string, name string)) []scope {
	return scopesBeside(0, 1, pods, of)
}

// scopesBeside is scopes for selectors in which so many bytes are compiled of something else, and
// for questions in which the names stand so many times.
func scopesBeside(beside, times int, pods []Pod, of func(Pod) (outer []string, name string)) []scope {
	type key struct{ outer, name string }
	var keys []key
	escaped := false
	for _, p := range pods {
		if outer, name := of(p); name != "" {
			keys = append(keys, key{strings.Join(outer, "\xff"), name})
			escaped = escaped || mustEscape(name)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.outer, b.outer), cmp.Compare(a.name, b.name)) })
	var out []scope
	size := 0
	for i, k := range slices.Compact(keys) {
		if i == 0 || strings.Join(out[len(out)-1].outer, "\xff") != k.outer || size+len(k.name) > namesBound(escaped, beside)/times {
			out, size = append(out, scope{outer: strings.Split(k.outer, "\xff")}), 0
		}
		last := &out[len(out)-1]
		last.names, size = append(last.names, k.name), size+len(k.name)+1
	}
	return out
}

// seconds writes a duration as PromQL does, at least one second.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", max(1, int64(d.Round(time.Second)/time.Second)))
}
