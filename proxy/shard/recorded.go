package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

const (
	// maxRecorded is how many names that several shards record are compared in one group.
	maxRecorded = 1000
	// recordedAtOnce is how many of them a server is asked for at once.
	recordedAtOnce = 20
	// maxRecordedSeries is how many of their series are compared in one group.
	maxRecordedSeries = 1 << 20
)

// recorded reports to check config --online series that rules record on two shards of a group under
// the same labels. Each shard evaluates its rules over its own part, so that a sum over nodes is a
// part of the sum on each, and no merge makes the whole of these. What cannot be compared is
// reported too. well are the servers that could be examined. Of each group it holds hashes of at
// most maxRecordedSeries series, and of onlineParallel servers an answer.
func (o *online) recorded(ctx context.Context, t *Topology, well func(*Replica) bool) {
	for gi, g := range t.Groups {
		c := recordings{on: map[string]int{}, seen: map[uint64]*Replica{}, twice: map[string]bool{}}
		for _, s := range g.Shards {
			if i := slices.IndexFunc(s.Replicas, well); i >= 0 && len(g.Shards) > 1 && !s.Thanos() {
				c.asked = append(c.asked, s.Replicas[i])
			}
		}
		c.each(func(r *Replica) error { return c.names(ctx, r) })
		maps.DeleteFunc(c.on, func(_ string, shards int) bool { return shards < 2 })
		names := slices.Sorted(maps.Keys(c.on))
		if len(names) > maxRecorded {
			c.report("%d names are recorded by several shards; only the first %d were compared", len(names), maxRecorded)
			names = names[:maxRecorded]
		}
		for some := range slices.Chunk(names, recordedAtOnce) {
			c.each(func(r *Replica) error { return c.series(ctx, r, some) })
		}
		for _, text := range c.found {
			o.problems = append(o.problems, config.Problem{Path: fmt.Sprintf("groups[%d]", gi), Message: text})
		}
	}
}

// recordings is what the shards of one group record.
type recordings struct {
	asked []*Replica

	mu    sync.Mutex
	on    map[string]int // shards, by the name that they record
	seen  map[uint64]*Replica
	full  bool            // there are more series
	twice map[string]bool // names that were reported
	found []string
}

// each asks all servers, some at a time. One that fails is reported once, and not asked again.
func (c *recordings) each(ask func(*Replica) error) {
	var g errgroup.Group
	g.SetLimit(onlineParallel)
	failed := make([]bool, len(c.asked))
	for i, r := range c.asked {
		g.Go(func() error {
			if err := ask(r); err != nil {
				failed[i] = true
				c.report("what the rules of shard %d (%s) record cannot be compared with what other shards' do: %v", r.Shard.Index, r.host, err)
			}
			return nil
		})
	}
	_ = g.Wait() // they return none
	var left []*Replica
	for i, r := range c.asked {
		if !failed[i] {
			left = append(left, r)
		}
	}
	c.asked = left
}

func (c *recordings) report(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// names reads which names the server's recording rules have that look at any series: what looks at
// none is the same wherever it is evaluated. A server that serves no rules has none.
func (c *recordings) names(ctx context.Context, r *Replica) error {
	err := r.getData(ctx, "/api/v1/rules", url.Values{"type": {"record"}}, func(raw json.RawMessage) error {
		var d struct {
			Groups []struct {
				Rules []struct{ Name, Type, Query string }
			}
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		names := map[string]bool{}
		for _, g := range d.Groups {
			for _, rule := range g.Rules {
				if rule.Type == "recording" && !constant(rule.Query) {
					names[rule.Name] = true
				}
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for name := range names {
			c.on[name]++
		}
		return nil
	})
	if clientStatus(err) {
		return nil
	}
	return err
}

// numbers is a query of numbers, operators and functions of these, without a name that a series
// could have.
var numbers = regexp.MustCompile(`^(\b(vector|scalar|time|pi|bool)\b|\b[0-9][0-9.eEx_]*|[-+*/%^()<>=!\s])+$`)

// constant tells whether a query surely looks at no series.
func constant(query string) bool { return numbers.MatchString(query) }

// series reads the series of those names that the server has now, and compares them with those of
// others.
func (c *recordings) series(ctx context.Context, r *Replica, names []string) error {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	req := &endpoint.Request{ID: endpoint.Query, Query: `{__name__=~` + strconv.Quote(strings.Join(quoted, "|")) + `}`}
	return r.fetch(ctx, probeJSON, req.Path(), r.writer(req), maxFactBytes, r.data(func(raw json.RawMessage) error {
		var d struct {
			Result []struct{ Metric map[string]string }
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		for _, s := range d.Result {
			for _, name := range r.Shard.Group.ownLabels() {
				delete(s.Metric, name)
			}
			c.compare(r, labels.FromMap(s.Metric))
		}
		return nil
	}))
}

// compare looks whether another shard that holds series of the same time has this one. Each name is
// reported once.
func (c *recordings) compare(r *Replica, ls labels.Labels) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, name := ls.Hash(), ls.Get(model.MetricNameLabel)
	a := c.seen[h]
	if a == nil {
		if len(c.seen) < maxRecordedSeries {
			c.seen[h] = r
		} else if !c.full {
			c.full = true
			c.found = append(c.found, fmt.Sprintf("rules record more than %d series, of which only so many were compared", maxRecordedSeries))
		}
		return
	}
	if a.Shard == r.Shard || c.twice[name] || !sameTime(a.Shard, r.Shard) {
		return
	}
	c.twice[name] = true
	if a.Shard.Index > r.Shard.Index {
		a, r = r, a
	}
	c.found = append(c.found, fmt.Sprintf("shards %d (%s) and %d (%s) both record %s: each computes it over its own part, and no merge makes the whole of these; "+
		"record it where all of it is seen, in a ruler that asks Spillway (docs/ruler.md), or keep in the rule's result a label by which the shards differ",
		a.Shard.Index, a.host, r.Shard.Index, r.host, clip.Text(ls.String(), 256)))
}

// sameTime tells whether two shards hold series of the same time.
func sameTime(a, b *Shard) bool {
	now := time.Now()
	af, au := a.Span(now)
	bf, bu := b.Span(now)
	return max(af, bf) < min(au, bu)
}
