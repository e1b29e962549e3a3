package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// BackfillOptions says which past to write, and how one server saw it. Two
// replicas of a shard differ in Replica, Phase, Jitter and Gaps only.
type BackfillOptions struct {
	// From (inclusive) and Until (exclusive) bound the scrapes.
	From, Until time.Time
	// Interval between scrapes of a target; 0 means 15 s. At least 1 ms.
	Interval time.Duration
	// Phase moves all scrapes of this server; any value, taken modulo Interval.
	Phase time.Duration
	// Jitter is the greatest distance of a scrape from its grid point, both ways;
	// less than half of Interval.
	Jitter time.Duration
	// Replica seeds where in the interval each target is scraped, and the jitter.
	Replica uint64
	// Keep chooses the targets that this server scrapes; nil means all. Shard
	// helps: func(t Target) bool { return Shard(t, 4) == 2 }.
	Keep func(Target) bool
	// ExternalTargetLabels are added to every series, as a server's target
	// relabelling would (cluster, region). The target's own labels win.
	ExternalTargetLabels labels.Labels
	// MetricRelabel gives the metric_relabel_configs of a job, nil for none:
	// allow-lists, or what makes a label traffic of an iptables rule. They are
	// checked, and must not make two series of a page one.
	MetricRelabel func(job string) []*relabel.Config
	// Names, where there are any, are the series that are wanted, by their names on the page: what
	// is in other families is not even worked out. The server's own scrape_ series count the
	// wanted ones.
	Names []string
	// Gaps are spans in which this server did not scrape.
	Gaps []Gap
	// BlockRange is the alignment of blocks; 0 means 2 h.
	BlockRange time.Duration
}

// Gap is a span in which a server missed scrapes: of all targets, or of those
// that Targets chooses. Like a server that was restarted it writes no stale
// markers for it.
type Gap struct {
	From, Until time.Time
	Targets     func(Target) bool // nil: all
}

func (o BackfillOptions) withDefaults() BackfillOptions {
	if o.Interval == 0 {
		o.Interval = 15 * time.Second
	}
	if o.BlockRange == 0 {
		o.BlockRange = 2 * time.Hour
	}
	return o
}

// Validate returns everything that is wrong with o, after defaults.
func (o BackfillOptions) Validate() error {
	o = o.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !o.Until.After(o.From) {
		bad("until: %s must be after from, %s", o.Until, o.From)
	}
	if o.Interval < time.Millisecond {
		bad("interval: %s is less than 1ms", o.Interval)
	}
	if o.Jitter < 0 || 2*o.Jitter >= o.Interval {
		bad("jitter: %s must be from 0 to less than half of the interval, %s", o.Jitter, o.Interval)
	}
	if o.BlockRange < o.Interval {
		bad("block_range: %s is less than the interval, %s", o.BlockRange, o.Interval)
	}
	for i, g := range o.Gaps {
		if !g.Until.After(g.From) {
			bad("gaps[%d]: until must be after from", i)
		}
	}
	return errors.Join(errs...)
}

// Stats is what a back-fill wrote.
type Stats struct {
	Targets, Series, Samples, StaleMarkers int
	// BucketSeries are those with a label le.
	BucketSeries int
	Blocks       []string // directory names, oldest first
}

// scrapes are the times at which one server asked one target.
type scrapes struct {
	ts       []int64
	answered []bool
	afterGap []bool // the server began anew with this scrape
	absent   []bool // service discovery has no such target
	// Per scrape: samples on the page, those that relabelling keeps, and those of
	// the latter whose series was not there before.
	samples, kept, added []int32
	upset                bool // some scrape failed or follows a gap
}

