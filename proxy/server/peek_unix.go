//go:build linux || darwin

package server

import "syscall"

// peek tells whether a socket holds something to be read; the end of the stream is nothing.
func peek(fd uintptr) bool {
	var b [1]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == nil && n > 0
}
