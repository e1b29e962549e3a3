package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// startSpillway starts the proxy; what it returns are the URLs of both listeners.
func (r *Rig) startSpillway(ctx context.Context, config string) (api, admin string, err error) {
	log, err := r.logFile("spillway")
	if err != nil {
		return "", "", err
	}
	p, api, admin, err := realprom.StartProxy(ctx, r.opts.Spillway, config, log)
	if err != nil {
		return "", "", err
	}
	r.keep("spillway", p)
	return api, admin, nil
}