func (m *Model) scrapeTimes(p *page, o *BackfillOptions) *scrapes {
	iv := o.Interval.Milliseconds()
	from, until := o.From.UnixMilli(), o.Until.UnixMilli()
	h := hash(hashString(o.Replica+1, p.t.Job+"/"+p.t.Instance))
	off := (int64(between(h, 0, float64(iv))) + o.Phase.Milliseconds()) % iv
	s := &scrapes{}
	away := m.absent(p.t.node)
	skipped := false
	for k := (from-off)/iv - 1; ; k++ {
		t := off + k*iv
		if j := o.Jitter.Milliseconds(); j > 0 {
			t += int64(mix(h^uint64(k))%uint64(2*j+1)) - j
		}
		if t >= until {
			break
		}
		if t < from || t < m.start {
			continue
		}
		if inGap(o.Gaps, p.t, t) {
			skipped = true
			continue
		}
		ok := p.answers(t)
		s.ts = append(s.ts, t)
		s.absent = append(s.absent, within(away, t))
		s.answered = append(s.answered, ok)
		s.afterGap = append(s.afterGap, skipped)
		s.upset = s.upset || skipped || !ok
		skipped = false
	}
	s.samples = make([]int32, len(s.ts))
	s.kept = make([]int32, len(s.ts))
	s.added = make([]int32, len(s.ts))
	return s
}

func inGap(gaps []Gap, t *Target, at int64) bool {
	for i := range gaps {
		g := &gaps[i]
		if at >= g.From.UnixMilli() && at < g.Until.UnixMilli() && (g.Targets == nil || g.Targets(*t)) {
			return true
		}
	}
	return false
}

// first is the index of the first scrape at or after t.
func (s *scrapes) first(t int64) int {
	lo, hi := 0, len(s.ts)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.ts[mid] < t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// count books a series that exists in [from, until) on the page's scrapes and
// reports whether any scrape stores it; kept says what relabelling does.
func (s *scrapes) count(from, until int64, kept bool) bool {
	i, j := s.first(from), s.first(until)
	seen := false
	for k := i; k < j; k++ {
		if !s.answered[k] {
			continue
		}
		s.samples[k]++
		if !kept {
			continue
		}
		seen = true
		s.kept[k]++
		if k > 0 && (k == i || !s.answered[k-1] || s.afterGap[k]) {
			s.added[k]++
		}
	}
	return seen
}

// each calls put for every sample that the server stores of a series in scrapes
// [lo, hi), stale markers included, in order of time.
func (s *scrapes) each(e *entry, lo, hi int, put func(t int64, v float64)) {
	if e.made != notMade {
		for k := lo; k < hi; k++ {
			switch {
			case !s.absent[k]:
				put(s.ts[k], s.made(e, k))
			case k > 0 && !s.absent[k-1] && !s.afterGap[k]:
				put(s.ts[k], staleNaN)
			}
		}
		return
	}
	if len(e.more) == 0 && !s.upset && s.first(e.from) <= lo && s.first(e.until) >= hi {
		for k := lo; k < hi; k++ {
			put(s.ts[k], e.curve.at(s.ts[k]))
		}
		return
	}
	l := e.life
	more := e.more
	i, j := s.first(l.from), s.first(l.until)
	was := lo > 0 && e.seen(s, lo-1)
	for k := lo; k < hi; k++ {
		for k >= j && len(more) > 0 {
			l, more = more[0], more[1:]
			i, j = s.first(l.from), s.first(l.until)
		}
		is := k >= i && k < j && s.answered[k]
		switch {
		case is:
			put(s.ts[k], l.curve.at(s.ts[k]))
		case was && !s.afterGap[k]:
			put(s.ts[k], staleNaN)
		}
		was = is
	}
}

// seen reports whether scrape k saw the series.
func (e *entry) seen(s *scrapes, k int) bool {
	if !s.answered[k] {
		return false
	}
	in := func(l life) bool { return s.ts[k] >= l.from && s.ts[k] < l.until }
	return in(e.life) || slices.ContainsFunc(e.more, in)
}

var staleNaN = math.Float64frombits(value.StaleNaN)

// made numbers the series that the server makes itself for every scrape.
type made uint8

const (
	notMade made = iota
	madeUp
	madeDuration
	madeSamples
	madePostRelabel
	madeAdded
)

var madeNames = [...]string{
	madeUp: "up", madeDuration: "scrape_duration_seconds", madeSamples: "scrape_samples_scraped",
	madePostRelabel: "scrape_samples_post_metric_relabeling", madeAdded: "scrape_series_added",
}

func (s *scrapes) made(e *entry, k int) float64 {
	switch e.made {
	case madeUp:
		if s.answered[k] {
			return 1
		}
		return 0
	case madeDuration:
		if !s.answered[k] {
			return round6(between(mix(uint64(s.ts[k])), 0.0004, 0.0009)) // refused at once
		}
		return round6(0.002 + float64(s.samples[k])*6e-6*between(mix(uint64(s.ts[k])), 0.8, 1.6))
	case madePostRelabel:
		return float64(s.kept[k])
	case madeAdded:
		return float64(s.added[k])
	default:
		return float64(s.samples[k])
	}
}

// life is one span in which a series exists, and its values then.
type life struct {
	from, until int64
	curve       curve
}

// entry is one stored series. A pod that is made again under its old name
// brings its old series back: these have several lives, disjoint and in order.
type entry struct {
	life
	lset   labels.Labels
	target int32
	made   made
	ref    storage.SeriesRef
	more   []life
}

// merge sorts entries as an index wants them and joins the lives of equal ones.
func merge(entries []entry) ([]entry, error) {
	slices.SortFunc(entries, func(a, b entry) int {
		if c := labels.Compare(a.lset, b.lset); c != 0 {
			return c
		}
		return cmp.Compare(a.from, b.from)
	})
	out := entries[:0]
	for _, e := range entries {
		n := len(out) - 1
		if n < 0 || !labels.Equal(out[n].lset, e.lset) {
			out = append(out, e)
			continue
		}
		end := out[n].until
		if m := len(out[n].more); m > 0 {
			end = out[n].more[m-1].until
		}
		if e.from < end || e.made != notMade {
			return nil, fmt.Errorf("two series at once are %s: a relabelling makes two of a page one, or, where there is none, the model is wrong", e.lset)
		}
		out[n].more = append(out[n].more, e.life)
	}
	return out, nil
}

// job is one back-fill under way.
type job struct {
	m       *Model
	o       BackfillOptions
	targets []int // indices into m.targets
	scrapes []*scrapes
	extra   []labels.Labels // target labels, by targets
	rules   map[string]*relabelling
	skip    func(i int, s *series) bool // what the walk need not hand on; nil: nothing
	names   map[string]bool             // what is wanted; nil: all
	wanted  map[string][]family         // by job
	// The nodes' states are worked out again for each walk; one is kept.
	c        *compiler
	lastNode int
}

func (m *Model) newJob(o BackfillOptions) (*job, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("backfill options: %w", err)
	}
	j := &job{m: m, o: o.withDefaults(), rules: map[string]*relabelling{}, wanted: map[string][]family{}}
	for _, n := range o.Names {
		if j.names == nil {
			j.names = map[string]bool{}
		}
		j.names[n] = true
	}
	if err := j.compileRules(); err != nil {
		return nil, fmt.Errorf("backfill options: %w", err)
	}
	j.c = m.compiler(o.From.UnixMilli(), o.Until.UnixMilli(), true)
	for i := range m.targets {
		if o.Keep == nil || o.Keep(m.targets[i]) {
			j.targets = append(j.targets, i)
			j.extra = append(j.extra, targetLabels(&m.targets[i], o.ExternalTargetLabels))
			j.scrapes = append(j.scrapes, nil)
		}
	}
	return j, nil
}

