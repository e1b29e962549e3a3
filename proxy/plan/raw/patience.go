package raw

import (
	"context"
	"sync"
	"time"
)

// patience is the context of what is read of one copy, which ends after a while: but for the time
// that the read waits for room in which no other copy is nearer to it.
type patience struct {
	context.Context
	end    context.CancelCauseFunc
	parent context.Context

	mu    sync.Mutex
	timer *time.Timer
	cause error         // that it ends with
	left  time.Duration // until it ends, while it waits for room
	until time.Time     // when it ends, else; zero where it does not
	waits bool
}

// newPatience returns patience that ends with the parent, or with the cause after so long, where
// that is more than 0.
func newPatience(parent context.Context, limit time.Duration, cause error) *patience {
	p := &patience{parent: parent}
	p.Context, p.end = context.WithCancelCause(parent)
	if limit > 0 {
		p.within(limit, cause)
	}
	return p
}

// Deadline implements context.Context.
func (p *patience) Deadline() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.parent.Deadline()
	if !p.until.IsZero() && (!ok || p.until.Before(at)) {
		return p.until, true
	}
	return at, ok
}

// within has it end with the cause after so long, unless it does so before.
func (p *patience) within(limit time.Duration, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cause == nil:
	case p.waits && p.left <= limit, !p.waits && time.Until(p.until) <= limit:
		return
	}
	p.cause, p.left = cause, limit
	if !p.waits {
		p.run()
	}
}

// run has it end when what is left has passed. The caller holds p.mu.
func (p *patience) run() {
	p.until = time.Now().Add(p.left)
	if p.timer != nil {
		p.timer.Stop()
	}
	cause := p.cause
	p.timer = time.AfterFunc(p.left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.waits && !time.Now().Before(p.until) {
			p.end(cause)
		}
	})
}

// wait keeps it from ending until the function that it returns is called. As large a part of the
// time that the request has left then as of all of it remains for what is done without the copy.
func (p *patience) wait() (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = true
	if p.cause != nil {
		p.left, p.until = time.Until(p.until), time.Time{}
		p.timer.Stop()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waits = false
		if p.cause == nil {
			return
		}
		if dl, ok := p.parent.Deadline(); ok {
			p.left = min(p.left, time.Until(dl)*3/5)
		}
		p.run()
	}
}

// stop ends it, when all has been read.
func (p *patience) stop() {
	p.end(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
}
