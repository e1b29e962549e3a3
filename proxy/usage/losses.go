package usage

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// losses are the requests without a line of which the log does not tell yet. What is made of the
// log must know of them: what nobody seems to have asked may stand in one of these lines. The zero
// value is ready for use. It is safe for concurrent use.
type losses struct {
	mu       sync.Mutex
	n        int64
	from, to time.Time // when the first and the last one went
	told     time.Time // the last time
	telling  losing    // what the last line told
}

type losing struct {
	n        int64
	from, to time.Time
}

// add adds lines that went now.
func (l *losses) add(lines int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.from = now
	}
	l.n, l.to = l.n+lines, now
}

// line tells of them, once in so long a time; nil where there is nothing to tell. Who cannot write
// it says so by untold.
func (l *losses) line(now time.Time, every time.Duration) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 || now.Sub(l.told) < every {
		return nil
	}
	l.telling = losing{l.n, l.from, l.to}
	l.n, l.told = 0, now
	r := Record{Time: l.telling.from, RangeSeconds: l.telling.to.Sub(l.telling.from).Seconds(), Purpose: Lost, Lost: l.telling.n}
	return r.Line()
}

// untold takes back what the line told, if there is one.
func (l *losses) untold(line []byte) {
	if line == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.to = l.telling.to
	}
	l.n, l.from, l.told = l.n+l.telling.n, l.telling.from, time.Time{}
}

// countLines is how many lines of the file are about to go, at least one.
func countLines(f io.ReaderAt, size int64) (n int64) {
	buf := make([]byte, 1<<16)
	in := io.NewSectionReader(f, 0, size)
	for {
		got, err := in.Read(buf)
		n += int64(bytes.Count(buf[:got], []byte{'\n'}))
		if err != nil {
			return max(n, 1)
		}
	}
}
