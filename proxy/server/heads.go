package server

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxHeaderBytes bounds the head of what is no question to the API, maxFieldBytes and
	// maxHeaderFields the header fields of any: a token may have 16 KiB, and who sends a longer one
	// is told so by who reads it.
	maxHeaderBytes  = 16 << 10
	maxFieldBytes   = maxHeaderBytes + 4<<10
	maxHeaderFields = 64
	// maxURLBytes bounds the URL of what the API is asked: Grafana asks for label values by GET
	// alone, with all values of a variable in a matcher. What may come as a form may come so.
	maxURLBytes = endpoint.DefaultMaxBodyBytes
	// shortHead is what every connection may hold of a head, and the URL of a page.
	shortHead = maxHeaderBytes
	// longHeads is how many connections may hold more of one that is not held in memory.budget, and
	// longHeadsOfAddress those of one address. The others wait.
	longHeads, longHeadsOfAddress = 64, 48
)

// badHead refuses a head with more fields, or longer ones, than any client of the field sends, and
// a URL that is too long.
func badHead(w http.ResponseWriter, r *http.Request) bool {
	n, size := 0, len("Host: \r\n")+len(r.Host)
	for name, values := range r.Header {
		n += len(values)
		for _, v := range values {
			size += len(name) + len(": \r\n") + len(v)
		}
	}
	switch {
	case n > maxHeaderFields:
		refuse(w, qerr.New(qerr.HeadersTooLarge, "the request has %d header fields; at most %d are read", n, maxHeaderFields))
	case size > maxFieldBytes:
		refuse(w, qerr.New(qerr.HeadersTooLarge, "the header fields of the request have %d bytes; at most %d are read", size, maxFieldBytes))
	default:
		return longURL(w, r, maxURLBytes)
	}
	return true
}

// longURL refuses a URL that is longer than that.
func longURL(w http.ResponseWriter, r *http.Request, most int) bool {
	if len(r.RequestURI) <= most {
		return false
	}
	refuse(w, qerr.New(qerr.HeadersTooLarge, "the URL of the request has %d bytes; at most %d are read here; select by a shorter expression than a list of names",
		len(r.RequestURI), most))
	return true
}

// longHeadPlaces are taken by connections that hold a long head, in turn by address.
type longHeadPlaces struct {
	*admit.Gate
	patience time.Duration // how long one waits
}

// headOf is what a connection holds of a request's head.
type headOf struct {
	mu     sync.Mutex
	bytes  int  // of this head, and of what came before it since the last answer
	whole  bool // it is there: what comes is a body
	place  admit.Place
	closed bool
}

// Read implements net.Conn. What makes a head a long one is not handed on before there is a place.
func (c *cappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if places := c.l.longHeads; places != nil && c.head.lacksPlace(n) && !c.takePlace(places) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

// lacksPlace counts bytes that came.
func (h *headOf) lacksPlace(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whole {
		return false
	}
	h.bytes += n
	return h.bytes > shortHead && h.place.Places() == 0
}

// takePlace waits for a place; false where none was free in time.
func (c *cappedConn) takePlace(places *longHeadPlaces) bool {
	ctx, cancel := context.WithTimeout(context.Background(), places.patience)
	defer cancel()
	place, err := places.Wait(ctx, admit.Asker{Peer: c.who.String()}, 1)
	if err != nil {
		return false
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	if c.head.closed {
		places.Leave(&place, 1)
		return false
	}
	c.head.place = place
	return true
}

// headCame tells that all of the head is there.
func (c *cappedConn) headCame() {
	if c == nil {
		return
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.head.whole = true
}

// headHeld gives the place back: the head is held in memory.budget, or nobody holds it any more.
func (c *cappedConn) headHeld() {
	if c == nil {
		return
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.head.giveBack(c.l.longHeads)
}

// giveBack gives the place back, if there is one. h.mu is held.
func (h *headOf) giveBack(places *longHeadPlaces) {
	if n := h.place.Places(); n > 0 {
		places.Leave(&h.place, n)
	}
}

// noHead tells that the connection is closed.
func (c *cappedConn) noHead() {
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.head.giveBack(c.l.longHeads)
	c.head.closed = true
}

// nextHead tells that the answer to the last head has been given.
func (c *cappedConn) nextHead() {
	if c == nil {
		return
	}
	c.head.mu.Lock()
	defer c.head.mu.Unlock()
	c.head.giveBack(c.l.longHeads)
	c.head.bytes, c.head.whole = 0, false
}
