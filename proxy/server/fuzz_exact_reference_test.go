package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	webapi "github.com/prometheus/prometheus/web/api/v1"

	"github.com/spillwayproject/spillway/internal/seamref"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// exactReference evaluates over one storage that holds, for each shard, the samples of one replica
// in each segment of time. All that it takes from the proxy is which replica that is: the segments
// that raw reports, and the replica that was called where the shard itself evaluated. A shard of
// one replica needs not even that. Labels, spans, merging and evaluation are done here again.
type exactReference struct {
	w      *exactWorld
	engine *promql.Engine

	mu       sync.Mutex
	selected []raw.Selected
	calls    []exactCall
	pieces   []exactPieceOf
	parcels  func() float64 // how many queries were answered in parcels so far; nil where none is
	before   float64        // what it was when seen was called last
}

// exactPieceOf is a stretch of a query's steps, and how much had been observed when it began.
type exactPieceOf struct {
	grid            merge.Grid
	selected, calls int
}

// exactCall is one shard's own evaluation of a part of the query.
type exactCall struct{ mode, shard, replica, query string }

// exactParser accepts what the shards of these worlds accept.
var exactParser = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

func newExactReference(w *exactWorld) *exactReference {
	return &exactReference{w: w, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, Parser: exactParser,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableDelayedNameRemoval: w.engine.delayed, EnableTypeAndUnitLabels: w.engine.units, UseStartTimestamps: w.engine.starts,
	})}
}

func (r *exactReference) observe(s raw.Selected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.selected = append(r.selected, s)
}

func (r *exactReference) observeCall(mode, shard, replica, query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, exactCall{mode, shard, replica, query})
}

// observeSteps is told of a query, which may have been begun before, and of its stretches.
func (r *exactReference) observeSteps(g merge.Grid, stretch bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !stretch {
		r.pieces = nil
		return
	}
	r.pieces = append(r.pieces, exactPieceOf{g, len(r.selected), len(r.calls)})
}

// seen is what was observed since the last time.
func (r *exactReference) seen() exactSeen {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := newExactSeen(r.selected, r.calls)
	for i, p := range r.pieces {
		selected, calls := len(r.selected), len(r.calls)
		if i+1 < len(r.pieces) {
			selected, calls = r.pieces[i+1].selected, r.pieces[i+1].calls
		}
		piece := newExactSeen(r.selected[p.selected:selected], r.calls[p.calls:calls])
		piece.grid = p.grid
		s.pieces = append(s.pieces, piece)
	}
	r.selected, r.calls, r.pieces = nil, nil, nil
	if r.parcels != nil {
		now := r.parcels()
		s.parcels, r.before = now > r.before, now
	}
	return s
}

// exactQuestion is a query with its parameters.
type exactQuestion struct {
	query      string
	start, end time.Time     // equal in an instant query
	step       time.Duration // 0 is an instant query
	lookback   time.Duration // 0 is the default
}

// exactOutcome is what an evaluation came to.
type exactOutcome struct {
	answer    *exactAnswer
	notes     exactNotes
	err       error
	collision string   // two stored series that become equal, where they matter
	problems  []string // what the proxy reported and cannot be so
}

var errExactParse = errors.New("the expression is not accepted")

