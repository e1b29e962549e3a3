package cost

import (
	"cmp"
	"fmt"
	"time"
)

// phased refuses windows in which pods request something and of none is known whether it ran: the
// bill would be 0, and add up. That is how it looks where a rule drops the phase Running alone,
// since rules and dashboards read the others.
func (r *run) phased(ws []window, f *facts, do asking) error {
	ran, asks := map[at[string]]bool{}, map[at[string]]bool{}
	for k := range f.running {
		ran[at[string]{k.key.cluster, k.w}] = true
	}
	for k := range f.containers {
		asks[at[string]{k.key.cluster, k.w}] = true
	}
	for k := range f.work {
		asks[at[string]{k.key.cluster, k.w}] = true
	}
	doubtful := false
	for k := range asks {
		doubtful = doubtful || !ran[k]
	}
	if !doubtful {
		return nil
	}
	do(r.q.phases, nil, func(m map[string]string, w int, _ float64) error {
		ran[at[string]{m[r.o.Names.ClusterLabel], w}] = true
		return nil
	})
	for i, w := range ws {
		for _, k := range sortedKeys(clustersAt(asks, i)) {
			if !ran[at[string]{k, i}] {
				return fmt.Errorf("pods of %s request something from %s on, and nothing says which of them ran: "+
					`there is no kube_pod_status_phase{phase="Running"}. Where a rule drops it, take that rule out and make the next plan with `+
					"--queries=relabel/testdata/cost.promql; else have kube-state-metrics export it. "+
					"Time in which it is missing cannot be billed: choose --from and --to without it",
					visible(cmp.Or(k, "the cluster")), time.UnixMilli(w.from).In(r.o.Range.Location).Format(time.RFC3339))
			}
		}
	}
	return nil
}

// clustersAt are those of a window.
func clustersAt(all map[at[string]]bool, w int) map[string]bool {
	out := map[string]bool{}
	for k := range all {
		if k.w == w {
			out[k.key] = true
		}
	}
	return out
}
