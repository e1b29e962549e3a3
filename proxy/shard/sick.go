package shard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/trust"
)

const (
	// compareParallel is how many servers are asked for their targets at once.
	compareParallel = 4
	// targetsKeep is how long the targets of a server count that cannot be asked for them any more.
	// A server that died may have given them to another one.
	targetsKeep = 5 * time.Minute
	// targetsUnread is how long those of one count that can be asked, when nobody has read them.
	targetsUnread = 3 * targetsKeep
	// maxSkew is how far a server's clock may be from ours before anyone is told.
	maxSkew = 30 * time.Second
)

// The kinds of Sickness.
const (
	// SickEngine is a query engine that differs from that of most servers: in its lookback, or in
	// anything on all replicas of a shard.
	SickEngine = "engine"
	// SickClock is a clock more than 30 s from ours.
	SickClock = "clock"
	// SickCopy is a shard that scrapes what another one scrapes: a replica that is listed as a
	// shard.
	SickCopy = "copy"
	// SickOverlap is a target that two shards scrape.
	SickOverlap = "overlap"
	// SickSplit is a replica that scrapes other targets than its shard's first: a shard that is
	// listed as a replica.
	SickSplit = "split"
)

// SickKinds are all of them, in the order of docs/trust.md.
func SickKinds() []string { return []string{SickEngine, SickClock, SickCopy, SickOverlap, SickSplit} }

// Sickness is why the shards of a group cannot be trusted with a query's result, only with series.
type Sickness struct {
	// Kind is one of the constants.
	Kind string
	// Replica is the name of the server that is to be mended; of two that do not fit together, the
	// one listed later.
	Replica string
	// Text is what is wrong and what to do, a sentence about the server.
	Text string

	elsewhere bool // it is about a server of another group, too
}

// Sick is what was wrong with the group's servers when they were last compared; empty where nothing
// was. It is cheap, and for reading only.
func (g *Group) Sick() []Sickness {
	if p := g.sick.Load(); p != nil {
		return *p
	}
	return nil
}

// Trusted tells whether nothing is known that makes it necessary to evaluate the group's queries in
// Spillway from the shards' series, nor anything about to be known: no server that could hold the
// same series is back that was not compared since.
func (g *Group) Trusted() bool { return len(g.Sick()) == 0 && !g.Awaits() }

// Differs tells whether the server's query engine differed from most others' when they were last
// compared: nothing is pushed to it then. EngineDifferences says in what.
func (r *Replica) Differs() bool { return r.differs.Load() }

// comparison is the state of comparing a topology's servers with each other.
type comparison struct {
	wake  chan struct{} // holds one token while there is something new to compare
	back  chan struct{} // holds one token while a server is back
	first chan struct{} // closed when they were compared for the first time
	once  sync.Once

	// One more than changes was when no server was awaited; 0: never.
	awaitsNone atomic.Uint64

	rounds  atomic.Int64      // how often they were
	mu      sync.Mutex        // one comparison at a time
	samples map[uint64]string // texts of the targets that two shards have, by hash; of one pair of shards one
	targets []ailment         // what was found when the targets were read last
	sharing map[*Shard][]*Shard
	walked  walked
}

// inherit takes over what previous has learned about servers and shards that did not change, and
// what is wrong with groups, until that is known anew.
func (t *Topology) inherit(previous *Topology) {
	t.compare.wake, t.compare.back, t.compare.first = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	if previous == nil {
		return
	}
	before, servers := map[string]*Shard{}, map[serverOf]*Replica{}
	for r := range previous.replicas() {
		before[r.Shard.key] = r.Shard
		servers[serverOf{r.up, r.Shard.Group.Name}], servers[serverOf{r.up, ""}] = r, r
	}
	for _, g := range t.Groups {
		if was := previous.Group(g.Name); was != nil {
			g.sick.Store(was.sick.Load())
			g.inheritDividing(was, t.opts.Clock(), t.opts.Logger)
			// A promise that was seen to be false is not believed anew until it is checked; one
			// shard alone keeps it.
			if slices.Equal(g.ShardBy, was.ShardBy) && len(g.Shards) > 1 {
				g.apart.Inherit(was.apart)
			}
		}
		for _, s := range g.Shards {
			if was := before[s.key]; was != nil {
				s.hedge, s.labelling = was.hedge, was.labelling
				s.split.Store(was.split.Load())
			}
			for _, r := range s.Replicas {
				was := servers[serverOf{r.up, g.Name}]
				if was == nil {
					was = servers[serverOf{r.up, ""}]
				}
				if was != nil {
					r.inherit(was)
				}
			}
		}
	}
}

