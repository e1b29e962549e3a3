package rewrite

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

const (
	// MaxRemembered is of how many refused requests the outcome is remembered.
	MaxRemembered = 512
	// FoundFor is how long what was found is told again to whoever asks for the same, and
	// NothingFor how long nothing is looked for again where nothing was found.
	FoundFor, NothingFor = 2 * time.Minute, 30 * time.Second
	// MaxFlows is of how many flows it is counted how often a rewrite was looked for; FlowSearches
	// is how often one has it looked for within FlowTime, and FlowAtOnce how many at once.
	MaxFlows, FlowSearches, FlowAtOnce = 1024, 30, 2
	FlowTime                           = time.Minute
	// AllSearches is how often one is looked for within FlowTime by all flows together.
	AllSearches = 240
)

// Memory remembers what came of refused requests. The zero Memory is ready; it is safe for
// concurrent use.
type Memory struct {
	mu    sync.Mutex
	by    map[uint64]remembered
	swept time.Time // when all that was over was forgotten
}

// remembered keeps no request: its texts may be parts of a whole body.
type remembered struct {
	found bool
	p     Proposal // without its request
	query string
	match []string
	step  time.Duration
	was   time.Duration // how long the stretch of time of the rewrite is; 0 where it is that of the request
	at    time.Time
}

func (r *remembered) over(now time.Time) bool {
	if r.found {
		return now.Sub(r.at) >= FoundFor
	}
	return now.Sub(r.at) >= NothingFor
}

// Put remembers the outcome for the request, which key tells from all others.
func (m *Memory) Put(key uint64, req *endpoint.Request, p Proposal, found bool, now time.Time) {
	r := remembered{found: found, at: now}
	if found {
		r.p, r.query, r.step = p, strings.Clone(p.Request.Query), p.Request.Step
		r.p.Request = nil
		for _, text := range p.Request.Match {
			r.match = append(r.match, strings.Clone(text))
		}
		if p.Request.Start != req.Start {
			r.was = time.Duration(p.Request.End.Ms-p.Request.Start.Ms) * time.Millisecond
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[uint64]remembered{}
	}
	_, ok := m.by[key]
	if full := !ok && len(m.by) >= MaxRemembered; full || now.Sub(m.swept) >= FoundFor {
		m.makeRoom(now)
	}
	m.by[key] = r
}

// makeRoom forgets what is over, or else what is oldest.
func (m *Memory) makeRoom(now time.Time) {
	m.swept = now
	var oldest uint64
	first := now.Add(time.Hour)
	for key, r := range m.by {
		if r.over(now) {
			delete(m.by, key)
		} else if r.at.Before(first) {
			oldest, first = key, r.at
		}
	}
	if len(m.by) >= MaxRemembered {
		delete(m.by, oldest)
	}
}

// Get is what is remembered for a request with that key, made into a proposal for this one; known
// is false where nothing is, and found where nothing was found. ago is how old it is.
func (m *Memory) Get(key uint64, req *endpoint.Request, now time.Time) (p Proposal, found, known bool, ago time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.by[key]
	if ok && r.over(now) {
		delete(m.by, key)
		ok = false
	}
	if !ok {
		return Proposal{}, false, false, 0
	}
	if !r.found {
		return Proposal{}, false, true, 0
	}
	own := req.Clone()
	if r.was > 0 {
		if own = Shorter(req, r.was); own == nil {
			return Proposal{}, false, false, 0
		}
	}
	own.Query, own.Match, own.Step = r.query, slices.Clone(r.match), r.step
	p = r.p
	p.Request = own
	return p, true, true, now.Sub(r.at)
}

// Rate bounds how often a rewrite is looked for by all flows together. The zero Rate is ready; it
// is safe for concurrent use.
type Rate struct {
	mu       sync.Mutex
	began    time.Time // of the minute that is counted
	searches int
}

// Enter tells whether one may be looked for now, which is counted.
func (r *Rate) Enter(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.began) >= FlowTime {
		r.began, r.searches = now, 0
	}
	if r.searches >= AllSearches {
		return false
	}
	r.searches++
	return true
}

// Flows bound how often each flow has a rewrite looked for. The zero Flows is ready; it is safe for
// concurrent use.
type Flows struct {
	mu sync.Mutex
	by map[uint64]*flow
}

type flow struct {
	began    time.Time // of the minute that is counted
	searches int
	now      int
}

// Enter tells whether the flow may have one looked for now; then leave is called once, at its end.
// Where more flows than MaxFlows are counted, others may not.
func (f *Flows) Enter(id uint64, now time.Time) (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.by[id]
	if one == nil {
		if len(f.by) >= MaxFlows {
			for id, old := range f.by {
				if old.now == 0 && now.Sub(old.began) >= FlowTime {
					delete(f.by, id)
				}
			}
		}
		if len(f.by) >= MaxFlows {
			return nil, false
		}
		if f.by == nil {
			f.by = map[uint64]*flow{}
		}
		one = &flow{began: now}
		f.by[id] = one
	}
	if now.Sub(one.began) >= FlowTime {
		one.began, one.searches = now, 0
	}
	if one.searches >= FlowSearches || one.now >= FlowAtOnce {
		return nil, false
	}
	one.searches++
	one.now++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		one.now--
	}, true
}
