package live

import (
	"fmt"
	"slices"
	"time"

	rehearsal "github.com/spillwayproject/spillway/alerts/live"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// others are the kinds that no case of alerts/live stages: whom they befall, and how much. Without
// a target it is a gang or, where a kind is on a GPU, the first one of a gang.
var others = map[cluster.Kind]rehearsal.Case{
	cluster.NodeDown:          {Target: rehearsal.OnNode},
	cluster.ProcessRestart:    {Target: restarted},
	cluster.PodFailure:        {Value: 79},
	cluster.EgressJump:        {Target: rehearsal.Named(cluster.WholeCluster), Value: 20},
	cluster.GPUAllocatedIdle:  {},
	cluster.CardinalityJump:   {Target: rehearsal.Named(cluster.JobKubelet)},
	cluster.GangHalfPending:   {},
	cluster.GPUCorrectableECC: {Target: rehearsal.OnGPU},
	cluster.NodeCordoned:      {Target: rehearsal.OnNode},
	cluster.NodesReserved:     {Target: rehearsal.Named("fleet"), Value: 0.5},
	cluster.GPUSlow:           {Value: 0.25},
	// One that the device survives, so that there is somebody to count it, and beside it one that
	// it does not.
	cluster.GPUXidFatal: {
		Target: rehearsal.OnGPU, Value: 95,
		Also: []rehearsal.Part{{Kind: cluster.GPUXidFatal, Target: onNextGPU, Value: 79}},
	},
}

func restarted(w *rehearsal.World, n int) (string, error) {
	at, err := rehearsal.OnInstance(cluster.JobAPIServer)(w, n)
	return cluster.JobAPIServer + "/" + at, err
}

// patient are the kinds whose alerts wait for more than a quarter of an hour, or whose panels count
// what has lasted for half an hour.
var patient = []cluster.Kind{
	cluster.AutoscalerStuck, cluster.GangHalfPending, cluster.GPUExporterGone, cluster.NetworkAccountingLost,
	cluster.PodsPendingGPUsFree, cluster.PrometheusReplaying,
}

// flapping are kinds of this package: a trouble of the cluster that comes, goes and comes back
// within its stretch, so that its alert does.
var flapping = map[cluster.Kind]cluster.Kind{"NodeDiskReadOnlyFlapping": cluster.NodeDiskReadOnly}

// times is how often what flaps is there.
const times = 3

// lastsFor is how long a kind is staged.
func lastsFor(kind cluster.Kind) time.Duration {
	if slices.Contains(patient, kind) {
		return lastsLong
	}
	return lasts
}

// onNextGPU is another GPU of the node that OnGPU takes.
func onNextGPU(w *rehearsal.World, n int) (string, error) {
	node, err := rehearsal.OnNode(w, n)
	return fmt.Sprintf("%s/%d", node, (n+1)%8), err
}

// caseOf is how a kind is staged: as in the rehearsal of alerts where that has it.
func caseOf(kind cluster.Kind) (rehearsal.Case, bool) {
	if of, ok := flapping[kind]; ok {
		kind = of
	}
	if c, ok := others[kind]; ok {
		c.Kind = kind
		return c, true
	}
	i := slices.IndexFunc(rehearsal.Cases, func(c rehearsal.Case) bool { return c.Kind == kind })
	if i < 0 {
		return rehearsal.Case{}, false
	}
	return rehearsal.Cases[i], true
}

// flaps are the stretches in which a trouble that flaps is there, of the time that it has, with
// equal pauses.
func flaps(t cluster.Trouble) []cluster.Trouble {
	part := t.Until.Sub(t.From) / (2*times - 1)
	var out []cluster.Trouble
	for i := range times {
		one := t
		one.From = t.From.Add(time.Duration(2*i) * part)
		one.Until = one.From.Add(part)
		out = append(out, one)
	}
	return out
}

// stage gives the troubles of one kind and what belongs to it. n tells kinds apart, so that each
// has a node of its own.
func stage(w *rehearsal.World, kind cluster.Kind, n int, from, until time.Time) ([]cluster.Trouble, error) {
	c, ok := caseOf(kind)
	if !ok {
		return nil, fmt.Errorf("nothing is known of how to stage %s: add it to others in dashboards/live/stage.go", kind)
	}
	if c.Target == nil {
		c.Target = func(w *rehearsal.World, _ int) (string, error) {
			e, err := gang(w.Model(), from, until)
			if kind == cluster.GPUSlow && err == nil {
				return e.Nodes[0] + "/0", nil
			}
			return e.Name, err
		}
	}
	out, err := c.Troubles(w, n%w.Options().Nodes, from, until)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", kind, err)
	}
	if _, ok := flapping[kind]; ok {
		out = append(flaps(out[0]), out[1:]...)
	}
	return out, nil
}

// gang is an experiment of at least two pods that runs all the time.
func gang(m *cluster.Model, from, until time.Time) (cluster.Experiment, error) {
	for _, e := range m.Experiments(from, until) {
		for _, r := range e.Runs {
			if len(e.Nodes) > 1 && !r.From.After(from) && r.Until.After(until) {
				return e, nil
			}
		}
	}
	return cluster.Experiment{}, fmt.Errorf("no experiment of two pods runs from %s to %s", from, until)
}
