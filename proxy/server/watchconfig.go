package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/oklog/run"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// stillFor is how long a file that has changed must have stayed the same before it is loaded: who
// writes one in place has it half written for a moment.
const stillFor = time.Second

// mostLooks is after how many looks at the files at most a configuration that was refused is tried
// again.
const mostLooks = 20

// addWatches adds to the group what looks at the configuration and at the web configuration.
func (s *Server) addWatches(g *run.Group, stopped <-chan struct{}) {
	add := func(file string, interval time.Duration, watch func(context.Context, time.Duration)) {
		if file == "" || interval <= 0 {
			return
		}
		watched, cancel := context.WithCancel(s.background)
		g.Add(func() error {
			watch(watched, interval)
			<-stopped
			return nil
		}, func(error) { cancel() })
	}
	add(s.opts.ConfigFile, s.opts.ReloadInterval, s.watchConfig)
	add(s.opts.WebConfigFile, cmp.Or(s.opts.webLooks, webLooks), s.watchWebConfig)
}

// goneLooks is after how many looks in a row without a file that can be read it counts as gone, and
// not as being replaced.
const goneLooks = 2

// watchConfig reloads when the bytes of the configuration file, or of the plans that it names,
// differ from those that were loaded or refused last; it looks each interval until ctx ends. Bytes
// and not times or names: a ConfigMap is changed by turning a symbolic link to a folder.
//
// What is not known to have been loaded is loaded once more, which changes nothing if it is the
// same: the files that are there when the watch begins, which may have changed since they were
// read; plans that the configuration did not name before; and whatever is there after somebody else
// has reloaded, who may have loaded what came and went between two looks. And what was refused is
// tried again, after two intervals, four and so on up to twenty: an API server that is asked for
// servers may answer by then, and a password's file be there. One that moves a group to servers of
// which none answers is tried at each look, and told once. A configuration file that is gone, or
// that nobody may read, is refused once (goneLooks), and loaded when it is back.
func (s *Server) watchConfig(ctx context.Context, interval time.Duration) {
	var l fileLooks
	for wait(ctx, interval) {
		sum, _, ok := s.configBytes()
		l.others(s.asked.Load())
		if !l.due(sum, ok, s.reloadedWell.Load()) {
			continue
		}
		if !wait(ctx, min(stillFor, interval)) {
			return
		}
		if again, _, still := s.configBytes(); still != ok || again != sum {
			continue
		}
		s.loadSeen(&l)
	}
}

// loadSeen reloads since a look has found the files changed. What it notes as loaded is what is
// there once no other reload is under way, and only if the file's bytes were still the same when
// they were read.
func (s *Server) loadSeen(l *fileLooks) {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	plans := s.plans()
	sum, file, ok := s.configBytes()
	err := s.load(by{how: byWatch, again: sum == l.last}) // said there
	if l.loaded(sum, ok); errors.As(err, new(*shard.UnreachedError)) {
		l.again = 1
	}
	if !slices.Equal(plans, s.plans()) || err == nil && s.base.Hash != hex.EncodeToString(file[:]) {
		l.last = [sha256.Size]byte{}
	}
}

// fileLooks are those at the configuration's files. The zero value is ready for use.
type fileLooks struct {
	last    [sha256.Size]byte // what was loaded or refused
	since   int               // looks since then
	again   int               // after how many of these what was refused is tried again
	missed  int               // looks in a row without a configuration file
	refused bool              // that there is none was loaded, and refused
	asked   int64             // reloads that somebody asked for, at the newest look
}

// others notes how often somebody else has reloaded so far: what is in force then is not known.
func (l *fileLooks) others(asked int64) {
	if asked != l.asked {
		l.asked, l.last = asked, [sha256.Size]byte{}
	}
}

// due tells whether what a look has found is to be loaded. ok is that there is a configuration
// file, and well that the last reload succeeded.
func (l *fileLooks) due(sum [sha256.Size]byte, ok, well bool) bool {
	l.since++
	if !ok {
		l.missed++
		return l.missed >= goneLooks && (well || !l.refused)
	}
	l.missed = 0
	return sum != l.last || !well && l.since >= l.again
}

// loaded notes what was loaded or refused.
func (l *fileLooks) loaded(sum [sha256.Size]byte, ok bool) {
	if l.again = min(2*l.again, mostLooks); sum != l.last {
		l.again = 2
	}
	l.since, l.last, l.refused = 0, sum, !ok
}

// plans are the files that the configuration in force names.
func (s *Server) plans() []string { return s.state.Load().cfg.DropRules.Plan }

// configBytes is a digest of the files, and that of the configuration's alone; zero and false where
// that cannot be read, as in the middle of being replaced. That a plan is not there, which a new
// configuration need not name, is part of it.
func (s *Server) configBytes() (sum, file [sha256.Size]byte, ok bool) {
	all := sha256.New()
	for i, path := range slices.Concat([]string{s.opts.ConfigFile}, s.plans()) {
		f, err := plainfile.Open(path)
		if err != nil && i > 0 {
			_, _ = fmt.Fprintf(all, "\x00%s cannot be read", path)
			continue
		}
		if err != nil {
			return sum, file, false
		}
		h := sha256.New()
		_, err = io.Copy(h, io.LimitReader(f, 64*config.MaxFileBytes))
		_ = f.Close() // opened for reading only
		if err != nil {
			return sum, file, false
		}
		if i == 0 {
			file = [sha256.Size]byte(h.Sum(nil))
		}
		_, _ = all.Write(h.Sum(nil))
	}
	return [sha256.Size]byte(all.Sum(nil)), file, true
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
