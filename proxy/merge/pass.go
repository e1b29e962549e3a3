package merge

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// countEvery is how many samples are counted on their own before the budget is asked.
const countEvery = 4096

// Pass streams the answer of one shard to query or query_range into w as the data value of an
// answer, checking and counting it on the way. Values are copied as sent; each metric object is
// rewritten by src.Relabel, sorted by name and without duplicates, and kept as sent where that is
// empty. The keys of the data object keep their order, so result may come before resultType.
//
// Series keep the shard's order. A label that is added can change how two sets of different label
// names compare (a="1" sorts before a="1",b="2", but a="1",c="3" after a="1",b="2",c="3"), so the
// order of a relabelled matrix is Prometheus' only among series of the same label names. No client
// relies on it.
//
// What does not fit src.Asked is the shard's fault: a result of another type, and a sample at a
// time that was not asked for, or after a later one. So is, in any answer, a value that Prometheus
// would not have written as a number.
//
// Two series that become equal by removing labels are a refusal (422 label_collision). Memory: one
// Scanner, and 32 bytes for each series while labels can be removed, held in budget.
func Pass(ctx context.Context, w *Writer, src Source, budget *admit.Budget) (Result, error) {
	s := NewScanner(src.Body, budget)
	defer s.Close()
	p := passer{
		pairReader: pairReader{s: s}, ctx: ctx, w: w, rl: src.Relabel, budget: budget, name: src.Name,
		times: newInstants(src.Asked, budget),
	}
	p.seen.held = admit.NewLedger(budget)
	defer p.seen.held.Drop()
	defer p.times.texts.drop()
	var (
		a   answer
		res Result
		ok  = readAnswer(s, &a, p.data)
	)
	if ok && !a.hasData {
		s.fail(WrongShape, "it has no data")
	}
	res.Series, res.Counts = p.series, []Count{{Series: p.series, Samples: p.counted}}
	var warnings, infos Notes
	res.take(&a, &warnings, &infos)
	return res, shardErr(ctx, src.Name, s.err)
}

// resultShape is what a result turns out to be.
type resultShape uint8

const (
	unknownShape resultShape = iota
	vectorShape
	matrixShape
	pairShape // scalar or string
	emptyShape
)

type passer struct {
	pairReader
	ctx    context.Context
	w      *Writer
	rl     *Relabel
	budget *admit.Budget
	name   string

	resultType string
	shape      resultShape
	series     int
	samples    int64 // not yet counted in budget
	counted    int64 // and those that are
	out        []byte
	last       []byte // the name before, while a metric is spelled anew
	seen       seenSets
	times      instants
	text       bool // the result is a pair whose value is no number
}

// write sends b to the client; the error is kept in the scanner, so that all of Pass has one.
func (p *passer) write(b []byte) bool {
	if _, err := p.w.Write(b); err != nil {
		if p.s.err == nil {
			p.s.err = err
		}
		return false
	}
	return true
}

// data passes the data object.
func (p *passer) data() bool {
	s := p.s
	if !s.Object() || !p.write([]byte{'{'}) {
		return false
	}
	hasResult := false
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		p.out = p.out[:0]
		if !first {
			p.out = append(p.out, ',')
		}
		p.out = append(appendQuoted(p.out, key), ':')
		if !p.write(p.out) {
			return false
		}
		switch string(key) {
		case "resultType":
			t, ok := s.String()
			if !ok {
				return false
			}
			if p.resultType != "" {
				return s.fail(WrongShape, "resultType stands twice")
			}
			switch p.resultType = string(t); p.resultType {
			case "vector", "matrix", "scalar", "string":
			default:
				return s.fail(WrongShape, "resultType is %q", sanitise(p.resultType[:min(64, len(p.resultType))]))
			}
			if !p.fits() {
				return false
			}
			if !p.write(appendQuoted(p.out[:0], p.resultType)) {
				return false
			}
		case "result":
			if hasResult {
				return s.fail(WrongShape, "result stands twice")
			}
			hasResult = true
			if !p.result() {
				return false
			}
		default: // stats, analysis and what else a server tells
			s.peek()
			s.copyTo(p.w)
			if !s.skip(3) || !s.stopCopy() {
				return false
			}
		}
	}
	if s.err != nil {
		return false
	}
	if !hasResult {
		return s.fail(WrongShape, "it has no result")
	}
	return p.agree() && p.write([]byte{'}'})
}

