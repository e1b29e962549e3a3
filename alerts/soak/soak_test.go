package soak

import (
	"flag"
	"runtime/debug"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

var (
	days  = flag.Float64("soak.days", 1, "simulated days")
	nodes = flag.Int("soak.nodes", 12, "nodes of the simulated cluster")
	seed  = flag.Uint64("soak.seed", 0, "draws the cluster and what happens to it; 0 is that of the commit")
	all   = flag.Bool("soak.all", false, "the control plane's alerts too")
)

// kinds are all that the model knows of: how GPUs are shared, what systems mount read-only, and
// the DCGM that the rules are not rendered for.
var kinds = []cluster.NodeKind{
	{},
	{System: cluster.ContainerOptimized, Microseconds: true},
	{System: cluster.Bottlerocket, Sharing: cluster.TimeSliced},
	{System: cluster.Talos, Sharing: cluster.MIGMixed},
	{System: cluster.Bottlerocket},
	{Sharing: cluster.MIGSingle},
}

// shipped are the committed rules.
func shipped() Rules { return Rules{Global: alerts.Global(), Shard: alerts.Shard()} }

// TestSoak holds the rules to what they promise: at most one false auto in 1,000 node-days, no
// false page, nothing missed.
func TestSoak(t *testing.T) {
	// What an evaluation makes is gone after it: collecting it at every few MiB is a sixth of the
	// time. A fleet holds gigabytes, of which there are not six times as many.
	defer debug.SetGCPercent(debug.SetGCPercent(500))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(9 << 30))
	r, err := Run(t.Context(), Options{
		Rules: shipped(), All: *all, Seed: randseed.Of(t, *seed), Length: time.Duration(*days * float64(day)),
		Cluster: cluster.Options{Nodes: *nodes, GPUsPerNode: 4, NodesPerRack: 2, NodeKinds: kinds}, Say: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s\n%s", r, r.Spent())
	if wrong := len(r.False("auto")); float64(wrong) > r.NodeDays()/1000 {
		t.Errorf("%d false alerts of severity auto in %.0f node-days; one in 1,000 is allowed", wrong, r.NodeDays())
	}
	if n := len(r.False("critical")); n > 0 {
		t.Errorf("%d false pages", n)
	}
	if n := len(r.Missed); n > 0 {
		t.Errorf("%d alerts are missing", n)
	}
}
