package merge

import (
	"encoding/binary"
	"math/bits"
)

// room returns space for the values of one series.
func (d *tableDecoder) room() []float64 {
	n := d.steps
	if n > len(d.spare) {
		if n > len(valueBlock{}) {
			const page = 8 << 10 // in which the runtime gives such space
			if !d.took(d.t.held.Hold((8*int64(n) + page - 1) &^ (page - 1))) {
				return nil
			}
			return make([]float64, n)
		}
		if !d.small && n <= firstValues/4 { // most answers to a wide fan-out are a series or two
			if !d.took(d.t.held.Hold(8 * firstValues)) {
				return nil
			}
			d.small, d.spare = true, make([]float64, firstValues)
			return d.room()
		}
		if !d.took(d.t.held.Hold(valueBlockBytes)) {
			return nil
		}
		block := valueBlocks.Get().(*valueBlock)
		d.t.blocks = append(d.t.blocks, block)
		d.spare = block[:]
	}
	values := d.spare[:n:n]
	d.spare = d.spare[n:]
	return values
}

// points decodes what follows the bracket of values, or, where single is set, of one point's array;
// the values are nil where there is no point.
func (d *tableDecoder) points(single bool) ([]float64, bool) {
	s := d.s
	if d.steps > 1 {
		d.texts.begin(len(d.t.Series)+1, d.t.Grid)
	}
	if single {
		s.pos-- // the bracket is the point's own
		if d.steps != 1 {
			return nil, s.fail(WrongShape, "a vector where a matrix was asked for")
		}
	}
	var values []float64
	d.next = 0
	for first := true; single && first || !single && s.More(first); first = false {
		if values == nil {
			if values = d.room(); values == nil {
				return nil, false
			}
		}
		if !d.fastPoints(values) && !d.slowPoint(values) {
			return nil, false
		}
		if d.samples >= countEvery && !d.count() {
			return nil, false
		}
	}
	if s.err != nil {
		return nil, false
	}
	if values != nil {
		for i := d.next; i < len(values); i++ {
			values[i] = stale
		}
	}
	return values, true
}

// pointRoom is more than fastPoints looks at: a bracket, a time of at most 15 digits, a point,
// seven more, a comma and a quote; a number; and a word behind it.
const pointRoom = 26 + plainRoom + 8

// fastPoints decodes as many points of the form [123.456,"1.5"] as lie in the buffer, with no white
// space, escapes or other rarities between. It stops after a whole point, in front of the comma or
// bracket that follows, and tells whether it decoded any: where it did not, the slow way must.
func (d *tableDecoder) fastPoints(values []float64) bool {
	s := d.s
	buf := s.buf[:s.end]
	i, done := s.pos, s.pos
	next, texts := d.next, d.texts.of
	n := int64(0)
	if i >= len(buf) || buf[i] != '[' {
		return false
	}
	for i+pointRoom <= len(buf) && next < len(values) { // buf[i] is a bracket
		b := buf[i : i+pointRoom : i+pointRoom]
		j, step := 0, next
		if next < len(texts) {
			j = texts[next].is(b)
		}
		if j == 0 {
			var ms int64
			if ms, j = pointMillis(b); j == 0 {
				break
			}
			if ms != d.t.Grid.Start+int64(next)*d.t.Grid.Step {
				if step = d.t.Grid.index(ms); step < next {
					break
				}
			}
		}
		v, end := plainFloat(b, j)
		if end == 0 {
			end = j
			for limit := j + 24; end < limit; end += 8 {
				if m := stringStop(binary.LittleEndian.Uint64(b[end:])); m != 0 {
					end += bits.TrailingZeros64(m) / 8
					break
				}
			}
			if b[end] != '"' {
				break
			}
			var err error
			if v, err = parseFloat(b[j:end]); err != nil {
				break
			}
		}
		for ; next < step; next++ {
			values[next] = stale
		}
		if binary.LittleEndian.Uint32(b[end:]) == nextPoint {
			values[next] = v
			next++
			n++
			i += end + 3
			done = i - 1
			continue
		}
		if b[end+1] == ']' {
			values[next] = v
			next++
			n++
			done = i + end + 2
		}
		break
	}
	s.pos, d.next = done, next
	d.samples += n
	return n > 0
}

// pointMillis returns the time of a point as pointTime finds it, in milliseconds, and where the
// text begins; 0 where it is anything else.
func pointMillis(b []byte) (ms int64, j int) {
	j = pointTime(b)
	if j == 0 {
		return 0, 0
	}
	u := word(b, 1)
	n := leading(u)
	t := upTo(u, n)
	i := 1 + n
	if n == 8 {
		u = word(b, 9)
		n = leading(u)
		t = t*tens[n] + upTo(u, n)
		i += n
	}
	t *= 1000
	if b[i] == '.' {
		u = word(b, i+1)
		n = leading(u)
		f := upTo(u, n)
		if n > 3 {
			if f%tens[n-3] != 0 {
				return 0, 0
			}
			f /= tens[n-3]
			n = 3
		}
		t += f * tens[3-n]
	}
	return int64(t), j
}

// slowPoint decodes one point of any spelling.
func (d *tableDecoder) slowPoint(values []float64) bool {
	s := d.s
	if !s.Array() {
		return false
	}
	text, ok := s.Number()
	if !ok {
		return false
	}
	ms, whole := parseMillis(text)
	if !s.expect(',', "a comma") {
		return false
	}
	step := d.t.Grid.index(ms)
	switch {
	case !whole:
		return s.fail(WrongShape, "a sample at a part of a millisecond, at which nothing was asked")
	case step < 0:
		return s.fail(WrongShape, "a sample at %d ms, at which nothing was asked", ms)
	case step < d.next:
		return s.fail(WrongShape, "a sample at %d ms behind one that is as late or later", ms)
	}
	if text, ok = s.String(); !ok {
		return false
	}
	v, err := parseFloat(text)
	if err != nil {
		return s.fail(WrongShape, "the value of a sample is %q", short(text))
	}
	for ; d.next < step; d.next++ {
		values[d.next] = stale
	}
	values[step] = v
	d.next++
	d.samples++
	return s.expect(']', "the end of a point")
}
