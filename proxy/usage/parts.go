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

// Part is one file of a log, open, unpacked where it is packed.
type Part struct {
	io.ReadCloser
	// Name is what the file was called when it was opened.
	Name string
}

// tries is how often a log is opened that is rotated meanwhile.
const tries = 5

// OpenParts opens all files of a log at once, as Parts names them: what is open stays what it is
// when the log is rotated, where of files that are opened one after the other one would be left out
// and another one read twice. Where it is rotated meanwhile it begins anew, and after some times it
// is an error. The caller closes each.
func OpenParts(path string) ([]Part, error) {
	for range tries {
		before, _ := os.Stat(path) // moved away by others is no reason to keep the older ones back
		names, err := Parts(path)
		if err != nil {
			return nil, err
		}
		var out []Part
		for _, name := range names {
			r, openErr := openPart(name)
			if openErr != nil {
				err = errors.Join(err, openErr)
				continue
			}
			out = append(out, Part{r, name})
		}
		after, _ := os.Stat(path)
		if err == nil && (before == nil && after == nil || before != nil && after != nil && os.SameFile(before, after)) {
			return out, nil
		}
		if err = errors.Join(err, CloseParts(out)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s is rotated faster than its files can be opened; make usage_log.max_size larger", path)
}

// CloseParts closes them.
func CloseParts(parts []Part) (err error) {
	for _, p := range parts {
		err = errors.Join(err, p.Close())
	}
	return err
}

func openPart(path string) (io.ReadCloser, error) {
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
