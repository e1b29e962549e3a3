package experiments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// podKey is what tells pods apart: a name is used again after a restart, a uid never.
type podKey struct{ cluster, namespace, name, uid string }

func (p Pod) key() podKey { return podKey{p.Cluster, p.Namespace, p.Name, p.UID} }

func podOf(labels map[string]string) podKey {
	return podKey{labels["cluster"], labels["namespace"], labels["pod"], labels["uid"]}
}

// byPod are the labels of podKey in PromQL.
const byPod = "cluster, namespace, pod, uid"

// selectPods writes a selector of a metric that only exactly these pods have.
type selectPods func(metric string, matchers ...string) string

// onUIDs makes the questions about exactly these pods, as many in each as fit: by uid, which is one
// pod's in all namespaces, or by name where kube-state-metrics gives none.
func onUIDs(pods []Pod, ask func(of selectPods) question) []question {
	var out []question
	add := func(s scope, labels ...string) {
		var chosen []string
		for i, value := range s.outer {
			chosen = append(chosen, OneOf(labels[i], value))
		}
		chosen = append(chosen, OneOf(labels[len(labels)-1], s.names...))
		out = append(out, ask(func(metric string, matchers ...string) string {
			return Selector(metric, append(chosen[:len(chosen):len(chosen)], matchers...)...)
		}))
	}
	for _, s := range scopes(pods, func(p Pod) ([]string, string) { return []string{p.Cluster}, p.UID }) {
		add(s, "cluster", "uid")
	}
	var named []Pod
	for _, p := range pods {
		if p.UID == "" {
			named = append(named, p)
		}
	}
	for _, s := range scopes(named, func(p Pod) ([]string, string) { return []string{p.Cluster, p.Namespace}, p.Name }) {
		add(s, "cluster", "namespace", "pod")
	}
	return out
}

// fact is an expression about pods, over the selectors that of writes.
type fact func(of selectPods) string

// highest is a metric's greatest value for each pod, and for each value of the labels more, where
// it is as that says: a pod can be scraped by more than one kube-state-metrics at a time.
func highest(metric, more, that string) fact {
	return func(of selectPods) string { return "max by (" + byPod + more + ") (" + of(metric) + ")" + that }
}

// added is the sum over each pod's containers.
func added(metric string, matchers ...string) fact {
	return func(of selectPods) string {
		return "sum by (" + byPod + ") (max by (" + byPod + ", container) (" + of(metric, matchers...) + "))"
	}
}

const byReason = ", container, reason"

var (
	phaseIs       = highest("kube_pod_status_phase", ", phase", " == 1")
	createdAt     = highest("kube_pod_created", "", "")
	scheduledAt   = highest("kube_pod_status_scheduled_time", "", "")
	unschedulable = highest("kube_pod_status_unschedulable", "", " == 1")
	restartsOf    = added("kube_pod_container_status_restarts_total")
	gpusHeld      = highest("experiment:pod:gpus", "", "")
	// what containers ask for: that of pods which wait
	gpusAsked = added("kube_pod_container_resource_requests", `resource="nvidia_com_gpu"`)
	exitCode  = highest("kube_pod_container_status_last_terminated_exitcode", "", "")

	waitingFor       = highest("kube_pod_container_status_waiting_reason", byReason, " > 0")
	initWaitingFor   = highest("kube_pod_init_container_status_waiting_reason", byReason, " > 0")
	terminatedBy     = highest("kube_pod_container_status_terminated_reason", byReason, " > 0")
	lastTerminatedBy = highest("kube_pod_container_status_last_terminated_reason", byReason, " > 0")
	// there only while it is set, in newer versions; zero in older ones
	statusReason = highest("kube_pod_status_reason", ", reason", " > 0")
)

// now are the questions what the facts are at the end of the range.
func (r *Run) now(pods []Pod, f fact) []question {
	return onUIDs(pods, func(of selectPods) question { return r.at(f(of), r.Until) })
}

// last are those what they were when they were last seen in the range: of pods that are gone.
func (r *Run) last(pods []Pod, f fact) []question {
	return onUIDs(pods, func(of selectPods) question {
		return r.at(f(func(metric string, matchers ...string) string {
			return "last_over_time(" + of(metric, matchers...) + "[" + seconds(r.back()) + "])"
		}), r.Until)
	})
}

// valueOf has the value for each pod.
func valueOf(series []prom.Series) map[podKey]float64 {
	out := make(map[podKey]float64, len(series))
	for _, s := range series {
		out[podOf(s.Labels)] = s.Value()
	}
	return out
}

// phaseOf has the phase of each pod. Where copies of kube-state-metrics do not agree for a moment,
// the later one counts.
func phaseOf(series []prom.Series) map[podKey]string {
	out := make(map[podKey]string, len(series))
	for _, s := range series {
		k := podOf(s.Labels)
		if old, ok := out[k]; !ok || slices.Index(phases, s.Labels["phase"]) > slices.Index(phases, old) {
			out[k] = s.Labels["phase"]
		}
	}
	return out
}

// phases of a pod, in the order in which it goes through them.
var phases = []string{"Unknown", "Pending", "Running", "Succeeded", "Failed"}

// cause is why a pod does not do its work.
type cause struct {
	rank              int // less is worse
	reason, container string
}

// causes has the worst cause of each pod; of equal ones the first by name.
type causes map[podKey]cause

func (m causes) add(series []prom.Series, rank func(reason string) int) {
	for _, s := range series {
		m.take(podOf(s.Labels), cause{rank(s.Labels["reason"]), s.Labels["reason"], s.Labels["container"]})
	}
}

func (m causes) take(k podKey, c cause) {
	old, ok := m[k]
	if !ok || cmp.Or(cmp.Compare(c.rank, old.rank), cmp.Compare(c.reason, old.reason), cmp.Compare(c.container, old.container)) < 0 {
		m[k] = c
	}
}

// Ranks of causes, the worst first: what ended the whole pod, what keeps a container from starting,
// what ended it, what is only on its way.
func ofStatus(string) int { return 0 }

func ofWaiting(reason string) int {
	if reason == "ContainerCreating" || reason == "PodInitializing" {
		return 5
	}
	return 1
}

func ofTerminated(reason string) int {
	if reason == "Completed" {
		return 6
	}
	return 2
}

const ofUnschedulable = 3

func ofLastTerminated(reason string) int {
	if reason == "Completed" {
		return 7
	}
	return 4
}

// unixTime is the time of a value in seconds since 1970.
func unixTime(v float64) time.Time { return time.UnixMilli(int64(v * 1000)).UTC() }

// sight asks when pods were first ("min") or last ("max") there in the range, in seconds since
// 1970. Those that are not seen at the points at which it looks were there for a short time only:
// they are looked at in each Interval.
func (r *Run) sight(ctx context.Context, pods []Pod, which string) (map[podKey]float64, error) {
	out := map[podKey]float64{}
	for _, step := range slices.Compact([]time.Duration{r.lookStep(r.back()), wholeSeconds(r.Settings.Interval())}) {
		pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { _, ok := out[p.key()]; return ok })
		answers, err := r.each(ctx, onUIDs(pods, func(of selectPods) question {
			return r.at(fmt.Sprintf("%[1]s by (%[2]s) (%[1]s_over_time((timestamp(%[3]s))[%[4]s:%[5]s]))", which, byPod,
				of("experiment:pod:info"), seconds(r.back()), seconds(step)), r.Until)
		}))
		if err != nil {
			return nil, err
		}
		maps.Copy(out, valueOf(answers[0]))
	}
	return out, nil
}

func teamName(team string) string { return cmp.Or(team, unassigned) }