// ask evaluates a question. order, where it is not nil, puts the series in another order: the
// answer of an expression that depends on it is not determined.
func (r *exactReference) ask(ctx context.Context, q exactQuestion, seen exactSeen, order func([]storage.Series)) exactOutcome {
	var out exactOutcome
	if len(seen.pieces) > 0 {
		return r.askPieces(ctx, q, seen, order)
	}
	var mu sync.Mutex
	queryable := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return &exactQuerier{r: r, seen: seen, order: order, report: func(collision, problem string) {
			mu.Lock()
			defer mu.Unlock()
			if collision != "" {
				out.collision = collision
			}
			if problem != "" {
				out.problems = append(out.problems, problem)
			}
		}}, nil
	})
	opts := promql.NewPrometheusQueryOpts(false, q.lookback)
	var (
		qry promql.Query
		err error
	)
	if q.step == 0 {
		qry, err = r.engine.NewInstantQuery(ctx, queryable, opts, q.query, q.start)
	} else {
		qry, err = r.engine.NewRangeQuery(ctx, queryable, opts, q.query, q.start, q.end, q.step)
	}
	if err != nil {
		out.err = fmt.Errorf("%w: %w", errExactParse, err)
		return out
	}
	defer qry.Close()
	res := qry.Exec(ctx)
	if res.Err != nil {
		out.err = res.Err
		return out
	}
	// Through Prometheus' own encoder, so that both answers are read from the same form.
	body, err := webapi.JSONCodec{}.Encode(&webapi.Response{
		Status: "success",
		Data:   &webapi.QueryData{ResultType: res.Value.Type(), Result: res.Value},
	})
	if err == nil {
		out.answer, err = readExact(body)
	}
	out.err = err
	out.notes.warnings, out.notes.infos = res.Warnings.AsStrings(q.query, maxNotes, maxNotes)
	return out
}

// askPieces evaluates the stretches of a range query one by one: the samples of one replica in each
// segment are other ones in each of them.
func (r *exactReference) askPieces(ctx context.Context, q exactQuestion, seen exactSeen, order func([]storage.Series)) exactOutcome {
	out := exactOutcome{answer: &exactAnswer{kind: "matrix", series: map[string]map[int64]exactValue{}}}
	steps := 0
	for _, p := range seen.pieces {
		part := q
		part.start, part.end = time.UnixMilli(p.grid.Start), time.UnixMilli(p.grid.End)
		steps += p.grid.Len()
		got := r.ask(ctx, part, p, order)
		if got.err != nil {
			return got
		}
		out.problems = append(out.problems, got.problems...)
		out.collision = cmp.Or(out.collision, got.collision)
		out.notes.warnings, out.notes.infos = append(out.notes.warnings, got.notes.warnings...), append(out.notes.infos, got.notes.infos...)
		for _, key := range got.answer.order {
			if out.answer.series[key] == nil {
				out.answer.series[key] = map[int64]exactValue{}
				out.answer.order = append(out.answer.order, key)
			}
			maps.Copy(out.answer.series[key], got.answer.series[key])
		}
	}
	sets := map[string]labels.Labels{} // the engine has a matrix in their order
	for _, key := range out.answer.order {
		if sets[key], out.err = exactParser.ParseMetric(key); out.err != nil {
			return out
		}
	}
	slices.SortFunc(out.answer.order, func(a, b string) int { return labels.Compare(sets[a], sets[b]) })
	slices.Sort(out.notes.warnings)
	slices.Sort(out.notes.infos)
	out.notes.warnings, out.notes.infos = slices.Compact(out.notes.warnings), slices.Compact(out.notes.infos)
	if whole := (merge.Grid{Start: q.start.UnixMilli(), End: q.end.UnixMilli(), Step: q.step.Milliseconds()}); steps != whole.Len() ||
		seen.pieces[0].grid.Start != whole.Start {
		out.problems = append(out.problems, fmt.Sprintf("the stretches have %d of %d steps", steps, whole.Len()))
	}
	return out
}

type exactQuerier struct {
	*storage.MockQuerier
	r      *exactReference
	seen   exactSeen
	order  func([]storage.Series)
	report func(collision, problem string)
}

func (*exactQuerier) Close() error { return nil }

// exactPiece is one shard's part of a series.
type exactPiece struct {
	from    int64 // of the shard's span
	shard   *exactShard
	samples []chunks.Sample
}

