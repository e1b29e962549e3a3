package merge

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stringStop has the high bit set in the lowest byte of u that ends a run of plain string bytes: a
// quote, a backslash or a control character. Bits above the lowest set one may be wrong.
func stringStop(u uint64) uint64 {
	quote := u ^ ('"' * ones)
	slash := u ^ ('\\' * ones)
	return ((quote-ones)&^quote | (slash-ones)&^slash | (u-' '*ones)&^u) & highs
}

// plainString returns the index behind the string without escapes that begins at b[i]; -1 where
// there is none, or its end is not in b.
func plainString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i+8 <= len(b); i += 8 {
		if m := stringStop(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) / 8
			if b[i] == '"' {
				return i + 1
			}
			return -1
		}
	}
	return -1 // near the end of the buffer the slow way is fast enough
}

// raw consumes a string, the opening quote being next, and returns what is between the quotes,
// whether it has escapes, and success.
func (s *Scanner) raw() (raw []byte, esc, ok bool) {
	if to := plainString(s.buf[:s.end], s.pos); to >= 0 {
		raw = s.buf[s.pos+1 : to-1]
		s.pos = to
		return raw, false, true
	}
	holder := s.tok < 0
	if holder {
		s.tok = s.pos
	}
	start := s.pos - s.tok
	s.pos++
	ok = s.rawRest(&esc)
	if ok {
		raw = s.buf[s.tok+start+1 : s.pos-1]
	}
	if holder {
		s.tok = -1
	}
	return raw, esc, ok
}

func (s *Scanner) rawRest(esc *bool) bool {
	for {
		buf, i := s.buf[:s.end], s.pos
		for i+8 <= len(buf) {
			if m := stringStop(binary.LittleEndian.Uint64(buf[i:])); m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		for i < len(buf) && buf[i] >= ' ' && buf[i] != '"' && buf[i] != '\\' {
			i++
		}
		s.pos = i
		if i >= len(buf) {
			if !s.fill() {
				return s.bad("the end of a string")
			}
			continue
		}
		switch buf[i] {
		case '"':
			s.pos++
			return true
		case '\\':
			*esc = true
			if !s.escape() {
				return false
			}
		default:
			return s.bad("a string without control characters")
		}
	}
}

// escape consumes a backslash and what it escapes.
func (s *Scanner) escape() bool {
	s.pos++
	c, ok := s.next()
	if !ok {
		return s.bad("an escaped character")
	}
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			c, ok := s.next()
			if !ok || hexDigit(c) < 0 {
				if ok {
					s.pos--
				}
				return s.bad("a hexadecimal digit")
			}
		}
		return true
	}
	s.pos--
	return s.bad("an escaped character")
}

// next consumes one byte.
func (s *Scanner) next() (byte, bool) {
	if s.pos >= s.end && !s.fill() {
		return 0, false
	}
	s.pos++
	return s.buf[s.pos-1], true
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// decodeString appends to dst what raw, the bytes between the quotes of a valid JSON string, stands
// for.
func decodeString(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '\\':
			i++
			c, i = raw[i], i+1
			switch c {
			case 'b':
				c = '\b'
			case 'f':
				c = '\f'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'u':
				r := hex4(raw[i:])
				i += 4
				if utf16.IsSurrogate(r) {
					low := rune(-1)
					if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
						low = hex4(raw[i+2:])
					}
					if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
						i += 6
					}
				}
				dst = utf8.AppendRune(dst, r)
				continue
			}
			dst = append(dst, c)
		case c < utf8.RuneSelf:
			n := i + 1
			for n < len(raw) && raw[n] < utf8.RuneSelf && raw[n] != '\\' {
				n++
			}
			dst = append(dst, raw[i:n]...)
			i = n
		default:
			r, size := utf8.DecodeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
		}
	}
	return dst
}

func hex4(b []byte) rune {
	return hexDigit(b[0])<<12 | hexDigit(b[1])<<8 | hexDigit(b[2])<<4 | hexDigit(b[3])
}
