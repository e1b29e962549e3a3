package merge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/spillwayproject/spillway/proxy/admit"
)

const (
	// scanBuffer is the size of a Scanner's buffer, unless one token is longer.
	scanBuffer = 64 << 10
	// MaxToken bounds one string, number or label set of an answer, in bytes as sent.
	MaxToken = 1 << 20
	// MaxDepth bounds the nesting of an answer. Prometheus' deepest document, rules with alerts,
	// has 8 levels.
	MaxDepth = 64
)

var scanBuffers = sync.Pool{New: func() any { return new([scanBuffer]byte) }}

// Scanner reads one JSON document as a stream. It accepts exactly what encoding/json accepts,
// within MaxToken and MaxDepth, and decodes strings to the same bytes: invalid UTF-8 and lone
// surrogates become U+FFFD. It allocates nothing per value.
//
// Errors are sticky: after the first, every method returns false, and Err tells what happened. A
// Scanner is used by one goroutine.
type Scanner struct {
	r      io.Reader
	budget *admit.Budget
	sink   io.Writer // where copied regions go

	buf      []byte
	pooled   *[scanBuffer]byte
	held     int64 // in budget
	pos, end int
	off      int64 // bytes of the input before buf[0]
	tok      int   // buf[tok:] must stay contiguous; -1: nothing must
	from     int   // buf[from:pos] is to be copied to sink; -1: no copying
	eof      bool
	err      error

	scratch    []byte // decoded string
	containers int64  // objects and arrays seen by Skip
	keys       int64  // keys seen by Skip
	items      int64  // elements of arrays seen by Skip
	maxToken   int
}

// NewScanner returns a scanner over r, whose bytes are counted in budget as they are read, and
// whose buffer is held in it until Close. budget may be nil.
func NewScanner(r io.Reader, budget *admit.Budget) *Scanner {
	s := &Scanner{}
	s.reset(r, budget)
	return s
}

func (s *Scanner) reset(r io.Reader, budget *admit.Budget) {
	*s = Scanner{r: r, budget: budget, tok: -1, from: -1, maxToken: MaxToken, scratch: s.scratch[:0]}
	if err := budget.Hold(scanBuffer); err != nil {
		s.err = err
		return
	}
	s.held = scanBuffer
	s.pooled = scanBuffers.Get().(*[scanBuffer]byte)
	s.buf = s.pooled[:]
}

// Close releases the buffer. It does not close the reader. It is idempotent, and no slice that the
// scanner returned may be used afterwards.
func (s *Scanner) Close() {
	if s.pooled != nil {
		scanBuffers.Put(s.pooled)
		s.pooled = nil
	}
	s.budget.Drop(s.held)
	s.held, s.buf, s.pos, s.end = 0, nil, 0, 0
	if s.err == nil {
		s.err = errClosed
	}
}

var errClosed = errors.New("the scanner is closed")

// Err is the first error: a *ScanError, a refusal by the budget, or the reader's own.
func (s *Scanner) Err() error { return s.err }

// Offset is the number of bytes consumed.
func (s *Scanner) Offset() int64 { return s.off + int64(s.pos) }

// fail records the first error and returns false.
func (s *Scanner) fail(kind ScanKind, format string, args ...any) bool {
	if s.err == nil {
		s.err = &ScanError{Kind: kind, Offset: s.Offset(), Reason: fmt.Sprintf(format, args...)}
	}
	return false
}

// bad is fail for a byte that cannot stand here, or for the end of the input.
func (s *Scanner) bad(want string) bool {
	if s.err != nil {
		return false
	}
	if s.pos >= s.end {
		return s.fail(Truncated, "it ends where %s was expected", want)
	}
	return s.fail(Garbage, "%q where %s was expected", s.buf[s.pos:min(s.end, s.pos+16)], want)
}

