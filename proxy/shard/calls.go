package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard/h1"
)

// Calls of requests pass two gates more, whatever their class. The first is their shard's: who is
// through may have one call under way to each of the shard's replicas, so that the second call of a
// race and the one after a failure need no place of their own, and no replica is ever asked more
// than maxCalls things at once. The second is the process': its sockets, and the memory of what it
// has under way.
//
// At either gate one peer holds a part of the places at most (peers.go), so that a caller who reads
// slowly, or asks much, keeps others waiting for one another alone; and whose turn is next lanes
// and flows decide (admit.Gate).
//
// Nobody waits for anybody who waits for him: places are taken in the order class, shard, process,
// and of several shards (EnterAll) none is held while another one is
// waited for, or, at last, they are taken in the order of the shards' names. Who has passed the
// last gate waits for its server alone, or for a client that reads what others' answers are merged
// with.

const (
	// maxCalls is the default of limits.replica_calls: as many as a Prometheus evaluates at once
	// (--query.max-concurrency, 20) for any one address (peers.go), and four for the others. More
	// of them only wait in the server, and take its processors from what it has to do besides:
	// twice as many made its /-/ready four times as slow and answered no more requests
	// (BenchmarkStorm).
	maxCalls = 24
	// readSlots is the default of limits.read_slots: Prometheus serves ten remote reads at once
	// (--storage.remote.read-concurrent-limit), and two stay for others where there is one proxy.
	readSlots = 8
	// maxProcessCalls is how many calls to all servers are under way at most, where
	// limits.process_calls does not say it. A request over 800
	// shards asks most of them at once, and with as many idle connections for health probes several
	// such requests stay below 2,000 descriptors.
	maxProcessCalls = 640
	// minProcessCalls is for a process that may open next to nothing.
	minProcessCalls = 16
)

// processCalls is how many calls to all servers are under way at most: as many as is said, of a
// quarter of the files that may be open. The rest is for idle connections, clients and health
// probes.
func (o Options) processCalls() int {
	return min(cmp.Or(o.ProcessCalls, maxProcessCalls), o.files())
}

// files is how many files the calls to all servers may have open.
func (o Options) files() int { return max(minProcessCalls, o.OpenFiles/4) }

// crowd are the gates of all shards and of the process, and its idle connections. They outlive a
// reload, so that it resets nobody's place.
type crowd struct {
	all   *gate
	idle  h1.Shared // connections
	desks desks
	// stores are the desks of lists of stores.
	stores desks
	pages  chan struct{} // held by each server whose own metrics are being read

	mu sync.Mutex
	by map[string]*gate // by shard name; as many as configurations ever named
}

func newCrowd(o Options) *crowd {
	return &crowd{
		by: map[string]*gate{}, desks: newDesks(), stores: newDesks(), pages: make(chan struct{}, vitalsAtOnce),
		idle: h1.Shared{Max: min(maxAllIdleConns, o.OpenFiles/8)},
		all: newGate(o.processCalls(), lanesOfAll(o.Lanes), "process_calls", "call",
			"try again in a moment, or ask fewer shards by a matcher on a group's label; for good, see which servers keep their calls (the admin API's queries and shards), run another Spillway or, where limits.process_calls is set or the limit of open files (ulimit -n) is below "+itoa(4*maxProcessCalls)+", raise that"),
	}
}

// of is the gate of a shard: that of before, or one of so many places.
func (c *crowd) of(shard string, places int, lanes []admit.Lane) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.by[shard]
	if g == nil {
		g = newGate(places, lanesOfShard(lanes), "replica_calls", "call",
			"try again in a moment; for good, see which queries keep the calls, and who asks them (the admin API's queries): where shards are read side by side a call lasts as long as that to the slowest of them; then record what is dear by a rule, or spread the series over more shards")
		c.by[shard] = g
	}
	return g
}

