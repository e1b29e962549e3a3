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
// also after a power cut. A file that is there keeps its mode, else it has mode; a link stays, and
// what it leads to is replaced. What is no regular file (a terminal, a pipe, /dev/null) is written
// to as it is.
func Replace(file string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	switch is, err := os.Stat(file); {
	case err == nil && is.IsDir():
		return &fs.PathError{Op: "write", Path: file, Err: errors.New("it is a folder; name a file in it")}
	case err == nil && !is.Mode().IsRegular():
		return into(file, write)
	case err == nil:
		mode = is.Mode().Perm()
	}
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".spillway-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(f.Name(), file)
}

// into writes to what is no regular file.
func into(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
