package thanos

import "fmt"

// topology is how a world is put together.
type topology struct {
	name       string
	shardLabel bool // prometheus_shard tells shards apart
	queries    int  // how many Thanos Queries Spillway has
	dns        bool // these find the sidecars by DNS
}

var topologies = []topology{
	{"operator", false, 1, false},
	{"operator, two queries, DNS", false, 2, true},
	{"shard label", true, 1, true},
	{"shard label, two queries", true, 2, false},
}

type kind string

const (
	prometheus kind = "prometheus"
	sidecar    kind = "sidecar"
)

// part is a process that something happens to.
type part struct {
	kind           kind
	shard, replica int
}

func (p part) name() string { return fmt.Sprintf("%s %d%c", p.kind, p.shard, 'a'+p.replica) }

type fault string

const (
	killed    fault = "killed"    // SIGKILL, and started again when the case is over
	hung      fault = "hung"      // SIGSTOP, and SIGCONT when the case is over
	restarted fault = "restarted" // SIGTERM, and started again at once
)

var faults = []fault{killed, hung, restarted}

// victims are what is struck at the same moment: each by itself, and pairs.
var victims = [][]part{
	{{sidecar, 0, 0}},
	{{sidecar, 0, 1}},
	{{sidecar, 1, 0}},
	{{sidecar, 1, 1}},
	{{prometheus, 0, 0}},
	{{prometheus, 0, 1}},
	{{prometheus, 1, 0}},
	{{prometheus, 1, 1}},
	{{sidecar, 0, 0}, {prometheus, 0, 0}},    // a pod
	{{sidecar, 0, 0}, {sidecar, 1, 1}},       // one of each shard
	{{prometheus, 0, 1}, {prometheus, 1, 0}}, // likewise
	{{sidecar, 0, 1}, {prometheus, 1, 0}},
	{{sidecar, 0, 0}, {sidecar, 0, 1}}, // twins: nobody has the shard
	{{prometheus, 1, 0}, {prometheus, 1, 1}},
	{{sidecar, 1, 0}, {prometheus, 1, 1}},
}

// lost tells whether a shard has no replica left: the only case in which an error is right.
func lost(ps []part) bool {
	for i, p := range ps {
		for _, o := range ps[:i] {
			if o.shard == p.shard && o.replica != p.replica {
				return true
			}
		}
	}
	return false
}