// fits checks that a result of the type was asked for.
func (p *passer) fits() bool {
	asked := p.times.asked
	return asked == nil || asked.Type == p.resultType ||
		p.s.fail(WrongShape, "its result is a %s, and a %s was asked for", p.resultType, asked.Type)
}

// agree checks that the result has the announced type.
func (p *passer) agree() bool {
	if p.resultType == "scalar" && p.text {
		return p.s.fail(WrongShape, "a scalar that is no number")
	}
	ok := false
	switch p.resultType {
	case "vector":
		ok = p.shape == vectorShape || p.shape == emptyShape
	case "matrix":
		ok = p.shape == matrixShape || p.shape == emptyShape
	case "scalar", "string":
		ok = p.shape == pairShape
	}
	return ok || p.s.fail(WrongShape, "the result is not the %q that it claims to be", p.resultType)
}

// result passes the result value, up to its closing bracket.
func (p *passer) result() bool {
	s := p.s
	if !s.Array() || !p.write([]byte{'['}) {
		return false
	}
	if c := s.peek(); c != '{' && c != ']' {
		return p.pair()
	}
	p.shape = emptyShape
	s.copyTo(p.w)
	for first := true; s.More(first); first = false {
		if s.peek() != '{' {
			return s.open('{', "a series")
		}
		if p.series++; p.series&1023 == 0 && p.ctx.Err() != nil {
			s.err = context.Cause(p.ctx)
			return false
		}
		if err := p.budget.AddSeries(1); err != nil {
			s.err = err
			return false
		}
		if !p.oneSeries() {
			return false
		}
	}
	return s.err == nil && s.stopCopy() && p.count()
}

// count brings the samples to the budget.
func (p *passer) count() bool {
	n := p.samples
	p.samples, p.counted = 0, p.counted+n
	if err := p.budget.AddSamples(n); err != nil {
		p.s.err = err
		return false
	}
	return true
}

// pair passes what follows the bracket of a scalar or string: a time and a string.
func (p *passer) pair() bool {
	s := p.s
	p.shape = pairShape
	t, ok := s.Number()
	if !ok {
		return false
	}
	p.out = append(append(p.out[:0], t...), ',')
	p.times.next = 0
	if !p.at(t) || !s.expect(',', "a comma") {
		return false
	}
	// The text is copied as sent.
	if c := s.peek(); c != '"' {
		_, ok = s.String()
		return ok
	}
	raw, _, ok := s.raw()
	if !ok {
		return false
	}
	p.text = !isNumber(raw)
	p.out = append(p.out, '"')
	p.out = append(p.out, raw...)
	p.out = append(p.out, '"', ']')
	p.samples++
	return s.expect(']', "the end of the value") && p.count() && p.write(p.out)
}

// oneSeries passes one object of a vector or matrix, copying being on.
func (p *passer) oneSeries() bool {
	p.s.pos++ // the brace
	return p.members(false)
}

