package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/config"
)

// stillFor is how long a file that has changed must have stayed the same before it is loaded: who
// writes one in place has it half written for a moment.
const stillFor = time.Second

// mostLooks is after how many looks at the files at most a configuration that was refused is tried
// again.
const mostLooks = 20

// watchConfig reloads when the bytes of the configuration file, or of the plans that it names,
// differ from those that were loaded or refused last; it looks each interval until ctx ends. Bytes
// and not times or names: a ConfigMap is changed by turning a symbolic link to a folder.
//
// What is not known to have been loaded is loaded once more, which changes nothing if it is the
// same: the files that are there when the watch begins, which may have changed since they were
// read, and plans that the configuration did not name before. And what was refused is tried again,
// after two intervals, four and so on up to twenty: an API server that is asked for servers may
// answer by then, and a password's file be there.
func (s *Server) watchConfig(ctx context.Context, interval time.Duration) {
	var last [sha256.Size]byte
	looks, again := 0, 0 // since the last load, and after how many it is tried again
	for wait(ctx, interval) {
		sum, ok := s.configBytes()
		if looks++; !ok || sum == last && (s.reloadedWell.Load() || looks < again) {
			continue
		}
		if !wait(ctx, min(stillFor, interval)) {
			return
		}
		if again, ok := s.configBytes(); !ok || again != sum {
			continue
		}
		if again = min(2*again, mostLooks); sum != last {
			again = 2
		}
		plans := s.plans()
		looks, _ = 0, s.reload(by{how: byWatch}) // said there
		if last = sum; !slices.Equal(plans, s.plans()) {
			last = [sha256.Size]byte{}
		}
	}
}

// plans are the files that the configuration in force names.
func (s *Server) plans() []string { return s.state.Load().cfg.DropRules.Plan }

// configBytes is a digest of the files; false where the configuration cannot be read, as in the
// middle of being replaced. That a plan is not there, which a new configuration need not name, is
// part of it.
func (s *Server) configBytes() (sum [sha256.Size]byte, ok bool) {
	h := sha256.New()
	for i, file := range slices.Concat([]string{s.opts.ConfigFile}, s.plans()) {
		f, err := plainfile.Open(file)
		if err != nil && i > 0 {
			_, _ = fmt.Fprintf(h, "\x00%s cannot be read", file)
			continue
		}
		if err != nil {
			return sum, false
		}
		_, err = io.Copy(h, io.LimitReader(f, 64*config.MaxFileBytes))
		_ = f.Close() // opened for reading only
		if err != nil {
			return sum, false
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}

// wait waits; false is that ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
