package usage

import (
	"context"
	"path/filepath"
	"sync"
)

// Shared keeps one Log for each file while somebody uses it, so that successive configurations, of
// which an old one may have requests under way for a while, never write to one file through two
// Logs. The zero value is ready for use.
type Shared struct {
	mu sync.Mutex
	by map[string]*shared
}

type shared struct {
	log   *Log
	users int
}

// Open returns the file's Log, opened where nobody has it open, with the size and the number of
// files of o from now on; and the function that gives it back, to be called once: the last one to
// do so closes it, under the bounds of Log.Close.
func (s *Shared) Open(o Options) (*Log, func(context.Context) error, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil || o.Path == "" {
		path = o.Path // Open says what is wrong with it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.by[path]
	if one == nil {
		log, err := Open(o)
		if err != nil {
			return nil, nil, err
		}
		if s.by == nil {
			s.by = map[string]*shared{}
		}
		one = &shared{log: log}
		s.by[path] = one
	} else if err := one.log.resize(o); err != nil {
		return nil, nil, err
	}
	one.users++
	return one.log, func(ctx context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock() // while it closes, too: who opens the file next must find all of its lines written
		if one.users--; one.users > 0 {
			return nil
		}
		delete(s.by, path)
		return one.log.Close(ctx)
	}, nil
}
