package merge

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// timeText is the time of a step as Prometheus writes it with the comma and the quote behind, 12 or
// 16 bytes, as little-endian words. Times of the years 2001 to 2286 have ten digits; others have no
// text, and no mask.
type timeText struct {
	low, high uint64
	mask      uint64 // of high
}

// textBytes is its size.
const textBytes = 24

// timeTexts are the texts of a grid's times, with which those of an answer need only be compared.
type timeTexts struct {
	of    []timeText // by the step; nil where there are none
	block *textBlock
	held  admit.Ledger
}

// textBlock is room for most grids; longer ones have their own.
type textBlock [512]timeText

var textBlocks = sync.Pool{New: func() any { return new(textBlock) }}

// begin makes the texts for the samples of a series, of which so many have been seen, this one
// among them. It goes without where the budget has no room, or where they would be too many, or
// more than a single series needs.
func (t *timeTexts) begin(series int, grid Grid) {
	const most = 4096
	switch steps := grid.Len(); {
	case t.of != nil || steps > most || steps > len(textBlock{}) && series != 2:
		return
	case t.held.Hold(textBytes*int64(max(steps, len(textBlock{})))) != nil:
		return
	case steps > len(textBlock{}):
		t.of = make([]timeText, steps)
	default:
		t.block = textBlocks.Get().(*textBlock)
		t.of = t.block[:steps]
	}
	spell(t.of, grid)
}

// drop gives the room back.
func (t *timeTexts) drop() {
	if t.block != nil {
		textBlocks.Put(t.block)
	}
	t.of, t.block = nil, nil
	t.held.Drop()
}

// spell makes the texts of the grid's first times.
func spell(texts []timeText, grid Grid) {
	hundred, low := int64(-1), uint64(0)
	for i := range texts {
		x, ms := &texts[i], grid.Time(i)
		if *x = (timeText{}); ms < 1e12 || ms >= 1e13 {
			continue
		}
		s, f := ms/1000, uint64(ms%1000)
		if h := s / 100; h != hundred {
			hundred, low = h, 0
			for range 8 {
				low, h = low<<8|'0'+uint64(h%10), h/10
			}
		}
		d := uint64(s % 100)
		x.low, x.high = low, '0'+d/10|('0'+d%10)<<8
		if f == 0 {
			x.high |= ','<<16 | '"'<<24
			x.mask = math.MaxUint32
			continue
		}
		x.high |= '.'<<16 | ('0'+f/100)<<24 | ('0'+f/10%10)<<32 | ('0'+f%10)<<40 | ','<<48 | '"'<<56
		x.mask = math.MaxUint64
	}
}

// is tells where the value begins in a point, if behind its bracket the time stands as the step's;
// 0 where it does not.
func (x *timeText) is(b []byte) int {
	if binary.LittleEndian.Uint64(b[1:])^x.low|(binary.LittleEndian.Uint64(b[9:])^x.high)&x.mask == 0 && x.mask != 0 {
		return 13 + int(x.mask>>61)&4
	}
	return 0
}
