package shard

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// slowAfter is how long an answer may take to begin, slowCalls how many must take longer
	// running before a replica is called slow, and how many must not before it is called slow no
	// more.
	slowAfter = silentAfter
	slowCalls = 3
)

// pace is what the log was told of a server's being slow: one line when it begins and one when it
// ends, whatever the number of calls. It decides nothing. The zero value is ready for use.
type pace struct {
	mu   sync.Mutex
	run  int // calls running that say the other thing than what was said last
	slow bool
	told time.Time
}

// saw takes a call into account, and tells whether something is to be said.
func (p *pace) saw(slow bool, now time.Time) (say bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slow == p.slow {
		p.run = 0
		return false
	}
	if p.run++; p.run < slowCalls || slow && !p.told.IsZero() && now.Sub(p.told) < tellAnew {
		return false
	}
	p.run, p.slow, p.told = 0, slow, now
	return true
}

// paced is called with the time that a call's answer took to begin, or for which it was waited in
// vain.
func (r *Replica) paced(took time.Duration, now time.Time) {
	slow := took >= slowAfter
	if !r.up.pace.saw(slow, now) {
		return
	}
	if slow {
		r.up.opts.Logger.Warn("a replica is slow: calls running took long to begin their answers, and every query that needs it waits", slog.String("replica", r.Name()),
			slog.Int("calls", slowCalls), slog.Duration("last", took))
	} else {
		r.up.opts.Logger.Info("a replica is no longer slow", slog.String("replica", r.Name()))
	}
}
