//go:build !unix

package h1

import "net"

// quiet cannot be told here: a connection that the server closed shows when it is used.
func quiet(net.Conn) bool { return true }
