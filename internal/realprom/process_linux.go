package realprom

import "syscall"

// dieWithParent has the kernel kill the child when this process dies. The child has a process group
// of its own, so that a Ctrl-C in the terminal reaches this process only, which then stops the
// child in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
