package admit

import (
	"sync"
	"sync/atomic"
)

// othersPart is the part of a pool that no single address takes: the last quarter. Who reads slowly
// is given nothing that could be had back, so what is left for others must be left before they
// come; it is left also while there are none, whichever the address is. A Grafana or a balancer,
// behind which all users are one address, has three quarters: where that is all there is,
// memory.budget is to be a third larger. In a small pool a quarter is hardly more than a chunk, and
// nothing is left.
const othersPart = 4

// addresses are those that have taken something of a pool, or may. The zero value is ready for use.
type addresses struct {
	mu sync.Mutex
	of map[string]*address
}

// address is what all budgets of one have taken.
type address struct {
	name  string
	taken atomic.Int64
	refs  int // budgets; as of addresses.of, of which it is a part while there are any
}

// enter finds or makes the address for one more budget; nil for nobody in particular.
func (a *addresses) enter(name string) *address {
	if name == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.of[name]
	if d == nil {
		if a.of == nil {
			a.of = map[string]*address{}
		}
		d = &address{name: name}
		a.of[name] = d
	}
	d.refs++
	return d
}

// leave is the end of one of its budgets.
func (a *addresses) leave(d *address) {
	if d == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.refs--; d.refs == 0 {
		delete(a.of, d.name)
	}
}

// most is how much one address may take of a pool of that many bytes. Who holds much himself leaves
// what he leaves of a pool within his address too: a Grafana whose dashboards have filled its part
// finds some for its alerts.
func most(limit int64, much bool) int64 {
	if limit < smallPool {
		return limit
	}
	end := limit - limit/othersPart
	if much {
		end -= limit / smallsPart
	}
	return end
}

// take counts n bytes more for somebody who holds much; false where that is more than the address
// may have.
func (d *address) take(n, limit int64, much bool) bool {
	for d != nil {
		taken := d.taken.Load()
		if taken+n > most(limit, much) {
			return false
		}
		if d.taken.CompareAndSwap(taken, taken+n) {
			break
		}
	}
	return true
}

// give takes back what take has counted.
func (d *address) give(n int64) {
	if d != nil {
		d.taken.Add(-n)
	}
}

// full tells whether it is the address that has no room for n bytes more, and not the pool.
func (d *address) full(n, limit int64, much bool) bool {
	return d != nil && limit >= smallPool && d.taken.Load()+n > most(limit, much)
}

// By says whose the budget is: by the address its requests come from (identity.Request.Peer), ""
// for nobody's. It is called before anything is held, and returns b.
func (b *Budget) By(who string) *Budget {
	if b.pool != nil {
		b.address = b.pool.addresses.enter(who)
	}
	return b
}
