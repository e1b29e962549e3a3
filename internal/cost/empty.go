package cost

import (
	"context"
	"slices"
	"strings"
)

// leaveOut takes replicas away that showed no pod in the whole range, while another one of their
// source did: kube-state-metrics has a second port, about itself, which kube-prometheus scrapes as
// the same job. Taken for a replica it would be one that lacks every pod.
func (r *run) leaveOut(ctx context.Context) error {
	n := r.o.Names
	missing := map[replicaKey]bool{}
	for _, s := range r.sources {
		for _, p := range s.replicas {
			if len(s.replicas) > 1 {
				missing[replicaKey{s.cluster, p.name}] = true
			}
		}
	}
	q := query{name: "replicas with pods", text: func(d, _ string) string {
		return "group by (" + n.ClusterLabel + ", " + n.ReplicaLabel + ") (last_over_time(kube_pod_status_phase{" +
			join(n.Selector, `phase="Running"`) + "}[" + d + "]))"
	}}
	for _, day := range r.o.Range.Days() {
		if len(missing) == 0 {
			return nil
		}
		err := r.ask(ctx, q, windows([]Day{day}), nil, func(m map[string]string, _ int, _ float64) error {
			delete(missing, replicaKey{m[n.ClusterLabel], m[n.ReplicaLabel]})
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, s := range r.sources {
		without := func(p *replica) bool { return missing[replicaKey{s.cluster, p.name}] }
		if !slices.ContainsFunc(s.replicas, func(p *replica) bool { return !without(p) }) {
			continue // nothing is known of any: who bills says why
		}
		for _, p := range s.replicas {
			if without(p) {
				r.empty = append(r.empty, strings.TrimPrefix(s.cluster+"/"+p.name, "/"))
			}
		}
		s.replicas = slices.DeleteFunc(s.replicas, without)
	}
	return nil
}
