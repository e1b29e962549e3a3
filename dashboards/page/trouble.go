package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// stagings say what of a cluster a kind of trouble is staged on, so that a picture of it needs no
// more than the kind's name. Targets that the model draws from its seed, such as the names of
// experiments, are looked up.
var stagings = map[cluster.Kind]struct {
	target func(*cluster.Model, time.Time) string
	value  float64
	late   bool // its target depends on what the others do to the cluster
}{
	cluster.NodeDown:                  {target: node(2)},
	cluster.NodeUnreachable:           {target: node(3)},
	cluster.NodeCutOff:                {target: node(3)},
	cluster.NodeNotReady:              {target: word("fleet"), value: 0.15},
	cluster.NodeDiskFull:              {target: node(4)},
	cluster.NodeCordoned:              {target: node(10)},
	cluster.NodesReserved:             {target: word("fleet"), value: 0.5},
	cluster.NodeDiskReadOnly:          {target: node(5)},
	cluster.NodeDiskError:             {target: node(5)},
	cluster.NodeARPTableFilling:       {target: node(6)},
	cluster.NodeARPTableOverflow:      {target: node(6)},
	cluster.EgressJump:                {target: word(cluster.WholeCluster), value: 30},
	cluster.NetworkAccountingLost:     {target: word("fleet"), value: 0.4},
	cluster.GPUXidFatal:               {target: gpu(7, 1), value: 79},
	cluster.GPUUncorrectableECC:       {target: gpu(7, 3), value: 3},
	cluster.GPUCorrectableECC:         {target: gpu(7, 4)},
	cluster.GPURowRemapFailure:        {target: gpu(8, 0)},
	cluster.GPURowRemapPending:        {target: gpu(8, 1)},
	cluster.GPUHot:                    {target: gpu(0, 2)},
	cluster.GPUThrottled:              {target: gpu(0, 2)},
	cluster.GPUSlow:                   {target: gpu(0, 3)},
	cluster.GPUNVLinkErrors:           {target: gpu(1, 4)},
	cluster.GPUPCIeReplay:             {target: gpu(1, 5), value: 12},
	cluster.GPUExporterGone:           {target: node(9)},
	cluster.GPUAllocatedIdle:          {target: experiment, late: true},
	cluster.PodFailure:                {target: experiment, value: 79, late: true},
	cluster.DNSErrors:                 {target: word(cluster.WholeCluster)},
	cluster.DNSSlow:                   {target: word(cluster.WholeCluster)},
	cluster.APIThrottlingInFlight:     {target: word(cluster.WholeCluster)},
	cluster.APIErrors:                 {target: word(cluster.WholeCluster)},
	cluster.APISlow:                   {target: word(cluster.WholeCluster)},
	cluster.APIAggregatorDown:         {target: word(cluster.WholeCluster)},
	cluster.APIServerMemory:           {target: instance(cluster.JobAPIServer)},
	cluster.APIWatchTraffic:           {target: word("pods")},
	cluster.EtcdFsyncSlow:             {target: instance(cluster.JobEtcd)},
	cluster.EtcdDBGrows:               {target: word(cluster.JobEtcd)},
	cluster.EtcdLeaderChurn:           {target: word(cluster.JobEtcd)},
	cluster.PodsPendingGPUsFree:       {target: word(cluster.WholeCluster)},
	cluster.AutoscalerStuck:           {target: word(cluster.WholeCluster)},
	cluster.AutoscalerScaleUpFailing:  {target: word(cluster.WholeCluster)},
	cluster.PrometheusMemoryNearLimit: {target: instance(cluster.JobPrometheus)},
	cluster.CardinalityJump:           {target: word(cluster.JobNode)},
}

func word(w string) func(*cluster.Model, time.Time) string {
	return func(*cluster.Model, time.Time) string { return w }
}

// node is the nth node, or the last of a smaller cluster.
func node(n int) func(*cluster.Model, time.Time) string {
	return func(m *cluster.Model, _ time.Time) string {
		return fmt.Sprintf("gpu-%05d", min(n, m.Options().Nodes-1))
	}
}

func gpu(n, g int) func(*cluster.Model, time.Time) string {
	return func(m *cluster.Model, at time.Time) string { return fmt.Sprintf("%s/%d", node(n)(m, at), g) }
}

// instance is the first target of a job.
func instance(job string) func(*cluster.Model, time.Time) string {
	return func(m *cluster.Model, _ time.Time) string {
		for _, t := range m.Targets() {
			if t.Job == job {
				return t.Instance
			}
		}
		return ""
	}
}

// experiment stands for whichever runs: its name is drawn from the seed, and other troubles may
// keep it from running.
func experiment(*cluster.Model, time.Time) string { return "" }

// onExperiment stages k on the widest experiment that, with the others staged, runs long enough for
// the model to take it; false where there is none.
func onExperiment(m *cluster.Model, others []cluster.Trouble, k cluster.Trouble) (cluster.Trouble, bool) {
	running := m.Experiments(k.From, k.From.Add(time.Second))
	slices.SortStableFunc(running, func(a, b cluster.Experiment) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
	for _, e := range running {
		o := m.Options()
		k.Target = e.Name
		o.Troubles = append(slices.Clone(others), k)
		if _, err := cluster.New(o); err == nil {
			return k, true
		}
	}
	return k, false
}

// TroubleKinds are the kinds that Stage knows, sorted.
func TroubleKinds() []string {
	var names []string
	for k := range stagings {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return names
}

// Stage chooses troubles by the names of their kinds, with commas between or as a list; `all` is
// every kind. They begin 25 minutes before the demo does and do not end while anybody looks; one
// that no experiment of a small cluster can have is left out. Only the first cluster has them: the
// second shows what is normal.
func Stage(names []string) (func(m *cluster.Model, now time.Time) []cluster.Trouble, error) {
	var kinds []cluster.Kind
	for _, name := range strings.FieldsFunc(strings.Join(names, ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		if name == "all" {
			for _, k := range TroubleKinds() {
				kinds = append(kinds, cluster.Kind(k))
			}
			continue
		}
		if _, ok := stagings[cluster.Kind(name)]; !ok {
			return nil, fmt.Errorf("there is no trouble %q to stage; there are %s", name, strings.Join(TroubleKinds(), ", "))
		}
		kinds = append(kinds, cluster.Kind(name))
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	slices.SortStableFunc(kinds, func(a, b cluster.Kind) int { // the late ones last
		switch {
		case stagings[a].late == stagings[b].late:
			return 0
		case stagings[a].late:
			return 1
		default:
			return -1
		}
	})
	first := ""
	return func(m *cluster.Model, now time.Time) []cluster.Trouble {
		if first == "" {
			first = m.Options().Cluster
		}
		if m.Options().Cluster != first {
			return nil
		}
		from := now.Add(-25 * time.Minute)
		var out []cluster.Trouble
		for _, k := range kinds {
			trouble := cluster.Trouble{
				Kind: k, Target: stagings[k].target(m, from), From: from, Until: now.Add(24 * time.Hour),
				Value: stagings[k].value,
			}
			ok := true
			if stagings[k].late {
				trouble, ok = onExperiment(m, out, trouble)
			}
			if ok {
				out = append(out, trouble)
			}
		}
		return out
	}, nil
}
