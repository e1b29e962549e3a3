package merge

import (
	"encoding/binary"
	"math/rand"
	"testing"
)

// TestSpell: times have the texts that Prometheus writes, or none where they have not ten digits.
func TestSpell(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	texts := make([]timeText, 300)
	for _, grid := range []Grid{
		{Start: 1e12 - 100_000, Step: 1000},
		{Start: 1e13 - 100_000, Step: 1000},
		{Start: 1_700_000_000_000, Step: 30_000},
		{Start: 1_700_000_000_781, Step: 1},
		{Start: -100_000, Step: 1000},
		{Start: 1_699_999_999_999, Step: 1_000_001},
		{Start: r.Int63n(1e13), Step: 1 + r.Int63n(1e6)},
	} {
		spell(texts, grid)
		for i := range texts {
			want := append(AppendTimestamp(nil, grid.Time(i)), ',', '"')
			b := append(append([]byte{'['}, want...), `5678901234567890`...)
			x := &texts[i]
			if known := grid.Time(i) >= 1e12 && grid.Time(i) < 1e13; known != (x.mask != 0) {
				t.Fatalf("%s: mask %x", want, x.mask)
			}
			known := (len(want) == 12 || len(want) == 16 && want[10] == '.') && want[0] != '-'
			if j := x.is(b); known && j != 1+len(want) || !known && j != 0 {
				t.Fatalf("%s: its text is taken for a time, the value beginning at %d", want, j)
			}
			if binary.LittleEndian.PutUint64(b[1:], x.low); !known && x.is(b) != 0 {
				t.Fatalf("%s: without a text another one is", want)
			}
			if b[1+r.Intn(len(want))] ^= 1 + byte(r.Intn(255)); x.is(b) != 0 {
				t.Fatalf("%s: %q is taken for it", want, b)
			}
		}
	}
}
