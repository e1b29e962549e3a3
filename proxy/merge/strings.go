package merge

import (
	"bytes"
	"container/heap"
	"context"
	"slices"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// Strings is a sorted list of distinct strings, read one by one.
type Strings interface {
	// Next moves to the next string; false is the end or an error.
	Next() bool
	// At is the current string, valid until Next.
	At() []byte
	// Err is what ended the list early, sticky and naming the shard; nil at its end.
	Err() error
	// Note tells what the shard said beside the list; complete after Next has returned false.
	Note() Note
	// Close releases buffers. It is idempotent.
	Close()
}

// Note is what a shard said beside its data.
type Note struct {
	Warnings, Infos []string
	// Truncated tells that the shard's list is not whole: it said so, or it sent more than it was
	// asked for and was cut there.
	Truncated bool
}

var (
	_ Strings = (*shardStrings)(nil)
	_ Strings = (*fixedStrings)(nil)
)

// FixedStrings is a list of known strings, such as the values of a group label. It is sorted and
// made distinct here.
func FixedStrings(list []string) Strings {
	list = slices.Clone(list)
	slices.Sort(list)
	return &fixedStrings{list: slices.Compact(list), i: -1}
}

type fixedStrings struct {
	list []string
	i    int
	buf  []byte
}

func (f *fixedStrings) Next() bool {
	f.i++
	if f.i >= len(f.list) {
		return false
	}
	f.buf = append(f.buf[:0], f.list[f.i]...)
	return true
}

func (f *fixedStrings) At() []byte { return f.buf }
func (*fixedStrings) Err() error   { return nil }
func (*fixedStrings) Note() Note   { return Note{} }
func (*fixedStrings) Close()       {}

// ShardStrings reads the answer of a shard to labels or to label values. Names that src.Relabel
// removes are left out where names is true (the endpoint is labels); those it sets are not added:
// they come from FixedStrings. A list that is not sorted, or has a string twice, is an error.
func ShardStrings(ctx context.Context, src Source, names bool, budget *admit.Budget) Strings {
	l := &shardStrings{ctx: ctx, src: src, s: NewScanner(src.Body, budget)}
	if names {
		l.rl = src.Relabel
	}
	return l
}

type shardStrings struct {
	ctx context.Context
	src Source
	rl  *Relabel
	s   *Scanner
	a   answer

	state stringsState
	first bool
	n     int
	cur   []byte // a copy: reading on moves the buffer
	note  Note
	err   error
}

type stringsState uint8

const (
	stringsBefore stringsState = iota
	stringsIn
	stringsDone
)

func (l *shardStrings) At() []byte { return l.cur }
func (l *shardStrings) Err() error { return l.err }
func (l *shardStrings) Note() Note { return l.note }
func (l *shardStrings) Close()     { l.s.Close(); l.state = stringsDone }

func (l *shardStrings) Next() bool {
	if l.state == stringsBefore {
		l.open()
	}
	for l.state == stringsIn {
		if !l.s.More(l.first) {
			l.end()
			break
		}
		if l.src.Limit > 0 && l.n >= l.src.Limit {
			// It sends more than it was asked for: the rest is not read, not even its warnings.
			l.note.Truncated = true
			l.state = stringsDone
			break
		}
		b, ok := l.s.String()
		if !ok {
			l.end()
			break
		}
		if !l.first && bytes.Compare(l.cur, b) >= 0 {
			l.s.fail(OutOfOrder, "%q stands behind %q", short(b), short(l.cur))
			l.end()
			break
		}
		l.first = false
		l.n++
		l.cur = append(l.cur[:0], b...)
		if l.n&1023 == 0 && l.ctx.Err() != nil {
			l.s.err = context.Cause(l.ctx)
			l.end()
			break
		}
		if !l.rl.removes(b) {
			return true
		}
	}
	return false
}

func short(b []byte) []byte { return b[:min(len(b), 64)] }

// open reads up to the first element of data. Where data comes before other keys, which is what
// Prometheus sends, the list streams.
func (l *shardStrings) open() {
	l.state = stringsIn
	l.first = true
	found, ok := false, l.s.Object()
	if ok {
		found, ok = l.a.toData(l.s)
	}
	switch {
	case ok && found:
		if !l.s.Array() {
			l.end()
		}
	case ok: // no data at all: an error object, or an empty success
		l.close(finishAnswer(l.s, &l.a))
	default:
		l.end()
	}
}

// end reads what follows the list.
func (l *shardStrings) end() {
	l.close(l.s.err == nil && l.a.afterData(l.s))
}

func (l *shardStrings) close(ok bool) {
	l.state = stringsDone
	l.note.Warnings, l.note.Infos = l.a.warnings.list, l.a.infos.list
	l.note.Truncated = l.note.Truncated || l.a.truncated
	if !ok {
		l.err = shardErr(l.ctx, l.src.Name, l.s.err)
	}
}

// MergeStrings writes the union of sorted lists as a JSON array: sorted, each string once, at most
// limit (0 is no limit). It streams: it holds one string of each list. It closes the lists. An
// error of any list is the error of the whole.
func MergeStrings(ctx context.Context, w *Writer, limit int, lists []Strings, budget *admit.Budget) (res Result, err error) {
	defer func() {
		for _, l := range lists {
			l.Close()
		}
	}()
	var (
		h    stringHeap
		last []byte
		out  = append(make([]byte, 0, 1024), '[')
	)
	for i, l := range lists {
		if l.Next() {
			h = append(h, headString{l, i})
		} else if err := l.Err(); err != nil {
			return res, err
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		b := h[0].At()
		if res.Series == 0 || !bytes.Equal(b, last) {
			if limit > 0 && res.Series >= limit {
				res.Truncated = true
				break
			}
			if err := budget.AddSeries(1); err != nil {
				return res, err
			}
			if res.Series > 0 {
				out = append(out, ',')
			}
			out = appendText(out, b)
			last = append(last[:0], b...)
			res.Series++
			if len(out) >= encodeFlush {
				if _, err := w.Write(out); err != nil {
					return res, err
				}
				out = out[:0]
			}
		}
		if h[0].Next() {
			heap.Fix(&h, 0)
			continue
		}
		if err := h[0].Err(); err != nil {
			return res, err
		}
		heap.Pop(&h)
	}
	if _, err := w.Write(append(out, ']')); err != nil {
		return res, err
	}
	var warnings, infos Notes
	for _, l := range lists {
		n := l.Note()
		res.Truncated = res.Truncated || n.Truncated
		warnings.Add(n.Warnings...)
		infos.Add(n.Infos...)
	}
	res.Warnings, res.Infos = warnings.list, infos.list
	return res, nil
}

// stringHeap has the list with the least string on top.
type stringHeap []headString

type headString struct {
	Strings
	i int
}

func (h stringHeap) Len() int { return len(h) }
func (h stringHeap) Less(a, b int) bool {
	if c := bytes.Compare(h[a].At(), h[b].At()); c != 0 {
		return c < 0
	}
	return h[a].i < h[b].i
}
func (h stringHeap) Swap(a, b int) { h[a], h[b] = h[b], h[a] }

// Push implements heap.Interface.
func (h *stringHeap) Push(x any) { *h = append(*h, x.(headString)) }

// Pop implements heap.Interface.
func (h *stringHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
