package inventory

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/index"
)

const (
	// rememberedSymbols is how many strings of an index are remembered. With their text that is
	// about 6 MB.
	rememberedSymbols = 1 << 16
	// seriesAlign is the unit of references to series in an index of version 2.
	seriesAlign = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// indexFile reads the series of an index of version 2 as the index' own reader does, but remembers
// symbols: that one decodes up to 32 strings for each value of each label, which was most of the
// time that reading blocks took.
type indexFile struct {
	file    *fileutil.MmapFile
	bytes   byteSlice
	symbols *index.Symbols
	decoder index.Decoder
	known   []symbol
}

type symbol struct {
	ref  uint32
	set  bool
	text string
}

// byteSlice is what package index reads from.
type byteSlice []byte

func (b byteSlice) Len() int                    { return len(b) }
func (b byteSlice) Range(start, end int) []byte { return b[start:end] }

// openIndex opens the index of a block; nil where it is older than version 2. It must have been
// opened by package tsdb before, which checks it.
func openIndex(dir string) (f *indexFile, err error) {
	file, err := fileutil.OpenMmapFile(filepath.Join(dir, "index"))
	if err != nil {
		return nil, err
	}
	f = &indexFile{file: file, bytes: file.Bytes(), known: make([]symbol, rememberedSymbols)}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if len(f.bytes) < index.HeaderLen || f.bytes[index.HeaderLen-1] != index.FormatV2 {
		return nil, file.Close()
	}
	toc, err := index.NewTOCFromByteSlice(f.bytes)
	if err != nil {
		return nil, fmt.Errorf("read the table of contents of the index: %w", err)
	}
	if f.symbols, err = index.NewSymbols(f.bytes, index.FormatV2, int(toc.Symbols)); err != nil {
		return nil, fmt.Errorf("read the symbols of the index: %w", err)
	}
	f.decoder.LookupSymbol = f.lookup
	return f, nil
}

func (f *indexFile) lookup(_ context.Context, ref uint32) (string, error) {
	s := &f.known[ref%uint32(len(f.known))]
	if s.set && s.ref == ref {
		return s.text, nil
	}
	text, err := f.symbols.Lookup(ref)
	if err == nil {
		*s = symbol{ref, true, text}
	}
	return text, err
}

// series reads one series. Its strings are its own.
func (f *indexFile) series(ref storage.SeriesRef, b *labels.ScratchBuilder, metas *[]chunks.Meta) error {
	d := encoding.NewDecbufUvarintAt(f.bytes, int(ref*seriesAlign), castagnoli)
	if d.Err() != nil {
		return d.Err()
	}
	return f.decoder.Series(d.Get(), b, metas)
}
