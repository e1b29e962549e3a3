package server

import (
	"io"
	"sync"
	"time"
)

// Answers that are read side by side wait until the last of them has begun. While one server is
// slow, the others' are read ahead, behind their backs: one that ends within maxAhead gives its
// place back, so that a server that hangs keeps no calls to others waiting.

const (
	// tarries is how long all may take to begin before any is read ahead.
	tarries = 50 * time.Millisecond
	// maxAhead is how much of one answer is read ahead at most.
	maxAhead = 256 << 10
)

// beginning is the time until all calls of a fan-out have begun to be answered, or have failed.
type beginning struct {
	f     *fanout
	timer *time.Timer

	mu    sync.Mutex
	left  int        // calls that have done neither
	long  bool       // it takes long
	begun []*outcome // that are not read ahead
}

func newBeginning(f *fanout) *beginning {
	b := &beginning{f: f, left: len(f.questions)}
	b.timer = time.AfterFunc(tarries, b.tarried)
	return b
}

// one says that a call is answered, or has failed.
func (b *beginning) one(r *outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left--; b.left == 0 {
		b.timer.Stop()
		return
	}
	switch {
	case r.resp == nil:
	case b.long:
		b.f.ahead(r)
	default:
		b.begun = append(b.begun, r)
	}
}

// tarried has read ahead what has begun.
func (b *beginning) tarried() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return
	}
	b.long = true
	for _, r := range b.begun {
		b.f.ahead(r)
	}
	b.begun = nil
}

// over tells whether all have.
func (b *beginning) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == 0
}

// ahead has an answer read while others have not begun: as much as there is ample room for. What
// breaks it is found by whoever reads on.
func (f *fanout) ahead(r *outcome) {
	a := &aheadBody{body: r.body, f: f, done: make(chan struct{})}
	r.body, r.src.Body = a, a
	go a.read()
}

// aheadBody is an answer of which the beginning was read ahead, or is still.
type aheadBody struct {
	body io.ReadCloser
	f    *fanout
	kept keptBody
	done chan struct{} // closed when nothing more is read ahead
}

func (a *aheadBody) read() {
	defer close(a.done)
	pool, read := a.f.x.st.pool, 0
	roomy := func() bool { return pool.InUse() < pool.Limit()/2 }
	for size := firstPiece; read < maxAhead && a.kept.err == nil && !a.f.begins.over() && roomy(); size = min(2*size, maxAhead-read) {
		if a.f.kept.hold(int64(size)) != nil {
			return
		}
		a.kept.fill(a.body, size, a.f.begins.over)
		read += size
	}
}

// Read implements io.Reader. It waits for the read that is under way, as it would for its own.
func (a *aheadBody) Read(p []byte) (int, error) {
	<-a.done
	if n, err := a.kept.Read(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	return a.body.Read(p)
}

// Close implements io.Closer. Whoever closes an answer while it is still read ahead wants none of
// the fan-out's.
func (a *aheadBody) Close() error {
	select {
	case <-a.done:
	default:
		a.f.cancel(errSibling)
		<-a.done
	}
	return a.body.Close()
}
