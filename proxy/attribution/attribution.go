package attribution

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// Span is how long a bucket is, and Buckets how many there are.
	Span    = 5 * time.Minute
	Buckets = 12
	// MaxKeys is how many rows of one kind a bucket has.
	MaxKeys = 256
	// MaxKeyBytes is the longest name of a row; what is longer ends in "…".
	MaxKeyBytes = 512
)

// Kind is by what costs are added up.
type Kind string

// The kinds.
const (
	ByTenant    Kind = "tenant"
	ByUser      Kind = "user"
	ByDashboard Kind = "dashboard"
	// ByPanel is by the dashboard's uid, a slash, and the panel's id.
	ByPanel Kind = "panel"
	ByRule  Kind = "rule"
	// ByQuery is by the text, with white space as one space.
	ByQuery Kind = "query"
)

var kinds = []Kind{ByTenant, ByUser, ByDashboard, ByPanel, ByRule, ByQuery}

// Kinds are all kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

// Who is who asked, and what; empty where it is not known.
type Who struct{ Tenant, User, Dashboard, Panel, Rule, Query string }

func (w Who) key(k Kind) string {
	switch k {
	case ByTenant:
		return w.Tenant
	case ByUser:
		return w.User
	case ByDashboard:
		return w.Dashboard
	case ByPanel:
		if w.Panel == "" {
			return ""
		}
		return w.Dashboard + "/" + w.Panel
	case ByRule:
		return w.Rule
	}
	query := clip.Text(w.Query, 2*MaxKeyBytes)
	if inOneLine(query) {
		return query
	}
	return strings.Join(strings.Fields(query), " ")
}

// inOneLine tells whether words are parted by single spaces, as nearly all queries have them.
func inOneLine(text string) bool {
	last := ' '
	for _, r := range text {
		if unicode.IsSpace(r) && (r != ' ' || last == ' ') {
			return false
		}
		last = r
	}
	return last != ' ' || text == ""
}

// Cost is what requests took.
type Cost struct {
	// Requests counts them, and Refused those that were refused or failed.
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	// ShardSeconds is how long calls to shards ran, all of them added.
	ShardSeconds float64 `json:"shard_s"`
	// Samples and Bytes are what was read from shards.
	Samples int64 `json:"samples"`
	Bytes   int64 `json:"bytes"`
	// GiBSeconds is the memory of memory.budget that was held, in GiB, times how long.
	GiBSeconds float64 `json:"gib_s"`
}

func (c *Cost) add(o Cost) {
	c.Requests += o.Requests
	c.Refused += o.Refused
	c.ShardSeconds += o.ShardSeconds
	c.Samples += o.Samples
	c.Bytes += o.Bytes
	c.GiBSeconds += o.GiBSeconds
}

// lighter orders by what a bucket keeps its rows for.
func (c *Cost) lighter(o *Cost) int {
	return cmp.Or(cmp.Compare(c.ShardSeconds, o.ShardSeconds), cmp.Compare(c.GiBSeconds, o.GiBSeconds), cmp.Compare(c.Requests, o.Requests))
}

// orders are the names by which rows are sorted, those with the most first.
var orders = map[string]func(a, b Row) int{
	"shard_s":  func(a, b Row) int { return cmp.Compare(b.ShardSeconds, a.ShardSeconds) },
	"gib_s":    func(a, b Row) int { return cmp.Compare(b.GiBSeconds, a.GiBSeconds) },
	"samples":  func(a, b Row) int { return cmp.Compare(b.Samples, a.Samples) },
	"bytes":    func(a, b Row) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"requests": func(a, b Row) int { return cmp.Compare(b.Requests, a.Requests) },
	"refused":  func(a, b Row) int { return cmp.Compare(b.Refused, a.Refused) },
}

// Orders are what Top sorts by, sorted: the JSON names of a Cost.
func Orders() []string { return slices.Sorted(maps.Keys(orders)) }

// Row is one of a kind.
type Row struct {
	Name string `json:"name"`
	Cost
}

// Top is the costs of one kind.
type Top struct {
	// By is the kind.
	By Kind `json:"by"`
	// Since is from when on: a bucket's beginning.
	Since time.Time `json:"since"`
	// Rows are those with the most first.
	Rows []Row `json:"rows"`
	// Rest is of all others that are known by name, Nobody of those that say none, and Total of
	// all.
	Rest   Cost `json:"rest"`
	Nobody Cost `json:"nobody"`
	Total  Cost `json:"total"`
}

// bucket is the costs of five minutes.
type bucket struct {
	began time.Time
	total Cost
	kinds map[Kind]*ranking
}

