package usage

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Parts are the files of a log that was rotated (usage.jsonl, usage.jsonl.1 and so on), each of
// them packed (.gz) or not, the oldest first. The error is os.ErrNotExist where there is none.
func Parts(path string) ([]string, error) {
	type part struct {
		path   string
		number int
	}
	var parts []part
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), base)
		if !ok || e.IsDir() {
			continue
		}
		rest = strings.TrimSuffix(rest, ".gz")
		number := 0
		if rest != "" {
			if number, err = strconv.Atoi(strings.TrimPrefix(rest, ".")); err != nil || rest[0] != '.' {
				continue
			}
		}
		parts = append(parts, part{filepath.Join(filepath.Dir(path), e.Name()), number})
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s: %w", path, os.ErrNotExist)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(b.number-a.number, strings.Compare(a.path, b.path)) })
	out := make([]string, len(parts))
	for i := range parts {
		out[i] = parts[i].path
	}
	return out, nil
}

// OpenPart opens one of them, and unpacks it where it is packed.
func OpenPart(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return f, err
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<18))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return packed{z, f}, nil
}

type packed struct {
	*gzip.Reader
	file *os.File
}

func (p packed) Close() error { return errors.Join(p.Reader.Close(), p.file.Close()) }
