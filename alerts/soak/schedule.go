package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

const (
	// ahead is how far scrapes run before the rules.
	ahead = 5 * time.Minute
	// tidy is how often what no rule reaches any more is forgotten.
	tidy = 10 * time.Minute
)

// evaluated is one group as Prometheus evaluates it. Its fields but those that say when belong to
// whoever evaluates it.
type evaluated struct {
	watch
	of       *ruleGroup
	group    *rules.Group
	alerting []*rules.AlertingRule // of the chosen alerts
	took     time.Duration

	place   int
	after   []*evaluated // those that must have been evaluated up to its own moment
	next    time.Time
	running bool
}

// before says whether a server that is never late evaluates g before o.
func (g *evaluated) before(o *evaluated) bool {
	if c := g.next.Compare(o.next); c != 0 {
		return c < 0
	}
	return g.place < o.place
}

// schedule evaluates groups, several at a time, so that each finds what it would find if all were
// evaluated one after another, in order of time: a group waits for those whose series it reads
// until they have been evaluated up to its own moment. That they may be beyond it is not seen, for
// selectors do not look into the future. Scrapes are made meanwhile, a little ahead.
type schedule struct {
	groups []*evaluated
	store  *store
	from   time.Time // of the first scrape
	until  time.Time
	say    func(days, fired int)
	offset time.Duration // the greatest of the groups

	mu      sync.Mutex
	change  *sync.Cond
	scraped time.Time // all scrapes before it are there
	running int
	still   bool // nothing may begin
	err     error
}

func newSchedule(groups []*evaluated, s *store, from, until time.Time) *schedule {
	c := &schedule{groups: groups, store: s, from: from, until: until, scraped: from}
	c.change = sync.NewCond(&c.mu)
	for n, g := range groups {
		g.place = n
		c.offset = max(c.offset, g.of.offset)
		g.next = g.group.EvalTimestamp(from.UnixNano()).Add(g.group.Interval())
		for _, w := range groups {
			// Who writes with a greater delay writes what others could see too early.
			if w != g && (g.of.reads(w.of) || w.of.reads(g.of) && g.of.offset > w.of.offset) {
				g.after = append(g.after, w)
			}
		}
	}
	return c
}

// reads says whether a rule of the group reads what one of the other records or raises.
func (g *ruleGroup) reads(o *ruleGroup) bool {
	written := map[string]bool{}
	for _, r := range o.rules {
		if r.Record != "" {
			written[r.Record] = true
		} else {
			written["ALERTS"], written["ALERTS_FOR_STATE"] = true, true
		}
	}
	return slices.ContainsFunc(g.rules, func(r *known) bool {
		for _, s := range parser.ExtractSelectors(r.expr) {
			if written[metricName(s)] {
				return true
			}
		}
		return false
	})
}

// run scrapes and evaluates until the end, so many groups at a time.
func (c *schedule) run(ctx context.Context, h *history, workers int) error {
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	defer stop()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { c.work(ctx) })
	}
	all.Go(func() {
		if err := h.run(ctx, c.from, c.until, c.reach); err != nil {
			c.fail(err)
		}
	})
	all.Wait()
	return c.err
}

// fail ends everything; the first reason is kept.
func (c *schedule) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.change.Broadcast()
}

// work evaluates what is ready, the earliest first.
func (c *schedule) work(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		g, over := c.ready()
		switch {
		case over || c.err != nil:
			return
		case g == nil:
			c.change.Wait()
			continue
		}
		g.running = true
		c.running++
		c.mu.Unlock()
		err := g.evaluate(ctx)
		c.mu.Lock()
		if c.err == nil {
			c.err = err
		}
		g.running = false
		c.running--
		g.next = g.next.Add(g.group.Interval())
		c.change.Broadcast()
	}
}

// ready is a group that may be evaluated now, nil where there is none; over says that all have been
// to the end.
func (c *schedule) ready() (ready *evaluated, over bool) {
	over = true
	for _, g := range c.groups {
		if !g.next.Before(c.until) {
			continue
		}
		over = false
		if g.running || c.still || !g.next.Before(c.scraped) || ready != nil && ready.before(g) {
			continue
		}
		if !slices.ContainsFunc(g.after, func(w *evaluated) bool { return w.before(g) }) {
			ready = g
		}
	}
	return ready, over
}

// evaluate evaluates the group once.
func (g *evaluated) evaluate(ctx context.Context) error {
	mark := time.Now()
	g.group.Eval(ctx, g.next)
	g.took += time.Since(mark)
	for _, r := range g.group.Rules() {
		if err := r.LastError(); err != nil {
			return fmt.Errorf("%s of group %s at %s: %w", r.Name(), g.group.Name(), g.next.UTC().Format(time.RFC3339), err)
		}
	}
	for _, a := range g.alerting {
		if a.ActiveAlertsCount() > 0 {
			g.see(a, g.next, g.group.Interval())
		}
	}
	return nil
}

// reach is told that all scrapes before a moment are there, and waits until some are wanted again.
func (c *schedule) reach(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.scraped
	c.scraped = at
	c.change.Broadcast()
	if at.Sub(c.from)/tidy != was.Sub(c.from)/tidy {
		c.tidy(at)
	}
	for c.err == nil && at.Sub(c.earliest()) > ahead {
		c.change.Wait()
	}
	return c.err
}

// tidy lets nothing begin until what nobody needs is forgotten.
func (c *schedule) tidy(at time.Time) {
	c.still = true
	for c.running > 0 {
		c.change.Wait()
	}
	c.store.forget(c.earliest().Add(-c.offset))
	if done := at.Sub(c.from) - warmUp; done > 0 && done%day < tidy {
		fired := 0
		for _, g := range c.groups {
			fired += len(g.fired)
		}
		c.say(int(done/day), fired)
	}
	c.still = false
	c.change.Broadcast()
}

// earliest is when the next group has its turn.
func (c *schedule) earliest() time.Time {
	return slices.MinFunc(c.groups, func(a, b *evaluated) int { return a.next.Compare(b.next) }).next
}
