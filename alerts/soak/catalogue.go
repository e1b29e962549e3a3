package soak

import (
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// whom says what a sort of incident befalls.
type whom int

const (
	aNode   whom = iota // a node's name
	aGPU                // node/gpu
	aServer             // the job/instance of a server of the cluster
	aJob                // all servers of a job, one after the other
	aRow                // neighbouring nodes, a quarter of the cluster, all at once
	aShare              // "fleet"
)

// lane is the row in which incidents follow one another. Those of one lane never overlap, so that
// as many nodes are sick at once as there are lanes, however long the soak is.
type lane int

const (
	failing lane = iota // hardware and the network of one node: an alert must come
	working             // planned and ordinary work, and what only a warning is for
	wide                // a share of the fleet: a page must come
)

// width is how many rows of one lane run at once, and the gap that they leave.
var width = map[lane]struct {
	rows        int
	least, most time.Duration
}{
	failing: {2, 30 * minute, 150 * minute},
	working: {2, 20 * minute, 90 * minute},
}

// sort is one sort of incident: one line of the catalogue.
type sort struct {
	name  string
	kind  cluster.Kind
	value float64
	on    whom
	of    string // the job whose server it is; any where it is empty
	lane  lane
	// least and most bound its length.
	least, most time.Duration
	// want are the alerts that must fire about it; beside are those that may. An alert fits where
	// its labels node and gpu, if it has them, are the incident's.
	want, beside []string
	// keep is how long after its end alerts may still begin or last: the windows of rules.
	keep time.Duration
	// also are troubles that belong to it, from so long before its beginning until so long after
	// its end.
	also []part
	// nodes is the least size of the cluster in which its alerts can come.
	nodes int
	// down says that its node goes away, is not ready or is not reached, and that nobody announced
	// it.
	down bool
}

// part is one more trouble of the same target.
type part struct {
	kind          cluster.Kind
	before, after time.Duration
}

const (
	// ofXid: DCGM shows an Xid for five minutes, the gauge of the last one for good, and what reads
	// the gauge takes an hour to hold it for old.
	ofXid = 90 * minute
	// ofCount: a counter of errors is compared with the last hour's, 15 minutes ago.
	ofCount = 30 * minute
	// ofPage: a page stays for up to twenty minutes, so as not to come and go.
	ofPage = 45 * minute
)

const minute, hour = time.Minute, time.Hour

// xids are the alerts that an Xid may raise.
var xids = []string{"GPUXidFatal", "GPUXidFatalLegacy"}

// catalogue is every sort of incident that is drawn. A new kind of the simulator is one line here;
// if it raises nothing of the severities judged, it has no want.
var catalogue = []sort{
	{
		name: "GPU off the bus", kind: cluster.GPUXidFatal, value: 79, on: aGPU,
		least: 30 * minute, most: 3 * hour, want: []string{"GPUFellOffBus"}, keep: ofXid,
		beside: xids,
	},
	{
		name: "fatal Xid 95", kind: cluster.GPUXidFatal, value: 95, on: aGPU,
		least: 20 * minute, most: 2 * hour, want: xids[:1], keep: ofXid,
		beside: xids[1:],
	},
	{
		name: "fatal Xid 119", kind: cluster.GPUXidFatal, value: 119, on: aGPU,
		least: 20 * minute, most: 2 * hour, want: xids[:1], keep: ofXid,
		beside: xids[1:],
	},
	{
		name: "fatal Xid 143", kind: cluster.GPUXidFatal, value: 143, on: aGPU,
		least: 20 * minute, most: 2 * hour, want: xids[:1], keep: ofXid,
		beside: xids[1:],
	},
	{
		name: "uncorrectable memory error", kind: cluster.GPUUncorrectableECC, on: aGPU,
		least: 20 * minute, most: 3 * hour, want: []string{"GPUUncorrectableECC"}, keep: ofXid,
		beside: []string{"GPUXidFatal", "GPUXidFatalLegacy", "GPURowRemapPending"},
	},
	{
		name: "no spare rows", kind: cluster.GPURowRemapFailure, on: aGPU,
		least: 20 * minute, most: 6 * hour, want: []string{"GPURowRemapFailure"}, keep: ofXid,
		beside: xids,
	},
	{
		name: "row to be remapped", kind: cluster.GPURowRemapPending, on: aGPU,
		least: 20 * minute, most: 6 * hour, want: []string{"GPURowRemapPending"}, keep: ofXid,
	},
	{
		name: "NVLink recoveries", kind: cluster.GPUNVLinkErrors, on: aGPU,
		least: 30 * minute, most: 3 * hour, want: []string{"GPUNVLinkErrors"}, keep: ofCount,
	},
	{
		name: "many NVLink recoveries", kind: cluster.GPUNVLinkErrors, value: 60, on: aGPU,
		least: 30 * minute, most: 3 * hour, want: []string{"GPUNVLinkErrors"}, keep: ofCount,
	},
	{
		name: "node cut off", down: true, kind: cluster.NodeCutOff, on: aNode,
		least: 15 * minute, most: 3 * hour, want: []string{"NodeUnreachable"}, keep: ofCount,
	},
	{
		name: "node dead", down: true, kind: cluster.NodeDown, on: aNode,
		least: 40 * minute, most: 6 * hour, want: []string{"NodeUnreachable"}, keep: ofCount,
	},
	{
		name: "full disk", kind: cluster.NodeDiskFull, on: aNode,
		least: 25 * minute, most: 3 * hour, want: []string{"NodeFilesystemFull"}, keep: ofCount,
	},
	{
		name: "read-only disk", kind: cluster.NodeDiskReadOnly, on: aNode,
		least: 15 * minute, most: 3 * hour, want: []string{"NodeFilesystemReadOnly"}, keep: ofCount,
		beside: []string{"NodeDiskError"},
	},
	{
		name: "failing disk", kind: cluster.NodeDiskError, on: aNode,
		least: 20 * minute, most: 3 * hour, want: []string{"NodeDiskError", "NodeFilesystemDeviceError"}, keep: ofCount,
	},
	{
		name: "neighbour table over", kind: cluster.NodeARPTableOverflow, on: aNode,
		least: 15 * minute, most: 2 * hour, want: []string{"NodeARPTableOverflow"}, keep: ofCount,
	},

	{
		name: "planned reboot", lane: working, kind: cluster.NodeDown, on: aNode,
		least: 6 * minute, most: 40 * minute, also: []part{{cluster.NodeCordoned, 10 * minute, 10 * minute}},
	},
	{
		name: "reboot that nobody announced", down: true, lane: working, kind: cluster.NodeDown, on: aNode,
		least: 5 * minute, most: 18 * minute,
	},
	{
		name: "node upgraded", lane: working, kind: cluster.NodeUpgrade, on: aNode,
		least: 12 * minute, most: 90 * minute,
	},
	{
		name: "node given back", lane: working, kind: cluster.NodeAbsent, on: aNode,
		least: 10 * minute, most: 8 * hour,
	},
	{
		name: "row of nodes upgraded", lane: working, kind: cluster.NodeUpgrade, on: aRow,
		least: 20 * minute, most: 2 * hour,
	},
	{
		name: "row of nodes given back", lane: working, kind: cluster.NodeAbsent, on: aRow,
		least: 20 * minute, most: 6 * hour,
	},
	{
		name: "exporter rolled out", lane: working, kind: cluster.ProcessRestart, on: aJob,
		least: 10 * minute, most: hour,
	},
	{
		name: "cordoned node", lane: working, kind: cluster.NodeCordoned, on: aNode,
		least: 20 * minute, most: 6 * hour,
	},
	{
		name: "reserved node", lane: working, kind: cluster.NodesReserved, on: aNode,
		least: hour, most: 6 * hour,
	},
	{
		name: "node not ready for a while", down: true, lane: working, kind: cluster.NodeNotReady, on: aNode,
		least: 2 * minute, most: hour,
	},
	{
		name: "a prober in five loses a node", lane: working, kind: cluster.NodeUnreachable, value: 0.2, on: aNode,
		least: 10 * minute, most: 2 * hour,
	},
	{
		// It runs: a program that asked for its reboot would be wrong.
		name: "port of a node closed to the probers", down: true, lane: working, kind: cluster.NodeUnreachable, on: aNode,
		least: 15 * minute, most: 3 * hour,
	},
	{
		name: "neighbour table filling", lane: working, kind: cluster.NodeARPTableFilling, on: aNode,
		least: hour, most: 4 * hour,
	},
	{
		name: "Xid 13 of a job", lane: working, kind: cluster.GPUXidFatal, value: 13, on: aGPU,
		least: 5 * minute, most: hour,
	},
	{
		name: "Xid 31 of a job", lane: working, kind: cluster.GPUXidFatal, value: 31, on: aGPU,
		least: 5 * minute, most: hour,
	},
	{
		name: "Xid 43 of a job", lane: working, kind: cluster.GPUXidFatal, value: 43, on: aGPU,
		least: 5 * minute, most: hour,
	},
	{
		name: "corrected memory errors", lane: working, kind: cluster.GPUCorrectableECC, on: aGPU,
		least: hour, most: 6 * hour,
	},
	{
		name: "hot GPU", lane: working, kind: cluster.GPUHot, on: aGPU,
		least: 10 * minute, most: 4 * hour,
	},
	{
		name: "throttled GPU", lane: working, kind: cluster.GPUThrottled, on: aGPU,
		least: 10 * minute, most: 4 * hour,
	},
	{
		name: "slow GPU", lane: working, kind: cluster.GPUSlow, on: aGPU,
		least: hour, most: 4 * hour,
	},
	{
		name: "PCIe replays", lane: working, kind: cluster.GPUPCIeReplay, on: aGPU,
		least: 10 * minute, most: 4 * hour,
	},
	{
		name: "GPU exporter gone", lane: working, kind: cluster.GPUExporterGone, on: aNode,
		least: 3 * minute, most: 3 * hour,
	},
	{
		name: "kube-state-metrics away", lane: working, kind: cluster.ProcessRestart, on: aServer, of: cluster.JobKubeStateMetrics,
		least: 8 * minute, most: 20 * minute, want: []string{"FleetUnseen"}, keep: ofPage,
	},
	{
		name: "a server restarts slowly", lane: working, kind: cluster.ProcessRestart, on: aServer,
		least: 30 * time.Second, most: 100 * time.Second,
	},

	{
		name: "half the fleet not ready", lane: wide, kind: cluster.NodeNotReady, value: 0.5, on: aShare,
		least: 20 * minute, most: hour, want: []string{"FleetNodesNotReady"}, keep: ofPage, nodes: 6,
		beside: []string{"FleetGPUUnhealthy", "LocationLost"},
	},
	{
		name: "pod network breaks", lane: wide, kind: cluster.NodeUnreachable, value: 0.5, on: aShare,
		least: 20 * minute, most: hour, want: []string{"FleetNodesUnreachable"}, keep: ofPage, nodes: 6,
		beside: []string{"NodeUnreachable", "LocationLost"},
	},
	{
		name: "cooling fails", lane: wide, kind: cluster.GPUHot, value: 0.5, on: aShare,
		least: 20 * minute, most: hour, want: []string{"FleetGPUHot"}, keep: ofPage, nodes: 6,
	},
	{
		name: "GPU exporters gone", lane: wide, kind: cluster.GPUExporterGone, value: 0.5, on: aShare,
		least: 20 * minute, most: hour, want: []string{"FleetGPUExporterMissing"}, keep: ofPage, nodes: 6,
	},
	{
		name: "links fail on every node", lane: wide, kind: cluster.GPUNVLinkErrors, on: aShare,
		least: 30 * minute, most: hour, want: []string{"FleetNodesFailing"}, keep: ofPage, nodes: 10,
		beside: []string{"GPUNVLinkErrors"},
	},
}
