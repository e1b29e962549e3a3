package plan

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// Explanation is what explain answers: the plan of one query and, where it was run, what came of it.
type Explanation struct {
	// Query is the text as the client sent it.
	Query string `json:"query"`
	// Verdict is exact or refused.
	Verdict string `json:"verdict"`
	// Reason says why it is refused; empty where it is exact.
	Reason string `json:"reason,omitempty"`
	// Plan is the tree's root; nil where the query was refused before it could be planned.
	Plan *Node `json:"plan"`
}

// The verdicts of an Explanation.
const (
	Exact   = "exact"
	Refused = "refused"
)

// Node is one node of a plan: a part of the query with the place where it is evaluated.
type Node struct {
	// Mode is pass, splice, push or raw. A node that is evaluated in the proxy, over series or over the answers of its children, is raw.
	Mode Mode `json:"mode"`
	// Expr is the part of the query.
	Expr string `json:"expr"`
	// Why says in a sentence why it runs there.
	Why string `json:"why"`
	// Calls are the servers that it asks, or asked.
	Calls []*Call `json:"calls,omitempty"`
	// Children are the parts below it that are evaluated elsewhere.
	Children []*Node `json:"children,omitempty"`

	reads string // the selector that is read raw; empty for none
}

// Reads calls f for the nodes at and below n that read the selector raw. The window tells nothing: the engine asks for what it needs.
func (n *Node) Reads(ms []*labels.Matcher, f func(*Node)) {
	if n == nil {
		return
	}
	if n.reads != "" && n.reads == Selector(ms) {
		f(n)
	}
	for _, c := range n.Children {
		c.Reads(ms, f)
	}
}

// Call is one server's part in a node. The numbers are there once the query has run.
type Call struct {
	// Shard and Replica are the names as errors have them. Replica is that of the server that answered.
	Shard   string `json:"shard"`
	Replica string `json:"replica"`
	// Query is the text that it is sent, or the selector that is read from it.
	Query string `json:"query"`
	// Segments are the stretches of time that come from the replica; one for a replica that is whole.
	Segments []raw.Segment `json:"segments,omitempty"`
	// Series and Samples are what it answered with, Bytes the size of its answer, inflated.
	Series  int64 `json:"series"`
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// Seconds is how long it took, to the last byte.
	Seconds float64 `json:"seconds"`
}
