package server

import (
	"io"
	"time"

	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// searchPace has the scoring of a search wait for its turn among the evaluations, and tells whether
// it was the shards or the scoring that took the time. A search that takes less than a look has no
// turn. It is used by one goroutine.
type searchPace struct {
	x    *exchange
	turn *evaluation.Turn
	read time.Time     // when something was read last
	busy time.Duration // from one read to the next, all of them added
}

// look is nil while the search may go on.
func (p *searchPace) look() (err error) {
	if p.turn == nil {
		p.turn, err = p.x.begin()
		return err
	}
	return p.turn.Look()
}

func (p *searchPace) end() { p.turn.End() }

// blames is the error of a search: where the shard's answer was not read to its end before the
// deadline since Spillway itself was at work for most of the time, that.
func (p *searchPace) blames(err error) error {
	if err == nil || p.x.ctx.Err() != nil || qerr.From(err).Kind != qerr.Timeout || 2*p.busy < p.x.dec.Deadline {
		return err
	}
	p.x.doing.set(workSearch)
	return deadlineError(p.x.dec.Deadline, p.x.limits.Timeout)
}

// reads is the body of an answer; while it is waited for the search has no place.
func (p *searchPace) reads(body io.Reader) io.Reader {
	return searchBody{body, p}
}

type searchBody struct {
	io.Reader
	pace *searchPace
}

// Read implements io.Reader.
func (b searchBody) Read(to []byte) (int, error) {
	p := b.pace
	p.turn.Pause()
	if !p.read.IsZero() {
		p.busy += time.Since(p.read)
	}
	p.x.doing.set(workAsk)
	n, err := b.Reader.Read(to)
	p.x.doing.set(workSearch)
	p.read = time.Now()
	return n, err
}