// serverOf is a server in a group of that name, or in any.
type serverOf struct {
	up    *upstream
	group string
}

// inherit takes over what the servers were compared by when the same one was asked as was: its
// targets are known by the labels of its group, and it is to be compared anew under others.
func (r *Replica) inherit(was *Replica) {
	r.differs.Store(was.differs.Load())
	r.longGone.Store(was.longGone.Load())
	r.compared.Store(was.compared.Load())
	if g, old := r.Shard.Group, was.Shard.Group; labels.Equal(g.Labels, old.Labels) && slices.Equal(g.ReplicaLabels, old.ReplicaLabels) {
		r.reading = was.reading
	} else if r.Shard.topology.several() {
		r.compared.Store(-1)
	}
}

// learned has the servers compared soon, since something was learned about one.
func (t *Topology) learned() {
	select {
	case t.compare.wake <- struct{}{}:
	default:
	}
}

// isBack has those that are back compared soon.
func (t *Topology) isBack() {
	select {
	case t.compare.back <- struct{}{}:
	default:
	}
}

// compareLoop reads what every server scrapes and compares the servers, now and then, until ctx
// ends.
func (t *Topology) compareLoop(ctx context.Context) {
	if t.probed(ctx) != nil {
		return
	}
	ticker := time.NewTicker(t.opts.FactsEvery)
	defer ticker.Stop()
	var last time.Time // when the targets were read
	// What is known of the others from before a reload stands until then, and a reload may come
	// before all are read.
	if 10*t.compareBack(ctx) >= 9*t.count() { // the others are down
		last = time.Now()
	}
	t.done.Go(func() { t.backLoop(ctx) })
	for read := last.IsZero(); ; {
		if read {
			last = time.Now()
			t.readTargets(ctx, t.replicas())
		}
		t.judge(ctx, read)
		select {
		case now := <-ticker.C:
			read = now.Sub(last) >= t.targetsEvery()-t.opts.FactsEvery/2
		case <-t.compare.wake:
			read = false
		case <-ctx.Done():
			return
		}
	}
}

// Refresh reads anew what every server says about itself and what it scrapes, and compares them. It
// takes some seconds at most for each server that hangs.
func (t *Topology) Refresh(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(compareParallel)
	for r := range t.replicas() {
		g.Go(func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, examineTimeout, context.DeadlineExceeded)
			defer cancel()
			r.examine(ctx)
			return nil
		})
	}
	_ = g.Wait()
	t.readTargets(ctx, t.replicas())
	t.judge(ctx, true)
}

func (t *Topology) several() bool { return t.count() > 1 }

func (t *Topology) count() (n int) {
	for range t.replicas() {
		n++
	}
	return n
}

// ailment is one thing that is wrong with a server, or between two.
type ailment struct {
	kind string
	r    *Replica
	text string
	raw  bool // nothing of the group is trusted to the shards for it
	with *Group
}

// judge compares all servers by what is known of them, and makes it known. What they scrape is
// compared only where it was read anew, as it was of those who are back.
func (t *Topology) judge(ctx context.Context, read bool, back ...returned) {
	t.compare.mu.Lock()
	defer t.compare.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	var all []ailment
	t.noteGone()
	ref, _ := t.reference()
	for r := range t.replicas() {
		own := r.ailments(ref)
		r.differs.Store(slices.ContainsFunc(own, func(f ailment) bool { return f.kind == SickEngine }))
		all = append(all, own...)
	}
	if read {
		t.compare.targets = t.targetAilments(ctx, t.opts.Clock())
	}
	all = append(all, t.compare.targets...)
	of := map[*Group][]Sickness{}
	for _, f := range all {
		if !f.raw {
			continue
		}
		s := Sickness{Kind: f.kind, Replica: f.r.Name(), Text: f.text, elsewhere: f.with != nil}
		of[f.r.Shard.Group] = append(of[f.r.Shard.Group], s)
		if f.with != nil && f.with != f.r.Shard.Group {
			of[f.with] = append(of[f.with], s)
		}
	}
	t.compare.rounds.Add(1)
	for _, g := range t.Groups {
		sick := of[g]
		was := g.Sick()
		g.sick.Store(&sick)
		g.noteDividing()
		g.tell(t.opts.Logger, was, sick)
	}
	for _, b := range back {
		b.r.compared.Store(max(b.r.compared.Load(), b.count))
	}
	t.compare.once.Do(func() { close(t.compare.first) })
}

