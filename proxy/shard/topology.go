package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// Options are what a Topology needs besides the groups. The zero value is usable.
type Options struct {
	// Logger is where state changes and answers that make no sense are written; nil is nowhere.
	Logger *slog.Logger
	// Registerer takes the metrics; nil registers none. With a previous topology its metrics go on
	// being used.
	Registerer prometheus.Registerer
	// Clock is what relative spans are computed from where a caller gives no time; nil is time.Now.
	Clock func() time.Time
	// DialTimeout bounds name resolution and connecting together; 0 is 5 s.
	DialTimeout time.Duration
	// HeaderTimeout is how long a replica may take to begin an answer that needs no computing while
	// another replica can be asked; 0 is 5 s.
	HeaderTimeout time.Duration
	// ProgressTimeout is how long one read of a body may take; 0 is 10 s.
	ProgressTimeout time.Duration
	// ProbeInterval is the time between two health probes of a replica, give or take a tenth; 0 is
	// 5 s. With more than 200 replicas, those that give no reason to be looked at are probed more
	// rarely, with 800 and more every fourth time.
	ProbeInterval time.Duration
	// FirstProbeWait is how long a request may wait for a replica's first probe before it asks
	// without it; 0 is 2 s.
	FirstProbeWait time.Duration
	// FactsEvery is the time after which what a server says about itself, and what it scrapes, is
	// read anew; 0 is 30 s. Whether it has passed is checked after each probe. With more than 200
	// replicas it is stretched as ProbeInterval is, except where hashmod, shard_by or names are to
	// be checked.
	FactsEvery time.Duration
	// VitalsEvery is the time between two readings of a server's own metrics, give or take a tenth;
	// 0 is 10 s. It is stretched as ProbeInterval is.
	VitalsEvery time.Duration
	// MaxCalls is how many calls one replica is asked at once; 0 is 24.
	MaxCalls int
	// ProcessCalls is how many calls all replicas together are asked at once, where a quarter of
	// OpenFiles allows them; 0 is that quarter, 640 at most.
	ProcessCalls int
	// Budget is how many bytes all calls together may make one replica hold, as estimated: each of
	// MaxCalls places is an equal part of it. With 0 each call takes one place.
	Budget int64
	// ReadSlots is how many of them may be remote reads; 0 is 8.
	ReadSlots int
	// Lanes share the places at gates; the last one is for whoever is in no other. With none there
	// is one. They are in force from Start on, and at new gates at once.
	Lanes []admit.Lane
	// NeverShed are the names of lanes whose calls are made however little memory a server has.
	NeverShed []string
	// OpenFiles is how many files the process may have open; 0 is what the system says. A quarter
	// of it may be calls to shards.
	OpenFiles int
	// Dial opens connections; nil is TCP. For tests with listeners in memory.
	Dial DialFunc
	// TracerProvider makes the spans; nil is OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// GoneWithin is how long a server whose connection broke may take to show that it is there;
	// 2 s.
	GoneWithin time.Duration
	// MoveTimeout bounds how long the servers are asked, all together, to which CheckMoves finds
	// groups moved; 0 is 5 s.
	MoveTimeout time.Duration
	// UserAgent is sent with every call; empty is Spillway.
	UserAgent string
	// ID is this Spillway's own, of identity.NewID: every call says that it comes through it, so
	// that it is known where a server's url leads back here. With none the calls say nothing.
	ID string
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.DialTimeout, 5*time.Second)
	def(&o.HeaderTimeout, 5*time.Second)
	def(&o.ProgressTimeout, 10*time.Second)
	def(&o.ProbeInterval, 5*time.Second)
	def(&o.FirstProbeWait, 2*time.Second)
	def(&o.FactsEvery, factsEvery)
	def(&o.VitalsEvery, 10*time.Second)
	def(&o.GoneWithin, 2*time.Second)
	def(&o.MoveTimeout, 5*time.Second)
	if o.MaxCalls <= 0 {
		o.MaxCalls = maxCalls
	}
	if o.ReadSlots <= 0 {
		o.ReadSlots = readSlots
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = openFiles()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.UserAgent == "" {
		o.UserAgent = "Spillway"
	}
	return o
}

// Topology is every server that Spillway asks, as one configuration describes them. It is immutable
// but for what is learned about the servers.
type Topology struct {
	// Groups are in the order of the configuration.
	Groups []*Group

	opts    Options
	size    int // replicas
	metrics *metrics
	crowd   *crowd
	compare comparison
	agreed  atomic.Pointer[agreed]
	started atomic.Bool
	checks  atomic.Bool // CheckMoves is under way
	closed  sync.Once
	cancel  context.CancelCauseFunc
	done    sync.WaitGroup
}

