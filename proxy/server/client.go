package server

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
)

const (
	// writePatience is how long one write to a client may take: a client that reads nothing for so
	// long is given up.
	writePatience = 10 * time.Second
	// writePiece is how much is written in one write, of what is longer than two of them. A page or
	// a message of many megabytes comes in one go, and whoever takes it slowly, but takes it, is
	// not given up.
	writePiece = 64 << 10
)

// clientWriter writes to the client with a deadline for each write, extended on progress and never
// beyond the request's own end.
type clientWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	until   time.Time     // the request's deadline and a second
	most    time.Duration // writePatience, but in tests
	n       atomic.Int64  // bytes; those of an answer's end may still be kept
	wrote   bool
	begun   bool                         // something may have reached the client
	refusal *account                     // the explanation of what was refused, where the plan alone was asked for
	pause   func()                       // gives the place of an evaluation away while the client is written to; nil where there is none
	flight  *flight                      // keeps the answer where others wait for it; nil where none can
	behind  *spool                       // what is written behind the back of who answers; nil where nothing is
	cut     atomic.Bool                  // nothing more is to be written
	keeps   atomic.Pointer[admit.Budget] // what behind holds
	ended   func() bool                  // has behind end no more with its request
}

// extend gives one write the time that it has.
func (c *clientWriter) extend() {
	at := time.Now().Add(c.most)
	if !c.until.IsZero() && at.After(c.until) {
		at = c.until
	}
	_ = c.rc.SetWriteDeadline(at)
}

// Write implements io.Writer.
func (c *clientWriter) Write(p []byte) (int, error) {
	c.wrote = true
	if c.flight != nil {
		return c.flight.Write(p, c.pass)
	}
	return c.pass(p)
}

// pass has p written to the client, now or as soon as it can be.
func (c *clientWriter) pass(p []byte) (int, error) {
	if c.pause != nil {
		c.pause()
	}
	if c.behind != nil {
		return c.behind.Write(p)
	}
	return c.write(p)
}

// write writes to the client itself, piece by piece. The last one is no short one: it would wait in
// net/http's buffer.
func (c *clientWriter) write(p []byte) (n int, err error) {
	c.begun = true
	for more := true; more && err == nil; {
		piece := p[n:]
		if more = len(piece) > 2*writePiece; more {
			piece = piece[:writePiece]
		}
		if c.extend(); c.cut.Load() {
			_ = c.rc.SetWriteDeadline(time.Now())
		}
		var took int
		took, err = c.ResponseWriter.Write(piece)
		n += took
		c.n.Add(int64(took))
	}
	return n, err
}

// Unwrap lets http.ResponseController find the connection.
func (c *clientWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