// tell writes to the log what has changed. Numbers in a text change all the time and are no news.
func (g *Group) tell(log *slog.Logger, was, is []Sickness) {
	same := func(in []Sickness, x Sickness) bool {
		return slices.ContainsFunc(in, func(s Sickness) bool { return s.Kind == x.Kind && s.Replica == x.Replica })
	}
	for _, x := range is {
		if !same(was, x) {
			log.Warn("the group's servers do not fit together; its queries are evaluated in Spillway until they do", slog.String("group", g.Name),
				slog.String("kind", x.Kind), slog.String("replica", x.Replica), slog.String("what", x.Text))
		}
	}
	for _, x := range was {
		if !same(is, x) {
			log.Info("what was wrong with a group's server is no more", slog.String("group", g.Name), slog.String("kind", x.Kind),
				slog.String("replica", x.Replica))
		}
	}
	if len(was) > 0 && len(is) == 0 {
		log.Info("the group's servers fit together again", slog.String("group", g.Name))
	}
}

// ailments are what is wrong with the server whatever it scrapes. What one that is gone said of its
// engine may be long past; its answers are in nobody's way.
func (r *Replica) ailments(ref trust.Engine) []ailment {
	var all []ailment
	if !r.longGone.Load() {
		all = r.engineAilments(ref)
	}
	if f, ok := r.clockAilment(); ok {
		all = append(all, f)
	}
	return all
}

// engineAilments are the differences of the server's engine from most others'. Its own lookback, or
// any difference where no replica of the shard is without, is in the way of the whole group; else
// other replicas of the shard take what is pushed.
func (r *Replica) engineAilments(ref trust.Engine) []ailment {
	mine := r.Engine().Differences(ref)
	if len(mine) == 0 {
		return nil
	}
	raw := !r.Engine().SameLookback(ref)
	if !raw {
		raw = !slices.ContainsFunc(r.Shard.Replicas,
			func(o *Replica) bool {
				return !o.longGone.Load() && o.Engine().Known && len(o.Engine().Differences(ref)) == 0
			})
	}
	out := make([]ailment, 0, len(mine))
	for _, d := range mine {
		out = append(out, ailment{
			kind: SickEngine, r: r, raw: raw,
			text: "its query engine differs from most others: " + d + "; nothing is pushed to it until they are equal",
		})
	}
	return out
}

// clockAilment is a clock that is, or lately was, far from ours: a server is asked several things
// at each refresh, so one that is mended is soon known to be, and an answer with another date in
// between, of a cache before the server perhaps, does not make the group's queries jump to and fro.
func (r *Replica) clockAilment() (ailment, bool) {
	r.up.mu.Lock()
	skew, at := r.up.health.farSkew, r.up.health.farSkewAt
	r.up.mu.Unlock()
	if at.IsZero() || time.Since(at) > r.up.opts.FactsEvery+r.Shard.topology.stretched() {
		return ailment{}, false
	}
	return ailment{kind: SickClock, r: r, raw: true, text: fmt.Sprintf("its clock is %s %s ours; queries about now will miss samples, so run NTP on both",
		skew.Abs().Round(time.Second), beforeOrAfter(skew))}, true
}

func beforeOrAfter(d time.Duration) string {
	if d < 0 {
		return "behind"
	}
	return "ahead of"
}

