package cost

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// leaveOut takes replicas away that showed no pod in the whole range, while another one of their
// source did: kube-state-metrics has a second port, about itself, which kube-prometheus scrapes as
// the same job. Taken for a replica it would be one that lacks every pod; where it was the only one
// to answer, nothing is known of its cluster.
func (r *run) leaveOut(ctx context.Context) error {
	n := r.o.Names
	missing, err := r.showNone(ctx, "replicas with pods", r.sources,
		ksmSeries{"kube_pod_status_phase", join(n.Selector, `phase="Running"`)})
	if err != nil {
		return err
	}
	var podless []*source
	for _, s := range r.sources {
		without := func(p *replica) bool { return missing[replicaKey{s.cluster, p.name}] }
		if !slices.ContainsFunc(s.replicas, func(p *replica) bool { return !without(p) }) {
			podless = append(podless, s)
			continue
		}
		for _, p := range s.replicas {
			if without(p) {
				r.empty = append(r.empty, strings.TrimPrefix(s.cluster+"/"+p.name, "/"))
			}
		}
		s.replicas = slices.DeleteFunc(s.replicas, without)
	}
	// Where requests are there and no phase, who bills says why; nodes alone are of one that shares
	// the resources with another.
	missing, err = r.showNone(ctx, "replicas with nodes", podless, ksmSeries{"kube_node_status_condition", n.Selector},
		ksmSeries{"kube_pod_container_resource_requests", n.Selector})
	if err != nil {
		return err
	}
	r.sources = slices.DeleteFunc(r.sources, func(s *source) bool {
		if !slices.Contains(podless, s) ||
			slices.ContainsFunc(s.replicas, func(p *replica) bool { return !missing[replicaKey{s.cluster, p.name}] }) {
			return false
		}
		r.blank = append(r.blank, s)
		return true
	})
	return nil
}

// ksmSeries are those of a metric of kube-state-metrics with some matchers.
type ksmSeries struct{ metric, matchers string }

// showNone finds those replicas of sources that have none of some series in the whole range.
func (r *run) showNone(ctx context.Context, name string, of []*source, all ...ksmSeries) (map[replicaKey]bool, error) {
	n := r.o.Names
	missing := map[replicaKey]bool{}
	for _, s := range of {
		for _, p := range s.replicas {
			missing[replicaKey{s.cluster, p.name}] = true
		}
	}
	q := query{name: name, text: func(d, _ string) string {
		parts := make([]string, len(all))
		for i, s := range all {
			parts[i] = "group by (" + n.ClusterLabel + ", " + n.ReplicaLabel + ") (last_over_time(" +
				s.metric + "{" + s.matchers + "}[" + d + "]))"
		}
		return strings.Join(parts, " or ")
	}}
	for _, stretch := range stretches(windows(r.o.Range.Days())) { // the last hour may be shorter
		if len(missing) == 0 {
			break
		}
		err := r.ask(ctx, q, stretch, nil, func(m map[string]string, _ int, _ float64) error {
			delete(missing, replicaKey{m[n.ClusterLabel], m[n.ReplicaLabel]})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// answeredOnly says of a source that it answered and showed nothing.
func (s *source) answeredOnly() string {
	return fmt.Sprintf("%s%s answered, and showed no pod and no node in this time", s.what(), s.ofShard())
}
