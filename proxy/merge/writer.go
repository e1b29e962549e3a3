package merge

import (
	"fmt"
	"io"
	"sync"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// writeChunk is the unit in which a Writer holds and writes.
	writeChunk = 64 << 10
	// HoldBytes is what a Writer holds before it commits by itself.
	HoldBytes = 1 << 20
)

var writeChunks = sync.Pool{New: func() any { return new([writeChunk]byte) }}

// Writer holds the beginning of an answer back, so that a failure can still become an error with a
// status of its own. Nothing reaches the client before HoldBytes are held, or the answer's end,
// which is Finish or End: without either it is cut. After a failure the caller asks Committed:
// false, and the answer can be replaced; true, and only aborting the connection keeps the client
// from taking half an answer for a whole one.
//
// What is held is charged to the budget. A Writer is used by one goroutine.
type Writer struct {
	w      io.Writer
	budget *admit.Budget

	// Tail, where set, is asked at the end for what follows warnings and infos: a comma, a key and
	// a value.
	Tail func() ([]byte, error)

	// OnCommit, where set, is called once, before the first byte goes to the client: the place for
	// headers. size is the length of the whole answer where all of it is held, else -1.
	OnCommit func(size int64)

	full      []*[writeChunk]byte // held, full
	cur       *[writeChunk]byte
	n         int // used of cur
	written   int64
	committed bool
	finishing bool
	err       error
}

// NewWriter returns a writer to w. Close must be called.
func NewWriter(w io.Writer, budget *admit.Budget) *Writer { return &Writer{w: w, budget: budget} }

// Committed tells whether bytes may have reached the client.
func (w *Writer) Committed() bool { return w.committed }

// Len is the number of bytes written into w, held ones included.
func (w *Writer) Len() int64 { return w.written }

// Write takes p. The error is sticky: a refusal by the budget, or qerr.ErrClientLeft with what the
// connection said.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	total := len(p)
	w.written += int64(total)
	for len(p) > 0 {
		if w.committed && w.n == 0 && len(p) >= writeChunk/4 {
			if !w.send(p) {
				return 0, w.err
			}
			break
		}
		if w.cur == nil && !w.chunk() {
			return 0, w.err
		}
		n := copy(w.cur[w.n:], p)
		w.n += n
		p = p[n:]
		if w.n == writeChunk && !w.turn() {
			return 0, w.err
		}
	}
	return total, nil
}

func (w *Writer) chunk() bool {
	if err := w.budget.Hold(writeChunk); err != nil {
		w.err = err
		return false
	}
	w.cur, w.n = writeChunks.Get().(*[writeChunk]byte), 0
	return true
}

// turn deals with a full chunk: it is written, or held while there is room.
func (w *Writer) turn() bool {
	if w.committed {
		return w.Flush() == nil
	}
	w.full = append(w.full, w.cur)
	w.cur, w.n = nil, 0
	if len(w.full)*writeChunk >= HoldBytes {
		return w.commit() == nil
	}
	return true
}

// commit sends what is held to the client; from now on everything goes there in chunks. It is
// idempotent, and no end: what is written since lies in a chunk until End.
func (w *Writer) commit() error {
	if w.err != nil || w.committed {
		return w.err
	}
	w.committed = true
	if w.OnCommit != nil {
		size := int64(-1)
		if w.finishing {
			size = w.written
		}
		w.OnCommit(size)
	}
	for _, c := range w.full {
		w.send(c[:])
		w.release(c)
	}
	w.full = nil
	return w.Flush()
}

// Flush writes what is buffered, once committed.
func (w *Writer) Flush() error {
	if w.err == nil && w.committed && w.n > 0 {
		w.send(w.cur[:w.n])
		w.n = 0
	}
	return w.err
}

// send writes to the client. Its error is that the client left, not a fault of whatever shard is
// being read.
func (w *Writer) send(p []byte) bool {
	if w.err != nil {
		return false
	}
	if _, err := w.w.Write(p); err != nil {
		w.err = fmt.Errorf("%w: %w", qerr.ErrClientLeft, err)
		return false
	}
	return true
}

func (w *Writer) release(c *[writeChunk]byte) {
	writeChunks.Put(c)
	w.budget.Drop(writeChunk)
}

// Close releases what is held without writing it. It is idempotent.
func (w *Writer) Close() {
	for _, c := range w.full {
		w.release(c)
	}
	w.full = nil
	if w.cur != nil {
		w.release(w.cur)
		w.cur, w.n = nil, 0
	}
	if w.err == nil {
		w.err = io.ErrClosedPipe
	}
}

// Begin writes the head of a success; the endpoint's data follows.
func (w *Writer) Begin() error {
	_, err := io.WriteString(w, `{"status":"success","data":`)
	return err
}

// Finish writes warnings, infos and the end, commits, and so completes the answer. Both lists are
// bounded and sanitised as those of shards are.
func (w *Writer) Finish(warnings, infos []string) error {
	var notes Notes
	notes.Add(warnings...)
	var more Notes
	more.Add(infos...)
	b := notes.append(nil, "warnings")
	b = more.append(b, "infos")
	if w.Tail != nil {
		tail, err := w.Tail()
		if err != nil {
			return err
		}
		b = append(b, tail...)
	}
	b = append(b, '}')
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.End()
}

// End commits, and so completes an answer that was written by Write alone.
func (w *Writer) End() error {
	w.finishing = true
	if err := w.commit(); err != nil {
		return err
	}
	return w.Flush()
}
