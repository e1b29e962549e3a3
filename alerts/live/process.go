package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// startPatience bounds the start of one program on a machine that has other work.
const startPatience = time.Minute

// logFile makes the log of one process.
func (r *Rig) logFile(name string) (*os.File, error) {
	f, err := os.Create(filepath.Join(r.opts.Dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	r.logs = append(r.logs, f)
	return f, nil
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