// Group is the series of one cluster, region or tenant.
type Group struct {
	// Name is unique.
	Name string
	// Labels are on every series of the group; they are never sent to a shard.
	Labels labels.Labels
	// ReplicaLabels are never in an answer; sorted.
	ReplicaLabels []string
	// From and Until bound the group in time; see Shard.Span.
	From, Until config.Moment
	// Heartbeat is a selector by which a replica is seen to be whole; empty where there is none.
	Heartbeat string
	// ShardBy are labels that keep series together, sorted: series that have all of them, with
	// equal values, are on one shard at any one time. Empty where nothing is promised.
	ShardBy []string
	// Hashmod is the promise that tells which shard holds a value of a label; nil where there is
	// none. Ask Prune, which knows whether it is kept.
	Hashmod *trust.Hashmod
	// Names are the metric names that its series may have; nil where any may be there. Ask Prune
	// here too.
	Names *trust.Names
	// Shards are disjoint slices of the group.
	Shards []*Shard
	// LookedUp tells that its shards are looked up, so that no shard of it can have names.
	LookedUp bool

	homes *trust.Homes // the metrics that shards have alone; nil where there are none
	sick  atomic.Pointer[[]Sickness]
	apart *trust.Apart
	// dividing is of its targets, which its shards may be dividing anew.
	dividing dividing
}

// Shard is a disjoint slice of a group.
type Shard struct {
	// Group is the group it belongs to.
	Group *Group
	// Index is its place in the group, from 0.
	Index int
	// From and Until bound the slice itself; see Span.
	From, Until config.Moment
	// Hash is the shard's number under its group's Hashmod; meaningless without one.
	Hash uint64
	// Names are the metrics that it has alone: no other shard of the group has one of them in its
	// time. nil where none are said to be. Ask Prune here too.
	Names *trust.Names
	// Replicas hold copies of the slice, in the order of the configuration.
	Replicas []*Replica

	name      string
	place     int // among all shards of the topology
	topology  *Topology
	base      atomic.Int32 // the replica that served last
	identity  string       // of what it has under its group's labels; Identity
	key       string       // equal for two topologies whose shards have the same replicas and heartbeat
	promised  promised     // of its servers
	beats     *trust.Heartbeats
	hedge     *hedger
	calls     *gate
	split     atomic.Bool // its replicas scrape different targets, so that none is known to be whole
	labelling *labelling
	// unanswered is of questions for heartbeats that had no answer in time, crowded of the last
	// wait in vain for the turn to ask one.
	unanswered vain
	crowded    atomic.Pointer[turnOf]
	tries      tries
}

// Name is the group's name and the shard's place, such as jaguar[0].
func (s *Shard) Name() string {
	if s.name == "" { // it is of no topology
		return s.Group.Name + "[" + strconv.Itoa(s.Index) + "]"
	}
	return s.name
}

// Key is equal for shards of two topologies that have the same replicas and heartbeat. It has the
// headers that replicas are sent, and is never shown.
func (s *Shard) Key() string { return s.key }

// Identity is equal for shards of two topologies that have the same series for the same selector:
// that of one depends on the labels that its servers are not asked about, those of its group.
func (s *Shard) Identity() string {
	if s.identity == "" { // it is of no topology
		return s.identify()
	}
	return s.identity
}

func (s *Shard) identify() string {
	return fmt.Sprintf("%s\x00%s\x00%q", cmp.Or(s.key, s.Name()), s.Group.Labels, s.Group.ReplicaLabels)
}

// Span is the time for which the shard answers at now: its own within its group's, in milliseconds,
// from inclusive, until exclusive. It is empty where until <= from; bounds that the configuration
// does not give are math.MinInt64 and math.MaxInt64.
func (s *Shard) Span(now time.Time) (from, until int64) {
	gf, gu := config.Span(s.Group.From, s.Group.Until, now)
	sf, su := config.Span(s.From, s.Until, now)
	return max(gf, sf), min(gu, su)
}

// lives tells whether the shard's span has begun and not ended: else its servers need not have
// anything of late.
func (s *Shard) lives(now time.Time) bool {
	from, until := s.Span(now)
	return from <= now.UnixMilli() && now.UnixMilli() < until
}

// errClosed is the cause with which a topology's own work ends.
var errClosed = errors.New("the configuration was replaced, or Spillway is stopping")

