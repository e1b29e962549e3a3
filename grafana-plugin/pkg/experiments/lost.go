package experiments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// nodesCounted is recorded of each cluster of which kube-state-metrics says anything: one series.
const nodesCounted = "cluster:nodes:count"

// lost tells which of the clusters were seen in the range and are not at its end, with when they
// were seen last, looked at in steps of step: there kube-state-metrics is away, or the rules stand
// still, and whether what was there has ended nobody knows.
func (r *Run) lost(ctx context.Context, clusters set, step time.Duration) (map[string]time.Time, error) {
	if len(clusters) == 0 {
		return map[string]time.Time{}, nil
	}
	counted := Selector(nodesCounted, OneOf("cluster", clusters.names()...))
	series, err := r.Instant(ctx, fmt.Sprintf("max by (cluster) (max_over_time(timestamp(%s)[%s:%s])) unless on (cluster) %[1]s",
		counted, seconds(r.back()), seconds(step)), r.Until)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, s := range series {
		out[s.Labels["cluster"]] = unixTime(s.Value())
	}
	return out, nil
}

// firstSeen is when each of the clusters was first seen in the range, looked at in steps of step.
func (r *Run) firstSeen(ctx context.Context, clusters set, step time.Duration) (map[string]time.Time, error) {
	if len(clusters) == 0 {
		return nil, nil
	}
	series, err := r.Instant(ctx, firstOf(Selector(nodesCounted, OneOf("cluster", clusters.names()...)), r.back(), step), r.Until)
	out := map[string]time.Time{}
	for _, s := range series {
		out[s.Labels["cluster"]] = unixTime(s.Value())
	}
	return out, err
}

// unphased tells in which of the pods' clusters kube-state-metrics says nothing at the range's end,
// though the rules knew pods of what is chosen when they were evaluated last: nobody knows whether
// these run. phase has what is known of pods' phases; clusters of which it has any are not looked
// at.
func unphased[V any](ctx context.Context, r *Run, pods []Pod, phase map[podKey]V) (set, error) {
	here, left := set{}, set{}
	for _, p := range pods {
		left[p.Cluster] = true
		if _, ok := phase[p.key()]; ok {
			here[p.Cluster] = true
		}
	}
	if left = left.without(here); len(left) == 0 {
		return left, nil
	}
	q := r.Query
	q.Clusters = left.names()
	silent, err := r.clusters(ctx, "group by (cluster) ("+Selector("experiment:pod:info", Chosen(q)...)+") unless on (cluster) "+
		"group by (cluster) ("+Selector("kube_node_info", OneOf("cluster", q.Clusters...))+")")
	if err == nil && len(silent) > 0 {
		r.LeftOut("The phases of pods are not known %s: nothing is seen of kube-state-metrics there at the end of this time.", silent.in())
	}
	return silent, err
}

// firstOf is when there was first a series of the selector in each cluster within d, looked at in
// steps of step.
func firstOf(selector string, d, step time.Duration) string {
	return fmt.Sprintf("min by (cluster) (min_over_time(timestamp(%s)[%s:%s]))", selector, seconds(d), seconds(step))
}

// lostWith says whether what was seen last at this time, in steps of step, was there until its
// cluster was lost, at last.
func (r *Run) lostWith(seen, last time.Time, step time.Duration) bool {
	return !seen.Add(step + 2*r.Settings.Interval()).Before(last)
}

// lostSince tells which of a run's clusters were seen when it was last, and never since then.
func (r *Run) lostSince(ctx context.Context, clusters []string, last time.Time) (map[string]time.Time, error) {
	since := r.Until.Sub(last) - 3*r.Settings.Interval()
	if len(clusters) == 0 || since <= 0 {
		return nil, nil
	}
	counted := Selector(nodesCounted, OneOf("cluster", clusters...))
	series, err := r.Instant(ctx, fmt.Sprintf("group by (cluster) (%s @ %.3f) unless on (cluster) last_over_time(%[1]s[%[3]s])",
		counted, float64(last.UnixMilli())/1000, seconds(since)), r.Until)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, s := range series {
		out[s.Labels["cluster"]] = last
	}
	return out, nil
}

// losses are clusters of which not all is known at the range's end: which are not seen, in which no
// experiment is known any more though pods of some run, and of which kube-state-metrics says less
// than it did.
type losses struct{ lost, unnamed, part set }

// lostNow tells what is lost of the clusters in which something of what is chosen was in the range,
// or in the day before its end; where the proxy does not let one look back a day, in the range.
func (r *Run) lostNow(ctx context.Context) (losses, error) {
	back := min(mostBack, r.back())
	out, err := r.lostWithin(ctx, max(24*time.Hour, back))
	var no *prom.Refusal
	if errors.As(err, &no) && no.Status == http.StatusUnprocessableEntity && back < 24*time.Hour {
		return r.lostWithin(ctx, back)
	}
	return out, err
}

