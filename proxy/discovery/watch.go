package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/spillwayproject/spillway/proxy/config"
)

// Patience is how long Fill waits for the first answers about a group.
const Patience = 30 * time.Second

// settle is how long nothing may have changed before a change is told: a discovery that reads
// several files tells of one after the other.
const settle = 300 * time.Millisecond

// Options are those of a Watch.
type Options struct {
	// Logger is told what comes and goes; nil logs nothing.
	Logger *slog.Logger
	// Registerer takes the metrics; nil is none.
	Registerer prometheus.Registerer
	// Changed is called after each change of what Fill would return, by one goroutine. It may call
	// Fill. May be nil.
	Changed func()
	// Patience is that of Fill; 0 is Patience.
	Patience time.Duration
}

// Watch looks up the shards of groups.
type Watch struct {
	o       Options
	metrics *metrics
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	changed chan struct{}
	there   func(ctx context.Context, r config.Replica) bool // whether a server has started

	mu      sync.Mutex
	sources []*source
}

// metrics are those of the package.
type metrics struct {
	servers *prometheus.GaugeVec
	refused *prometheus.GaugeVec
}

// New returns a Watch that watches nothing yet. It ends when ctx does, or with Close.
func New(ctx context.Context, o Options) *Watch {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = Patience
	}
	w := &Watch{o: o, changed: make(chan struct{}, 1), there: there, metrics: &metrics{
		servers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_discovery_servers", Help: "Servers of the group that are asked since they were looked up, by state: found, or kept, which are no longer found and not let go yet, or which were told last by what answers no more. Those of state awaited are not asked yet: they are of shards that came not long ago, and none of a shard's servers has answered.",
		}, []string{"group", "state"}),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_discovery_refused", Help: "1 while what is found for the group cannot be used, so that what was found before stays in force, or while nothing could be looked up for longer than keep; else 0.",
		}, []string{"group"}),
	}}
	if o.Registerer != nil {
		o.Registerer.MustRegister(w.metrics.servers, w.metrics.refused)
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	w.wg.Go(w.tell)
	return w
}

// Close ends all that was begun and waits for it.
func (w *Watch) Close() {
	w.stop()
	w.wg.Wait()
}

// tell calls Changed.
func (w *Watch) tell() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.changed:
		}
		timer := time.NewTimer(settle)
		for quiet := false; !quiet; {
			select {
			case <-w.ctx.Done():
				timer.Stop()
				return
			case <-w.changed:
				timer.Reset(settle)
			case <-timer.C:
				quiet = true
			}
		}
		if w.o.Changed != nil {
			w.o.Changed()
		}
	}
}

func (w *Watch) touch() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Fill is the configuration with the shards that were found in the groups that have shards_from;
// without such groups it is the configuration itself. Groups that are new are looked up from now
// on, and Fill waits for them, at most Options.Patience; so are those whose kubeconfig has changed.
// The error says what could not be found, or not be used; then all stays as it was.
func (w *Watch) Fill(ctx context.Context, cfg *config.Config) (*config.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	found := map[string][]config.Shard{}
	var began []*source
	fail := func(err error) (*config.Config, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end(func(s *source) bool { return slices.Contains(began, s) })
		return nil, err
	}
	for i := range cfg.Groups {
		g := &cfg.Groups[i]
		if !g.ShardsFrom.Set() {
			continue
		}
		s, fresh, err := w.source(g)
		if err != nil {
			return fail(fmt.Errorf("group %s: shards_from: %w", g.Name, err))
		}
		if fresh {
			began = append(began, s)
		}
		shards, err := s.await(ctx)
		if err != nil {
			return fail(fmt.Errorf("group %s: shards_from: %w", g.Name, err))
		}
		found[g.Name] = shards
	}
	if len(found) == 0 {
		return cfg, nil
	}
	out, err := cfg.WithShards(found)
	if err != nil {
		return fail(fmt.Errorf("what shards_from has found: %w", err))
	}
	return out, nil
}

