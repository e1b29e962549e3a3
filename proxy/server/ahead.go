package server

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Answers that are read side by side wait until the last of them has begun. While one server is
// slow, the others' are read ahead: one that ends within maxAhead gives its place back, so that a
// server that hangs keeps no calls to others waiting.

const (
	// tarries is how long all may take to begin before any is read ahead.
	tarries = 50 * time.Millisecond
	// maxAhead is how much of one answer is read ahead at most.
	maxAhead = 256 << 10
)

// beginning is the time until all calls of a fan-out have begun to be answered, or have failed.
type beginning struct {
	left    atomic.Int32
	all     chan struct{} // closed when they have
	tarried chan struct{} // closed when they have not for long
	timer   *time.Timer
}

func newBeginning(calls int) *beginning {
	b := &beginning{all: make(chan struct{}), tarried: make(chan struct{})}
	b.left.Store(int32(calls))
	b.timer = time.AfterFunc(tarries, sync.OnceFunc(func() { close(b.tarried) }))
	return b
}

// one says that another call is answered, or has failed.
func (b *beginning) one() {
	if b.left.Add(-1) == 0 {
		b.timer.Stop()
		close(b.all)
	}
}

// over tells whether all of them are.
func (b *beginning) over() bool { return b.left.Load() == 0 }

// ahead waits until all calls have begun, and reads the answer meanwhile where they take long: as
// much as there is ample room for. What breaks it is found by whoever reads on.
func (f *fanout) ahead(r *outcome) {
	b := f.begins
	select {
	case <-b.all:
		return
	case <-b.tarried:
	}
	pool, read := f.x.st.pool, 0
	kept := &keptBody{}
	roomy := func() bool { return pool.InUse() < pool.Limit()/2 }
	for size := firstPiece; read < maxAhead && kept.err == nil && !b.over() && roomy(); size = min(2*size, maxAhead-read) {
		if f.kept.hold(int64(size)) != nil {
			break
		}
		kept.fill(r.body, size, b.over)
		read += size
	}
	r.body = &aheadBody{ReadCloser: r.body, kept: kept}
	r.src.Body = r.body
}

// aheadBody is an answer of which the beginning was read ahead.
type aheadBody struct {
	io.ReadCloser
	kept *keptBody
}

// Read implements io.Reader.
func (b *aheadBody) Read(p []byte) (int, error) {
	if n, err := b.kept.Read(p); n > 0 || err != nil || len(p) == 0 {
		return n, err
	}
	return b.ReadCloser.Read(p)
}
