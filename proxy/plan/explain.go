package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// Explanation is what explain answers: the plan of one query and, where it was run, what came of
// it.
type Explanation struct {
	// Query is the text as the client sent it.
	Query string `json:"query"`
	// Verdict is exact or refused.
	Verdict string `json:"verdict"`
	// Reason says why it is refused; empty where it is exact.
	Reason string `json:"reason,omitempty"`
	// Plan is the tree's root; nil where the query was refused before it could be planned.
	Plan *Node `json:"plan"`
	// Slow names the servers that the answer waited for, where some took much longer than most;
	// empty otherwise, and where the query was not run.
	Slow string `json:"slow,omitempty"`
	// Shadow are the bounds in shadow (limits.shadow) that would have refused or narrowed it, had
	// they been enforced; of a plan alone, as far as the text and the servers' sizes show it.
	Shadow []string `json:"shadow,omitempty"`
	// Estimate is what it was expected to take before a shard was asked; nil where it was refused
	// before that, or selects nothing.
	Estimate *Estimate `json:"estimate,omitempty"`
}

// Estimate is what a query is expected to take.
type Estimate struct {
	// By is what it is made from: text, shape, sketch or guess.
	By string `json:"by"`
	// Series, Samples and Bytes are what shards send, Selected the series that they look at and
	// Read the samples that these have.
	Series   int64 `json:"series"`
	Samples  int64 `json:"samples"`
	Bytes    int64 `json:"bytes"`
	Selected int64 `json:"selected"`
	Read     int64 `json:"read"`
	// Held is what shards hold at most, Seconds how long calls take, both added, and
	// GiBSeconds how much is held for how long.
	Held       int64   `json:"held"`
	Seconds    float64 `json:"seconds"`
	GiBSeconds float64 `json:"gibSeconds"`
}

// The verdicts of an Explanation.
const (
	Exact   = "exact"
	Refused = "refused"
)

// Node is one node of a plan: a part of the query with the place where it is evaluated.
type Node struct {
	// Mode is pass, splice, push or raw. A node that is evaluated in the proxy, over series or over
	// the answers of its children, is raw.
	Mode Mode `json:"mode"`
	// Expr is the part of the query.
	Expr string `json:"expr"`
	// Why says in a sentence why it runs there.
	Why string `json:"why"`
	// Calls are the servers that it asks, or asked.
	Calls []*Call `json:"calls,omitempty"`
	// Children are the parts below it that are evaluated elsewhere.
	Children []*Node `json:"children,omitempty"`

	reads string  // the selector that is read raw; empty for none
	whole []*Call // the calls whose long texts stand whole
}

// Reads calls f for the nodes at and below n that read the selector raw. The window tells nothing:
// the engine asks for what it needs.
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
	// Shard and Replica are the names as errors have them. Replica is that of the server that
	// answered.
	Shard   string `json:"shard"`
	Replica string `json:"replica"`
	// Query is the text that it is sent, or the selector that is read from it. A long one that
	// another call of the node shows is cut, and names that one's shard.
	Query string `json:"query"`
	// Segments are the stretches of time that come from the replica; one for a replica that is
	// whole.
	Segments []raw.Segment `json:"segments,omitempty"`
	// Series and Samples are what it answered with, Bytes the size of its answer, inflated.
	Series  int64 `json:"series"`
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// Began is how many seconds passed until its answer began; 0 for series that are read raw.
	Began float64 `json:"began,omitempty"`
	// Seconds is how long the server itself took, to the last byte: time in which others were
	// waited for is not included.
	Seconds float64 `json:"seconds"`
}

const (
	// slowSeconds is what a call must have taken to be called slow, and slowTimes how many times as
	// long as the middle one of all calls.
	slowSeconds, slowTimes = 0.1, 3
	// maxSlow is how many slow servers are named.
	maxSlow = 3
)

// NameSlow sets Slow from what the calls took.
func (e *Explanation) NameSlow() {
	e.Slow = ""
	longest := map[string]float64{} // by server: one that is asked twice is one server
	e.Plan.each(func(c *Call) {
		name := c.Replica
		if name == "" {
			name = c.Shard
		}
		longest[name] = max(longest[name], c.Seconds)
	})
	if len(longest) < 2 {
		return
	}
	names := make([]string, 0, len(longest))
	for name := range longest {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if longest[a] != longest[b] {
			return cmp.Compare(longest[b], longest[a])
		}
		return strings.Compare(a, b)
	})
	middle := longest[names[len(names)/2]] // of two the faster one
	var slow []string
	for _, name := range names {
		if longest[name] >= slowSeconds && longest[name] >= slowTimes*middle {
			slow = append(slow, fmt.Sprintf("%s took %.3f s", name, longest[name]))
		}
	}
	if len(slow) == 0 {
		return
	}
	more := ""
	if n := len(slow) - maxSlow; n > 0 {
		slow, more = slow[:maxSlow], fmt.Sprintf(" and %d more took long", n)
	}
	e.Slow = fmt.Sprintf("%s%s, where the middle one of %d servers took %.3f s; look at the slow ones", strings.Join(slow, ", "), more, len(names), middle)
}

// each calls f for the calls of the node and of all below it.
func (n *Node) each(f func(*Call)) {
	if n == nil {
		return
	}
	for _, c := range n.Calls {
		f(c)
	}
	for _, c := range n.Children {
		c.each(f)
	}
}
