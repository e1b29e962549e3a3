package live

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// MaxQueryBytes is how much of a query's text a list has; what is longer ends in "…".
const MaxQueryBytes = 1 << 10

// Facts are what does not change about a request.
type Facts struct {
	// ID is the request's id, as the client, the log and the usage log have it.
	ID string `json:"id"`
	// Endpoint is the endpoint's name, such as query_range.
	Endpoint string `json:"endpoint"`
	// Query is its PromQL text, or its selectors, separated by commas.
	Query string `json:"query"`
	// Tenant is who the request was authenticated as; empty where there are no tenants.
	Tenant string `json:"tenant"`
	// User, Dashboard, Panel and Rule are who it says it is from, see package identity.
	User      string `json:"user"`
	Dashboard string `json:"dashboard"`
	Panel     string `json:"panel"`
	Rule      string `json:"rule"`
	// Lane is the lane in which its calls wait for their places at the shards.
	Lane string `json:"lane"`
	// Claimed tells that some of them were said by a caller that is not known to be allowed to.
	Claimed bool `json:"claimed"`
	// Started is when it arrived, and Deadline when it ends at the latest.
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`
}

// State is what a request is doing, and what it holds.
type State struct {
	// Doing is what its time is spent on now, in words that follow "it is being".
	Doing string `json:"doing"`
	// Series, Samples and Bytes are what it has read or returned so far.
	Series  int64 `json:"series"`
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// HeldBytes is what it holds of memory.budget now, and PeakBytes the most that it has held.
	HeldBytes int64 `json:"held_bytes"`
	PeakBytes int64 `json:"peak_bytes"`
	// ShardSeconds is how long its calls to shards took that have ended, all of them added.
	ShardSeconds float64 `json:"shard_s"`
	// EstimatedBy is what its estimate was made from: text, shape, sketch or guess; empty where
	// there is none. The others are what it was expected to take in the end.
	EstimatedBy           string  `json:"estimated_by"`
	EstimatedSeries       int64   `json:"estimated_series"`
	EstimatedSamples      int64   `json:"estimated_samples"`
	EstimatedBytes        int64   `json:"estimated_bytes"`
	EstimatedShardSeconds float64 `json:"estimated_shard_s"`
	// Waiting is how many identical requests wait for its answer.
	Waiting int `json:"waiting"`
}

// Query is a request of a list.
type Query struct {
	Facts
	// AgeSeconds is how long ago it arrived.
	AgeSeconds float64 `json:"age_s"`
	State
}

// Entry is a request in a Table.
type Entry struct {
	facts Facts
	look  func() State
	end   func(cause error)
}

// Table is the requests under way. The zero Table is ready; it is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	entries map[string]*Entry
}

// Enter takes a request into the table. look tells its state, end ends it with a cause; both are
// called from other goroutines, until Leave has returned or at the same time.
func (t *Table) Enter(f Facts, look func() State, end func(cause error)) *Entry {
	e := &Entry{facts: f, look: look, end: end}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil {
		t.entries = map[string]*Entry{}
	}
	t.entries[f.ID] = e
	return e
}

// Leave takes it out. It does nothing on nil.
func (t *Table) Leave(e *Entry) {
	if e == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[e.facts.ID] == e {
		delete(t.entries, e.facts.ID)
	}
}

// Len is how many requests are under way.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// List is all requests under way at the time now, those that hold the most memory first, and of
// equal ones the oldest. Texts are cut at MaxQueryBytes.
func (t *Table) List(now time.Time) []Query {
	t.mu.Lock()
	entries := make([]*Entry, 0, len(t.entries))
	for _, e := range t.entries {
		entries = append(entries, e)
	}
	t.mu.Unlock()
	out := make([]Query, 0, len(entries))
	for _, e := range entries {
		q := Query{Facts: e.facts, AgeSeconds: now.Sub(e.facts.Started).Seconds(), State: e.look()}
		q.Query = clip.Text(q.Query, MaxQueryBytes)
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b Query) int {
		return cmp.Or(cmp.Compare(b.HeldBytes, a.HeldBytes), a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Get is one request with its whole text.
func (t *Table) Get(id string, now time.Time) (Query, bool) {
	t.mu.Lock()
	e := t.entries[id]
	t.mu.Unlock()
	if e == nil {
		return Query{}, false
	}
	return Query{Facts: e.facts, AgeSeconds: now.Sub(e.facts.Started).Seconds(), State: e.look()}, true
}

// Filter chooses requests: those that have all that is not empty.
type Filter struct{ ID, Tenant, User, Dashboard string }

func (f Filter) empty() bool { return f == Filter{} }

func (f Filter) has(x Facts) bool {
	return (f.ID == "" || f.ID == x.ID) && (f.Tenant == "" || f.Tenant == x.Tenant) && (f.User == "" || f.User == x.User) &&
		(f.Dashboard == "" || f.Dashboard == x.Dashboard)
}

// Kill ends the requests of the filter, of which an empty one has none, and returns their ids,
// sorted. It does not wait until they have ended.
func (t *Table) Kill(f Filter) []string {
	if f.empty() {
		return nil
	}
	var chosen []*Entry
	t.mu.Lock()
	for _, e := range t.entries {
		if f.has(e.facts) {
			chosen = append(chosen, e)
		}
	}
	t.mu.Unlock()
	ids := make([]string, 0, len(chosen))
	for _, e := range chosen {
		e.end(killed())
		ids = append(ids, e.facts.ID)
	}
	slices.Sort(ids)
	return ids
}

// killed is what the caller of a request is told that was ended.
func killed() *qerr.Error {
	e := qerr.New(qerr.Unavailable, "whoever runs Spillway has ended this request by hand")
	e.Advice = "do not send it again as it is; ask them what it did to the servers"
	return e
}
