//go:build !linux

package realprom

import "syscall"

// dieWithParent can do nothing here: only Linux tells a child that its parent died. Stop still ends
// it.
func dieWithParent() *syscall.SysProcAttr { return nil }