// Select implements storage.Querier.
func (q *exactQuerier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	from, until := hints.Start, hints.End
	picked := q.pick(from, until, ms)
	pieces := map[string][]exactPiece{}
	sets := map[string]labels.Labels{}
	for _, g := range q.r.w.groups {
		for _, s := range g.shards {
			lo, hi := s.span()
			lo, hi = max(lo, from), min(hi-1, until)
			if lo > hi {
				continue
			}
			keys := map[string]labels.Labels{}
			for _, r := range s.replicas {
				for key, held := range r.byKey {
					if !matches(held.lbls, ms) {
						continue
					}
					within := 0
					for _, p := range held.places {
						if holdsAny(p.points, lo, hi) {
							within++
						}
					}
					if within > 0 {
						keys[key] = held.lbls
					}
					if within > 1 {
						q.report(fmt.Sprintf("%s on %s", key, s.name), "")
					}
				}
			}
			for key, l := range keys {
				samples, problem := q.samples(picked, s, key, lo, hi)
				if problem != "" {
					q.report("", problem)
				}
				if len(samples) > 0 {
					sets[key] = l
					f, _ := s.span()
					pieces[key] = append(pieces[key], exactPiece{f, s, samples})
				}
			}
		}
	}
	var out []storage.Series
	for key, l := range sets {
		parts := pieces[key]
		slices.SortFunc(parts, func(a, b exactPiece) int { return compareInt(a.from, b.from) })
		var samples []chunks.Sample
		for i, p := range parts {
			end := int64(math.MaxInt64) // the shard with the later beginning supplies everything from there on
			if i+1 < len(parts) {
				if parts[i+1].from == p.from {
					q.report(fmt.Sprintf("%s on %s and %s", key, p.shard.name, parts[i+1].shard.name), "")
				}
				end = parts[i+1].from
			}
			for _, x := range p.samples {
				if x.T() < end {
					samples = append(samples, x)
				}
			}
		}
		if len(samples) > 0 {
			out = append(out, storage.NewListSeries(l, samples))
		}
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	if q.order != nil {
		q.order(out)
	}
	return &listSet{series: out, at: -1}
}

// pick finds what raw reported about a selector: the very window, or one that contains it.
func (q *exactQuerier) pick(from, until int64, ms []*labels.Matcher) *raw.Selected {
	text := matchersText(ms)
	var wider, narrower *raw.Selected
	for i := range q.seen.selected {
		s := &q.seen.selected[i]
		if matchersText(s.Matchers) != text {
			continue
		}
		if s.From == from && s.Until == until {
			return s
		}
		if s.From <= from && s.Until >= until {
			wider = s
		}
		if s.From >= from && s.Until <= until { // a part of a subquery, at that one's own steps
			narrower = s
		}
	}
	if wider == nil {
		return narrower
	}
	return wider
}

// samples are those of one series on one shard in [lo, hi], each stretch from the replica that the
// proxy took.
func (q *exactQuerier) samples(picked *raw.Selected, s *exactShard, key string, lo, hi int64) ([]chunks.Sample, string) {
	if len(s.replicas) == 1 {
		return s.replicas[0].samples(key, lo, hi), ""
	}
	segments, ok := []raw.Segment(nil), false
	if picked != nil {
		segments, ok = picked.Series[key]
	}
	// What was read of a shorter window may be another selector of the same series, and this one in
	// a leaf that the shard answered.
	other := !ok && picked != nil && (picked.From > lo || picked.Until < hi) && len(q.seen.base[s.name]) > 0
	if picked == nil || other {
		return s.called(q.seen.base[s.name], key, lo, hi)
	}
	if !ok {
		// Where the heartbeat finds one replica whole, what only the others hold is not in the
		// answer.
		if s.group.heartbeat != "" && slices.ContainsFunc(s.replicas,
			func(r *exactReplica) bool { return alone(picked, s, r) && len(r.samples(key, lo, hi)) == 0 }) {
			return nil, ""
		}
		return nil, fmt.Sprintf("the proxy did not read %s in [%d, %d] of %s", key, lo, hi, s.name)
	}
	var out []chunks.Sample
	last := int64(math.MinInt64)
	for _, seg := range segments {
		if seg.Slice != s.name {
			continue
		}
		if seg.From <= last || seg.Until < seg.From {
			return nil, fmt.Sprintf("segments of %s overlap or go back: %v", key, segments)
		}
		last = seg.Until
		i := slices.IndexFunc(s.replicas, func(r *exactReplica) bool { return r.name == seg.Copy })
		if i < 0 {
			return nil, fmt.Sprintf("%s is no replica of %s", seg.Copy, s.name)
		}
		out = append(out, s.replicas[i].samples(key, max(lo, seg.From), min(hi, seg.Until))...)
	}
	return out, s.follows(picked, key, out, lo, hi)
}

// called are the samples of one series in [lo, hi] on the replica that was called for them.
// Selectors of one query that reach to different times may have been asked of different replicas,
// each whole where it was asked.
func (s *exactShard) called(calls []exactCall, key string, lo, hi int64) (samples []chunks.Sample, why string) {
	why = fmt.Sprintf("it is not known which replica of %s was read for %s", s.name, key)
	samples = s.replicas[0].samples(key, lo, hi)
	for _, c := range calls {
		i := slices.IndexFunc(s.replicas, func(r *exactReplica) bool { return r.name == c.replica })
		if i < 0 || !c.selects(key) {
			continue
		}
		samples, why = s.replicas[i].samples(key, lo, hi), s.unproven(s.replicas[i], lo, hi)
		if why == "" {
			break
		}
	}
	return samples, why
}

// selects tells whether the text has a selector that can be of a series with the key's name.
func (c exactCall) selects(key string) bool {
	expr, err := exactParser.ParseExpr(c.query)
	lbls, broken := exactParser.ParseMetric(key)
	if err != nil || broken != nil {
		return true
	}
	for _, ms := range parser.ExtractSelectors(expr) {
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == "__name__" && !m.Matches(lbls.Get("__name__")) }) {
			return true
		}
	}
	return false
}

