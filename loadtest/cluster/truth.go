package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What a test or a view that looked at the pages should have come to know: the model's own word for
// it.

// Pod is one pod of an experiment, in one attempt. Moments are those of the model; pages show them
// from the next scrape on.
type Pod struct {
	// Experiment is the label, that of Options.Called where it has one; Gang is the experiment's
	// name in Experiments. Team is empty where nobody has the pod.
	Experiment, Gang, Team string
	Namespace, Name, UID   string
	// Node is where it was scheduled, empty where it never was. GPUs are those of the node that it
	// holds.
	Node string
	GPUs []int
	// Share is the part of each of them that it holds: 1, or less of a GPU that is shared or cut.
	Share float64
	// Attempt counts from 0 how often the gang was made anew before.
	Attempt int
	// Scheduled, Started and Ended are zero where that never happened before Removed; Created ≤
	// Scheduled ≤ Started ≤ Ended ≤ Removed otherwise.
	Created, Scheduled, Started, Ended, Removed time.Time
	// Failed says that it ended in phase Failed; else it is Succeeded.
	Failed bool
	// Restarts are the spans in which its container was dead before it came back.
	Restarts []Span
}

// Pods lists the pods of experiments that exist at some time within [from, until], by namespace,
// name and time. Pods of daemons are not among them. Its cost grows with nodes and hours.
func (m *Model) Pods(from, until time.Time) []Pod {
	var out []Pod
	m.eachExperiment(from.UnixMilli(), until.UnixMilli(), func(e *experiment) {
		name, team := m.called(e)
		e.pods(from.UnixMilli(), until.UnixMilli(), func(q *pod) {
			p := Pod{
				Experiment: name, Gang: e.name, Team: team, Namespace: q.space.name, Name: q.name, UID: q.uid, Attempt: q.n,
				Created: time.UnixMilli(q.a.created), Removed: time.UnixMilli(q.a.removed), Share: q.share(),
			}
			if q.a.scheduled < q.a.removed {
				p.Node, p.Scheduled = m.nodeName(q.node), time.UnixMilli(q.a.scheduled)
			}
			if q.a.started < q.a.ended {
				p.Started, p.Ended, p.Failed = time.UnixMilli(q.a.started), time.UnixMilli(q.a.ended), q.a.failed
			}
			for g := q.gpu; g < q.gpu+q.gpus; g++ {
				p.GPUs = append(p.GPUs, g)
			}
			for _, r := range q.a.inPlace {
				p.Restarts = append(p.Restarts, Span{time.UnixMilli(r.died), time.UnixMilli(r.back)})
			}
			out = append(out, p)
		})
	})
	slices.SortFunc(out, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), a.Created.Compare(b.Created))
	})
	return out
}

// called is what the experiment's label_experiment says, or JobSet's label where it has no other,
// and the team that it belongs to.
func (m *Model) called(e *experiment) (name, team string) {
	c := m.o.Called[e.name]
	return cmp.Or(c.Experiment, e.name), cmp.Or(c.Team, e.space.team)
}

// GPU is one GPU of a node.
type GPU struct {
	// UUID and Model are as DCGM names them.
	UUID, Model string
}

// GPU is the one of a node and index; an error says what the cluster has.
func (m *Model) GPU(node string, gpu int) (GPU, error) {
	n, err := m.indexOf(node)
	if err != nil {
		return GPU{}, err
	}
	if gpu < 0 || gpu >= m.o.GPUsPerNode {
		return GPU{}, fmt.Errorf("%s has GPUs 0 to %d, and no %d", node, m.o.GPUsPerNode-1, gpu)
	}
	return GPU{UUID: m.gpuUUID(n, gpu), Model: m.gpuModel(n).name}, nil
}

// Xid is one that a GPU reported.
type Xid struct {
	GPU  int
	Code int
	At   time.Time
}

// Xids lists what the GPUs of a node reported within [from, until), by time: those of jobs and
// those of staged troubles. DCGM_FI_DEV_XID_ERRORS has the last one until the machine is restarted.
func (m *Model) Xids(node string, from, until time.Time) ([]Xid, error) {
	n, err := m.indexOf(node)
	if err != nil {
		return nil, err
	}
	var out []Xid
	for gpu, list := range m.host(n, from.UnixMilli(), until.UnixMilli()).xids {
		for _, x := range list {
			if at := time.UnixMilli(x.from); !at.Before(from) && at.Before(until) {
				out = append(out, Xid{gpu, int(x.value), at})
			}
		}
	}
	slices.SortFunc(out, func(a, b Xid) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Code, b.Code))
	})
	return out, nil
}

func (m *Model) indexOf(name string) (int, error) {
	n, ok := nodeIndex(name)
	if !ok || n >= m.o.Nodes {
		return 0, fmt.Errorf("the cluster has nodes %s to %s, and no %q", m.nodeName(0), m.nodeName(m.o.Nodes-1), name)
	}
	return n, nil
}