// fill reads more. It keeps buf[tok:] where a token is held, else buf[pos:]; what is to be copied
// and need not be kept goes to the sink first. False is the end of the input or an error.
func (s *Scanner) fill() bool {
	if s.err != nil || s.eof {
		return false
	}
	keep := s.pos
	if s.tok >= 0 {
		keep = s.tok
	}
	if s.from >= 0 {
		if !s.flush(keep) {
			return false
		}
		s.from -= keep
	}
	if keep > 0 {
		copy(s.buf, s.buf[keep:s.end])
		s.pos -= keep
		s.end -= keep
		s.off += int64(keep)
		if s.tok >= 0 {
			s.tok = 0
		}
	}
	if s.end == len(s.buf) && !s.grow() {
		return false
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		if n > 0 {
			s.end += n
			if berr := s.budget.AddBytes(int64(n)); berr != nil {
				s.err = berr
				return false
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			s.eof = true
		case errors.Is(err, io.ErrUnexpectedEOF):
			s.eof = true
			s.err = &ScanError{Kind: Truncated, Offset: s.off + int64(s.end), Reason: "the body ends before its announced length"}
			return false
		default:
			s.err = fmt.Errorf("read at byte %d: %w", s.off+int64(s.end), err)
			return false
		}
		if n > 0 {
			return true
		}
		if s.eof {
			return false
		}
	}
	s.err = io.ErrNoProgress
	return false
}

// grow doubles the buffer for a token that fills it.
func (s *Scanner) grow() bool {
	if len(s.buf) >= s.maxToken {
		return s.fail(OverBound, "a string or label set is longer than %s", admit.FormatBytes(int64(s.maxToken)))
	}
	size := min(2*len(s.buf), max(s.maxToken, scanBuffer))
	if err := s.budget.Hold(int64(size)); err != nil {
		s.err = err
		return false
	}
	bigger := make([]byte, size)
	copy(bigger, s.buf[:s.end])
	if s.pooled != nil {
		scanBuffers.Put(s.pooled)
		s.pooled = nil
	}
	s.budget.Drop(s.held)
	s.buf, s.held = bigger, int64(size)
	return true
}

// copyTo starts copying everything from here on to w.
func (s *Scanner) copyTo(w io.Writer) { s.sink, s.from = w, s.pos }

// flush sends buf[from:upTo] to the sink and moves from.
func (s *Scanner) flush(upTo int) bool {
	if s.from < 0 || upTo <= s.from {
		return s.err == nil
	}
	if _, err := s.sink.Write(s.buf[s.from:upTo]); err != nil {
		if s.err == nil {
			s.err = err
		}
		return false
	}
	s.from = upTo
	return true
}

// stopCopy sends what is left up to here and stops copying.
func (s *Scanner) stopCopy() bool {
	ok := s.flush(s.pos)
	s.from = -1
	return ok
}

// peek skips white space and returns the next byte without consuming it; 0 at the end of the input
// or after an error (0 never is JSON).
func (s *Scanner) peek() byte {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\n', '\t', '\r':
				s.pos++
			default:
				if s.err != nil {
					return 0
				}
				return c
			}
		}
		if !s.fill() {
			return 0
		}
	}
}