// alone tells whether nothing of the shard but the replica was read.
func alone(picked *raw.Selected, s *exactShard, r *exactReplica) bool {
	for _, segments := range picked.Series {
		for _, seg := range segments {
			if seg.Slice == s.name && seg.Copy != r.name {
				return false
			}
		}
	}
	return true
}

// samples are those of one series in [lo, hi].
func (r *exactReplica) samples(key string, lo, hi int64) []chunks.Sample {
	held := r.byKey[key]
	if held == nil {
		return nil
	}
	points := held.places[0].points
	i, _ := slices.BinarySearchFunc(points, lo, func(p point, t int64) int { return compareInt(p.t, t) })
	var out []chunks.Sample
	for ; i < len(points) && points[i].t <= hi; i++ {
		out = append(out, points[i])
	}
	return out
}

// follows tells what is wrong with a choice of samples from two replicas: that it is that of the
// rules of seams for neither of them as the base. Where the heartbeat finds that the base lacks
// nothing, it may have been read alone. window is that of the read, of which [lo, hi] is wanted.
func (s *exactShard) follows(picked *raw.Selected, key string, chosen []chunks.Sample, lo, hi int64) string {
	from, until := s.span()
	from, until = max(from, picked.From), min(until-1, picked.Until)
	why := ""
	for i, base := range s.replicas {
		if s.group.heartbeat != "" && alone(picked, s, base) && s.unproven(base, lo, hi) == "" {
			return ""
		}
		rule := seamref.Splice(base.told(key, i, from, until), s.replicas[1-i].told(key, 1-i, from, until), from, until)
		rule = slices.DeleteFunc(rule, func(x seamref.Sample) bool { return x.T < lo || x.T > hi })
		want, got := times(rule, func(x seamref.Sample) int64 { return x.T }), times(chosen, chunks.Sample.T)
		other := slices.DeleteFunc(slices.Concat(want, got),
			func(t int64) bool { return slices.Contains(want, t) && slices.Contains(got, t) })
		if !slices.ContainsFunc(other, func(t int64) bool { return s.unproven(base, t, t) != "" }) {
			return ""
		}
		why += fmt.Sprintf("; %s on %s in [%d, %d], the base being %s: the rules choose %v, and %v are taken", key, s.name, from, until, base.name, want, got)
	}
	return strings.TrimPrefix(why, "; ")
}

func times[S any](ss []S, t func(S) int64) []int64 {
	out := make([]int64, len(ss))
	for i, s := range ss {
		out[i] = t(s)
	}
	return out
}

