package live

import (
	"fmt"
	"slices"
	"time"

	rehearsal "github.com/spillwayproject/spillway/alerts/live"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// others are the kinds that no case of alerts/live stages: whom they befall, and how much.
var others = map[cluster.Kind]rehearsal.Case{
	cluster.NodeDown:         {Target: rehearsal.OnNode},
	cluster.ProcessRestart:   {Target: restarted},
	cluster.PodFailure:       {Value: 79},
	cluster.EgressJump:       {Target: rehearsal.Named(cluster.WholeCluster), Value: 20},
	cluster.GPUAllocatedIdle: {},
	cluster.CardinalityJump:  {Target: rehearsal.Named(cluster.JobKubelet)},
	cluster.GangHalfPending:  {},
	cluster.NodeCordoned:     {Target: rehearsal.OnNode},
	cluster.NodesReserved:    {Target: rehearsal.Named("fleet"), Value: 0.5},
	// One that the device survives, so that there is somebody to count it, and beside it one that it does not.
	cluster.GPUXidFatal: {Target: rehearsal.OnGPU, Value: 95, Also: []rehearsal.Part{{Kind: cluster.GPUXidFatal, Target: onNextGPU, Value: 79}}},
}

func restarted(w *rehearsal.World, n int) (string, error) {
	at, err := rehearsal.OnInstance(cluster.JobAPIServer)(w, n)
	return cluster.JobAPIServer + "/" + at, err
}

// patient are the kinds whose alerts wait for more than a quarter of an hour, or whose panels count what has lasted for half an hour.
var patient = []cluster.Kind{cluster.AutoscalerStuck, cluster.GangHalfPending, cluster.GPUExporterGone, cluster.NetworkAccountingLost, cluster.PodsPendingGPUsFree, cluster.PrometheusReplaying}

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
	if c, ok := others[kind]; ok {
		return c, true
	}
	i := slices.IndexFunc(rehearsal.Cases, func(c rehearsal.Case) bool { return c.Kind == kind })
	if i < 0 {
		return rehearsal.Case{}, false
	}
	return rehearsal.Cases[i], true
}

// stage gives the troubles of one kind and what belongs to it. n tells kinds apart, so that each has a node of its own.
func stage(w *rehearsal.World, kind cluster.Kind, n int, from, until time.Time) ([]cluster.Trouble, error) {
	c, ok := caseOf(kind)
	if !ok {
		return nil, fmt.Errorf("nothing is known of how to stage %s: add it to others in dashboards/live/stage.go", kind)
	}
	n %= w.Options().Nodes
	if c.Target == nil {
		c.Target = func(w *rehearsal.World, _ int) (string, error) { return gang(w.Model(), from, until) }
	}
	target, err := c.Target(w, n)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", kind, err)
	}
	out := []cluster.Trouble{{Kind: kind, Target: target, Value: c.Value, From: from, Until: until}}
	for _, part := range c.Also {
		at := target
		if part.Target != nil {
			if at, err = part.Target(w, n); err != nil {
				return nil, fmt.Errorf("stage %s beside %s: %w", part.Kind, kind, err)
			}
		}
		out = append(out, cluster.Trouble{Kind: part.Kind, Target: at, Value: part.Value, From: from, Until: until})
	}
	return out, nil
}

// gang is an experiment of at least two pods that runs all the time.
func gang(m *cluster.Model, from, until time.Time) (string, error) {
	for _, e := range m.Experiments(from, until) {
		for _, r := range e.Runs {
			if len(e.Nodes) > 1 && !r.From.After(from) && r.Until.After(until) {
				return e.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no experiment of two pods runs from %s to %s", from, until)
}