// Retain stops looking up groups that the configuration does not have, and those that are looked up
// anew since.
func (w *Watch) Retain(cfg *config.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := map[string]*source{}
	for _, s := range w.sources {
		if slices.ContainsFunc(cfg.Groups, func(g config.Group) bool { return s.is(&g) }) {
			last[s.group] = s
		}
	}
	w.end(func(s *source) bool { return last[s.group] != s })
}

// end ends sources. The caller holds w.mu.
func (w *Watch) end(which func(*source) bool) {
	w.sources = slices.DeleteFunc(w.sources, func(s *source) bool {
		if !which(s) {
			return false
		}
		s.stop()
		if !slices.ContainsFunc(w.sources, func(other *source) bool { return other != nil && other != s && other.group == s.group }) {
			w.metrics.servers.DeletePartialMatch(prometheus.Labels{"group": s.group})
			w.metrics.refused.DeleteLabelValues(s.group)
		}
		return true
	})
}

// source is that of a group, which is begun where there is none yet, or none that has read its
// kubeconfig as it is now.
func (w *Watch) source(g *config.Group) (s *source, fresh bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sources {
		if s.is(g) && !slices.ContainsFunc(s.clusters, (*cluster).outdated) {
			return s, false, nil
		}
	}
	if s, err = newSource(w, g); err != nil {
		return nil, false, err
	}
	all, err := s.discoverers()
	if err != nil {
		return nil, false, err
	}
	for _, before := range w.sources {
		if before.group == s.group {
			s.follows(before)
		}
	}
	ctx, stop := context.WithCancel(w.ctx)
	s.stop = stop
	ch := make(chan []*targetgroup.Group)
	for _, d := range all {
		w.wg.Go(func() { d.Run(ctx, ch) })
	}
	w.wg.Go(func() { s.follow(ctx, ch) })
	w.wg.Go(func() { s.knock(ctx) })
	w.sources = append(w.sources, s)
	return s, true, nil
}

func newSource(w *Watch, g *config.Group) (*source, error) {
	s := &source{
		w: w, group: g.Name, from: g.ShardsFrom, log: w.o.Logger.With("group", g.Name), now: time.Now,
		groups: map[string]*targetgroup.Group{}, heard: map[string]time.Time{}, known: map[string]*server{}, awaited: map[string]*awaited{},
		told: make(chan struct{}), nudged: make(chan struct{}, 1), awaits: make(chan struct{}, 1),
	}
	for i := range g.ShardsFrom.Relabel {
		rule, err := g.ShardsFrom.Relabel[i].Rule()
		if err != nil {
			return nil, fmt.Errorf("relabel_configs[%d]: %w", i, err)
		}
		s.rules = append(s.rules, rule)
	}
	return s, nil
}

// follows takes over who was asked by the source in whose place s comes, before s begins: they are
// kept until s finds them itself, or its own keep has ended. Where other servers are looked for
// than before, it takes over none.
func (s *source) follows(before *source) {
	if before == nil || !sameLookup(&s.from, &before.from) ||
		!slices.EqualFunc(s.clusters, before.clusters, func(a, b *cluster) bool { return a.host == b.host }) {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	s.followed = before.ready
	for shard, a := range before.awaited {
		s.awaited[shard] = &awaited{since: a.since, there: a.there}
	}
	for at, k := range before.known {
		seen := k.seen
		if !k.kept { // found until now
			seen = s.now()
		}
		s.known[at] = &server{found: k.found, seen: seen, kept: true, lost: k.lost}
	}
}

// sameLookup tells whether the same servers are found.
func sameLookup(a, b *config.ShardsFrom) bool {
	where := func(f *config.ShardsFrom) config.ShardsFrom {
		return config.ShardsFrom{Files: f.Files, DNSSRV: f.DNSSRV, HTTP: f.HTTP, Kubernetes: f.Kubernetes, Relabel: f.Relabel}
	}
	return reflect.DeepEqual(where(a), where(b))
}

// is tells whether the source is that of a group as it is configured.
func (s *source) is(g *config.Group) bool {
	return s.group == g.Name && reflect.DeepEqual(s.from, g.ShardsFrom)
}

// sortedValues are the values of a map by their keys.
func sortedValues[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
