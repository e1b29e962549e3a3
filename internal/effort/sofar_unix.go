//go:build unix

package effort

import (
	"syscall"
	"time"
)

// SoFar is the processor time that the process has had.
func SoFar() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
