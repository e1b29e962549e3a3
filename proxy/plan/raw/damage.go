package raw

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/prompb"
)

// Prometheus' decoders trust a chunk: a histogram's header says how many buckets there are, and as
// many are allocated before the first is read. A few bytes can ask for 26 GB. So what a chunk
// announces is compared with what it can hold, before anything decodes it.

const (
	// maxChunkBytes is more than any server writes: it cuts chunks at 1 KiB and after 120 samples,
	// of which a histogram may take a few KiB each.
	maxChunkBytes = 1 << 20
	// maxBuckets is how many buckets a histogram may have on one side.
	maxBuckets = 1 << 16
	// chunkHeader are the bytes before a histogram's layout: the number of samples and the flags.
	chunkHeader = 3
)

// samplesOf is how many samples a chunk says it has. Those of histograms with start timestamps have
// the counter reset in the two bits before it, which others have behind it.
func samplesOf(c *prompb.Chunk) int {
	n := binary.BigEndian.Uint16(c.Data)
	if c.Type == prompb.Chunk_HISTOGRAM_ST || c.Type == prompb.Chunk_FLOAT_HISTOGRAM_ST {
		n &= 0x3fff
	}
	return int(n)
}

// checkChunk refuses chunks that a decoder must not see.
func checkChunk(c *prompb.Chunk) error {
	if len(c.Data) > maxChunkBytes {
		return fmt.Errorf("a chunk of %d bytes; at most %d are decoded", len(c.Data), maxChunkBytes)
	}
	if len(c.Data) < chunkHeader {
		return fmt.Errorf("a chunk of %d bytes", len(c.Data))
	}
	switch c.Type {
	case prompb.Chunk_XOR, prompb.Chunk_XOR2:
		if n := samplesOf(c); n > 8*len(c.Data) { // none takes less than a bit
			return fmt.Errorf("a chunk of %d samples in %d bytes", n, len(c.Data))
		}
		return nil
	case prompb.Chunk_HISTOGRAM, prompb.Chunk_FLOAT_HISTOGRAM, prompb.Chunk_HISTOGRAM_ST, prompb.Chunk_FLOAT_HISTOGRAM_ST:
		if samplesOf(c) == 0 {
			return nil // no sample, no layout
		}
		return checkLayout(c.Data[chunkHeader:])
	}
	return fmt.Errorf("a chunk of the unknown encoding %d", c.Type)
}

// checkLayout reads a histogram chunk's layout as far as its spans: zero threshold, schema,
// positive spans, negative spans. A layout that does not end within the chunk is damage too:
// Prometheus' reader of bits can run on behind the last byte and then finds numbers that nobody
// wrote.
func checkLayout(data []byte) error {
	b := bits{data: data}
	if b.take(8) == 255 { // else the threshold is this one byte
		b.take(64)
	}
	b.varbit() // schema
	for range 2 {
		total := uint64(0)
		for n := b.varbit(); n > 0 && !b.over; n-- {
			length := b.varbit()
			b.varbit() // offset
			if total += length; length > maxBuckets || total > maxBuckets || total > 8*uint64(len(data)) {
				return errTooManyBuckets
			}
		}
	}
	if b.over {
		return errors.New("a histogram whose layout is cut off")
	}
	return nil
}

var errTooManyBuckets = errors.New("a histogram that announces more buckets than its chunk can hold")

// bits reads bits from the most significant on. Past the end it gives zeros and sets over.
type bits struct {
	data []byte
	pos  int
	over bool
}

func (b *bits) take(n int) (v uint64) {
	for range n {
		i := b.pos >> 3
		if i >= len(b.data) {
			b.over = true
			return 0
		}
		v = v<<1 | uint64(b.data[i]>>(7-b.pos&7)&1)
		b.pos++
	}
	return v
}

// varbit reads a number as chunks store them: a prefix of ones, closed by a zero unless it has
// eight, says how many bits follow.
func (b *bits) varbit() uint64 {
	ones := 0
	for ones < 8 && b.take(1) == 1 {
		ones++
	}
	return b.take([]int{0, 3, 6, 9, 12, 18, 25, 56, 64}[ones])
}
