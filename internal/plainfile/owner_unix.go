//go:build unix

package plainfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// own gives a file the owner and the group of another one, as far as this user may.
func own(f *os.File, as fs.FileInfo) {
	if st, ok := as.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid)) // who may not is no worse off than with a new file
	}
}

// mounted tells whether a file could not be replaced because it is a mount of its own, as one that
// is mounted alone into a container.
func mounted(err error) bool { return errors.Is(err, syscall.EBUSY) }
