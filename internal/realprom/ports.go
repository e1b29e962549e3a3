package realprom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// readyTimeout bounds the start of a program where PortOptions has no other bound: a machine may
// have other work.
const readyTimeout = time.Minute

// PortOptions say what StartOnPorts starts.
type PortOptions struct {
	// Name is what errors call it; the file's name where it is empty.
	Name string
	// Path is the program. Log is as in ProcessOptions.
	Path string
	Log  io.Writer
	// Ports is how many it listens on; Args is its command line, given host:port of each.
	Ports int
	Args  func(addrs []string) []string
	// Timeout is how long it may take to be ready; a minute where it is 0.
	Timeout time.Duration
}

// StartOnPorts starts a program on free ports of 127.0.0.1, on others where another process took
// one in between, and returns with the addresses when it answers /-/ready at the first of them. ctx
// bounds the start, not the program: that ends with Stop, which must be called where there was no
// error.
func StartOnPorts(ctx context.Context, o PortOptions) (*Process, []string, error) {
	name, timeout := cmp.Or(o.Name, filepath.Base(o.Path)), cmp.Or(o.Timeout, readyTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s was not ready after %s", name, timeout))
	defer cancel()
	for try := 1; ; try++ {
		ports, err := FreePorts(o.Ports)
		if err != nil {
			return nil, nil, err
		}
		addrs := make([]string, len(ports))
		for i, port := range ports {
			addrs[i] = fmt.Sprintf("127.0.0.1:%d", port)
		}
		p, err := StartProcess(ProcessOptions{Path: o.Path, Args: o.Args(addrs), Log: o.Log})
		if err != nil {
			return nil, nil, err
		}
		if err = p.WaitReady(ctx, "http://"+addrs[0]+"/-/ready"); err == nil {
			return p, addrs, nil
		}
		taken := strings.Contains(p.Log(), "address already in use")
		stopErr := p.Stop()
		if !taken || try == portTries {
			return nil, nil, errors.Join(fmt.Errorf("start %s: %w", name, err), stopErr)
		}
	}
}
