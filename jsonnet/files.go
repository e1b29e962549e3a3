package mixin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files are rendered files by their slash-separated path below the output folder.
type Files map[string][]byte

// Names are the paths, sorted.
func (f Files) Names() []string { return slices.Sorted(maps.Keys(f)) }

// Write writes the files below dir, which is made where it is missing, and removes generated YAML
// files of the same folders that are not among them: a group that moved to another file would else
// be evaluated twice. A file without the header is a user's own and is neither overwritten nor
// removed. Equal files are left alone, so that nothing that watches them wakes up.
func (f Files) Write(dir string) error {
	var errs []error
	folders := map[string]bool{}
	for _, name := range f.Names() {
		folders[path.Dir(name)] = true
		if err := write(filepath.Join(dir, filepath.FromSlash(name)), f[name]); err != nil {
			errs = append(errs, err)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		errs = append(errs, f.sweep(dir, folder))
	}
	return errors.Join(errs...)
}

// sweep removes what an earlier rendering left in folder.
func (f Files) sweep(dir, folder string) error {
	entries, err := os.ReadDir(filepath.Join(dir, filepath.FromSlash(folder)))
	if err != nil {
		return fmt.Errorf("look for files of an earlier rendering: %w", err)
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if _, ok := f[name]; ok || !e.Type().IsRegular() || !strings.HasSuffix(name, ".yaml") {
			continue
		}
		at := filepath.Join(dir, filepath.FromSlash(name))
		b, err := os.ReadFile(at)
		if err != nil {
			return fmt.Errorf("look for files of an earlier rendering: %w", err)
		}
		if !bytes.HasPrefix(b, []byte(header)) {
			continue
		}
		if err := os.Remove(at); err != nil {
			return fmt.Errorf("remove a file of an earlier rendering: %w", err)
		}
	}
	return nil
}

func write(at string, b []byte) error {
	old, err := os.ReadFile(at)
	switch {
	case err == nil && bytes.Equal(old, b):
		return nil
	case err == nil && strings.HasSuffix(at, ".yaml") && !bytes.HasPrefix(old, []byte(header)):
		return fmt.Errorf("%s was not written by \"spillway mixin render\" and is left as it is; move it, or choose another --out", at)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("compare with what is there: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	// A reader, such as a Prometheus that is told to reload, sees the old file or the new one.
	tmp, err := os.CreateTemp(filepath.Dir(at), ".spillway-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", at, err)
	}
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), at)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", at, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