// accept consumes c if it is next.
func (s *Scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// expect consumes c, or fails.
func (s *Scanner) expect(c byte, what string) bool {
	if s.accept(c) {
		return true
	}
	return s.bad(what)
}

// End fails unless only white space is left.
func (s *Scanner) End() bool {
	if s.peek() == 0 && s.err == nil && s.pos >= s.end {
		return true
	}
	return s.bad("the end of the document")
}

// Object consumes '{'. A value of another type is of the wrong shape.
func (s *Scanner) Object() bool { return s.open('{', "an object") }

// Array consumes '['. A value of another type is of the wrong shape.
func (s *Scanner) Array() bool { return s.open('[', "an array") }

func (s *Scanner) open(c byte, what string) bool {
	next := s.peek()
	if next == c {
		s.pos++
		return true
	}
	if valueStart(next) {
		return s.fail(WrongShape, "%s was expected", what)
	}
	return s.bad(what)
}

// valueStart tells whether a JSON value may begin with c.
func valueStart(c byte) bool {
	switch c {
	case '{', '[', '"', '-', 't', 'f', 'n':
		return true
	}
	return c >= '0' && c <= '9'
}

// More tells whether an array has another element; first is true for the first. It consumes the
// comma or the closing bracket.
func (s *Scanner) More(first bool) bool {
	switch s.peek() {
	case ']':
		s.pos++
		return false
	case ',':
		if !first {
			s.pos++
			return true
		}
	default:
		if first {
			return s.err == nil && s.pos < s.end || s.bad("a value")
		}
	}
	return s.bad("a comma or the end of the array")
}

// Key returns the next key of an object, decoded and valid until the next call, or false at its
// end, or on an error. first is true for the first key.
func (s *Scanner) Key(first bool) ([]byte, bool) {
	switch s.peek() {
	case '}':
		s.pos++
		return nil, false
	case ',':
		if first {
			return nil, s.bad("a key")
		}
		s.pos++
		if s.peek() != '"' {
			return nil, s.bad("a key")
		}
	case '"':
		if !first {
			return nil, s.bad("a comma or the end of the object")
		}
	default:
		return nil, s.bad("a key or the end of the object")
	}
	raw, esc, ok := s.raw()
	if !ok {
		return nil, false
	}
	// The colon may be beyond the buffer's end, and reading on would move the key away.
	if s.pos < s.end && s.buf[s.pos] == ':' {
		s.pos++
		return s.decode(raw, esc), true
	}
	key := append(s.scratch[:0], raw...)
	if esc || !utf8.Valid(raw) {
		key = decodeString(nil, raw)
	}
	s.scratch = key
	return key, s.expect(':', "a colon")
}

// String consumes a string and returns it decoded, valid until the next call. A value of another
// type is of the wrong shape.
func (s *Scanner) String() ([]byte, bool) {
	if c := s.peek(); c != '"' {
		if valueStart(c) {
			return nil, s.fail(WrongShape, "a string was expected")
		}
		return nil, s.bad("a string")
	}
	raw, esc, ok := s.raw()
	if !ok {
		return nil, false
	}
	return s.decode(raw, esc), true
}

func (s *Scanner) decode(raw []byte, esc bool) []byte {
	if !esc && utf8.Valid(raw) {
		return raw
	}
	s.scratch = decodeString(s.scratch[:0], raw)
	return s.scratch
}

// Number consumes a number and returns it as sent, valid until the next call. A value of another
// type is of the wrong shape.
func (s *Scanner) Number() ([]byte, bool) {
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		if valueStart(c) {
			return nil, s.fail(WrongShape, "a number was expected")
		}
		return nil, s.bad("a number")
	}
	holder := s.tok < 0
	if holder {
		s.tok = s.pos
	}
	start := s.pos - s.tok
	ok := s.number()
	var raw []byte
	if ok {
		raw = s.buf[s.tok+start : s.pos]
	}
	if holder {
		s.tok = -1
	}
	return raw, ok
}

// look returns the byte at pos without consuming it and without skipping white space; 0 at the end.
func (s *Scanner) look() byte {
	if s.pos >= s.end && !s.fill() {
		return 0
	}
	return s.buf[s.pos]
}

func (s *Scanner) number() bool {
	if s.look() == '-' {
		s.pos++
	}
	if s.look() == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.look() == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if c := s.look(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.look(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return false
		}
	}
	return s.err == nil
}

func (s *Scanner) digits() bool {
	if c := s.look(); c < '0' || c > '9' {
		return s.bad("a digit")
	}
	for c := s.look(); c >= '0' && c <= '9'; c = s.look() {
		s.pos++
	}
	return s.err == nil
}

// Skip consumes one value of any type, checking it.
func (s *Scanner) Skip() bool { return s.skip(1) }

func (s *Scanner) skip(depth int) bool {
	switch c := s.peek(); c {
	case '"':
		_, _, ok := s.raw()
		return ok
	case '{':
		s.pos++
		if !s.enter(depth) {
			return false
		}
		for first := true; ; first = false {
			if _, ok := s.Key(first); !ok {
				return s.err == nil
			}
			s.keys++
			if !s.skip(depth + 1) {
				return false
			}
		}
	case '[':
		s.pos++
		if !s.enter(depth) {
			return false
		}
		for first := true; s.More(first); first = false {
			s.items++
			if !s.skip(depth + 1) {
				return false
			}
		}
		return s.err == nil
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || c >= '0' && c <= '9' {
			_, ok := s.Number()
			return ok
		}
		return s.bad("a value")
	}
}

func (s *Scanner) enter(depth int) bool {
	s.containers++
	if depth > MaxDepth {
		return s.fail(OverBound, "nested deeper than %d", MaxDepth)
	}
	return true
}

// Null consumes null if it is next.
func (s *Scanner) Null() bool { return s.peek() == 'n' && s.literal("null") }

func (s *Scanner) literal(want string) bool {
	if s.end-s.pos >= len(want) && bytes.HasPrefix(s.buf[s.pos:s.end], []byte(want)) {
		s.pos += len(want)
		return true
	}
	for i := range len(want) {
		if s.look() != want[i] {
			return s.bad(want)
		}
		s.pos++
	}
	return true
}
