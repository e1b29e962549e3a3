package inventory

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/spillwayproject/spillway/loadtest/relabel"
)

// TestIndexFile reads every series of blocks with the index' own reader too, with a memory for
// symbols so small that they push each other out, and with the usual one.
func TestIndexFile(t *testing.T) {
	dir := t.TempDir()
	if err := relabel.MakeBlocks(t.Context(), dir, relabel.Options{Series: 5000, Names: 100, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	src, err := Blocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []int{1, 64, rememberedSymbols} {
		n := 0
		for _, block := range src.(*blocks).dirs {
			c, err := openBlock(t.Context(), block)
			if err != nil {
				t.Fatal(err)
			}
			if c.file == nil {
				t.Fatal("the index is not read as one of version 2")
			}
			c.file.known = make([]symbol, known)
			b := labels.NewScratchBuilder(16)
			var metas []chunks.Meta
			for {
				more, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					break
				}
				n++
				if err := c.index.Series(c.postings.At(), &b, &metas); err != nil {
					t.Fatal(err)
				}
				if !labels.Equal(c.labels, b.Labels()) || len(metas) != 1 || len(c.metas) != 1 || metas[0] != c.metas[0] {
					t.Fatalf("got %s %v, want %s %v", c.labels, c.metas, b.Labels(), metas)
				}
			}
			// What the index does not hold is an error, not a series.
			if err := c.file.series(c.postings.At()+1<<20, &b, &metas); err == nil {
				t.Error("a series behind the end is read")
			}
			if err := c.close(); err != nil {
				t.Fatal(err)
			}
			if err := c.close(); err != nil {
				t.Errorf("the second time: %v", err)
			}
		}
		if n != 5000 {
			t.Errorf("%d series", n)
		}
	}
}
