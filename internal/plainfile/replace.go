package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file under another name first: who reads it sees all of it or the one before,
// also after a power cut. Whatever is there is replaced.
func Replace(file string, mode fs.FileMode, write func(io.Writer) error) error {
	return replace(file, mode, nil, write)
}

// replace is Replace with the owner of the file that is there, if it is to stay.
func replace(file string, mode fs.FileMode, is fs.FileInfo, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".spillway-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if is != nil {
		own(f, is)
	}
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(f.Name(), file)
}

// Write writes what a person has named as an output: as Replace, but that a file that is there
// keeps its mode and, as far as this user may give it away, its owner, else it has mode; that one
// which is a mount of its own is written in place; that a link stays, and what it leads to is
// replaced; and that what is no regular file (a terminal, a pipe, /dev/null), or is where this
// process prints to, is written to as it is.
func Write(file string, mode fs.FileMode, write func(io.Writer) error) error {
	is, err := os.Stat(file)
	if err != nil {
		return Replace(file, mode, write)
	}
	for _, out := range []*os.File{os.Stdout, os.Stderr} {
		if its, err := out.Stat(); err == nil && os.SameFile(is, its) {
			return write(out)
		}
	}
	switch {
	case is.IsDir():
		return &fs.PathError{Op: "write", Path: file, Err: errors.New("it is a folder; name a file in it")}
	case !is.Mode().IsRegular():
		return into(file, write)
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err = replace(file, is.Mode().Perm(), is, write); mounted(err) {
		return into(file, write)
	}
	return err
}

// into writes to what cannot be replaced.
func into(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