var (
	descCallsWaiting = prometheus.NewDesc("spillway_shard_calls_waiting", "Calls that wait for a place at a shard, of which there are as many as replica_calls says; one may want several.", shardLabels, nil)
	descCallsWaited  = prometheus.NewDesc("spillway_shard_calls_wait_seconds_total", "How long calls have waited for a place at a shard, all together.", shardLabels, nil)
	descAllCalls     = prometheus.NewDesc("spillway_calls_in_flight", "Calls to all shards that have a place, each with the second one of a race.", nil, nil)
	descAllLimit     = prometheus.NewDesc("spillway_calls_limit", "How many calls to all shards there may be, process_calls.", nil, nil)
	descAllWaiting   = prometheus.NewDesc("spillway_calls_waiting", "Calls, or groups of them, that wait until fewer than process_calls are under way.", nil, nil)
	descAllWaited    = prometheus.NewDesc("spillway_calls_wait_seconds_total", "How long calls have waited until fewer than process_calls were under way, all together.", nil, nil)
	crowdDescs       = []*prometheus.Desc{
		descCallsWaiting, descCallsWaited, descAllCalls, descAllLimit, descAllWaiting, descAllWaited,
		descLanePlaces, descLaneQueue, descLaneQueueLimit, descLaneWaited, descLaneRefused,
	}
)

// collectCalls tells how full the gates are.
func (t *Topology) collectCalls(metric func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			labels := []string{g.Name, strconv.Itoa(s.Index)}
			waiting, waited := s.calls.Waiting()
			metric(descCallsWaiting, prometheus.GaugeValue, float64(waiting), labels...)
			metric(descCallsWaited, prometheus.CounterValue, waited.Seconds(), labels...)
		}
	}
	t.collectLanes(metric)
	all := t.crowd.all
	waiting, waited := all.Waiting()
	metric(descAllCalls, prometheus.GaugeValue, float64(all.Held()))
	metric(descAllLimit, prometheus.GaugeValue, float64(all.Places()))
	metric(descAllWaiting, prometheus.GaugeValue, float64(waiting))
	metric(descAllWaited, prometheus.CounterValue, waited.Seconds())
}

// Crowded tells whether any call waits for a place at a shard, or for one of all.
func (t *Topology) Crowded() bool {
	if n, _ := t.crowd.all.Waiting(); n > 0 {
		return true
	}
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			if n, _ := s.calls.Waiting(); n > 0 {
				return true
			}
		}
	}
	return false
}

// Enter waits, until shortly before the deadline of ctx and for as long as the lane lets anybody
// wait, for room for one call to each of the shard's replicas, which is estimated to make a replica
// hold so many bytes (CallOptions.Held). The caller calls leave once, when all of them have ended
// with their bodies, if the error is nil; calls under it have CallOptions.Entered.
func (s *Shard) Enter(ctx context.Context, held int64) (leave func(), err error) {
	return s.enter(ctx, held, time.Now(), nil)
}

// EnterOwn is Enter without one of all servers' places, for a question of Spillway's own that all
// queries are weighed by: where callers fill these it would get in once in minutes. Whoever asks
// sees to it that few do at once.
func (s *Shard) EnterOwn(ctx context.Context) (leave func(), err error) {
	place, err := s.calls.take(ctx, s, 1, time.Now())
	if err != nil {
		return nil, err
	}
	return func() { s.calls.Leave(&place, 1) }, nil
}

// enter is Enter for one who began to wait then, at another gate, with CallOptions.Waits.
func (s *Shard) enter(ctx context.Context, held int64, began time.Time, waits func() (over func())) (leave func(), err error) {
	own, all := s.calls, s.topology.crowd.all
	place, err := own.take(ctx, s, s.seats(held), began)
	if err != nil {
		return nil, err
	}
	if waits != nil {
		defer waits()()
	}
	ofAll, err := all.take(ctx, s, 1, began)
	if err != nil {
		own.Leave(&place, place.Places())
		return nil, err
	}
	return func() {
		all.Leave(&ofAll, 1)
		own.Leave(&place, place.Places())
	}, nil
}

