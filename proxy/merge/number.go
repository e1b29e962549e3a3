package merge

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// parseFloat is strconv.ParseFloat(string(b), 64) to the bit, and faster for what servers send:
// numbers without an exponent.
func parseFloat(b []byte) (float64, error) {
	const longest = 31
	if len(b) <= longest {
		// The quote ends the number as in an answer, and the room behind it is for whole-word
		// loads.
		var text [longest + 1 + plainRoom]byte
		text[copy(text[:], b)] = '"'
		if f, end := plainFloat(text[:], 0); end == len(b) && end > 0 {
			return f, nil
		}
	}
	return strconv.ParseFloat(string(b), 64)
}

// plainRoom is how many bytes plainFloat may look at: a sign, 31 digits, a point and three words.
const plainRoom = 1 + 31 + 1 + 24

// tens are the powers of ten of integers; tenths those that a float64 has exactly.
var (
	tens   = [9]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}
	tenths = [23]float64{
		1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
		1e21, 1e22,
	}
	// roomFor[n] is the largest number to which n digits can be appended without overflow.
	roomFor [9]uint64
	// fives are the powers of five that fit into 64 bits, shifted up until their highest bit is
	// set, and by how much.
	fives [28]struct {
		top   uint64
		shift int
	}
)

func init() {
	for n := range roomFor {
		roomFor[n] = (math.MaxUint64 - (tens[n] - 1)) / tens[n]
	}
	for e, p := 0, uint64(1); e < len(fives); e, p = e+1, p*5 {
		fives[e].shift = bits.LeadingZeros64(p)
		fives[e].top = p << fives[e].shift
	}
}

// word loads eight bytes, each less '0': a digit's value where it is one.
func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) ^ zeros }

// leading counts the digits at the low end of a word, at most eight.
func leading(u uint64) int {
	// A carry can only disturb bytes above the lowest that is no digit.
	return bits.TrailingZeros64(((u+nines)|u)&highs) >> 3
}

// eight is the number that the eight digits of a word write.
func eight(u uint64) uint64 {
	u = u*10 + u>>8 // pairs, in every other byte
	const even = 0x000000ff000000ff
	return ((u&even)*(100+1000000<<32) + (u>>16&even)*(1+10000<<32)) >> 32
}

// upTo is the number that a word's lowest n digits write, n being at most eight.
func upTo(u uint64, n int) uint64 {
	return eight(u << (uint(64-8*n) & 127)) // leading zeros
}

// digitRun appends to m the digits at b[i:]. It returns their number; ok is false where m would
// overflow or there are more than 23.
func digitRun(b []byte, i int, m uint64) (_ uint64, n int, ok bool) {
	for range 3 {
		u := word(b, i+n)
		d := leading(u)
		if m > roomFor[d] {
			return 0, 0, false
		}
		if d < 8 {
			return m*tens[d] + upTo(u, d), n + d, true
		}
		m = m*1e8 + eight(u)
		n += 8
	}
	return 0, 0, false
}

// plainFloat reads the number at b[i:] up to the quote behind it and returns its value, rounded as
// IEEE 754 and strconv do, and the index of the quote. The index is 0 where the number is not of
// the simple kind (a sign, digits, a point with digits) or too long; strconv decides then. b must
// have plainRoom bytes at i.
func plainFloat(b []byte, i int) (f float64, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	u := word(b, i)
	n := leading(u)
	var m uint64
	if n < 8 {
		m = upTo(u, n)
	} else {
		ok := false
		if m, n, ok = digitRun(b, i+8, eight(u)); !ok {
			return 0, 0
		}
		n += 8
	}
	i += n
	fraction := 0
	if b[i] == '.' {
		ok := false
		if m, fraction, ok = digitRun(b, i+1, m); !ok || fraction == 0 {
			return 0, 0
		}
		i += 1 + fraction
	}
	if b[i] != '"' || n == 0 {
		return 0, 0
	}
	switch {
	case fraction == 0 && m < 1<<63:
		f = float64(int64(m))
	case m == 0: // f is
	case m < 1<<53 && fraction < len(tenths):
		// Both are exact, so the division rounds once.
		f = float64(int64(m)) / tenths[fraction]
	case fraction < len(fives):
		f = quotient(m, fraction)
	default:
		return 0, 0
	}
	if negative {
		f = -f
	}
	return f, i
}

// quotient is m/10^e, correctly rounded to even; m is not zero, e at most 27. The division of m by
// 5^e is exact in 128 bits: a quotient of at least 63 bits, more than the 53 and one for rounding,
// and whether anything remains. The result is far from overflow and from subnormal numbers.
func quotient(m uint64, e int) float64 {
	up := bits.LeadingZeros64(m)
	m <<= up
	five := &fives[e]
	// m*2^63 / five: the high word is less than the divisor, whose top bit is set.
	q, rest := bits.Div64(m>>1, m<<63, five.top)
	// The value is (q + rest/five)*2^exp.
	exp := five.shift - up - e - 63
	drop := bits.Len64(q) - 53 // 10 or 11
	frac := q >> drop
	low := q & (1<<drop - 1)
	half := uint64(1) << (drop - 1)
	if low > half || low == half && (rest != 0 || frac&1 == 1) {
		frac++ // 2^53 carries into the exponent below
	}
	return math.Float64frombits(frac + uint64(exp+drop+52+1022)<<52)
}

// parseMillis reads a JSON number of seconds as milliseconds, exactly. ok is false where it has a
// part of a millisecond, or is out of range.
func parseMillis(b []byte) (ms int64, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	const most = math.MaxInt64 / 10
	scale := 3 // decimal places of ms that are still to come
	point, i := false, 0
	for ; i < len(b); i++ {
		c := b[i]
		if c == '.' {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		switch {
		case point && scale == 0:
			// Places beyond the milliseconds count only with an exponent, which no server sends.
			if c != '0' {
				return slowMillis(b, negative)
			}
			continue
		case point:
			scale--
		}
		if ms > most-1 {
			return slowMillis(b, negative)
		}
		ms = ms*10 + int64(c-'0')
	}
	if i < len(b) {
		return slowMillis(b, negative)
	}
	for ; scale > 0; scale-- {
		if ms > most-1 {
			return 0, false
		}
		ms *= 10
	}
	if negative {
		ms = -ms
	}
	return ms, true
}

// slowMillis is parseMillis for numbers with exponents or many places: all digits, and the power of
// ten of the last.
func slowMillis(b []byte, negative bool) (ms int64, ok bool) {
	var digits []byte
	power := 3
	for i, point := 0, false; i < len(b); i++ {
		switch c := b[i]; {
		case c == '.':
			point = true
		case c == 'e' || c == 'E':
			e, err := strconv.Atoi(string(b[i+1:]))
			if err != nil || e > 1<<20 || e < -1<<20 {
				// An exponent of more than a million: only zero is an instant then.
				for _, d := range digits {
					if d != '0' {
						return 0, false
					}
				}
				return 0, true
			}
			power += e
			i = len(b)
		default:
			digits = append(digits, c)
			if point {
				power--
			}
		}
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	for len(digits) > 0 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
		power++
	}
	if len(digits) == 0 {
		return 0, true
	}
	if power < 0 || len(digits)+power > 18 {
		return 0, false
	}
	for _, c := range digits {
		ms = ms*10 + int64(c-'0')
	}
	for range power {
		ms *= 10
	}
	if negative {
		ms = -ms
	}
	return ms, true
}
