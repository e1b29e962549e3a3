package server

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// writePatience is how long one write to a client may take: a client that reads nothing for so long
// is given up.
const writePatience = 10 * time.Second

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

// write writes to the client itself.
func (c *clientWriter) write(p []byte) (int, error) {
	c.begun = true
	if c.extend(); c.cut.Load() {
		_ = c.rc.SetWriteDeadline(time.Now())
	}
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// Unwrap lets http.ResponseController find the connection.
func (c *clientWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
