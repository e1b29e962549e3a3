package shard

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/spillwayproject/spillway/proxy/identity"
)

// sparePart is the part of a gate's places that is kept from any one peer: a sixth, so 4 of 24. A
// peer is an address that connections come from, of IPv6 the network of 64 bits (identity.Holder),
// never what a header says. Two hostile addresses fill the gate together; one that asks too much,
// or reads its answers too slowly, does not.
const sparePart = 6

// share is how many places one peer may hold. Of a few places none is kept.
func (g *gate) share() int { return g.size - g.size/sparePart }

// peers are those who hold or wait for a place of a gate, and nobody else, so that their number is
// bounded by that of the requests.
type peers struct {
	mu sync.Mutex
	by map[string]*peer
}

// peer is one address, or network of IPv6, at one gate.
type peer struct {
	name   string
	sem    *semaphore.Weighted // of the share
	places int64               // held or waited for; the peer is forgotten with the last
}

// join is the peer of ctx, who is about to wait for n places and is remembered until part was
// called for as many; nil where there is none, as for what the proxy asks for itself.
func (g *gate) join(ctx context.Context, n int64) *peer {
	name := identity.From(ctx).Peer
	if name == "" {
		return nil
	}
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	p := g.peers.by[name]
	if p == nil {
		if g.peers.by == nil {
			g.peers.by = map[string]*peer{}
		}
		p = &peer{name: name, sem: semaphore.NewWeighted(int64(g.share()))}
		g.peers.by[name] = p
	}
	p.places += n
	return p
}

// peerOf is the peer of ctx, who holds a place.
func (g *gate) peerOf(ctx context.Context) *peer {
	name := identity.From(ctx).Peer
	if name == "" {
		return nil
	}
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	return g.peers.by[name]
}

func (g *gate) part(p *peer, n int64) {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	if p.places -= n; p.places == 0 {
		delete(g.peers.by, p.name)
	}
}
