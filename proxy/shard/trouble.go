package shard

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Trouble is what keeps a replica from being asked, or from answering, and since when; "" where
// nothing is known to. since is zero where that is not known.
func (r *Replica) Trouble() (what string, since time.Time) {
	if len(r.misconfigured()) > 0 {
		return "is misconfigured (" + strings.Join(r.misconfigured(), "; ") + ")", time.Time{}
	}
	if at := r.Mute(); !at.IsZero() {
		return "answers nothing", at
	}
	r.up.mu.Lock()
	down, unreachable, since := r.up.health.state == Down, r.up.health.unreachable > 0, r.up.health.since
	starting := r.up.health.starting
	r.up.mu.Unlock()
	failing := time.Time{}
	if at := r.up.failing.Load(); at != 0 {
		failing = time.Unix(0, at)
	}
	switch {
	case starting != "":
		return starting, since
	case down && unreachable:
		return "cannot be reached", since
	case down:
		return "does not answer its health probe with success", since
	case !failing.IsZero():
		return "has failed each call", failing
	}
	return "", time.Time{}
}

// Starting is what the server does before it is ready, such as reading its log, a part of a
// sentence; empty where it is ready, or not for that.
func (r *Replica) Starting() string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.health.starting
}

// Gone says why no replica of the shard can be asked, or would answer, and since when: a sentence.
// It is empty where one may.
func (s *Shard) Gone() string {
	var why []string
	for _, r := range s.Replicas {
		what, since := r.Trouble()
		if what == "" || strings.HasPrefix(what, "has failed") { // it is asked
			return ""
		}
		why = append(why, r.Name()+" "+what+Since(since))
	}
	return "shard " + s.Name() + " cannot be asked: " + strings.Join(why, ", ")
}

// Sound tells whether nothing is known to be wrong with one of the shard's replicas at least.
func (s *Shard) Sound() bool {
	return slices.ContainsFunc(s.Replicas, func(r *Replica) bool {
		what, _ := r.Trouble()
		return what == ""
	})
}

// Since is how long something has lasted and since what time of day, for the end of a sentence;
// empty for a time that is not known, and below a second.
func Since(at time.Time) string {
	d := time.Since(at)
	if at.IsZero() || d < time.Second {
		return ""
	}
	return fmt.Sprintf(" for %s (since %s UTC)", d.Round(time.Second), at.UTC().Format(time.TimeOnly))
}

// unreached is the failure of a call for which no connection was had.
func (r *Replica) unreached(err error) *qerr.Error {
	var name *net.DNSError
	why, advice := "", "see whether it runs, whether its address is right, and whether something between it and Spillway drops connections"
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
		e := qerr.Wrap(qerr.ShardFailed, err, "Spillway has no file descriptor or port left to connect to %s", r.Name())
		e.Advice = "raise the limit of open files of Spillway's process (LimitNOFILE=, ulimit -n); the server may be well"
		return e
	case errors.Is(err, errDialTimeout):
		why = ": no connection within " + r.up.opts.DialTimeout.String()
	case errors.Is(err, syscall.ECONNREFUSED):
		why, advice = ": nothing listens at its address", "see whether it runs, and start it; or correct its url"
	case errors.As(err, &name):
		why, advice = ": its name has no address", "look at the name in its url, and at the name server"
	}
	e := qerr.Wrap(qerr.ShardFailed, err, "%s cannot be reached%s", r.Name(), why)
	e.Advice = advice
	return e
}

// Replica finds a replica by its name; nil where there is none.
func (t *Topology) Replica(name string) *Replica {
	for r := range t.replicas() {
		if r.name == name {
			return r
		}
	}
	return nil
}
