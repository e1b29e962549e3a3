//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package usage

import (
	"errors"
	"os"
	"syscall"
)

// tryLock tells whether somebody else holds the lock; otherwise it is ours, or there are no locks
// here.
func tryLock(f *os.File) (taken bool) {
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
