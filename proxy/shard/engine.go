package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/spillwayproject/spillway/internal/version"
	"github.com/spillwayproject/spillway/proxy/thanos"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// readEngine reads flags and features. What cannot be read keeps its last value.
func (r *Replica) readEngine(ctx context.Context, f *selfFacts) {
	e := &f.engine
	defer e.Seal()
	e.Thanos = r.Thanos()
	e.ReadVersion(f.version)
	// What cannot be read now is read the next time.
	_ = r.getData(ctx, "/api/v1/status/flags", nil, func(raw json.RawMessage) error {
		switch flags := e.ReadFlags(raw); {
		case flags == nil:
		case r.Thanos():
			f.thanos = thanos.ReadFlags(flags)
			thanos.ReadEngine(e, flags)
		default:
			f.isThanos = thanos.Is(flags)
		}
		return nil
	})
	if r.Thanos() {
		return
	}
	r.readPage(ctx, f)
	err := r.getData(ctx, "/api/v1/features", nil, func(raw json.RawMessage) error {
		e.ReadFeatures(raw)
		return nil
	})
	if clientStatus(err) {
		e.Features, e.Search = nil, false
	}
}

// readPage asks a server that has told neither external labels nor flags whether it has a page of
// stores, which Thanos Queries alone have.
func (r *Replica) readPage(ctx context.Context, f *selfFacts) {
	if f.externalOK && !f.engine.Known {
		f.isThanos = false // no Thanos Query has a configuration
	}
	if f.externalOK || f.note == "" || f.engine.Known {
		return
	}
	err := r.getData(ctx, storesPath, nil, func(raw json.RawMessage) error {
		list, err := thanos.ParseStores(raw)
		f.isThanos = err == nil && len(list) > 0
		return nil
	})
	if clientStatus(err) {
		f.isThanos = false
	}
}

// querySlots is how many queries a server evaluates at once that does not say: the default of
// Prometheus and of Thanos.
const querySlots = 20

// querySlots is how many queries the server evaluates at once.
func (r *Replica) querySlots() int { return cmp.Or(r.Engine().Slots, querySlots) }

// Engine is what is known of the server's query engine.
func (r *Replica) Engine() trust.Engine {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.health.engine
}

// reference is the engine that the others are compared with: the commonest, of equals the first
// listed. That of a Thanos Query counts only where there is no Prometheus.
func (t *Topology) reference() (trust.Engine, bool) {
	// Every query asks, and comparing all servers costs more than planning it: what was found holds
	// until something new is learned about any server.
	now := learned.Load()
	if c := t.agreed.Load(); c != nil && c.learned == now {
		return c.engine, c.known
	}
	c := &agreed{learned: now}
	if c.engine, c.known = trust.Commonest(t.engines(false)); !c.known {
		c.engine, c.known = trust.Commonest(t.engines(true))
	}
	t.agreed.Store(c)
	return c.engine, c.known
}

// learned counts how often anything was learned about the engine of any server, in whichever
// topology.
var learned atomic.Uint64

// agreed is a reference engine as of a count of learned.
type agreed struct {
	learned uint64
	engine  trust.Engine
	known   bool
}

// engines yields those of all Prometheus, or of all Thanos Queries, that are not gone.
func (t *Topology) engines(ofThanos bool) iter.Seq[trust.Engine] {
	return func(yield func(trust.Engine) bool) {
		for r := range t.replicas() {
			if r.Thanos() == ofThanos && !r.longGone.Load() && !yield(r.Engine()) {
				return
			}
		}
	}
}

// EngineDifferences says in what the replica's engine differs from that of most others; nil where
// it does not, or where too little is known. Nothing is pushed to a replica that differs.
func (t *Topology) EngineDifferences(r *Replica) []string {
	ref, _ := t.reference()
	return r.Engine().Differences(ref)
}

// LowestVersion is the lowest version among the Prometheus servers that have told theirs; empty
// where none has. A Thanos Query has versions of its own, which are left out.
func (t *Topology) LowestVersion() string {
	low := ""
	for r := range t.replicas() {
		if v := r.Version(); v != "" && !r.Thanos() && (low == "" || version.Compare(v, low) < 0) {
			low = v
		}
	}
	return low
}

// Searches tells whether all servers of the shard say that they serve the search API, so that any
// of them can be asked.
func (s *Shard) Searches() bool {
	return !slices.ContainsFunc(s.Replicas, func(r *Replica) bool { return r.Thanos() || !r.Engine().Search })
}
