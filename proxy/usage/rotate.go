package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
)

// file is what rotating needs of an *os.File.
type file interface {
	io.Writer
	io.ReaderAt
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
	Close() error
}

type opener func(path string) (file, error)

func openFile(path string) (file, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
		return nil, fmt.Errorf("%s is neither a file nor a terminal", path) // opening a pipe waits for its reader
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, os.ErrPermission) { // a device that can only be written
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
		if err := f.Chmod(0o600); err != nil { // who asked what is nobody else's business
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// rotating is a file that is renamed when it is full. Only the writer uses it, but for the two
// bounds, which may change.
//
// Invariant: where regular, the file holds size bytes, and these are whole lines.
type rotating struct {
	path     string
	maxSize  atomic.Int64
	maxFiles atomic.Int64
	open     opener

	f       file // nil where it could not be opened, until it can
	info    os.FileInfo
	size    int64
	regular bool
	emptied int64 // lines of files that could not be moved aside
}

func newRotating(o Options) *rotating {
	r := &rotating{path: o.Path, open: o.open}
	r.maxSize.Store(o.MaxSize)
	r.maxFiles.Store(int64(o.MaxFiles))
	return r
}

// share is how much of the log one caller may fill with long lines in an hour.
func (r *rotating) share() int64 {
	return max(leastShare, min(r.maxSize.Load(), 1<<50)/sharePart*r.maxFiles.Load())
}

// ensure makes sure that the file at path is open: at first, after an error, and after someone has
// moved or removed it.
func (r *rotating) ensure() error {
	if r.f != nil {
		if !r.regular {
			return nil
		}
		now, err := os.Stat(r.path)
		if err == nil && os.SameFile(r.info, now) {
			r.size = min(r.size, now.Size()) // others' copytruncate; what they append is theirs
		}
		if err == nil && os.SameFile(r.info, now) && !r.holds() {
			return r.hold(r.f, r.info)
		}
		if err == nil && os.SameFile(r.info, now) || err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	f, err := r.open(r.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if info.Mode().IsRegular() {
		if err := r.hold(f, info); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	r.f, r.info, r.regular, r.size = f, info, info.Mode().IsRegular(), 0
	if r.regular {
		r.size = info.Size()
		if err := r.mend(); err != nil {
			return errors.Join(err, r.close())
		}
	}
	return nil
}

// mend takes away a last line that was cut short when the machine or the process died. What does
// not look like one of our lines is kept and ended.
func (r *rotating) mend() error {
	const window = 1 << 20
	from := max(0, r.size-window)
	tail := make([]byte, r.size-from)
	if _, err := r.f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(tail) == 0 || tail[len(tail)-1] == '\n' {
		return nil
	}
	start := bytes.LastIndexByte(tail, '\n') + 1
	if mark := []byte(`{"v":`); (start > 0 || from == 0) && (bytes.HasPrefix(tail[start:], mark) || bytes.HasPrefix(mark, tail[start:])) {
		r.size = from + int64(start)
		return r.f.Truncate(r.size)
	}
	n, err := r.f.Write([]byte{'\n'})
	r.size += int64(n)
	return err
}

// fits tells whether n more bytes may be written before the next rotation.
func (r *rotating) fits(n int) bool { return !r.regular || r.size+int64(n) <= r.maxSize.Load() }

// write appends whole lines, after a rotation if they do not fit. It reports whether they are in
// the file; an error without that is one of the rotation.
func (r *rotating) write(lines []byte) (bool, error) {
	if err := r.ensure(); err != nil {
		return false, err
	}
	var rotation error
	if !r.fits(len(lines)) && r.size > 0 {
		if rotation = r.rotate(); r.f == nil {
			return false, rotation
		}
	}
	n, err := r.f.Write(lines)
	if err == nil {
		r.size += int64(n)
		return true, rotation
	}
	if n > 0 && r.regular {
		// Half a line is worse than none. Where it cannot be taken back, the file is opened anew,
		// which mends it.
		if now, statErr := r.f.Stat(); statErr == nil {
			r.size = min(r.size, max(0, now.Size()-int64(n))) // to lengthen it would put NULs there
		}
		if cutErr := r.f.Truncate(r.size); cutErr != nil {
			err = errors.Join(err, cutErr, r.close())
		}
	}
	return false, errors.Join(rotation, err)
}

// rotate renames the files, the oldest over the edge, and opens a new one. Where renaming fails the
// file is not allowed to grow without end: it is emptied.
func (r *rotating) rotate() error {
	err := r.shift()
	if err != nil {
		lines := countLines(r.f, r.size)
		if cutErr := r.f.Truncate(0); cutErr == nil {
			r.size = 0
			r.emptied += lines
			return fmt.Errorf("rotate: %w; the file was emptied instead", err)
		}
	}
	return errors.Join(err, r.close(), r.ensure())
}

func (r *rotating) shift() error {
	keep := int(r.maxFiles.Load())
	defer r.trim(keep)
	if keep == 1 {
		return os.Remove(r.path)
	}
	for i := keep - 1; i > 0; i-- {
		from := r.path
		if i > 1 {
			from += "." + strconv.Itoa(i-1)
		}
		if err := os.Rename(from, r.path+"."+strconv.Itoa(i)); err != nil && (i == 1 || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// trim removes what is left of a time when more files were kept.
func (r *rotating) trim(keep int) {
	for os.Remove(r.path+"."+strconv.Itoa(keep)) == nil {
		keep++
	}
}

func (r *rotating) close() error {
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	r.f = nil
	r.letGo()
	return err
}