// ranking is the rows of one kind in a bucket.
type ranking struct {
	rows map[string]*ranked
	heap lightest // of all rows; empty until one had to give way
	rest Cost     // of rows that gave way
}

type ranked struct {
	Row
	at int // in the heap
}

// lightest is a heap of all rows, the lightest first.
type lightest []*ranked

func (l lightest) Len() int           { return len(l) }
func (l lightest) Less(i, j int) bool { return l[i].lighter(&l[j].Cost) < 0 }
func (l lightest) Swap(i, j int)      { l[i], l[j] = l[j], l[i]; l[i].at, l[j].at = i, j }

func (l *lightest) Push(x any) {
	r := x.(*ranked)
	r.at = len(*l)
	*l = append(*l, r)
}

func (l *lightest) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// Table adds up costs. The zero Table is ready; it is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	buckets [Buckets]*bucket
}

// Add adds the cost of a request that ended at the time now.
func (t *Table) Add(now time.Time, who Who, c Cost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.total.add(c)
	for _, k := range kinds {
		if name := clip.Text(who.key(k), MaxKeyBytes); name != "" {
			b.kinds[k].add(name, c)
		}
	}
}

// at is the bucket of a time, an empty one where what is there is of another: older, or of a time
// to which the clock had jumped.
func (t *Table) at(now time.Time) *bucket {
	began := now.Truncate(Span)
	p := &t.buckets[int(began.Unix()/int64(Span/time.Second))%Buckets]
	if *p == nil || !(*p).began.Equal(began) {
		*p = &bucket{began: began, kinds: map[Kind]*ranking{}}
		for _, k := range kinds {
			(*p).kinds[k] = &ranking{rows: map[string]*ranked{}}
		}
	}
	return *p
}

func (r *ranking) add(name string, c Cost) {
	if row := r.rows[name]; row != nil {
		row.Cost.add(c)
		if len(r.heap) > 0 {
			heap.Fix(&r.heap, row.at)
		}
		return
	}
	if len(r.rows) == MaxKeys {
		r.order()
		least := r.heap[0]
		if c.lighter(&least.Cost) <= 0 {
			r.rest.add(c)
			return
		}
		r.rest.add(least.Cost)
		delete(r.rows, least.Name)
		heap.Pop(&r.heap)
	}
	name = strings.Clone(name) // else it may keep the body of the request that it came in
	row := &ranked{Row: Row{name, c}}
	r.rows[name] = row
	if len(r.heap) > 0 {
		heap.Push(&r.heap, row)
	}
}

// order makes the heap, when rows are to give way for the first time.
func (r *ranking) order() {
	if len(r.heap) > 0 {
		return
	}
	for _, row := range r.rows {
		row.at = len(r.heap)
		r.heap = append(r.heap, row)
	}
	heap.Init(&r.heap)
}

// Top is the limit rows of a kind with the most of order, which is one of Orders, over the last
// hour before now, by whole buckets; limit is above zero.
func (t *Table) Top(now time.Time, by Kind, order string, limit int) Top {
	out := Top{By: by, Since: now.Truncate(Span).Add(-(Buckets - 1) * Span).UTC(), Rows: []Row{}}
	sums := map[string]*Cost{}
	t.mu.Lock()
	for _, b := range t.buckets {
		if b == nil || b.began.Before(out.Since) || b.began.After(now) {
			continue
		}
		out.Total.add(b.total)
		out.Rest.add(b.kinds[by].rest)
		for name, row := range b.kinds[by].rows {
			if sums[name] == nil {
				sums[name] = &Cost{}
			}
			sums[name].add(row.Cost)
		}
	}
	t.mu.Unlock()
	named := out.Rest
	for name, c := range sums {
		out.Rows = append(out.Rows, Row{name, *c})
		named.add(*c)
	}
	out.Nobody = out.Total.less(named)
	compare := orders[order]
	slices.SortFunc(out.Rows, func(a, b Row) int { return cmp.Or(compare(a, b), cmp.Compare(a.Name, b.Name)) })
	for _, r := range out.Rows[min(limit, len(out.Rows)):] {
		out.Rest.add(r.Cost)
	}
	out.Rows = out.Rows[:min(limit, len(out.Rows))]
	return out
}

// less is what is left of c without o. Sums of seconds are rounded; what is none stays none.
func (c Cost) less(o Cost) Cost {
	out := Cost{
		Requests: c.Requests - o.Requests, Refused: c.Refused - o.Refused, Samples: c.Samples - o.Samples, Bytes: c.Bytes - o.Bytes,
		ShardSeconds: c.ShardSeconds - o.ShardSeconds, GiBSeconds: c.GiBSeconds - o.GiBSeconds,
	}
	if out.Requests == 0 {
		return Cost{}
	}
	return out
}
