package mix

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time, user and system, that all threads of a process have taken so far,
// those that have ended included: what /proc/PID/stat says in hundredths of a second, to the
// nanosecond, since a round of requests through a thin proxy takes only a few hundredths.
func cpuTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of the kernel's posix-timers.h: the clock is named by the process id's complement and this
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