// targetLabels is what the server adds to each series of the target.
func targetLabels(t *Target, external labels.Labels) labels.Labels {
	b := labels.NewBuilder(external)
	t.Labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	b.Set("job", t.Job)
	b.Set("instance", t.Instance)
	return b.Labels()
}

// page prepares the page of the i-th target of the job.
func (j *job) page(i int) *page {
	t := &j.m.targets[j.targets[i]]
	if t.node != j.lastNode {
		clear(j.c.hosts)
		j.lastNode = t.node
	}
	return j.c.page(t)
}

// walk calls yield for every series that some scrape of the i-th target sees,
// those that the server makes last.
func (j *job) walk(i int, yield func(s *series, mk made)) {
	p := j.page(i)
	sc := j.scrapes[i]
	book := sc == nil
	if book {
		sc = j.m.scrapeTimes(p, &j.o)
		j.scrapes[i] = sc
	}
	if len(sc.ts) == 0 {
		return
	}
	rules := j.rules[p.t.Job]
	p.collect(j.families(p.t.Job), func(s *series) {
		s.relabelled = false
		if j.names != nil && !j.names[s.name] {
			return
		}
		if !book && (rules.keepsNames() && j.skip != nil && j.skip(i, s) || !sc.sees(s.from, s.until)) {
			return
		}
		kept := rules.apply(s, j.extra[i])
		if book && sc.count(s.from, s.until, kept) || !book && kept {
			yield(s, notMade)
		}
	})
	var s series
	s.until = never
	s.fam = &family{}
	for mk := madeUp; mk <= madeAdded; mk++ {
		if s.name = madeNames[mk]; j.names == nil || j.names[s.name] {
			yield(&s, mk)
		}
	}
}

