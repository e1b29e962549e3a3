package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// A caller that reads slowly keeps no server waiting, nor a place there: what servers send faster
// than the caller takes it is kept here, within memory.budget, and written behind the back of
// whoever merges. Only answers that are read side by side need that (calls.go): all others are had
// whole before they are written.

const (
	// maxSpooled is how much of one answer is kept at most, in bytes; less where an eighth of
	// memory.budget is less.
	maxSpooled = 32 << 20
	// spoolPiece is what is kept and written at a time.
	spoolPiece = 64 << 10
)

var spoolPieces = sync.Pool{New: func() any { return new([spoolPiece]byte) }}

// errUnspooled ends a spool whose answer failed.
var errUnspooled = errors.New("the answer has failed")

// spool is what is kept of one answer. One goroutine writes into it, and ends it.
type spool struct {
	send     func([]byte) (int, error)
	panicked func(value any, stack []byte) error
	roomy    func() bool   // whether there is room for more than one piece: less than makes pressed true
	memory   *admit.Budget // has room for one piece from the beginning
	most     int           // pieces
	done     chan struct{} // closed when nothing more is sent

	mu     sync.Mutex
	change sync.Cond // of what follows
	pieces [][]byte
	kept   int // pieces, with the one that is being sent
	whole  bool
	ended  bool  // nothing more is sent
	err    error // of send, or why nothing more is to be sent
}

// newSpool returns a spool before send, which another goroutine calls from now on, for a caller of
// that address; nil where there is no room for one.
func newSpool(pool *admit.Pool, peer string, send func([]byte) (int, error), panicked func(any, []byte) error) *spool {
	memory := admit.NewBudget(pool, admit.Limits{}).By(peer)
	if memory.Hold(spoolPiece) != nil {
		memory.Close()
		return nil
	}
	s := &spool{
		send: send, panicked: panicked, memory: memory, done: make(chan struct{}),
		roomy: func() bool { return !pool.Tight() && pool.InUse() < pool.Limit()/8*3 },
		most:  int(max(1, min(maxSpooled, pool.Limit()/8)/spoolPiece)),
	}
	s.change.L = &s.mu
	go s.run()
	return s
}

// Write implements io.Writer. It waits while there is no room; p is copied. The error is that of an
// earlier piece that could not be sent.
func (s *spool) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		piece := p[n:min(len(p), n+spoolPiece)]
		if err = s.put(piece); err == nil {
			n += len(piece)
		}
	}
	return n, err
}

func (s *spool) put(piece []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !s.fits(piece) && !s.room() {
		s.change.Wait() // what is kept is being sent
	}
	switch last := len(s.pieces) - 1; {
	case s.err != nil:
		return s.err
	case s.fits(piece):
		s.pieces[last] = append(s.pieces[last], piece...)
		return nil
	}
	s.kept++
	own := spoolPieces.Get().(*[spoolPiece]byte)
	s.pieces = append(s.pieces, own[:copy(own[:], piece)])
	s.change.Broadcast()
	return nil
}

// fits tells whether the last piece that waits has room for more.
func (s *spool) fits(piece []byte) bool {
	last := len(s.pieces) - 1
	return last >= 0 && len(s.pieces[last])+len(piece) <= spoolPiece
}

// room takes room for a piece; for the first there always is.
func (s *spool) room() bool {
	return s.kept == 0 || s.kept < s.most && s.roomy() && s.memory.Hold(spoolPiece) == nil
}

// run sends what is kept.
func (s *spool) run() {
	defer close(s.done)
	defer func() {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}()
	for piece := s.next(); piece != nil; piece = s.next() {
		err := s.one(piece)
		spoolPieces.Put((*[spoolPiece]byte)(piece[:spoolPiece]))
		s.mu.Lock()
		if s.kept--; s.kept > 0 {
			s.memory.Drop(spoolPiece)
		}
		if s.err == nil {
			s.err = err
		}
		s.change.Broadcast()
		s.mu.Unlock()
	}
}

// one sends a piece. This is nobody's request, so a panic would end the process.
func (s *spool) one(piece []byte) (err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			err = qerr.ErrClientLeft
		} else if p != nil {
			err = s.panicked(p, debug.Stack())
		}
	}()
	if _, err = s.send(piece); err != nil {
		err = fmt.Errorf("%w: %w", qerr.ErrClientLeft, err)
	}
	return err
}

// next waits for the next piece; nil when there is none to be sent any more.
func (s *spool) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pieces) == 0 && !s.whole && s.err == nil {
		s.change.Wait()
	}
	if len(s.pieces) == 0 || s.err != nil {
		return nil
	}
	piece := s.pieces[0]
	s.pieces[0], s.pieces = nil, s.pieces[1:]
	return piece
}

// drain waits until all is sent, and returns what came of it; the cause of ctx where it ends first.
func (s *spool) drain(ctx context.Context) error {
	s.mu.Lock()
	s.whole = true
	s.change.Broadcast()
	s.mu.Unlock()
	select {
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail has nothing more sent: who puts more is told why.
func (s *spool) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.ended {
		s.err = err
	}
	s.change.Broadcast()
}

// spools has the rest of the answer, which is longer than is held back, kept where the client is
// slow. It ends with ctx.
func (c *clientWriter) spools(ctx context.Context, pool *admit.Pool, panicked func(any, []byte) error) {
	c.behind = newSpool(pool, identity.From(ctx).Peer, c.write, panicked)
	if s := c.behind; s != nil {
		c.keeps.Store(s.memory)
		c.ended = context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	}
}

// settle ends what spools has begun, with err as what became of the answer: what is kept is sent
// before, of half an answer too, whose reader is to see that it is cut. Afterwards nobody else
// writes to the client. It is idempotent.
func (c *clientWriter) settle(ctx context.Context, err error) error {
	s := c.behind
	if s == nil {
		return err
	}
	if sent := s.drain(ctx); err == nil {
		err = sent
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, qerr.ErrClientLeft) && errors.Is(err, cause) {
		err = cause // whoever put a piece took it for a client that left
	}
	c.behind = nil
	c.ended()
	select {
	case <-s.done:
	default:
		s.fail(errUnspooled)
		c.cut.Store(true)
		_ = c.rc.SetWriteDeadline(time.Now()) // ends the write that is under way, and with it the connection
		<-s.done
	}
	s.memory.Close()
	return err
}
