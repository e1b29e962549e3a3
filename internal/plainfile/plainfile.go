// Package plainfile opens the files that a configuration names, and nothing else that a path can
// lead to. Opening a named pipe waits until somebody writes into it, so that a process which reads
// its configuration again would wait for ever, and everybody who asks it to do so behind it (Open,
// Check). Files are replaced whole (Replace).
//
// What a person names on a command line may be a pipe or a terminal: Read and Write take these, and
// Read no more than MaxFile bytes of anything.
package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular is in the error of Open where the path is there and is no regular file, nor a link
// to one.
var ErrIrregular = errors.New("it is not a regular file; name a file that can be read again at each reload, not a pipe, a device or a folder")

// Open is os.Open for regular files; it never waits. The errors name the path.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	switch is, err := f.Stat(); {
	case err != nil:
		_ = f.Close() // opened for reading only
		return nil, err
	case !is.Mode().IsRegular():
		_ = f.Close() // likewise
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrIrregular}
	}
	return f, nil
}

// Check tells whether Open would take the path. A file that is absent, or that may not be looked
// at, is no problem here.
func Check(path string) error {
	if is, err := os.Stat(path); err == nil && !is.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: path, Err: ErrIrregular}
	}
	return nil
}
