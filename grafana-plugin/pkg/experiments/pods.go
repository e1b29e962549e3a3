package experiments

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

const (
	// gone is the phase of a pod that was there in the range, is not any more, and neither
	// succeeded nor failed as far as was seen: somebody deleted it.
	gone = "Gone"
	// phaseUnknown is that of a pod whose kubelet says nothing, or that was there when its cluster
	// was seen last.
	phaseUnknown = "Unknown"
)

// podRow is a row of type pods.
type podRow struct {
	Pod
	phase, reason string
	exit          *int64
	restarts      int64
	gpus          float64
	created       time.Time // zero: not known
	age           *float64  // nil: not known
	seen          bool      // at the end of the range
}

// podOrder is the order of rows: what a person has to look at stands first.
var podOrder = []string{"Failed", "Unknown", "Pending", "Running", "Succeeded", gone}

// podsTable has a row for each pod, by uid, that was there in the range. GPUs are what it holds,
// held last, or asks for while it waits; the age of one that is gone is how long it was there.
// created is when it was seen first where kube_pod_created does not say. Either is empty where it
// is not known. exit_code is that of the last end of a container that was started again.
func podsTable(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return r.podFrames(nil), r.Empty(ctx, NeedPods, "pods")
	}
	answers, err := r.each(ctx, r.now(pods, phaseIs))
	if err != nil {
		return nil, err
	}
	phase := phaseOf(answers[0])
	silent, err := unphased(ctx, r, pods, phase)
	if err != nil {
		return nil, err
	}
	here, left := set{}, set{}
	rows := make([]podRow, len(pods))
	for i, p := range pods {
		rows[i] = podRow{Pod: p, phase: cmp.Or(phase[p.key()], gone), seen: phase[p.key()] != ""}
		if rows[i].seen {
			here[p.Cluster] = true
		} else {
			left[p.Cluster] = true
		}
	}
	lost, err := r.lost(ctx, left.without(here.with(silent)), r.lookStep(r.back()))
	if err != nil {
		return nil, err
	}
	for c := range silent {
		lost[c] = r.Until
	}
	for i := range rows { // what is not known stands before what has gone
		if _, ok := lost[rows[i].Cluster]; ok {
			rows[i].phase = phaseUnknown
		}
	}
	sortPods(rows)
	rows = limitRows(r, rows, "pods")
	if err := r.describe(ctx, rows, lost); err != nil {
		return nil, err
	}
	sortPods(rows) // the last phase of those that are gone is known now
	return r.podFrames(rows), nil
}

func sortPods(rows []podRow) {
	slices.SortFunc(rows, func(a, b podRow) int {
		return cmp.Or(cmp.Compare(slices.Index(podOrder, a.phase), slices.Index(podOrder, b.phase)), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), a.created.Compare(b.created), cmp.Compare(a.UID, b.UID))
	})
}

// describe fills in what is known of each pod: now of those that are there, in the range of those
// that are gone. lost are clusters of which nothing is seen any more, since when: since the end of
// the range where unphased has told of them.
func (r *Run) describe(ctx context.Context, rows []podRow, lost map[string]time.Time) error {
	var here, left []Pod
	for _, row := range rows {
		if row.seen {
			here = append(here, row.Pod)
		} else {
			left = append(left, row.Pod)
		}
	}
	both := func(f fact) []question { return append(r.now(here, f), r.last(left, f)...) }
	answers, err := r.each(
		ctx, r.last(left, phaseIs), both(createdAt), both(restartsOf), append(r.last(left, gpusHeld), r.now(here, gpusHeld)...),
		r.now(here, gpusAsked),
		both(exitCode), both(statusReason), r.now(here, waitingFor), r.now(here, initWaitingFor), both(terminatedBy),
		both(lastTerminatedBy), r.now(here, unschedulable),
	)
	if err != nil {
		return err
	}
	ended, created, restarts := phaseOf(answers[0]), valueOf(answers[1]), valueOf(answers[2])
	held, asked, exits := valueOf(answers[3]), valueOf(answers[4]), valueOf(answers[5])
	var unborn []Pod
	for _, row := range rows {
		if _, ok := created[row.key()]; !ok {
			unborn = append(unborn, row.Pod)
		}
	}
	first, err := r.sight(ctx, unborn, "min")
	if err != nil {
		return err
	}
	maps.Copy(first, created)
	seen, err := r.sight(ctx, left, "max")
	if err != nil {
		return err
	}
	why := causes{}
	why.add(answers[6], ofStatus)
	why.add(answers[7], ofWaiting)
	why.add(answers[8], ofWaiting)
	why.add(answers[9], ofTerminated)
	why.add(answers[10], ofLastTerminated)
	for _, s := range answers[11] {
		why.take(podOf(s.Labels), cause{ofUnschedulable, "Unschedulable", ""})
	}
	told := map[string]time.Time{}
	for i := range rows {
		row := &rows[i]
		k := row.key()
		last, isLost := lost[row.Cluster]
		_, wasSeen := seen[k]
		switch p := ended[k]; {
		case p == "Succeeded" || p == "Failed":
			row.phase = p
		case isLost && wasSeen && !r.lostWith(unixTime(seen[k]), last, r.lookStep(r.back())):
			row.phase = gone
		case isLost && last.Before(r.Until):
			told[row.Cluster] = last
		}
		row.reason, row.restarts = why[k].reason, int64(restarts[k])
		if code, ok := exits[k]; ok {
			n := int64(code)
			row.exit = &n
		}
		var holds bool
		if row.gpus, holds = held[k]; !holds && row.phase == "Pending" {
			row.gpus = asked[k]
		}
		if at, ok := first[k]; ok {
			row.created = unixTime(at)
		}
		if row.seen {
			row.lived(r.Until)
		} else if wasSeen {
			row.lived(unixTime(seen[k]))
		}
	}
	r.noticeLost(told)
	return nil
}

// lived fills in how old a pod was at a time, if it is known when it was created.
func (row *podRow) lived(until time.Time) {
	if !row.created.IsZero() {
		age := max(0, until.Sub(row.created).Seconds())
		row.age = &age
	}
}

func (r *Run) podFrames(rows []podRow) data.Frames {
	n := len(rows)
	experiment, team, cluster, namespace := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	pod, uid, node, phase, reason := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	exit, restarts, gpus := make([]*int64, n), make([]int64, n), make([]float64, n)
	created, age := make([]*time.Time, n), make([]*float64, n)
	for i, row := range rows {
		experiment[i], team[i], cluster[i], namespace[i] = row.Experiment, teamName(row.Team), row.Cluster, row.Namespace
		pod[i], uid[i], node[i], phase[i], reason[i] = row.Name, row.UID, row.Node, row.phase, row.reason
		exit[i], restarts[i], gpus[i], age[i] = row.exit, row.restarts, row.gpus, row.age
		if !row.created.IsZero() {
			created[i] = &row.created
		}
	}
	return data.Frames{table(
		column{"experiment", experiment, experimentLinks(r.Settings, allFields)}, column{name: "team", values: team},
		column{name: "cluster", values: cluster},
		column{name: "namespace", values: namespace}, column{"pod", pod, podLink(r.Settings)}, column{name: "uid", values: uid},
		column{"node", node, nodeLink(r.Settings)},
		column{name: "phase", values: phase}, column{name: "reason", values: reason}, column{name: "exit_code", values: exit},
		column{name: "restarts", values: restarts},
		column{name: "gpus", values: gpus}, column{name: "created", values: created}, column{"age", age, &data.FieldConfig{Unit: "s"}},
	)}
}