// members passes the members of a series up to the end of its object, copying being on. metric
// tells that its labels are read, and were the first.
func (p *passer) members(metric bool) bool {
	s := p.s
	values := false
	for first := !metric; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "metric":
			if metric {
				return s.fail(WrongShape, "metric stands twice in one series")
			}
			metric = true
			if p.rl.Empty() {
				ok = p.skipMetric()
			} else {
				ok = p.metric()
			}
		case "value":
			values = true
			ok = p.is(vectorShape) && p.single(true)
		case "values":
			values = true
			ok = p.is(matrixShape) && p.points(true)
		case "histogram":
			values = true
			ok = p.is(vectorShape) && p.single(false)
		case "histograms":
			values = true
			ok = p.is(matrixShape) && p.points(false)
		default:
			ok = s.skip(5)
		}
		if !ok {
			return false
		}
	}
	if s.err != nil {
		return false
	}
	if !metric {
		return s.fail(WrongShape, "a series without metric")
	}
	if !values { // Prometheus leaves such a series out, so something was lost
		return s.fail(WrongShape, "a series without value")
	}
	return p.samples < countEvery || p.count()
}

func (p *passer) is(shape resultShape) bool {
	if p.shape == emptyShape {
		p.shape = shape
	}
	return p.shape == shape || p.s.fail(WrongShape, "values of a vector and of a matrix in one result")
}

// skipMetric checks a metric object that is copied as it is.
func (p *passer) skipMetric() bool {
	s := p.s
	if s.peek() == '{' && p.plainPairs(false) {
		return true
	}
	if !s.Object() {
		return false
	}
	for first := true; ; first = false {
		if _, ok := s.Key(first); !ok {
			return s.err == nil
		}
		if s.peek() != '"' {
			_, ok := s.String()
			return ok
		}
		if _, _, ok := s.raw(); !ok {
			return false
		}
	}
}

// single passes the one point of a series in a vector.
func (p *passer) single(float bool) bool {
	p.times.begin(p.series)
	if float && p.times.texts.of != nil && p.s.peek() == '[' && p.fastPoints() {
		return true
	}
	p.samples++
	return p.s.Array() && p.point(float)
}

// points passes an array of points.
func (p *passer) points(floats bool) bool {
	s := p.s
	if !s.Array() {
		return false
	}
	p.times.begin(p.series)
	for first := true; s.More(first); first = false {
		if floats {
			if p.fastPoints() {
				continue
			}
		}
		if !s.Array() || !p.point(floats) {
			return false
		}
		p.samples++
		if p.samples >= countEvery && !p.count() {
			return false
		}
	}
	return s.err == nil
}

// point passes what follows the bracket of one point: a number, and a string or an object.
func (p *passer) point(float bool) bool {
	s := p.s
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		_, ok := s.Number() // for its error
		return ok
	}
	if p.times.asked == nil {
		if !s.number() {
			return false
		}
	} else if t, ok := s.Number(); !ok || !p.at(t) {
		return false
	}
	if !s.expect(',', "a comma") {
		return false
	}
	switch c := s.peek(); {
	case float && c == '"':
		raw, _, ok := s.raw()
		if !ok {
			return false
		}
		if !isNumber(raw) {
			return s.fail(WrongShape, "the value of a sample is %q", short(raw))
		}
	case !float && c == '{':
		if !s.skip(7) {
			return false
		}
	case valueStart(c):
		return s.fail(WrongShape, "a point whose value is of another type")
	default:
		return s.bad("a value")
	}
	return s.expect(']', "the end of a point")
}

const (
	zeros = '0' * ones
	// nines added to a byte of 10 or more sets its high bit.
	nines = (0x80 - 10) * ones
	// fastRoom is more than fastPoints looks at: a bracket, a time of at most 15 digits, a point,
	// seven more, a comma and a quote; a sign, 15 digits, a point, 23 more; and a word behind it.
	fastRoom = 26 + 40 + 16

	// nextPoint is "],[ as a little-endian word.
	nextPoint = '"' | ']'<<8 | ','<<16 | '['<<24
)

