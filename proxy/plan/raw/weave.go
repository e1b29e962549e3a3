package raw

import (
	"context"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// weaver makes of the hauls of a slice what one Prometheus would hold. Where the base lacks nothing
// its chunks are taken as they came. In each stretch in which it may lack something, and so far
// beyond on both sides that it has samples there, they are decoded, so that the interval is known
// and the stretch's edges are none, and spliced with what the others hold in the stretch:
//
//	lacking                [-------------]
//	base    |_____|_____|_____|      |_____|_____|_____|      chunks
//	other                  [ o o o o o o ]
//	decoded             |_____|      |_____|
type weaver struct {
	q     *Queryable
	slice *Slice
	query Query
	live  []int // copies that were read
	hauls []haul
	heard map[Stretch]*scrapes
	held  [][]stamp // of the series that is spliced, by copy; the room is used again for the next one
	seams splicer
}

// piece is what one copy has of a series in a stretch of time.
type piece struct {
	copy   int
	span   Stretch
	chunks []prompb.Chunk
}

// woven is one series as its copies have it: the base's piece, which may have no chunks, and those
// of the others, by copy and time.
type woven struct {
	lbls labels.Labels
	base piece
	rest []piece
}

// weave makes a series of each label set that any copy has. The error is that of an undecodable
// sample or of a bound.
func (w *weaver) weave(ctx context.Context) ([]*series, error) {
	defer func() {
		for _, h := range w.heard {
			h.drop()
		}
	}()
	byLabels := map[string]*woven{}
	var order []*woven
	var key []byte
	for _, h := range w.hauls {
		if !slices.Contains(w.live, h.copy) {
			continue
		}
		for i := range h.series {
			st := &h.series[i]
			key = st.lbls.Bytes(key[:0])
			of := byLabels[string(key)]
			if of == nil {
				of = &woven{lbls: st.lbls, base: piece{span: w.window()}}
				byLabels[string(key)] = of
				order = append(order, of)
			}
			p := piece{h.copy, h.span, st.chunks}
			if h.copy == 0 {
				of.base = p
			} else {
				of.rest = append(of.rest, p)
			}
		}
	}
	out := make([]*series, 0, len(order))
	for _, of := range order {
		parts, err := w.parts(ctx, of)
		if err != nil {
			return nil, err
		}
		if len(parts) > 0 {
			out = append(out, &series{lbls: of.lbls, parts: parts})
		}
	}
	return out, nil
}

func (w *weaver) window() Stretch { return Stretch{w.query.From, w.query.Until} }

// parts are the segments of a series.
func (w *weaver) parts(ctx context.Context, of *woven) ([]part, error) {
	if len(w.live) == 1 && w.live[0] != 0 {
		return []part{w.part(w.live[0], w.window(), of.rest[0].chunks)}, nil
	}
	if len(of.rest) == 0 && (len(w.live) == 1 || len(w.slice.Lacking) > 0) {
		return []part{w.part(0, w.window(), of.base.chunks)}, nil
	}
	t := taken{w: w, base: of.base.chunks}
	for _, k := range w.knots(of) {
		t.untouched(k.first)
		if err := t.spliced(ctx, of.lbls, k); err != nil {
			return nil, err
		}
	}
	t.untouched(len(of.base.chunks))
	return t.parts, nil
}

// part is a segment of one copy.
func (w *weaver) part(copy int, s Stretch, chunks []prompb.Chunk) part {
	return part{Segment{w.slice.Name, w.slice.Copies[copy].Name(), s.From, s.Until}, chunks}
}

// knot is a stretch of time in which a series is spliced: of the base's chunks those from first up
// to end, and what the others have.
type knot struct {
	first, end int
	spans      []Stretch // that the base lacks something in, in the order of time
	rest       []piece   // by copy and time
}

// knots are where a series is spliced, in the order of time. Stretches between which no chunk of
// the base is left are one.
func (w *weaver) knots(of *woven) []knot {
	chunks := of.base.chunks
	if len(w.slice.Lacking) == 0 {
		return []knot{{end: len(chunks), spans: []Stretch{w.window()}, rest: of.rest}}
	}
	var spans []Stretch
	for _, p := range of.rest {
		if !slices.Contains(spans, p.span) {
			spans = append(spans, p.span)
		}
	}
	slices.SortFunc(spans, func(a, b Stretch) int { return cmp64(a.From, b.From) })
	var out []knot
	for _, s := range spans {
		first, _ := slices.BinarySearchFunc(chunks, s.From, func(c prompb.Chunk, t int64) int { return cmp64(c.MaxTimeMs, t) })
		end, _ := slices.BinarySearchFunc(chunks, s.Until, func(c prompb.Chunk, t int64) int { return cmp64(c.MinTimeMs, t+1) })
		if first > 0 && (first == len(chunks) || chunks[first].MinTimeMs > s.From) {
			first--
		}
		if end < len(chunks) && (end == 0 || chunks[end-1].MaxTimeMs < s.Until) {
			end++
		}
		for count(chunks[first:end]) < fewest && end-first < len(chunks) {
			first, end = max(first-1, 0), min(end+1, len(chunks))
		}
		k := knot{first: first, end: end, spans: []Stretch{s}}
		for n := len(out); n > 0 && k.first < out[n-1].end; n = len(out) {
			last := out[n-1]
			k = knot{first: min(last.first, k.first), end: max(last.end, k.end), spans: append(last.spans, k.spans...)}
			out = out[:n-1]
		}
		out = append(out, k)
	}
	for _, p := range of.rest {
		i := slices.IndexFunc(out, func(k knot) bool { return slices.Contains(k.spans, p.span) })
		out[i].rest = append(out[i].rest, p)
	}
	return out
}

// fewest is how many samples tell something of a series' interval; of fewer all come from one copy.
const fewest = 3

// count is how many samples the chunks have; each begins with that, as was seen when they were
// read.
func count(chunks []prompb.Chunk) int {
	n := 0
	for i := range chunks {
		n += samplesOf(&chunks[i])
	}
	return n
}

// taken are the segments of a series as they are made, in the order of time.
type taken struct {
	w     *weaver
	base  []prompb.Chunk
	done  int  // of the base's chunks
	whole bool // the last part is the base's, up to the last sample of those
	parts []part
}

// add takes another part; one of the base that begins where the last one ends makes it longer.
func (t *taken) add(p part, goesOn bool) {
	if n := len(t.parts); goesOn && t.whole {
		t.parts[n-1].Until = p.Until
		return
	}
	t.parts = append(t.parts, p)
}

// untouched takes the base's chunks up to that one as they are.
func (t *taken) untouched(upTo int) {
	if upTo <= t.done {
		return
	}
	s := Stretch{t.base[t.done].MinTimeMs, t.base[upTo-1].MaxTimeMs}
	if t.done == 0 {
		s.From = t.w.query.From
	}
	if upTo == len(t.base) {
		s.Until = t.w.query.Until
	}
	if s.From <= s.Until { // histograms are read from before the window
		t.add(t.w.part(0, s, t.base), true)
		t.whole = true
	}
	t.done = upTo
}

// spliced takes what a knot gives.
func (t *taken) spliced(ctx context.Context, lbls labels.Labels, k knot) error {
	w, lo, hi := t.w, t.w.query.From, t.w.query.Until
	if k.first > 0 {
		lo = max(lo, t.base[k.first].MinTimeMs)
	}
	if k.end < len(t.base) {
		hi = min(hi, t.base[k.end-1].MaxTimeMs)
	}
	copies := map[int][]piece{}
	if chunks := t.base[k.first:k.end]; len(chunks) > 0 {
		copies[0] = []piece{{0, w.window(), chunks}}
	}
	for _, p := range k.rest {
		copies[p.copy] = append(copies[p.copy], p)
	}
	var base, acc []stamp
	zeros := lbls.Get(model.MetricNameLabel) == upName
	if w.held == nil {
		w.held = make([][]stamp, len(w.slice.Copies))
	}
	for _, c := range w.live {
		ss := w.held[c][:0]
		for i, p := range copies[c] {
			n := len(ss)
			var err error
			if ss, err = stamps(p.chunks, p.span.From, p.span.Until, c, zeros, ss); err != nil {
				return qerr.Wrap(qerr.ShardFailed, err, "shard %s sent series data that cannot be decoded", w.slice.Name)
			}
			for j := n; j < len(ss); j++ {
				ss[j].nth += int32(i) // between two pieces there is time that was not read
			}
		}
		w.held[c] = ss
		if len(copies) > 1 {
			if err := w.mark(ctx, lbls, c, ss, k.spans); err != nil {
				return err
			}
		}
		if c == 0 {
			base = ss
			for j := range ss { // where the base lacks nothing its markers stand
				if ss[j].stale && !slices.ContainsFunc(k.spans, func(s Stretch) bool { return s.has(ss[j].t) }) {
					ss[j].sure = true
				}
			}
		}
		acc = w.seams.splice(acc, ss, lo, hi)
	}
	for _, r := range runs(acc) {
		chunks := t.base
		if r.copy != 0 {
			i := slices.IndexFunc(k.rest, func(p piece) bool { return p.copy == r.copy && p.span.has(r.from) })
			chunks = k.rest[i].chunks
		}
		goesOn := r.copy == 0 && r.from == base[0].t
		t.add(w.part(r.copy, Stretch{r.from, r.until}, chunks), goesOn)
		t.whole = r.copy == 0 && r.until == base[len(base)-1].t
	}
	if t.done = k.end; len(acc) == 0 {
		t.whole = false
	}
	return nil
}

func (s Stretch) has(t int64) bool { return s.From <= t && t <= s.Until }

// mark notes what a copy says of the scrapes that a series comes from, in each stretch by itself.
func (w *weaver) mark(ctx context.Context, lbls labels.Labels, copy int, ss []stamp, spans []Stretch) error {
	for _, s := range spans {
		heard := w.heard[s]
		if heard == nil {
			heard = &scrapes{q: w.q, slice: w.slice, query: w.query.within(s), live: w.live}
			if w.heard == nil {
				w.heard = map[Stretch]*scrapes{}
			}
			w.heard[s] = heard
		}
		first, end := search(ss, s.From), len(ss)
		for end > first && ss[end-1].t > s.Until {
			end--
		}
		if err := heard.mark(ctx, lbls, copy, ss[first:end]); err != nil {
			return err
		}
	}
	return nil
}