// ReadSlots is how many remote reads each replica is asked at once.
func (t *Topology) ReadSlots() int { return t.opts.ReadSlots }

// New builds a topology. Replicas of previous (nil for none) whose url, headers and http_client are
// unchanged keep their connections, gates, breaker and what was learned about them. Nothing is
// asked before Start. The caller closes the previous topology after its last request.
func New(groups []config.Group, o Options, previous *Topology) (*Topology, error) {
	o = o.withDefaults()
	t := &Topology{opts: o, cancel: func(error) {}}
	var err error
	if previous != nil {
		t.metrics, t.crowd = previous.metrics, previous.crowd
	} else if t.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, err
	} else {
		t.crowd = newCrowd(o)
	}
	ups, beats := map[string]*upstream{}, map[string]*trust.Heartbeats{}
	if previous != nil {
		for r := range previous.replicas() {
			ups[r.up.key] = r.up
			beats[r.Shard.key] = r.Shard.beats
		}
	}
	for gi := range groups {
		g, err := t.group(&groups[gi], ups, beats)
		if err != nil {
			t.release()
			return nil, fmt.Errorf("groups[%d].%w", gi, err)
		}
		t.Groups = append(t.Groups, g)
	}
	place := 0
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			s.place = place
			place++
			t.size += len(s.Replicas)
		}
	}
	t.inherit(previous)
	return t, nil
}

func (t *Topology) group(c *config.Group, ups map[string]*upstream, beats map[string]*trust.Heartbeats) (*Group, error) {
	g := &Group{
		Name: c.Name, Labels: labels.FromMap(c.Labels), ReplicaLabels: slices.Sorted(slices.Values(c.ReplicaLabels)),
		From: c.From, Until: c.Until, Heartbeat: c.Heartbeat,
		ShardBy: slices.Sorted(slices.Values(c.ShardBy)), Hashmod: hashmodOf(c), LookedUp: c.ShardsFrom.Set(),
	}
	var err error
	if g.Names, err = trust.NewNames(c.Names); err != nil {
		return nil, err
	}
	for si := range c.Shards {
		sc := &c.Shards[si]
		s := &Shard{Group: g, Index: si, From: sc.From, Until: sc.Until, Hash: sc.Hash.N, topology: t}
		s.name = s.Name()
		if s.Names, err = trust.NewNames(sc.Names); err != nil {
			t.drop(g.Shards...)
			return nil, fmt.Errorf("shards[%d].%w", si, err)
		}
		keys := []string{g.Heartbeat}
		for ri := range sc.Replicas {
			up, err := t.upstream(&sc.Replicas[ri], ups)
			if err != nil {
				t.drop(s)
				t.drop(g.Shards...)
				return nil, fmt.Errorf("shards[%d].replicas[%d].%w", si, ri, err)
			}
			r := &Replica{
				Shard: s, Index: ri, up: up, host: up.base.Host, name: g.Name + "/" + up.base.Host,
				memoryLimit: int64(sc.Replicas[ri].MemoryLimit), ownPage: sc.Replicas[ri].NamesMetrics(),
				reading: &reading{},
			}
			if r.metrics, err = sc.Replicas[ri].MetricsURL(); err != nil {
				r.metrics = nil // a configuration that was checked has none
			}
			r.metricLabels = []string{g.Name, strconv.Itoa(si), up.base.Host}
			r.account = t.metrics.account(r.metricLabels)
			r.span = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				attribute.String("spillway.group", g.Name), attribute.Int("spillway.shard", si),
				attribute.String("server.address", r.host))}
			s.Replicas = append(s.Replicas, r)
			keys = append(keys, up.key)
		}
		s.key = strings.Join(keys, "\x00")
		s.identity = s.identify()
		if s.beats = beats[s.key]; s.beats == nil {
			s.beats = trust.New(g.Heartbeat, len(s.Replicas))
		}
		s.labelling = &labelling{}
		s.hedge, s.calls = newHedger(), t.crowd.of(s.name, t.opts.MaxCalls, t.opts.Lanes)
		g.Shards = append(g.Shards, s)
	}
	g.apart, g.homes = g.apartOf(), g.homesOf()
	for _, s := range g.Shards {
		s.promised = s.promises()
	}
	return g, nil
}

