package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// waiter is a pod that waits.
type waiter struct {
	Pod
	since          time.Time
	reason, detail string
}

// queues are the labels of pods that name the queue which may hold them back, and who does.
var queues = []struct{ label, keeper string }{
	{"label_kueue_x_k8s_io_queue_name", "Kueue"},
	{"label_volcano_sh_queue_name", "Volcano"},
}

// pendingTable has a row for each pod that waits at the end of the range, the one that waits
// longest first, and says what for.
func pendingTable(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsNow(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := r.each(ctx, r.now(pods, func(of selectPods) string {
		return "max by (" + byPod + ") (" + of("kube_pod_status_phase", `phase="Pending"`) + ")"
	}))
	if err != nil {
		return nil, err
	}
	waits := valueOf(answers[0]) // 0 of those that do not wait any more
	silent, err := unphased(ctx, r, pods, waits)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p Pod) bool { return waits[p.key()] != 1 })
	if len(pods) == 0 && len(silent) > 0 {
		return r.pendingFrames(nil), nil // nobody knows whether any waits
	}
	if len(pods) == 0 {
		return r.pendingFrames(nil), r.Empty(ctx, NeedPods, "pods that wait")
	}
	// Who waits longest is known before rows are cut; what for is asked of those that are shown.
	if answers, err = r.each(ctx, r.now(pods, createdAt)); err != nil {
		return nil, err
	}
	created := valueOf(answers[0])
	rows := make([]waiter, len(pods))
	for i, p := range pods {
		rows[i] = waiter{Pod: p, since: r.Until}
		if at, ok := created[p.key()]; ok {
			rows[i].since = unixTime(at)
		}
	}
	slices.SortStableFunc(rows, func(a, b waiter) int { return a.since.Compare(b.since) }) // of equal ones by the pods' order
	rows = limitRows(r, rows, "pods that wait")
	if err := r.explain(ctx, rows); err != nil {
		return nil, err
	}
	return r.pendingFrames(rows), nil
}

// explain fills in what each pod waits for.
func (r *Run) explain(ctx context.Context, rows []waiter) error {
	pods := make([]Pod, len(rows))
	for i, w := range rows {
		pods[i] = w.Pod
	}
	byQueue := byPod
	for _, q := range queues {
		byQueue += ", " + q.label
	}
	answers, err := r.each(
		ctx, r.now(pods, unschedulable), r.now(pods, scheduledAt), r.now(pods, waitingFor), r.now(pods, initWaitingFor),
		r.now(pods, gpusAsked),
		r.now(pods, func(of selectPods) string { return "max by (" + byQueue + ") (" + of("kube_pod_labels") + ")" }),
	)
	if err != nil {
		return err
	}
	unfit, scheduled, gpus := valueOf(answers[0]), valueOf(answers[1]), valueOf(answers[4])
	why, inits := causes{}, causes{}
	why.add(answers[2], ofWaiting)
	inits.add(answers[3], ofWaiting)
	labels := map[podKey]map[string]string{}
	for _, s := range answers[5] {
		labels[podOf(s.Labels)] = s.Labels
	}
	lines, err := r.queueLengths(ctx, answers[5])
	if err != nil {
		return err
	}
	for i := range rows {
		w := &rows[i]
		k := w.key()
		at, placed := scheduled[k]
		c, init := why[k], false
		if ic, ok := inits[k]; ok && (c.reason == "" || ic.rank <= c.rank) {
			c, init = ic, true
		}
		switch {
		case unfit[k] == 1:
			w.reason, w.detail = "Unschedulable", noRoom(gpus[k])
		case c.reason != "":
			w.reason, w.detail = c.reason, waitDetail(c, init, w.Node)
		case placed || w.Node != "":
			w.reason, w.detail = "ContainerCreating", "The kubelet of node "+w.Node+" has not begun to start its containers."
			if placed {
				w.detail = "The scheduler put it on node " + cmp.Or(w.Node, "(not yet known)") + " at " +
					unixTime(at).Format(time.TimeOnly) +
					" UTC; the kubelet there has not begun to start its containers."
			}
		default:
			w.reason = "NotScheduled"
			w.detail = "The scheduler has not tried it yet, or something holds it back: a scheduling gate, or a scheduler of its own that is not running."
			for _, q := range queues {
				if name := labels[k][q.label]; name != "" {
					w.reason = "Waits in a " + q.keeper + " queue"
					w.detail = q.keeper + " has not let it in from the queue " + name + lines[queueKey{w.Cluster, w.Namespace, name}] + "."
					break
				}
			}
		}
	}
	return nil
}