// lostQuery asks for lost clusters, with label held for those in which GPUs are held and no
// experiment has any, and with label part for those of which fewer nodes are told of than usual,
// while more of their exporters are scraped, as in alert KubeStateMetricsIncomplete.
func lostQuery(of string, d time.Duration) string {
	return fmt.Sprintf("group by (cluster) (last_over_time(%[1]s[%[2]s])) unless on (cluster) %[1]s "+
		`or label_replace(group by (cluster) (%[3]s > 0) unless on (cluster) %[4]s, "held", "yes", "", "") `+
		`or label_replace(group by (cluster) ((%[5]s / on (cluster) %[6]s < 0.9) < on (cluster) (0.9 * max by (cluster) (%[7]s `+
		`/ on (cluster, job) %[8]s))), "part", "yes", "", "")`,
		Selector(nodesCounted, of), seconds(d), Selector("cluster:gpu_allocated:sum", of), Selector("experiment:pods:count", of),
		Selector("cluster:nodes_measured:count", of), Selector("cluster:nodes_measured_usual:count", of),
		Selector("cluster_job:targets:count", of, `job=~".*node.*exporter.*"`), Selector("cluster_job:targets_usual:count", of))
}

// lostWithin is lostNow for what was there within d before the range's end. It looks at pods where
// lostQuery finds something alone: they are many more than clusters.
func (r *Run) lostWithin(ctx context.Context, d time.Duration) (losses, error) {
	out := losses{set{}, set{}, set{}}
	series, err := r.Instant(ctx, lostQuery(OneOf("cluster", r.Query.Clusters...), d), r.Until)
	for _, s := range series {
		switch c := s.Labels["cluster"]; {
		case s.Labels["held"] != "":
			out.unnamed[c] = true
		case s.Labels["part"] != "":
			out.part[c] = true
		default:
			out.lost[c] = true
		}
	}
	q := r.Query
	if either := out.lost.with(out.part); err == nil && len(either) > 0 {
		q.Clusters = either.names()
		var ran set
		ran, err = r.clustersOf(ctx, q, seconds(d))
		out.lost, out.part = keep(out.lost, ran), keep(out.part, ran)
	}
	for _, ask := range runsUnnamed {
		if q.Clusters = out.unnamed.names(); err != nil || len(out.unnamed) == 0 {
			break
		}
		out.unnamed, err = r.clusters(ctx, ask(q, d))
	}
	return out, err
}

// runsUnnamed ask in which clusters a pod runs that held GPUs for what is chosen within d: each of
// those of which the one before has found. Where no experiment is known there, its labels are lost
// or the rules fail: the pod of one that has ended holds no GPUs, but for the moment until that is
// recorded, and does not run, which is read as it is scraped.
var runsUnnamed = []func(q model.Query, d time.Duration) string{
	func(q model.Query, d time.Duration) string {
		return heldLately(Selector("pod:gpu_allocated:sum", OneOf("cluster", q.Clusters...)), "cluster, namespace, pod", q, d)
	},
	func(q model.Query, d time.Duration) string {
		running := Selector("kube_pod_status_phase", OneOf("cluster", q.Clusters...), OneOf("phase", "Running"))
		return heldLately(running+" == 1", byPod, q, d)
	},
}

func heldLately(pods, by string, q model.Query, d time.Duration) string {
	return fmt.Sprintf("group by (cluster) (%s and on (%s) last_over_time(%s[%s:%s]))", pods, by,
		Selector("experiment:pod:gpus", Chosen(q)...), seconds(d), seconds(max(coarsest, wholeSeconds(d/lookPoints))))
}

// tellLost says of which clusters nothing is seen any more, unless what is shown has said so: what
// is not shown of them is no less there than what is. So it is where experiments have lost their
// names.
func (r *Run) tellLost(ctx context.Context) error {
	now, err := r.lostNow(ctx)
	if err != nil {
		if r.Alert || ctx.Err() != nil || errors.Is(err, ErrPanic) {
			return err
		}
		return nil // it is for a notice alone
	}
	lost := now.lost
	if !r.Alert {
		lost = lost.without(r.told)
	}
	if len(lost) > 0 {
		r.LeftOut("Nothing is seen %s at the end of this time: kube-state-metrics or the recording rules are away there, "+
			"and what is there is left out here.", lost.in())
	}
	if len(now.part) > 0 {
		r.LeftOut("Not all is seen %s at the end of this time: kube-state-metrics tells of less than 90 %% of the usual nodes, and more of "+
			"their exporters are scraped. Pods may run that are left out here, or shown as gone.", now.part.in())
	}
	if len(now.unnamed) > 0 {
		r.LeftOut("Experiments are not known any more %s, though pods of theirs run at the end of this time: they are left out here, or "+
			"shown as ended. kube-state-metrics has lost the labels of pods, or rule group experiment.pods fails; the health check of "+
			"the datasource says which.", now.unnamed.in())
	}
	return nil
}

// noticeLost says since when nothing is seen of clusters.
func (r *Run) noticeLost(clusters map[string]time.Time) {
	if len(clusters) == 0 {
		return
	}
	r.mu.Lock()
	if r.told == nil {
		r.told = set{}
	}
	for c := range clusters {
		r.told[c] = true
	}
	r.mu.Unlock()
	names, since := set{}, time.Time{}
	for c, at := range clusters {
		names[c], since = true, earlier(since, at)
	}
	r.Notice(data.NoticeSeverityWarning, "Nothing is seen %s since %s: kube-state-metrics or the recording rules are away there. "+
		"What was there then is shown as it was, and may run or have ended.", names.in(), since.UTC().Format(time.DateTime+" MST"))
}
