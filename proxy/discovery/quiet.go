package discovery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/discovery/targetgroup"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/proxy/config"
)

// Prometheus' discovery of files, names and lists tells each of them again at every refresh, and
// nothing where it cannot be read: so whoever is not told of for two of them has failed.

// unheard is how long after two refreshes one has failed: reading takes time.
const unheard = 5 * time.Second

// every is how often it is looked up.
func (s *source) every() time.Duration {
	return cmp.Or(s.from.RefreshInterval, config.DefaultRefreshInterval)
}

// slack is how much later than after a refresh's time it may be told of.
func (s *source) slack() time.Duration { return min(s.every(), unheard) }

// keeps is how long a server that is found no more is asked on: until whoever may have it now was
// read again, at least.
func (s *source) keeps() time.Duration {
	if len(s.clusters) > 0 {
		return s.keep()
	}
	return max(s.keep(), s.every()+s.slack())
}

// late tells whether a file, a name or a list should have been told of again by now. Whether it has
// failed is not known yet.
func (s *source) late() bool {
	late := false
	s.unanswered(func(_ string, last time.Time, _ func() error) {
		late = late || s.now().Sub(last) > s.every()+s.slack()
	})
	return late
}

// patience is how long nothing may be told of a file, a name or a list.
func (s *source) patience() time.Duration { return 2*s.every() + unheard }

var ofFile = regexp.MustCompile(`:[0-9]+$`)

// origin is the file or the name that a group of targets comes of.
func (s *source) origin(g *targetgroup.Group) string {
	if len(s.from.Files) > 0 {
		return ofFile.ReplaceAllString(g.Source, "")
	}
	return g.Source
}

// hear notes who was told of, and from when on a new file is waited for. The caller holds s.mu.
func (s *source) hear(groups []*targetgroup.Group) {
	if len(s.clusters) > 0 { // API servers are asked otherwise, and pods come and go without end
		return
	}
	now := s.now()
	for _, g := range groups {
		if g != nil {
			s.heard[s.origin(g)] = now
		}
	}
	if len(s.from.Files) == 0 {
		return
	}
	there := map[string]bool{}
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern)
		if len(names) > 0 {
			s.heard[pattern] = now
		}
		there[pattern] = true
		for _, name := range names {
			there[name] = true
			switch last, ok := s.heard[name]; {
			case ok && now.Sub(last) < s.every():
			case s.holds(name):
			case !ok, hasNothing(name):
				s.heard[name] = now
			}
		}
	}
	maps.DeleteFunc(s.heard, func(name string, _ time.Time) bool { return !there[name] })
}

// isGone tells of a group whose file is not there any more. hear has looked for it.
func (s *source) isGone(g *targetgroup.Group) bool {
	if len(s.from.Files) == 0 {
		return false
	}
	_, there := s.heard[s.origin(g)]
	return !there
}

// holds tells whether the file was last told of with targets.
func (s *source) holds(name string) bool {
	g := s.groups[name+":0"]
	return g != nil && len(g.Targets) > 0
}

// isRead tells whether there is an answer of the file: targets, or a list of nothing. One without a
// list, be it for remarks, is about to be written.
func (s *source) isRead(name string) bool {
	if s.groups[name+":0"] != nil {
		return true
	}
	list, ok := shortList(name)
	return ok && list != nil && len(list) == 0
}

// mostNothing is how long a file with nothing but remarks in it may be, in bytes.
const mostNothing = 1 << 20

// hasNothing tells whether the file can be read and is a list of nothing: such a one is not told of
// again and again.
func hasNothing(name string) bool {
	list, ok := shortList(name)
	return ok && len(list) == 0
}

// shortList is the list in the file, nil where there is none; false where it cannot be read or is
// longer than one of nothing.
func shortList(name string) (list []any, ok bool) {
	if at, err := os.Stat(name); err != nil || at.Size() > mostNothing {
		return nil, false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, false
	}
	if strings.EqualFold(filepath.Ext(name), ".json") {
		err = json.Unmarshal(text, &list)
	} else {
		err = yaml.Unmarshal(text, &list)
	}
	return list, err == nil
}

// unanswered calls f with each file, name or list that has answered before or is new, when it did
// so last or was seen first, and what it is to say that it does not.
func (s *source) unanswered(f func(name string, last time.Time, why func() error)) {
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern)
		if last, ok := s.heard[pattern]; ok && len(names) == 0 {
			f(pattern, last, func() error { return fmt.Errorf("no file is called %s any more", pattern) })
		}
		for _, name := range names {
			if last, ok := s.heard[name]; ok {
				f(name, last, func() error {
					return fmt.Errorf("the file %s cannot be read, or has no list of targets; the log has why, at level error", name)
				})
			}
		}
	}
	for _, name := range s.from.DNSSRV {
		if last, ok := s.heard[name]; ok {
			f(name, last, func() error {
				return fmt.Errorf("the name %s can no longer be looked up; the log has why, at level error", name)
			})
		}
	}
	if s.list != nil {
		if last, err := s.list.state.get(); !last.IsZero() {
			f("", last, func() error {
				u, _ := url.Parse(s.from.HTTP) // checked when the file was read
				return cmp.Or(err, fmt.Errorf("the list at %s has not answered", plain(u)))
			})
		}
	}
}

// quiet is since when the one that has answered longest ago does not, and why; nil where all do.
// Afterwards s.mute are all that do not.
func (s *source) quiet() (since time.Time, why error) {
	s.mute = map[string]bool{}
	s.unanswered(func(name string, last time.Time, say func() error) {
		if s.now().Sub(last) <= s.patience() {
			return
		}
		if s.mute[name] = true; why == nil || last.Before(since) {
			since, why = last, say()
		}
	})
	return since, why
}

// unread tells whether a server that is still found was told of only by what does not answer now,
// before it fell silent. Of API servers and of a list all were.
func (s *source) unread(url string) bool {
	switch {
	case s.silent.IsZero():
		return false
	case len(s.from.Files)+len(s.from.DNSSRV) == 0:
		return true
	}
	return !slices.ContainsFunc(s.origins[url], func(name string) bool { return !s.mute[name] })
}

// listState is when a list was read last, and why it was not since.
type listState struct {
	mu   sync.Mutex
	last time.Time
	err  error
}

func (l *listState) get() (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.err
}

// set notes what came of a refresh.
func (l *listState) set(now time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err == nil {
		l.last = now
	}
}