type queueKey struct{ cluster, namespace, name string }

// queueLengths says how many workloads wait in the Kueue queues that the pods name, where Kueue
// tells.
func (r *Run) queueLengths(ctx context.Context, labelled []prom.Series) (map[queueKey]string, error) {
	var named []prom.Series
	for _, s := range labelled {
		if q := s.Labels[queues[0].label]; q != "" {
			named = append(named, prom.Series{Labels: map[string]string{
				"cluster": s.Labels["cluster"], "namespace": s.Labels["namespace"], "name": q,
			}})
		}
	}
	ask := byValues(0, named, []string{"cluster", "namespace", "name"}, func(m ...string) question {
		return r.at("sum by (cluster, namespace, name) (max by (cluster, namespace, name, status) ("+
			Selector("kueue_local_queue_pending_workloads", m...)+"))", r.Until)
	})
	answers, err := r.each(ctx, ask)
	if err != nil {
		return nil, err
	}
	out := map[queueKey]string{}
	for _, s := range answers[0] {
		out[queueKey{s.Labels["cluster"], s.Labels["namespace"], s.Labels["name"]}] = fmt.Sprintf(", in which %g workloads wait", s.Value())
	}
	return out, nil
}

// noRoom is for a pod that the scheduler found no node for.
func noRoom(gpus float64) string {
	of := ""
	if gpus > 0 {
		of = " with " + strconv.FormatFloat(gpus, 'f', -1, 64) + " free GPUs"
	}
	return "The scheduler found no node" + of + " that fits: all are full, tainted, cordoned, or not what its selectors and affinities ask for."
}

// waitDetail is for a container that waits on a node.
func waitDetail(c cause, init bool, node string) string {
	what := "Container "
	if init {
		what = "Init container "
	}
	what += c.container
	where := ""
	if node != "" {
		where = " on node " + node
	}
	switch c.reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		return what + ": its image cannot be pulled" + where + ". Look at its name and tag, the pull secret, and whether the registry answers."
	case "CreateContainerConfigError", "CreateContainerError":
		return what + " cannot be made" + where + ": most often a ConfigMap or Secret that it names, or a key in it, is not there."
	case "CrashLoopBackOff":
		return what + " ends again and again" + where + ": look at its log."
	case "PodInitializing":
		return what + " waits until the init containers have done their work" + where + "."
	case "ContainerCreating":
		return what + " is being made" + where + ": its image is pulled, volumes and network are set up."
	}
	return what + " waits" + where + ": " + c.reason + "."
}

func (r *Run) pendingFrames(rows []waiter) data.Frames {
	n := len(rows)
	experiment, team, cluster, namespace := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	pod, uid, reason, detail := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	since, waited := make([]time.Time, n), make([]float64, n)
	for i, w := range rows {
		experiment[i], team[i], cluster[i], namespace[i] = w.Experiment, teamName(w.Team), w.Cluster, w.Namespace
		pod[i], uid[i], reason[i], detail[i] = w.Name, w.UID, w.reason, w.detail
		since[i], waited[i] = w.since, max(0, r.Until.Sub(w.since).Seconds())
	}
	return data.Frames{table(
		column{"experiment", experiment, experimentLinks(r.Settings, allFields)}, column{name: "team", values: team},
		column{name: "cluster", values: cluster},
		column{name: "namespace", values: namespace}, column{"pod", pod, podLink(r.Settings)}, column{name: "uid", values: uid},
		column{name: "since", values: since},
		column{"waited", waited, &data.FieldConfig{Unit: "s"}}, column{name: "reason", values: reason},
		column{name: "detail", values: detail},
	)}
}
