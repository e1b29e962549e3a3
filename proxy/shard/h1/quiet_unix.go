//go:build unix

package h1

import (
	"net"
	"syscall"
)

// quiet tells whether an idle connection is open and has nothing to read: a server that closed it,
// or says something unasked, is not to be asked on it. Where that cannot be told, and where the
// server goes while the request is on its way, the connection shows it when it is used.
func quiet(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, peeked = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && (peeked == syscall.EAGAIN || peeked == syscall.EWOULDBLOCK)
}