// seats is how wide a call is: how many of the shard's places it takes, each of which is an equal
// part of the budget, rounded up; half of what its address may have at most, so that no query alone
// keeps everybody waiting who is behind the same one. What all calls hold together, as estimated,
// is within the budget but for what those have more that would be wider. One that wants more places
// than its caller may ever have takes those (admit.Gate), so that it has its turn.
func (s *Shard) seats(held int64) int {
	budget, places := s.topology.opts.Budget, s.calls.Places()
	if budget <= 0 || held <= 0 {
		return 1
	}
	high, low := bits.Mul64(uint64(min(held, budget)), uint64(places)) // a part of the budget may be no whole number of bytes
	n, rest := bits.Div64(high, low, uint64(budget))
	if rest > 0 {
		n++
	}
	return min(int(n), widest(s.calls.OfPeer()))
}

// EnterAll is Enter for several shards whose answers are read side by side, so that none of them
// ends before all have begun. within is the context in which the places of a shard are waited for,
// held what its replica is to hold, and ctx that for the process' own. A lane's longest wait is
// that for all of these together. leave has one function for each shard, each to be called once.
func (t *Topology) EnterAll(
	ctx context.Context, within func(*Shard) context.Context, held func(*Shard) int64, shards []*Shard,
) (leave map[*Shard]func(), err error) {
	order := slices.SortedFunc(slices.Values(shards), func(a, b *Shard) int { return cmp.Compare(a.Name(), b.Name()) })
	doors := make([]*door, len(order))
	began := time.Now()
	for i, s := range order {
		doors[i] = &door{ctx: within(s), shard: s, seats: s.seats(held(s)), began: began}
	}
	if err = admit.EnterAll(doors); err != nil {
		return nil, err
	}
	// At once: one after the other, two requests could each have half of what is there.
	all := &shared{gate: t.crowd.all}
	if all.place, err = all.gate.take(ctx, order[0], t.countsAs(ctx, len(order)), began); err != nil {
		for _, d := range doors {
			d.Leave()
		}
		return nil, err
	}
	leave = make(map[*Shard]func(), len(order))
	for i, s := range order {
		leave[s] = func() {
			all.leave()
			doors[i].Leave()
		}
	}
	return leave, nil
}

// countsAs is how many of the process' calls one request counts as that makes so many at once. One
// of a lane that lends nothing counts as the lane's own at most: for more it would wait until
// others leave, all of its lane behind it, while what is nobody else's is free. But it counts as so
// many that, with as many such requests as find room, no more files are open than is theirs.
func (t *Topology) countsAs(ctx context.Context, calls int) int {
	all := t.crowd.all
	own := all.Unlent(identity.From(ctx).Lane)
	if own == 0 {
		return calls
	}
	files := t.opts.files()
	return min(calls, max(own, (calls*all.Places()+files-1)/files))
}

// shared is places that several give back, one each, from different goroutines. Where they are
// fewer than those who do, the last ones have none.
type shared struct {
	gate  *gate
	mu    sync.Mutex
	place admit.Place
}

func (s *shared) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.Leave(&s.place, 1)
}

// door is a shard's gate as one request sees it; it implements admit.Door.
type door struct {
	ctx   context.Context
	shard *Shard
	seats int
	began time.Time
	place admit.Place
}

func (d *door) Try() (ok bool) {
	d.place, ok = d.shard.calls.Try(asker(d.ctx, d.began), d.seats)
	return ok
}

func (d *door) Wait() (err error) {
	d.place, err = d.shard.calls.take(d.ctx, d.shard, d.seats, d.began)
	return err
}

func (d *door) Wide() bool { return d.seats > 1 }

func (d *door) Leave() { d.shard.calls.Leave(&d.place, d.place.Places()) }

// take waits for n places until shortly before the deadline of ctx, so that there is time to say
// that there were none, and for as long as the lane lets one wait who began then. Where there is
// room it takes one lock that nobody holds for long.
func (g *gate) take(ctx context.Context, s *Shard, n int, began time.Time) (admit.Place, error) {
	p, ok := g.AtOnce(asker(ctx, began), n)
	if ok {
		return p, nil
	}
	p, err := g.wait(ctx, n, began)
	if err == nil {
		return p, nil
	}
	r := (*admit.Refusal)(nil)
	if !errors.As(err, &r) || canceled(ctx, r) {
		return p, qerr.From(context.Cause(ctx))
	}
	return p, g.noPlace(ctx, s, r, began)
}

