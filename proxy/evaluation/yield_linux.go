package evaluation

import (
	"runtime"
	"syscall"
)

// yield lets whoever is ready go first, of this program and of the processor. Go lets a goroutine
// run for 10 ms, and a kernel without preemption a thread for 35: a small request needs several
// turns of either, and while the collector has the other processor there is none beside.
func yield() {
	runtime.Gosched()
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
