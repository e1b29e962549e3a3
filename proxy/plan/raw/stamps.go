package raw

import (
	"fmt"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// stamps decodes the time stamps of chunks within [lo, hi], those of a copy, of which stamps are
// known already. Damaged chunks are an error, never a shorter series. zeros marks the samples that
// are 0 as those of failed scrapes.
func stamps(chunks []prompb.Chunk, lo, hi int64, from int, zeros bool, into []stamp) (out []stamp, err error) {
	defer func() {
		if p := recover(); p != nil { // chunk decoders index into the data they are given
			err = fmt.Errorf("damaged chunk: %v", p)
		}
	}()
	var it chunkenc.Iterator
	for i := range chunks {
		c := &chunks[i]
		if c.MaxTimeMs < lo || c.MinTimeMs > hi {
			continue
		}
		chk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, err
		}
		it = chk.Iterator(it)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			t := it.AtT()
			if t < lo || t > hi {
				continue
			}
			s := stamp{t: t, from: int32(from), nth: int32(len(into))}
			switch typ {
			case chunkenc.ValFloat:
				_, v := it.At()
				s.stale = value.IsStaleNaN(v)
				s.failed = zeros && v == 0
			case chunkenc.ValHistogram, chunkenc.ValFloatHistogram:
				_, h := it.AtFloatHistogram(nil)
				s.stale = value.IsStaleNaN(h.Sum)
			}
			into = append(into, s)
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	return into, nil
}