// targetAilments compares what the servers scrape: copies must scrape the same, slices that answer
// for the same time nothing that is equal.
func (t *Topology) targetAilments(ctx context.Context, now time.Time) []ailment {
	var out []ailment
	samples := map[uint64]string{}
	partners := t.sharing()
	for _, g := range t.Groups {
		for _, s := range g.Shards {
			f, ok := s.splitAilment()
			if ok {
				out = append(out, f)
			}
			s.split.Store(ok)
			s.noteLabelling(f.text, now, t.opts.Logger)
			for _, other := range partners[s] {
				if other.Group != g || other.Index <= s.Index {
					continue
				}
				if f, ok := t.overlapAilment(ctx, s, other, now, samples); ok {
					out = append(out, f)
				}
			}
		}
		for _, s := range g.Shards {
			for _, before := range partners[s] {
				if before.Group == g || before.place > s.place {
					continue
				}
				if f, ok := t.overlapAilment(ctx, before, s, now, samples); ok {
					out = append(out, f)
				}
			}
		}
	}
	t.compare.samples = samples // the texts of targets that are no longer scraped twice are forgotten
	return out
}

// overlapAilment is a target that two shards scrape for the same time.
func (t *Topology) overlapAilment(ctx context.Context, a, b *Shard, now time.Time, samples map[uint64]string) (ailment, bool) {
	af, au := a.Span(now)
	bf, bu := b.Span(now)
	if max(af, bf) >= min(au, bu) || apart(a.Group.Labels, b.Group.Labels) {
		return ailment{}, false // disjoint in time, or by their groups' labels
	}
	of := fmt.Sprintf("shard %d", a.Index)
	f := ailment{raw: true}
	if a.Group != b.Group {
		of, f.with = "group "+a.Group.Name+"'s "+of, a.Group
	}
	for _, ra := range a.Replicas {
		for _, rb := range b.Replicas {
			ta, tb := ra.knownTargets(), rb.knownTargets()
			both, at := common(ta, tb)
			if both == 0 {
				continue
			}
			f.r = rb // one pair says enough
			if 10*both >= 9*max(len(ta), len(tb)) {
				f.kind = SickCopy
				f.text = fmt.Sprintf("holds the same targets as %s of %s; these two look like replicas of one shard: list them under one replicas", ra.host, of)
				return f, true
			}
			f.kind = SickOverlap
			f.text = fmt.Sprintf("%d of its targets are on %s of %s too, such as %s; a series must be on one shard only, so drop it on one or give it a label that tells them apart",
				both, ra.host, of, t.sample(ctx, rb, tb[at], samples))
			return f, true
		}
	}
	return ailment{}, false
}

// apart tells whether no series can be in two groups with these labels: some label has different
// values.
func apart(a, b labels.Labels) bool {
	differ := false
	a.Range(func(l labels.Label) {
		if v := b.Get(l.Name); v != "" && v != l.Value {
			differ = true
		}
	})
	return differ
}

// sample is the text of a target, asked for again since only its hash is kept.
func (t *Topology) sample(ctx context.Context, r *Replica, hash uint64, samples map[uint64]string) string {
	text, ok := t.compare.samples[hash]
	if !ok {
		var err error
		if text, err = r.targetText(ctx, hash); err != nil {
			return "one that is gone already"
		}
	}
	samples[hash] = text
	return text
}

// common counts the elements of both sorted sets; at is the place of the first in b.
func common(a, b []uint64) (n, at int) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] < b[j]:
			i++
		case a[i] > b[j]:
			j++
		default:
			if n == 0 {
				at = j
			}
			n++
			i++
			j++
		}
	}
	return n, at
}

var descSick = prometheus.NewDesc("spillway_group_sick",
	"1 while the group's servers do not fit together in this way, so that its queries are evaluated in Spillway: engine (query engines that differ), "+
		"clock (more than 30 s off), copy (a replica listed as a shard), overlap (a target scraped by two shards), split (a shard listed as a replica).",
	[]string{"group", "kind"}, nil)

// collectSick is the gauge of every group and kind.
func (t *Topology) collectSick(gauge func(d *prometheus.Desc, v float64, l ...string)) {
	for _, g := range t.Groups {
		sick := g.Sick()
		for _, kind := range SickKinds() {
			v := 0.0
			if slices.ContainsFunc(sick, func(s Sickness) bool { return s.Kind == kind }) {
				v = 1
			}
			gauge(descSick, v, g.Name, kind)
		}
	}
}

// sickTexts are the group's findings about one replica, for the view.
func (r *Replica) sickTexts() []string {
	out := []string{}
	for _, s := range r.Shard.Group.Sick() {
		if s.Replica == r.Name() {
			out = append(out, s.Kind+": "+strings.TrimSpace(s.Text))
		}
	}
	return out
}