// fastPoints passes as many points of the form [123.456,"1.5"] as lie in the buffer, with no white
// space, escapes or other rarities between. It stops after a whole point, in front of the comma or
// bracket that follows, and tells whether it passed any: where it passed none, the slow way must.
func (p *passer) fastPoints() bool {
	s := p.s
	buf := s.buf[:s.end]
	i, done := s.pos, s.pos
	next, texts := p.times.next, p.times.texts.of
	n := int64(0)
	if i >= len(buf) || buf[i] != '[' {
		return false
	}
	for i+fastRoom <= len(buf) { // buf[i] is a bracket
		b := buf[i : i+fastRoom : i+fastRoom]
		j, step := 0, next
		if next < len(texts) {
			j = texts[next].is(b)
		}
		if j == 0 {
			var ms int64
			if ms, j = pointMillis(b); j == 0 {
				break
			}
			if p.times.asked != nil {
				if step = p.times.step(ms, next); step < next {
					break // the slow way says what is wrong
				}
			}
		}
		// Digits with at most one point among them are a number. In dots, each byte counts the
		// points at its place in a word.
		text, dots := j, uint64(0)
		if b[j] == '-' {
			j++
		}
		from := j
		for limit := j + 24; j < limit; j += 8 {
			u := binary.LittleEndian.Uint64(b[j:])
			dot := u ^ '.'*ones
			dot = (dot - ones) &^ dot & highs // a slash behind a point is taken for a second one, and is none of a number anyway
			u ^= zeros
			if m := ((u + nines) | u) & highs &^ dot; m != 0 { // a carry can only disturb bytes above the lowest that is neither
				k := bits.TrailingZeros64(m)
				dots += dot & (1<<(k&63) - 1) >> 7
				j += k / 8
				break
			}
			dots += dot >> 7
		}
		if n := int(dots * ones >> 56); b[j] != '"' || n > 1 || j-from == n {
			if j = numberEnd(b, text); j == 0 {
				break
			}
		}
		if binary.LittleEndian.Uint32(b[j:]) == nextPoint {
			n++
			next = step + 1
			i += j + 3
			done = i - 1
			continue
		}
		if b[j+1] == ']' {
			n++
			next = step + 1
			done = i + j + 2
		}
		break
	}
	s.pos, p.times.next = done, next
	p.samples += n
	if p.samples >= countEvery && !p.count() {
		return false
	}
	return n > 0
}

// pointTime returns where the text begins in a point: behind the bracket, one to fifteen digits, a
// fraction of up to seven, a comma and a quote; 0 where it is anything else, such as a negative
// time.
func pointTime(b []byte) int {
	d := digitsAt(b, 1)
	if d == 8 {
		d += digitsAt(b, 9)
	}
	if d == 0 || d == 16 || b[1] == '0' && d > 1 {
		return 0
	}
	j := 1 + d
	if b[j] == '.' {
		f := digitsAt(b, j+1)
		if f == 0 || f == 8 {
			return 0
		}
		j += 1 + f
	}
	if b[j] != ',' || b[j+1] != '"' {
		return 0
	}
	return j + 2
}

// digitsAt counts the digits at buf[i:], at most eight. buf must have eight bytes there.
func digitsAt(buf []byte, i int) int {
	u := binary.LittleEndian.Uint64(buf[i:]) ^ zeros
	m := ((u + nines) | u) & highs
	// A carry can only disturb bytes above the lowest that is no digit.
	return bits.TrailingZeros64(m) / 8
}

// collision is the refusal of a query whose series become equal by removing labels.
func collision(set, removedA, removedB []byte) error {
	const advice = "name the label in the group's labels or replica_labels only if it tells apart nothing but replicas; or aggregate it away in the query"
	e := qerr.Refuse("label_collision", "0", "2 series", advice,
		"two series become the same, %s, by removing the group's and replica labels: one had %s, the other %s",
		cutNote(set), describeRemoved(removedA), describeRemoved(removedB))
	return fmt.Errorf("relabel: %w", e)
}

func describeRemoved(b []byte) string {
	if len(b) == 0 {
		return "none of them"
	}
	return "{" + cutNote(b) + "}"
}

func cutNote(b []byte) string { return sanitise(string(b[:min(len(b), 256)])) }
