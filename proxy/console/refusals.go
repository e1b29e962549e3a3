package console

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// MaxRefusals is how many different refusals are remembered.
	MaxRefusals = 256
	// maxIDs is how many refused requests are found by their id.
	maxIDs = 4096
	// maxText is how many bytes of a text are kept; what is longer ends in "…".
	maxText = 2048
	// maxMarks is how many parts of a query are marked.
	maxMarks = 64
)

// Asked is who asked for something, and what.
type Asked struct {
	// ID is the request's id.
	ID string `json:"id"`
	// Endpoint is the endpoint's name, such as query_range.
	Endpoint string `json:"endpoint"`
	// Query is its PromQL text, or its selectors.
	Query string `json:"query"`
	// Tenant is who the request was authenticated as; empty where there are no tenants.
	Tenant string `json:"tenant"`
	// User, Dashboard, Panel and Rule are who it says it is from.
	User      string `json:"user"`
	Dashboard string `json:"dashboard"`
	Panel     string `json:"panel"`
	Rule      string `json:"rule"`
	// Claimed tells that some of these were said by a caller that is not known to be allowed to.
	Claimed bool `json:"claimed"`
}

// Refusal is requests that were refused for one reason.
type Refusal struct {
	// Asked is the last of them.
	Asked
	// Kind is what an outcome is called in spillway_requests_total, Status the HTTP status.
	Kind   string `json:"kind"`
	Status int    `json:"status"`
	// Bound is what refused, empty where it was no bound; Value what it is set to, Seen what the
	// request came to, in the bound's unit.
	Bound string `json:"bound"`
	Value string `json:"value"`
	Seen  string `json:"seen"`
	// Message is what the caller was told, Advice what it could do instead.
	Message string `json:"message"`
	Advice  string `json:"advice"`
	// Rewrite is what could be asked instead, as path and query of a URL; empty where nothing is.
	Rewrite string `json:"rewrite,omitempty"`
	// Marks are the parts of Query that were in the way: pairs of byte offsets, in their order.
	Marks [][2]int `json:"marks,omitempty"`
	// Count is how many there were, First and Last when.
	Count int64     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// sameness is what refusals have in common that are counted as one.
type sameness struct {
	endpoint, query, tenant, user, dashboard, panel, rule, kind, bound string
}

func (r *Refusal) sameness() sameness {
	return sameness{r.Endpoint, r.Query, r.Tenant, r.User, r.Dashboard, r.Panel, r.Rule, r.Kind, r.Bound}
}

// Refusals are what was refused lately. The zero Refusals is ready; it is safe for concurrent use.
type Refusals struct {
	mu   sync.Mutex
	by   map[sameness]*Refusal
	ids  map[string]*Refusal
	ring [maxIDs]string // ids in the order in which they came
	next int
}

// Add takes a refusal in, of which Count, First and Last are set here. Where there are too many,
// the one goes that came last the longest ago.
func (l *Refusals) Add(now time.Time, r Refusal) {
	for _, text := range []*string{&r.Query, &r.Message, &r.Advice, &r.Rewrite} {
		*text = strings.Clone(clip.Text(*text, maxText)) // else it may keep the body that it came in
	}
	for _, name := range []*string{&r.Tenant, &r.User, &r.Dashboard, &r.Panel, &r.Rule, &r.Value, &r.Seen} {
		*name = strings.Clone(clip.Text(*name, maxText/8))
	}
	var marks [][2]int
	for _, m := range r.Marks {
		if m[0] >= 0 && m[0] < m[1] && m[1] <= len(r.Query) && len(marks) < maxMarks {
			marks = append(marks, m)
		}
	}
	r.Marks = marks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by, l.ids = map[sameness]*Refusal{}, map[string]*Refusal{}
	}
	key := r.sameness()
	old := l.by[key]
	if old == nil {
		if len(l.by) >= MaxRefusals {
			l.forgetOldest()
		}
		old = &Refusal{First: now.UTC()}
		l.by[key] = old
	}
	r.Count, r.First, r.Last = old.Count+1, old.First, now.UTC()
	*old = r
	delete(l.ids, l.ring[l.next])
	l.ring[l.next], l.ids[r.ID] = r.ID, old
	l.next = (l.next + 1) % maxIDs
}

// forgetOldest makes room. Its ids find nothing from then on, until they make room themselves.
func (l *Refusals) forgetOldest() {
	var oldest *Refusal
	for _, r := range l.by {
		if oldest == nil || r.Last.Before(oldest.Last) {
			oldest = r
		}
	}
	delete(l.by, oldest.sameness())
	*oldest = Refusal{}
}

// List is all of them, those that came last first.
func (l *Refusals) List() []Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Refusal, 0, len(l.by))
	for _, r := range l.by {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Refusal) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Get is the refusal of a request, as the last one like it was refused; false where it was not, or
// is forgotten.
func (l *Refusals) Get(id string) (Refusal, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ids[id]
	if r == nil || r.Count == 0 {
		return Refusal{}, false
	}
	return *r, true
}
