package merge

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// Asked is what the answer to a query must fit.
type Asked struct {
	// Type is the resultType: vector, matrix, scalar or string.
	Type string
	// Grid is the times at which there may be samples: those of the evaluation, or, with a step of
	// a millisecond, the range whose samples are given as they are stored.
	Grid Grid
	// Unsorted tells that a matrix may come in any order, as that of an instant query does of a
	// Prometheus before 3.0. Splice takes it for one whose order the labels have changed.
	Unsorted bool
}

// instants holds the times of samples against what was asked. Those of one series come in order.
type instants struct {
	asked *Asked
	steps int // of the grid
	next  int // step after the last one of the series in hand
	texts timeTexts
}

func newInstants(asked *Asked, budget *admit.Budget) instants {
	t := instants{asked: asked, texts: timeTexts{held: admit.NewLedger(budget)}}
	if asked != nil {
		t.steps = asked.Grid.Len()
	}
	return t
}

// begin starts with the samples of a series, of which so many have been seen.
func (t *instants) begin(series int) {
	if t.next = 0; t.asked != nil && t.texts.of == nil {
		t.texts.begin(series, t.asked.Grid)
	}
}

// step is the step at a time, as usual the next; -1 where there is none.
func (t *instants) step(ms int64, next int) int {
	if next < t.steps && ms == t.asked.Grid.Time(next) {
		return next
	}
	return t.asked.Grid.index(ms)
}

// at takes the time of a sample as it was sent.
func (p *passer) at(text []byte) bool {
	t := &p.times
	if t.asked == nil {
		return true
	}
	ms, whole := parseMillis(text)
	step := -1
	if whole {
		step = t.step(ms, t.next)
	}
	switch {
	case step < 0:
		return p.s.fail(WrongShape, "a sample at %s s, at which nothing was asked", short(text))
	case step < t.next:
		return p.s.fail(WrongShape, "a sample at %s s behind one that is as late or later", short(text))
	}
	t.next = step + 1
	return true
}

// numberEnd is the index of the quote behind the number at b[j:] in any of the ways in which one is
// written, 0 where it is none, or a longer one than any that Prometheus writes. b must have 32
// bytes there.
func numberEnd(b []byte, j int) int {
	for i := j; i < j+32; i += 8 {
		if m := stringStop(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) / 8
			if b[i] == '"' && isNumber(b[j:i]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// isNumber tells whether a text is a value as Prometheus writes one. What Go reads as a number
// beyond that, such as 1_0 or 0x1p-2, other readers take for something else.
func isNumber(text []byte) bool {
	switch string(text) {
	case "NaN", "+Inf", "-Inf":
		return true
	}
	rest := bytes.TrimPrefix(text, []byte{'-'})
	n := 0
	digits := func() {
		for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
			n++
			rest = rest[1:]
		}
	}
	digits()
	if len(rest) > 0 && rest[0] == '.' {
		rest = rest[1:]
		digits()
	}
	if n == 0 {
		return false
	}
	if len(rest) > 0 && (rest[0] == 'e' || rest[0] == 'E') {
		if rest = rest[1:]; len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		n = 0
		digits()
		if n == 0 {
			return false
		}
	} else if len(text) < 300 {
		return len(rest) == 0
	}
	if len(rest) > 0 {
		return false
	}
	_, err := strconv.ParseFloat(string(text), 64) // it may be out of range
	return err == nil
}