// upstream finds the server among those of the previous topology, or makes one.
func (t *Topology) upstream(c *config.Replica, ups map[string]*upstream) (*upstream, error) {
	key, err := upstreamKey(c)
	if err != nil {
		return nil, err
	}
	if up := ups[key]; up != nil {
		up.refs.Add(1)
		return up, nil
	}
	up, err := newUpstream(c, key, t.opts, t.metrics, &t.crowd.idle)
	if err != nil {
		return nil, err
	}
	ups[key] = up
	return up, nil
}

// replicas yields every replica, in order.
func (t *Topology) replicas() func(yield func(*Replica) bool) {
	return func(yield func(*Replica) bool) {
		for _, g := range t.Groups {
			for _, s := range g.Shards {
				for _, r := range s.Replicas {
					if !yield(r) {
						return
					}
				}
			}
		}
	}
}

// Start begins to probe the replicas and to watch the heartbeats, until ctx ends or Close is
// called. It is called once.
func (t *Topology) Start(ctx context.Context) {
	if t.started.Swap(true) {
		return
	}
	ctx, t.cancel = context.WithCancelCause(ctx)
	t.setLanes()
	t.metrics.current.Store(t)
	for r := range t.replicas() {
		t.done.Go(func() { r.probeLoop(ctx) })
		if r.metrics != nil {
			t.done.Go(func() { r.vitalsLoop(ctx) })
		}
	}
	t.done.Go(func() { t.compareLoop(ctx) })
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			if g.Heartbeat != "" && len(s.Replicas) > 1 {
				t.done.Go(func() { s.beatLoop(ctx) })
			}
			t.done.Go(func() { s.lagLoop(ctx) })
		}
	}
}

// Close ends the background work, waits for it, and gives the replicas up; their connections close
// when the last request over them has ended. Requests under way are not touched.
func (t *Topology) Close() {
	t.closed.Do(func() {
		t.cancel(errClosed)
		t.done.Wait()
		t.metrics.current.CompareAndSwap(t, nil)
		t.release()
	})
}

func (t *Topology) release() {
	for _, g := range t.Groups {
		t.drop(g.Shards...)
	}
}

func (t *Topology) drop(shards ...*Shard) {
	for _, s := range shards {
		for _, r := range s.Replicas {
			r.up.unref()
			t.metrics.forget(r.account)
		}
	}
}

// WaitFirstProbe waits until every replica has been probed once, whatever came of it, and then
// until the servers have been compared with each other, or ctx ends, which is no error then.
func (t *Topology) WaitFirstProbe(ctx context.Context) error {
	if err := t.probed(ctx); err != nil || !t.started.Load() {
		return err
	}
	select {
	case <-t.compare.first:
	case <-ctx.Done():
	}
	return nil
}

func (t *Topology) probed(ctx context.Context) error {
	for r := range t.replicas() {
		select {
		case <-r.up.firstProbe:
		case <-ctx.Done():
			return fmt.Errorf("wait for the first probe of %s: %w", r.Name(), qerr.FromContext(ctx, ctx.Err()))
		}
	}
	return nil
}

// Unanswered are the names of the groups that serve at now, as long as no server of any of them has
// answered a probe or a query yet: where one has, what others lack is their own trouble, such as a
// region that is cut off. What a server did under a configuration before this one counts, and what
// it did since does not.
func (t *Topology) Unanswered(now time.Time) []string {
	var names []string
	for _, g := range t.Groups {
		lives := false
		for _, s := range g.Shards {
			if s.lives(now) {
				lives = true
				if slices.ContainsFunc(s.Replicas, (*Replica).everAnswered) {
					return nil
				}
			}
		}
		if lives {
			names = append(names, g.Name)
		}
	}
	return names
}

// everAnswered tells whether a probe or, where its readiness page says otherwise to the end, a
// query was ever answered.
func (r *Replica) everAnswered() bool { return r.up.onceUp.Load() || r.up.answered.Load() != 0 }

// Group returns the group of that name, or nil.
func (t *Topology) Group(name string) *Group {
	i := slices.IndexFunc(t.Groups, func(g *Group) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return t.Groups[i]
}

// Shard returns the shard of that name, as Shard.Name has it, or nil.
func (t *Topology) Shard(name string) *Shard {
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			if s.name == name {
				return s
			}
		}
	}
	return nil
}

// ownLabels are the label names that Spillway sets or removes itself in the group: its labels and
// its replica labels, sorted.
func (g *Group) ownLabels() []string {
	names := map[string]struct{}{}
	g.Labels.Range(func(l labels.Label) { names[l.Name] = struct{}{} })
	for _, n := range g.ReplicaLabels {
		names[n] = struct{}{}
	}
	return slices.Sorted(maps.Keys(names))
}
