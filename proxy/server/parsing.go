package server

import (
	"context"
	"runtime"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// fewParts is how much is read without asking anybody, some 1 ms of a processor and 60 kB:
	// nearly all that dashboards and rules ask. Tokens count as partsPerToken parts of regular
	// expressions.
	fewParts, partsPerToken = 2_000, 4
	// manyParts is how many parts of regular expressions are compiled without the place of a long
	// evaluation, which takes up to 8 ms. All values of a variable in a match[], a quarter of a
	// million parts, take a fifth of a second, which nothing can interrupt.
	manyParts = 16_000
	// readingPatience is how long one waits for a turn to read more.
	readingPatience = 2 * time.Second
	// bytesPerPart is what compiling a part holds meanwhile, and bytesPerCompiled what is left of
	// it. Measured: 250 and 30, of the first much of it garbage.
	bytesPerPart, bytesPerCompiled = 150, 30
	// bytesPerToken and bytesPerParsed are the same of a token. Measured of sums of selectors and
	// of set operators, which are the largest for their length: 130 to 150, and 90 to 100.
	bytesPerToken, bytesPerParsed = 150, 100
)

// errReading is for who waits for longer than the gates themselves let him.
var errReading = qerr.New(qerr.Overloaded, "many long queries are being read, and there was no room for this one in time; come again in a moment")

// newReaders is the gate of those who read more than a little: as many as there are processors, and
// two at least, of which one address has all but one. Without it all that come are read at once, a
// little of each in turn, so that the memory of all is held and none is ready.
func newReaders() *admit.Gate {
	n := max(2, runtime.GOMAXPROCS(0))
	return admit.NewGate(n, n-1, nil)
}

// parsing is the reading of a request's texts, which parses them and compiles their regular
// expressions. It is before the request has a deadline, or a place anywhere else.
type parsing struct {
	x     *exchange
	ctx   context.Context
	turn  *evaluation.Turn
	place admit.Place
	extra int64 // bytes that are held until it was read, and no longer
}

// begin waits until so much may be read, and holds memory for it. Whose turn is next goes by
// address, and by flow. Very many regular expressions take the place of a long evaluation instead,
// so that a processor is left for everything else: who has that waits for nobody else.
func (r *parsing) begin(e policy.Effort) (err error) {
	x := r.x
	if e.Parts+partsPerToken*e.Tokens <= fewParts || x.trial != nil { // a trial is of what was read already
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(r.ctx, min(readingPatience, x.limits.Timeout), errReading)
	defer cancel()
	who := identity.From(r.ctx)
	if e.Parts > manyParts {
		if r.turn, err = x.s.gate.Begin(ctx, x.lane); err != nil {
			return err
		}
		r.turn.Heavy()
		err = r.turn.Look()
	} else if r.place, err = x.s.readers.Wait(ctx, admit.Asker{Flow: who.Flow, Peer: who.Peer, Arrived: who.Arrived}, 1); err != nil {
		err = errReading // too many wait
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	if x.body == nil {
		x.body = admit.NewBudget(x.st.pool, admit.Limits{}).By(who.Peer)
	}
	parts, tokens := int64(e.Parts), int64(e.Tokens)
	if err = x.body.Hold(bytesPerPart*parts + bytesPerToken*tokens); err == nil {
		r.extra = (bytesPerPart-bytesPerCompiled)*parts + (bytesPerToken-bytesPerParsed)*tokens
	}
	return err
}

// end is called when the texts were read, or were not.
func (r *parsing) end() {
	r.x.s.readers.Leave(&r.place, r.place.Places())
	r.turn.End()
	if r.extra > 0 {
		r.x.body.Drop(r.extra)
	}
}
