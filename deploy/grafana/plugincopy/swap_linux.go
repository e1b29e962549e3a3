package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the lock of a folder without waiting, and says whether somebody else has it.
func lock(dir *os.File) (busy bool) {
	return errors.Is(unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// exchange swaps the names of two folders in one step.
func exchange(dir *os.File, a, b string) error {
	return unix.Renameat2(int(dir.Fd()), a, int(dir.Fd()), b, unix.RENAME_EXCHANGE)
}