// told are a replica's samples of a series, with what it says of their scrapes.
func (r *exactReplica) told(key string, copy int, lo, hi int64) []seamref.Sample {
	own := seamSamples(r.samples(key, lo, hi), copy)
	held := r.byKey[key]
	if held == nil {
		return own
	}
	var ups []*exactHeld
	for _, u := range r.byKey {
		if u.lbls.Get("__name__") == "up" && u.lbls.Get("instance") != "" && u.lbls.Get("instance") == held.lbls.Get("instance") &&
			u.lbls.Get("job") == held.lbls.Get("job") &&
			u.lbls.Validate(func(l labels.Label) error {
				if l.Name != "__name__" && held.lbls.Get(l.Name) != l.Value {
					return errors.New("another target")
				}
				return nil
			}) == nil {
			ups = append(ups, u)
		}
	}
	var up []seamref.Sample
	if len(ups) == 1 {
		up = seamSamples(r.samples(ups[0].lbls.String(), lo, hi), copy)
	}
	return seamref.Tell(held.lbls.Get("__name__"), own, up)
}

func seamSamples(ss []chunks.Sample, copy int) []seamref.Sample {
	out := make([]seamref.Sample, len(ss))
	for i, x := range ss {
		p := x.(point)
		out[i] = seamref.Sample{T: p.t, Copy: copy, Marker: exactStale(p), Zero: p.h == nil && p.f == 0}
	}
	return out
}

// unproven tells why nobody could know that a replica lacks nothing in [lo, hi] that another one
// has; empty where the heartbeat says so: in each closed bucket of five minutes no job of which the
// other has more series, or more successful scrapes, by half of its series or more.
func (s *exactShard) unproven(r *exactReplica, lo, hi int64) string {
	if s.group.heartbeat == "" {
		return fmt.Sprintf("%s was asked alone although its group has no heartbeat", r.name)
	}
	const bucket = int64(5 * time.Minute / time.Millisecond)
	// The bucket that is open now is proven by the one before it and by the last minute, which are
	// not looked at here.
	closed := time.Now().Add(-30*time.Second).UnixMilli() / bucket * bucket
	for end := (lo + bucket - 1) / bucket * bucket; end < hi+bucket && end < closed; end += bucket {
		own := r.beats(s.group.heartbeat, end-bucket, end)
		for _, o := range s.replicas {
			for job, more := range o.beats(s.group.heartbeat, end-bucket, end) {
				if mine := own[job]; 2*(more[0]-mine[0]) >= more[0] || 2*(more[1]-mine[1]) >= more[0] {
					return fmt.Sprintf("%s was asked alone although %s has more up to %d: %v and %v", r.name, o.name, end, own, more)
				}
			}
		}
	}
	return ""
}

// beats are the number of heartbeat series and of successful scrapes after from, until until
// inclusive, by job.
func (r *exactReplica) beats(heartbeat string, from, until int64) map[string][2]int {
	out := map[string][2]int{}
	for i := range r.series {
		s := &r.series[i]
		job := s.lbls.Get("job")
		if s.lbls.Get("__name__") != "up" || heartbeat != "up" && job != "node" {
			continue
		}
		n, scraped := 0, 0
		for _, p := range s.points {
			if p.t > from && p.t <= until && !exactStale(p) {
				n++
				scraped += int(p.f) // of up: 1 where the scrape succeeded
			}
		}
		if n > 0 {
			b := out[job]
			out[job] = [2]int{b[0] + 1, b[1] + scraped}
		}
	}
	return out
}

func exactStale(x chunks.Sample) bool {
	p := x.(point)
	return p.h == nil && value.IsStaleNaN(p.f) || p.h != nil && value.IsStaleNaN(p.h.Sum)
}

func holdsAny(points []point, lo, hi int64) bool {
	i, _ := slices.BinarySearchFunc(points, lo, func(p point, t int64) int { return compareInt(p.t, t) })
	return i < len(points) && points[i].t <= hi
}

func compareInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// attach lets the proxy tell the reference what it takes from where. Nothing may be asked before.
func (r *exactReference) attach(t testing.TB, s *Server) {
	if s.parcel > 0 {
		r.parcels = func() float64 { return plans(t, s, string(plan.ModeParcels)) }
	}
	s.observe = r.observe
	s.observeCall = func(m plan.Mode, shard, replica, query string) { r.observeCall(string(m), shard, replica, query) }
	s.observeSteps = r.observeSteps
}