// noPlace is the error of who has found no place. That its lane waits no longer is nothing about
// the shard, which answers others: no answer goes without it for that.
func (g *gate) noPlace(ctx context.Context, s *Shard, r *admit.Refusal, began time.Time) *qerr.Error {
	whose, rule := "", "as many as there may be"
	switch r.Why {
	case admit.PeerFull:
		whose, rule = " for "+identity.From(ctx).Peer, "as many of its "+itoa(g.Places())+" as one address may have"
	case admit.LaneFull:
		whose, rule = " for the caller's lane", "as many as that may have"
	case admit.AllHeld:
		if r.Most < g.Places() {
			rule = "and its other places are kept for other lanes"
		}
	}
	who, things, under, to := "Spillway", g.what, " under way", " to all shards"
	if g == s.calls {
		var hosts []string
		for _, r := range s.Replicas {
			hosts = append(hosts, r.host)
		}
		who, things, under, to = s.Name()+" ("+strings.Join(hosts, ", ")+")", "place", " held", ""
	}
	e := qerr.Overload(g.bound, itoa(r.Most), tryAgain(r), g.advice, "%s has %s%s%s%s, %s, and %s",
		who, count(int64(r.Held), things), to, under, whose, rule, outcome(r, began))
	switch {
	case r.Why == admit.FlowFull:
		e.Message = who + " has no room for another " + g.what + to + ": " + outcome(r, began)
	case r.Wants > 1 || r.Ahead > 0:
		e.Message = fmt.Sprintf("%s has %d of its %d %ss%s%s%s", who, r.Held, g.Places(), things, to, under, whose) +
			g.tooWide(s, r) + ", and " + outcome(r, began)
	}
	if g == s.calls && r.Wants > 1 {
		e.Advice = "ask for fewer series or fewer steps, so that it is narrower; for good, record what is dear by a rule, spread the series over " +
			"more shards or, where the servers have the memory for it, raise limits.shard_budget; see which queries take the servers' time (shard_s of the admin API's queries)"
	}
	e.Seen = count(int64(r.Others), "other") + " waiting"
	if g == s.calls && r.MaxWait == 0 { // else it is nothing about the shard
		e.Shards = []string{s.Name()}
	}
	return e
}

// tooWide is what is said of a call that found no place where some take several.
func (g *gate) tooWide(s *Shard, r *admit.Refusal) (out string) {
	places := g.Places()
	switch {
	case r.Why != admit.AllHeld:
		out += fmt.Sprintf(", which may have %d", r.Most)
	case r.Most < places:
		out += fmt.Sprintf(" and %d kept for other lanes", places-r.Most)
	}
	if budget := s.topology.opts.Budget; r.Wants > 1 && g == s.calls {
		part := float64(budget) / float64(places) * float64(r.Wants) / (1 << 20)
		out += fmt.Sprintf(", this call takes %d of them (about %.0f MiB of the %s that all calls together may make a server hold)",
			r.Wants, math.Ceil(part-0.01), admit.FormatBytes(budget))
	} else if r.Wants > 1 {
		out += fmt.Sprintf(", this request makes %d at once", r.Wants)
	}
	if r.Ahead > 0 {
		out += fmt.Sprintf(", one that takes %d is ahead of it", r.Ahead)
	}
	return out
}

// noFile is the error of a call for which this machine has no file, port or buffer left, which says
// nothing about the server.
func (r *Replica) noFile(err error) *qerr.Error {
	r.up.metrics.noFile.Inc()
	var no syscall.Errno
	errors.As(err, &no)
	all := r.Shard.topology.crowd.all
	e := qerr.Wrap(qerr.Overloaded, err, "Spillway's own machine had nothing left to open a connection to %s with: %s", r.Name(), no)
	e.Bound, e.Value, e.Seen, e.RetryAfter = all.bound, itoa(all.Places()), no.Error(), time.Second
	e.Advice = "try again in a moment, and raise Spillway's limit of open files (ulimit -n) or of local ports; the shard itself may be well"
	e.Shards = []string{r.Name()}
	return e
}
