package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

const (
	// startPatience bounds the start of one program on a machine that has other work.
	startPatience = time.Minute
	// portTries is how many ports are tried where another process takes one in between.
	portTries = 5
)

// logFile makes the log of one process.
func (r *Rig) logFile(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(r.opts.Dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	r.logs = append(r.logs, f)
	return f, nil
}

// startOnPorts starts a program with free ports, others where these were taken in between, and waits until it is ready.
func (r *Rig) startOnPorts(ctx context.Context, name, path string, ports int, args func(ports []int) []string, ready func(ports []int) string) (*realprom.Process, []int, error) {
	log, err := r.logFile(name)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("%s was not ready after %s", name, startPatience))
	defer cancel()
	for try := 1; ; try++ {
		free := make([]int, ports)
		for i := range free {
			if free[i], err = realprom.FreePort(); err != nil {
				return nil, nil, err
			}
		}
		p, err := realprom.StartProcess(realprom.ProcessOptions{Path: path, Args: args(free), Log: log})
		if err != nil {
			return nil, nil, err
		}
		if err = p.WaitReady(ctx, ready(free)); err == nil {
			r.keep(name, p)
			return p, free, nil
		}
		taken := strings.Contains(p.Log(), "address already in use")
		stopErr := p.Stop()
		if !taken || try == portTries {
			return nil, nil, errors.Join(fmt.Errorf("start %s: %w", name, err), stopErr)
		}
	}
}

// spillwayReady is what the proxy's log says when it can be asked, with the addresses of both listeners.
var spillwayReady = regexp.MustCompile(`Spillway is ready.*address"?[=:]"?([^" ]+)"?[ ,]"?admin"?[=:]"?([^"\s]+)`)

// startSpillway starts the proxy on ports that it chooses itself.
func (r *Rig) startSpillway(ctx context.Context, config string) (address, admin string, err error) {
	log, err := r.logFile("spillway")
	if err != nil {
		return "", "", err
	}
	p, err := realprom.StartProcess(realprom.ProcessOptions{
		Path: r.opts.Spillway, Log: log,
		Args: []string{"proxy", "--config.file=" + config, "--web.listen-address=127.0.0.1:0", "--web.admin-listen-address=127.0.0.1:0"},
	})
	if err != nil {
		return "", "", err
	}
	r.keep("spillway", p)
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("spillway was not ready after %s", startPatience))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if m := spillwayReady.FindStringSubmatch(p.Log()); m != nil {
			return m[1], m[2], p.WaitReady(ctx, "http://"+m[1]+"/-/ready")
		}
		select {
		case <-p.Done():
			return "", "", fmt.Errorf("spillway ended before it was ready; its log:\n%s", p.Log())
		case <-ctx.Done():
			return "", "", fmt.Errorf("%w; its log:\n%s", context.Cause(ctx), p.Log())
		case <-tick.C:
		}
	}
}
