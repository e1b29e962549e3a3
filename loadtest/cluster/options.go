package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Detail says how many of the families that a real server exports a page has.
type Detail int

const (
	// Lean is the core of what dashboards and alerts of a GPU cluster look at:
	// about 463 series for each node of eight GPUs, 526 with AllExporters. It is
	// the zero value.
	Lean Detail = iota
	// Full is nearly everything that the real servers export: about 2,400
	// series for each node, and API servers as wide as real ones.
	Full
)

// Options says which cluster to model. The zero value of every field but Nodes
// is usable.
type Options struct {
	// Seed chooses one of the possible clusters: names, placements, failures and
	// values. 0 is a seed like any other.
	Seed uint64
	// Cluster is the cluster's name. It seeds names (two clusters of one seed
	// differ) but is on no series: that is what external labels and
	// BackfillOptions.ExternalTargetLabels are for. "" means "sim".
	Cluster string
	// Nodes is the number of GPU nodes, 1 to 100,000.
	Nodes int
	// GPUsPerNode is 1 to 16; 0 means 8.
	GPUsPerNode int
	// CPUsPerNode is the number of CPUs that node_exporter tells apart; 0 means 2.
	// A real GPU node has 192 of them, which would drown everything else.
	CPUsPerNode int
	// GPUModels are the models in use; racks are uniform. Empty means H100 and H200.
	GPUModels []string
	// NodesPerRack is 16 where it is 0.
	NodesPerRack int
	// APIServers is the number of API server instances; 0 means 2.
	APIServers int
	// KubeStateMetrics is the number of its instances, each of which shows everything;
	// 0 means 1.
	KubeStateMetrics int
	// FirstGang is the number of nodes of the first pool's gangs, which may be more
	// than the 64 of the widest that are drawn; 0 draws it like the others.
	FirstGang int
	// Called gives the pods of experiments other labels than their own, by the
	// experiment's name: so several gangs, or gangs of several clusters, are one run.
	Called map[string]Called
	// CustomResources adds kinds of custom resources to the API servers, each
	// of which costs about 480 (Lean) or 740 (Full) series on each instance, most
	// of them buckets. It is how a small cluster gets a wide API server.
	CustomResources int
	// IdleShare is the share of nodes that no experiment uses, 0 to 1.
	IdleShare float64
	// Detail is Lean where it is 0.
	Detail Detail
	// Exporters are those that the cluster has beside the ones that all have; 0
	// means none of them.
	Exporters Exporters
	// NodeKinds are how the nodes of racks are set up, in turn; racks are uniform. Empty means the
	// zero NodeKind alone. Experiments on shares and slices have one of them.
	NodeKinds []NodeKind
	// Claims says that pods have their GPUs through ResourceClaims (dynamic resource
	// allocation): kube-state-metrics counts none, dcgm-exporter names who has which.
	Claims bool
	// NodeExporterOffHost says that node_exporter runs outside the host's network
	// namespace, as it does where its manifest forgets hostNetwork: it does not see
	// the ARP table's limit nor its overflows, and counts the neighbours of its own
	// pod, one at most.
	NodeExporterOffHost bool
	// Start is when the cluster was built; nothing can be asked about earlier
	// times. Zero means 2020-01-01 UTC. Servers are restarted every few days of
	// model time, so counters stay small.
	Start time.Time
	// Troubles are staged on the time line beside those drawn from the seed.
	Troubles []Trouble
}

// Called is what the labels of an experiment's pods say.
type Called struct {
	// Experiment is label_experiment, of experiments too that have only JobSet's label
	// otherwise. It is text of any sort, more than Kubernetes takes.
	Experiment string
	// Team is label_team; where it is empty the namespace's team stays.
	Team string
}

