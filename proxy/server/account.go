package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// account is what explain tells of one request: its plan and what came of it. nil takes no notes.
type account struct {
	only bool // the plan alone is the answer
	mu   sync.Mutex
	root *plan.Node
	cost *plan.Estimate
	told *plan.Explanation // what the request came to; nil before it has ended
	held *admit.Budget     // of an answer that is written after the request has given back its own
}

// accountOf is the request's account, where it asks for one. Only queries have plans.
func accountOf(header string) *account {
	switch header {
	case explainPlan:
		return &account{only: true}
	case explainRun:
		return &account{}
	}
	return nil
}

// explanation is the plan with its verdict.
func (a *account) explanation(query string, refused error) *plan.Explanation {
	e := &plan.Explanation{Query: query, Verdict: plan.Exact, Plan: a.root, Estimate: a.cost}
	if refused != nil {
		qe := qerr.From(refused) // without its private cause
		if e.Verdict, e.Reason = plan.Refused, qe.Message; qe.Advice != "" {
			e.Reason += "; " + qe.Advice
		}
	}
	return e
}

// explanation is that of the account, with what bounds in shadow would have done.
func (x *exchange) explanation(refused error) *plan.Explanation {
	e := x.account.explanation(x.req.Query, refused)
	e.Shadow = slices.Sorted(slices.Values(x.shadow))
	return e
}

// planCopies is how often the text of an explanation is in memory while it is written: as it is
// encoded, where it grew, and as the answer has it.
const planCopies = 3

// encodePlan is v, which is little more than the explanation e, as JSON. What it takes stays held
// in the budget.
func encodePlan(v any, e *plan.Explanation, budget *admit.Budget) ([]byte, error) {
	if err := budget.Hold(planCopies * e.Size()); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // which makes six bytes of each < of a query
	if err := enc.Encode(v); err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway failed to write its answer; its log has the cause")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// errLargePlan refuses an explanation.
func errLargePlan(size, most int64) error {
	limit := admit.FormatBytes(most)
	return qerr.Refuse(policy.BoundMaxResponseBytes, limit, admit.FormatBytes(size), "ask for the plan of a part of the query",
		"the plan of this query is larger than max_response_bytes allows (%s)", limit)
}

// writePlan answers with an explanation alone.
func (x *exchange) writePlan(e *plan.Explanation) error {
	b, err := encodePlan(e, e, x.budget)
	if err != nil {
		return err
	}
	return x.writeJSON(b)
}

// refuse answers with the explanation of a query that is refused. It closes the account's budget.
func (a *account) refuse(w http.ResponseWriter, why *qerr.Error) {
	defer a.held.Close()
	b, err := encodePlan(map[string]any{"status": "success", "data": a.told}, a.told, a.held)
	if err != nil {
		why.WriteTo(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a client that left needs no answer
}

// tail is what stands behind the data and the warnings of an answer.
func (x *exchange) tail() ([]byte, error) {
	x.lookShadow()
	a := x.account
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = x.explanation(nil)
	a.told.NameSlow()
	if n := a.told.Size(); n > x.limits.MaxResponseBytes {
		return nil, errLargePlan(n, x.limits.MaxResponseBytes)
	}
	b, err := encodePlan(map[string]any{"explain": a.told}, a.told, x.budget)
	return slices.Concat([]byte(`,"spillway":`), b), err
}

// meteredBody is a body whose bytes count for a call.
type meteredBody struct {
	io.ReadCloser
	n atomic.Int64
}

// Read implements io.Reader.
func (c *meteredBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// body makes an answer's body count; the body itself where no account is kept.
func (a *account) body(b io.ReadCloser) io.ReadCloser {
	if a == nil {
		return b
	}
	return &meteredBody{ReadCloser: b}
}

// answers notes what came of the calls of leaves.
func (a *account) answers(r *replies, results []merge.Count) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, q := range r.asked {
		if q.call == nil {
			continue
		}
		q.call.Segments = []raw.Segment{{Slice: q.call.Shard, Copy: q.call.Replica, From: q.from, Until: q.until}}
		if i < len(results) {
			q.call.Series, q.call.Samples = int64(results[i].Series), results[i].Samples
		}
		if c, ok := r.counted[i].(*meteredBody); ok {
			began, all := r.responses[i].Took()
			q.call.Bytes, q.call.Began, q.call.Seconds = c.n.Load(), began.Seconds(), all.Seconds()
		}
	}
}

// maxSegments is how many segments of one replica an explanation lists.
const maxSegments = 16

// fetched notes what was read raw from one replica for one selector.
func (a *account) fetched(f raw.Fetched) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.root.Reads(f.Matchers, func(n *plan.Node) {
		call := callOf(n, f.Slice, f.Copy)
		call.Series += int64(f.Series)
		call.Samples += f.Samples
		call.Bytes += f.Bytes
		call.Seconds = max(call.Seconds, f.Took.Seconds())
	})
}

// selected notes which stretches of time were taken from which replica.
func (a *account) selected(s raw.Selected) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.root.Reads(s.Matchers, func(n *plan.Node) {
		for _, segments := range s.Series {
			for _, seg := range segments {
				call := callOf(n, seg.Slice, seg.Copy)
				if len(call.Segments) < maxSegments && !slices.Contains(call.Segments, seg) {
					call.Segments = append(call.Segments, seg)
				}
			}
		}
		for _, c := range n.Calls {
			slices.SortFunc(c.Segments, func(a, b raw.Segment) int {
				if a.From != b.From {
					return int(min(max(a.From-b.From, -1), 1))
				}
				return int(min(max(a.Until-b.Until, -1), 1))
			})
		}
	})
}

// callOf finds or makes the node's call of a replica.
func callOf(n *plan.Node, slice, replica string) *plan.Call {
	for _, c := range n.Calls {
		if c.Shard == slice && c.Replica == replica {
			return c
		}
	}
	c := &plan.Call{Shard: slice, Replica: replica}
	for _, o := range n.Calls {
		if o.Shard == slice {
			c.Query = o.Query
		}
	}
	n.Calls = append(n.Calls, c)
	return c
}
