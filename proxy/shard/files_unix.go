//go:build unix

package shard

import (
	"math"
	"syscall"
)

// openFiles is how many files the process may have open. Go raises the limit as far as it may when
// the process starts.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}
