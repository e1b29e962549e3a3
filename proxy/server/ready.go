package server

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// awaitEvery is the time between two looks at whether servers have answered by now.
const awaitEvery = 200 * time.Millisecond

// becomeReady makes the server ready once it may be, unless ctx ends before. What the servers do
// afterwards counts no more: all proxies see the same servers, and none would be left to answer
// with those that there are.
func (s *Server) becomeReady(ctx context.Context, l *listeners) {
	until := time.Now().Add(s.opts.ReadyWait)
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	err := s.state.Load().top.WaitFirstProbe(wait)
	cancel()
	waited := s.opts.ReadyWait > 0 && s.awaitServers(ctx, until, l)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !waited {
		s.log.Warn("ready although not every replica has answered its first probe", "err", err)
	}
	s.ready.Store(true)
	s.sayReady(l)
}

// awaitServers waits until a server of any group has answered, at most until then. Without
// it a roll-out puts pods that reach no server (no name can be resolved, a policy lets nothing out)
// in the place of those that do. It tells whether there was anything to wait for.
func (s *Server) awaitServers(ctx context.Context, until time.Time, l *listeners) (waited bool) {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for ; ; waited = true {
		missing := s.state.Load().top.Unanswered(s.now()) // of what is in force by now
		if len(missing) == 0 {
			return waited
		}
		s.awaited.Store(&missing)
		if !waited {
			s.log.Warn("serving, but not ready: no server of a group has answered yet",
				append(l.attrs(), "groups", strings.Join(missing, ", "), "limit", s.opts.ReadyWait)...)
		}
		if !time.Now().Before(until) {
			s.log.Warn("ready although no server of a group has answered", "groups", strings.Join(missing, ", "), "limit", s.opts.ReadyWait)
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return waited
		}
	}
}

// namedGroups is how many groups the readiness page names.
const namedGroups = 5

// unready says what a start waits for.
func (s *Server) unready() string {
	groups := s.awaited.Load()
	if groups == nil {
		return "Spillway is starting: not every replica has been probed yet.\n"
	}
	names, more := *groups, ""
	if n := len(names) - namedGroups; n > 0 {
		names, more = names[:namedGroups], fmt.Sprintf(" and %d more", n)
	}
	of := "group "
	if len(*groups) > 1 {
		of = "any of the groups "
	}
	return fmt.Sprintf("Spillway is starting: no server of %s%s%s has answered yet; the log says why. It is ready without them %s after its start.\n",
		of, strings.Join(names, ", "), more, s.opts.ReadyWait)
}

// sayReady tells the log, and whoever started the server, where it listens.
func (s *Server) sayReady(l *listeners) {
	s.log.Info("Spillway is ready", l.attrs()...)
	if s.opts.Ready != nil {
		s.opts.Ready(l.main.Addr(), l.admin.Addr())
	}
}

// attrs are the addresses, for the log.
func (l *listeners) attrs() []any {
	at := []any{"address", l.main.Addr().String(), "admin", l.admin.Addr().String()}
	if l.metrics != nil {
		at = append(at, "metrics", l.metrics.Addr().String())
	}
	return at
}