// families are those of a job's pages of which some series is wanted.
func (j *job) families(job string) []family {
	all := familiesOf(job, j.m.o.Detail)
	if j.names == nil {
		return all
	}
	if _, ok := j.wanted[job]; !ok {
		none := func(f family) bool {
			return !slices.ContainsFunc([]string{"", "_bucket", "_sum", "_count"}, func(end string) bool { return j.names[f.name+end] })
		}
		j.wanted[job] = slices.DeleteFunc(slices.Clone(all), none)
	}
	return j.wanted[job]
}

// sees reports whether an answered scrape lies in [from, until).
func (s *scrapes) sees(from, until int64) bool {
	for k, j := s.first(from), s.first(until); k < j; k++ {
		if s.answered[k] {
			return true
		}
	}
	return false
}

// storedLabels are the labels of a series as the server stores it: target
// labels win, and a page's label of the same name becomes exported_….
func storedLabels(s *series, extra labels.Labels, b *labels.ScratchBuilder) labels.Labels {
	if s.relabelled {
		return s.stays
	}
	b.Reset()
	b.Add(model.MetricNameLabel, s.name)
	for i := 0; i < len(s.pairs); i += 2 {
		v := s.stored(i)
		if v == "" {
			continue
		}
		name := s.pairs[i]
		if extra.Has(name) {
			name = "exported_" + name
		}
		b.Add(name, v)
	}
	extra.Range(func(l labels.Label) { b.Add(l.Name, l.Value) })
	b.Sort()
	return b.Labels()
}

// BackfillHead appends the same samples to a running database instead, in
// order of time, one transaction for each round of scrapes. Use it for the
// most recent hour: a head refuses samples older than half its block range
// before the newest. It holds the labels of all chosen series, as the head does.
func (m *Model) BackfillHead(ctx context.Context, a storage.Appendable, o BackfillOptions) (Stats, error) {
	j, err := m.newJob(o)
	if err != nil {
		return Stats{}, err
	}
	st := Stats{Targets: len(j.targets)}
	entries := make([][]entry, len(j.targets))
	b := labels.NewScratchBuilder(24)
	rounds := 0
	for i := range j.targets {
		if err := context.Cause(ctx); err != nil {
			return st, err
		}
		j.walk(i, func(s *series, mk made) {
			entries[i] = append(entries[i], entry{lset: storedLabels(s, j.extra[i], &b), target: int32(i), made: mk, life: s.life})
		})
		if entries[i], err = merge(entries[i]); err != nil {
			return st, err
		}
		for n := range entries[i] {
			st.note(entries[i][n].lset)
		}
		rounds = max(rounds, len(j.scrapes[i].ts))
	}
	for k := range rounds {
		if err := context.Cause(ctx); err != nil {
			return st, err
		}
		app := a.Appender(ctx)
		var failed error
		for i := range entries {
			sc := j.scrapes[i]
			if k >= len(sc.ts) {
				continue
			}
			for n := range entries[i] {
				e := &entries[i][n]
				sc.each(e, k, k+1, func(t int64, v float64) {
					ref, err := app.Append(e.ref, e.lset, t, v)
					if err != nil && failed == nil {
						failed = fmt.Errorf("append %s at %d: %w", e.lset, t, err)
					}
					e.ref = ref
					st.Samples++
					if value.IsStaleNaN(v) {
						st.StaleMarkers++
					}
				})
			}
		}
		if failed != nil {
			return st, errors.Join(failed, app.Rollback())
		}
		if err := app.Commit(); err != nil {
			return st, fmt.Errorf("commit scrape round %d: %w", k, err)
		}
	}
	return st, nil
}

func (st *Stats) note(l labels.Labels) {
	st.Series++
	if l.Has(model.BucketLabel) {
		st.BucketSeries++
	}
}
