package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is the process id of whoever listens on the port of a URL, if that is on this machine
// and the kernel shows it to this user.
func listener(at string) (int, error) {
	u, err := url.Parse(at)
	if err != nil {
		return 0, err
	}
	if h := u.Hostname(); h != "localhost" && h != "::1" && !strings.HasPrefix(h, "127.") {
		return 0, fmt.Errorf("%s is not this machine", h)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s names no port", at)
	}
	inode := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if inode = listening(text, uint16(port)); inode != "" {
			break
		}
	}
	if inode == "" {
		return 0, fmt.Errorf("nobody listens on port %d", port)
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+inode+"]" {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}
	return 0, errors.New("its process is not visible to this user")
}

// listening finds the inode of the socket that listens on a port in the kernel's table of sockets.
func listening(table []byte, port uint16) string {
	const stateListen = "0A"
	for line := range bytes.Lines(table) {
		f := strings.Fields(string(line)) // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
		if len(f) > 9 && f[3] == stateListen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return f[9]
		}
	}
	return ""
}
