package cluster

import "fmt"

// Exporters is a set of exporters that not every cluster has. Each costs series
// on every node; TestSizes prints how many.
type Exporters uint8

const (
	// WithIPTables adds an iptables-exporter to each node: the packets and bytes
	// of its rules, those among them that account for traffic by a comment.
	WithIPTables Exporters = 1 << iota
	// WithProblemDetector adds a node-problem-detector to each node, and its
	// conditions to those that kube-state-metrics shows of the node.
	WithProblemDetector
	// WithNodeMesh adds probers beside the control plane that knock at each node
	// through the pod network.
	WithNodeMesh

	// AllExporters is all of them.
	AllExporters = WithIPTables | WithProblemDetector | WithNodeMesh
)

// Jobs of the exporters that not every cluster has.
const (
	JobIPTables        = "iptables-exporter"
	JobProblemDetector = "node-problem-detector"
	JobNodeMesh        = "node-mesh"
)

// Jobs lists the jobs of a set, in the order of Targets.
func (x Exporters) Jobs() []string {
	var out []string
	for _, e := range []struct {
		set Exporters
		job string
	}{{WithNodeMesh, JobNodeMesh}, {WithIPTables, JobIPTables}, {WithProblemDetector, JobProblemDetector}} {
		if x&e.set != 0 {
			out = append(out, e.job)
		}
	}
	return out
}

// names are the constants of a set.
func (x Exporters) names() []string {
	var out []string
	for i, n := range []string{"WithIPTables", "WithProblemDetector", "WithNodeMesh"} {
		if x&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

func (x Exporters) validate() error {
	if x&^AllExporters != 0 {
		return fmt.Errorf("exporters: %#x has bits beyond AllExporters (%#x)", uint8(x), uint8(AllExporters))
	}
	return nil
}