// Validate returns everything that is wrong with o, each line with its field. Of
// troubles of the control plane and of pods New checks the targets too.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Nodes < 1 || o.Nodes > 100000 {
		bad("nodes: %d is outside 1 to 100000", o.Nodes)
	}
	if o.GPUsPerNode < 0 || o.GPUsPerNode > 16 {
		bad("gpus_per_node: %d is outside 0 (means 8) to 16", o.GPUsPerNode)
	}
	if o.CPUsPerNode < 0 || o.CPUsPerNode > 1024 {
		bad("cpus_per_node: %d is outside 0 (means 2) to 1024", o.CPUsPerNode)
	}
	if o.NodesPerRack < 0 {
		bad("nodes_per_rack: %d is negative; leave it 0 for 16", o.NodesPerRack)
	}
	if o.APIServers < 0 || o.APIServers > 64 {
		bad("api_servers: %d is outside 0 (means 2) to 64", o.APIServers)
	}
	if o.KubeStateMetrics < 0 || o.KubeStateMetrics > 8 {
		bad("kube_state_metrics: %d is outside 0 (means 1) to 8", o.KubeStateMetrics)
	}
	if o.FirstGang < 0 || o.FirstGang > o.Nodes {
		bad("first_gang: %d is outside 0 (drawn) to the number of nodes, %d", o.FirstGang, o.Nodes)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Called)) {
		if o.Called[name].Experiment == "" {
			bad("called[%q].experiment: empty; it is what label_experiment says", name)
		}
	}
	if o.CustomResources < 0 || o.CustomResources > 20000 {
		bad("custom_resources: %d is outside 0 to 20000", o.CustomResources)
	}
	if !(o.IdleShare >= 0 && o.IdleShare <= 1) {
		bad("idle_share: %v is outside 0 to 1", o.IdleShare)
	}
	if o.Detail != Lean && o.Detail != Full {
		bad("detail: %d is neither Lean (0) nor Full (1)", o.Detail)
	}
	for i, k := range o.NodeKinds {
		switch {
		case k.Sharing < WholeGPUs || k.Sharing > MIGMixed || k.System < Ubuntu || k.System > Talos:
			bad("node_kinds[%d]: %+v is none; the constants of Sharing and System are all", i, k)
		case k.Sharing != WholeGPUs && o.Claims:
			bad("node_kinds[%d]: a device plugin shares GPUs, and with claims there is none", i)
		case k.Sharing != WholeGPUs && (i == 0 && o.FirstGang > 0 || o.FirstGang > i*o.withDefaults().NodesPerRack):
			bad("node_kinds[%d]: the first gang needs %d nodes of whole GPUs", i, o.FirstGang)
		}
	}
	if err := o.Exporters.validate(); err != nil {
		bad("%w", err)
	}
	if !o.Start.IsZero() && o.Start.Unix() < 0 {
		bad("start: %s is before 1970", o.Start)
	}
	for i, m := range o.GPUModels {
		if _, ok := gpuModels[m]; !ok {
			bad("gpu_models[%d]: %q is unknown; known are %s", i, m, knownModels())
		}
	}
	for i, t := range o.Troubles {
		if err := errors.Join(t.validate(), o.checkNodeTrouble(t)); err != nil {
			bad("troubles[%d]: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.Cluster == "" {
		o.Cluster = "sim"
	}
	def(&o.GPUsPerNode, 8)
	def(&o.CPUsPerNode, 2)
	def(&o.NodesPerRack, 16)
	def(&o.APIServers, 2)
	def(&o.KubeStateMetrics, 1)
	if len(o.GPUModels) == 0 {
		o.GPUModels = []string{"H100", "H200"}
	}
	if o.Start.IsZero() {
		o.Start = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return o
}

// Model is one cluster. It is immutable and safe for concurrent use; it holds
// about 1 kB for each node and computes everything else when asked.
type Model struct {
	o         Options
	seed      uint64
	start     int64 // ms
	tl        *timeline
	pools     []pool
	byNode    [][]int32 // pools that use a node, by node
	targets   []Target
	index     map[targetKey]int // into targets
	kinds     []apiResource
	resources *table
	spaces    []namespace
	ill       map[int][]ailment // staged troubles of nodes, by node
	surges    []surge
	freed     []bool // pools that PodsPendingGPUsFree empties, by index
}

// New builds a model. Building 7,500 nodes takes tens of milliseconds.
func New(o Options) (*Model, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("cluster options: %w", err)
	}
	o = o.withDefaults()
	m := &Model{o: o, seed: hashString(mix(o.Seed), o.Cluster), start: o.Start.UnixMilli()}
	m.tl = newTimeline(m.seed, m.start, o.Troubles)
	m.spaces = makeNamespaces(m.seed)
	m.kinds = apiResources(o)
	m.resources = resourceTable(m.kinds)
	if err := m.stageNodeTroubles(); err != nil {
		return nil, fmt.Errorf("cluster options: %w", err)
	}
	m.makePools()
	m.makeTargets()
	if err := m.checkTroubles(); err != nil {
		return nil, fmt.Errorf("cluster options: %w", err)
	}
	if err := m.checkIdle(); err != nil {
		return nil, fmt.Errorf("cluster options: %w", err)
	}
	m.freePools()
	return m, nil
}

// Options returns what the model was built with, defaults filled in.
func (m *Model) Options() Options { return m.o }
