package server

import (
	"net/http"
	"time"
)

// writePatience is how long one write to a client may take: a client that reads nothing for so long
// is given up.
const writePatience = 10 * time.Second

// clientWriter writes to the client with a deadline for each write, extended on progress and never
// beyond the request's own end.
type clientWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	until   time.Time // the request's deadline and a second
	n       int64
	wrote   bool
	refusal *account // the explanation of what was refused, where the plan alone was asked for
	pause   func()   // gives the place of an evaluation away while the client is written to; nil where there is none
	flight  *flight  // keeps the answer where others wait for it; nil where none can
}

func (c *clientWriter) extend(at time.Time) {
	if !c.until.IsZero() && at.After(c.until) {
		at = c.until
	}
	_ = c.rc.SetWriteDeadline(at)
}

// Write implements io.Writer.
func (c *clientWriter) Write(p []byte) (int, error) {
	c.wrote = true
	if c.flight != nil {
		return c.flight.Write(p, c.send)
	}
	return c.send(p)
}

// send writes to the client itself.
func (c *clientWriter) send(p []byte) (int, error) {
	if c.pause != nil {
		c.pause()
	}
	c.extend(time.Now().Add(writePatience))
	n, err := c.ResponseWriter.Write(p)
	c.n += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController find the connection.
func (c *clientWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
