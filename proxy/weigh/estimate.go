package weigh

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Basis is what an estimate is made from, the best first.
type Basis string

// The bases.
const (
	// ByText: an answer to the same text over about as long a time.
	ByText Basis = "text"
	// ByShape: answers to texts that differ in the values of labels alone.
	ByShape Basis = "shape"
	// BySketch: what shards say of their metrics and labels, which is an upper bound.
	BySketch Basis = "sketch"
	// ByGuess: nothing is known of some shard, or the time is before what its sketch tells of.
	ByGuess Basis = "guess"
)

// Bases are all of them.
func Bases() []Basis { return []Basis{ByText, ByShape, BySketch, ByGuess} }

const (
	// guessedSeries is what a selector is taken to have on a shard of which nothing is known.
	guessedSeries = 1000
	// usualInterval is how often series are taken to be scraped.
	usualInterval = 15 * time.Second
	// seriesJSON and sampleJSON are what a series and a sample take in an answer as JSON, and
	// sampleChunk a sample in chunks; answerBytes what an answer has beside them.
	seriesJSON, sampleJSON, sampleChunk, answerBytes = 200, 28, 2, 100
	// nameJSON is what a name or a value takes in a list.
	nameJSON = 24
	// callTime is what a call takes at least, seriesTime what each series that is selected adds to
	// it, and sampleTime each sample that is read: about what Prometheus 3.15 takes.
	callTime, seriesTime, sampleTime = time.Millisecond, 2 * time.Microsecond, 20 * time.Nanosecond
	// StoredBytes is what a shard holds of a series that it reads, lists or sends, beside its
	// samples.
	StoredBytes = 600
)

// Asked is what an estimate is made for.
type Asked struct {
	// Request is what shards are asked; Tenant whose answers may tell of it.
	Request *endpoint.Request
	Tenant  string
	// Expr is the query, nil where there is none, Selectors are its or the request's, and Windows
	// what each reads, where they differ from From and Until, in milliseconds.
	Expr        parser.Expr
	Selectors   [][]*labels.Matcher
	Windows     []policy.Window
	From, Until int64
	// Grid is when Expr is evaluated.
	Grid cost.Grid
	// Limit is how many series, names or values the answer has at most; 0 is any number.
	Limit int
	// View is what the caller sees of the topology.
	View *plan.View
	// Counted says how many series a selector has on all shards together, where that was counted
	// just now for this request alone; nil where nothing was.
	Counted func(ms []*labels.Matcher) (int64, bool)
}

// Estimate is what a request is expected to take. It does not change.
type Estimate struct {
	// By is what it is made from.
	By Basis
	// Guessed tells that Held is a guess, whatever answers showed of what is sent.
	Guessed bool
	// Unknown tells that of some selector nothing is known on some shard, not even of another time,
	// and nothing was shown or counted: Selected and Read are guesses, too.
	Unknown bool
	// Series are the series, names or values that shards send, as the request's budget counts them,
	// Samples the samples, and Bytes what both take.
	Series, Samples, Bytes int64
	// Selected are the series that shards look at for it, once for each selector, and Read the
	// samples that these have in its time.
	Selected, Read int64
	// Held is the most that shards hold for it, all added, and Seconds how long calls take, all
	// added.
	Held    int64
	Seconds float64

	shards      []*shard.Shard
	parts       []int64    // likewise: of all series that are selected, as shards say of themselves
	told        bool       // that they all do, for the time of each selector
	text, shape cost.Print // shape is zero where the text is known
	only        cost.Print // of its only selector, where the answer has the series of that; else zero
	onlyShape   cost.Print // likewise zero where the selector is known
	norm        norm
}

// Shards is how many shards it concerns.
func (e *Estimate) Shards() int { return len(e.shards) }

// Most is how many series the selectors have at most on all shards together, each selector's
// counted by itself, by what shards say of themselves; ok tells that all of them do.
func (e *Estimate) Most() (n int64, ok bool) {
	for _, part := range e.parts {
		n += part
	}
	return n, e.told
}

// GiBSeconds is for how long shards hold how much memory: each call its part, for as long as it is
// expected to take.
func (e *Estimate) GiBSeconds() float64 {
	return float64(e.Held) / (1 << 30) * e.Seconds / float64(max(len(e.shards), 1))
}

// HeldBy is what one shard holds of it: a part as large as that which it has of the series.
func (e *Estimate) HeldBy(s *shard.Shard) int64 {
	all, own := 0.0, 0.0
	for i, n := range e.parts {
		all += float64(n)
		if e.shards[i] == s {
			own = float64(n)
		}
	}
	if own == 0 {
		return 0
	}
	return whole(float64(e.Held) * (own / all))
}

// norm is what one series has by rule: samples, and what series and samples take.
type norm struct {
	samples, series, sample float64
	seconds                 float64
}

func (m norm) bytes(series, samples float64) float64 {
	return answerBytes + series*m.series + samples*m.sample
}

// Estimate says what a request is expected to take, of what is known: no shard is asked for it. It
// is nil where the request selects nothing.
func (k *Known) Estimate(a *Asked) *Estimate {
	id := a.Request.ID
	if id.Selects() == endpoint.SelectsNothing || a.Expr != nil && len(a.Selectors) == 0 {
		return nil
	}
	e := &Estimate{By: BySketch, told: true}
	s := k.selections(a, e)
	words := e.print(a, s)
	e.norm = normOf(a)
	e.norm.seconds = (time.Duration(len(e.shards)) * callTime).Seconds() +
		float64(e.Selected)*seriesTime.Seconds() + float64(e.Read)*sampleTime.Seconds()
	e.Held = s.held(a, e)
	shown, ok := k.Learned.Look(e.text)
	if ok {
		e.By = ByText
	} else {
		e.shape = cost.PrintOfShape(a.Expr, a.Selectors, words...)
		if shown, ok = k.Learned.Look(e.shape); ok {
			e.By = ByShape
		}
	}
	if !ok {
		shown = cost.Shown{Series: float64(s.sent(a, e)), Samples: 1, Bytes: 1, Seconds: 1}
		if a.Expr != nil && id.Evaluates() && tree.Aggregates(a.Expr) { // each shard sends a sample of each group
			shown.Samples = float64(max(len(s.shards), 1))
		}
	}
	if a.Limit > 0 {
		shown.Series = min(shown.Series, float64(a.Limit))
	}
	e.set(shown)
	return e
}

// set is what the estimate comes to with what was shown.
func (e *Estimate) set(s cost.Shown) {
	samples := s.Samples * e.norm.samples * max(s.Series, 1)
	if e.norm.samples == 0 {
		samples = 0
	}
	e.Series, e.Samples = whole(s.Series), whole(samples)
	e.Bytes, e.Seconds = whole(s.Bytes*e.norm.bytes(s.Series, samples)), s.Seconds*e.norm.seconds
}

// whole is a number that is not less, and fits.
func whole(f float64) int64 { return int64(min(math.Ceil(f-1e-6), 1<<50)) }

// Fetched is the estimate for a query whose series are sent as they are stored and evaluated here.
// What answers showed has that in it.
func (e *Estimate) Fetched() *Estimate {
	if e == nil || e.By == ByText || e.By == ByShape {
		return e
	}
	out := *e
	out.Series, out.Samples = max(e.Series, e.Selected), max(e.Samples, e.Read)
	out.Bytes = whole(e.norm.bytes(float64(out.Series), 0) + float64(out.Samples)*sampleChunk)
	return &out
}

// Took is what a request's budget counted, and the seconds that its calls took, all added.
type Took struct {
	Series, Samples, Bytes int64
	Seconds                float64
}

// Learn notes what the answer to a request took that was answered whole.
func (k *Known) Learn(e *Estimate, t Took, now time.Time) {
	series, samples := float64(t.Series), float64(t.Samples)
	s := cost.Shown{Series: series, Seconds: 1}
	if t.Seconds > 0 { // else nobody has measured it
		s.Seconds = t.Seconds / max(e.norm.seconds, callTime.Seconds())
	}
	if e.norm.samples > 0 {
		s.Samples = samples / (e.norm.samples * max(series, 1))
	}
	s.Bytes = float64(t.Bytes) / e.norm.bytes(series, samples)
	k.Learned.LearnBoth(e.text, e.shape, s, now)
	if e.only != (cost.Print{}) {
		k.learnSelected(e.only, e.onlyShape, t.Series, now)
	}
}

// learnSelected notes how many series a selector had, on all shards together. Its shape may be zero
// where it is known.
func (k *Known) learnSelected(exact, shape cost.Print, n int64, now time.Time) {
	k.Learned.LearnBoth(exact, shape, cost.Shown{Series: float64(n)}, now)
}

// print finds the print of the text, under which what answers show is remembered, and returns the
// words that go into that of its shape.
func (e *Estimate) print(a *Asked, s *selections) []string {
	r := a.Request
	words := []string{
		string(r.ID), a.Tenant, r.Label, strconv.Itoa(a.Limit), strconv.Itoa(bits.Len64(uint64(max(a.Until-a.From, 0)))),
	}
	n := len(words)
	words = append(words, r.Query, strings.Join(r.Match, "\xff"))
	if r.Query == "" && len(r.Match) == 0 {
		for _, ms := range a.Selectors {
			words = append(words, plan.Selector(ms))
		}
	}
	e.text = cost.PrintOf(words...)
	own := a.Expr == nil && r.ID.Selects() == endpoint.SelectsStored || a.Expr != nil && transparent(a.Expr)
	if own && len(a.Selectors) == 1 && a.Limit == 0 {
		e.only, e.onlyShape = s.only, s.onlyShape
	}
	return words[:n]
}

// transparent tells whether an expression has one series for each that its only selector has.
func transparent(e parser.Expr) bool {
	switch n := e.(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return true
	case *parser.ParenExpr:
		return transparent(n.Expr)
	case *parser.Call:
		return len(n.Args) == 1 && n.Args[0].Type() == parser.ValueTypeMatrix && n.Func.Name != "absent_over_time" && transparent(n.Args[0])
	}
	return false
}

// normOf is what one series of an answer has by rule.
func normOf(a *Asked) norm {
	switch id := a.Request.ID; {
	case id.Evaluates():
		return norm{samples: float64(max(a.Grid.Steps, 1)), series: seriesJSON, sample: sampleJSON}
	case id.Decode() == endpoint.DecodeRead:
		return norm{samples: float64(samplesIn(a.From, a.Until)), series: seriesJSON, sample: sampleChunk}
	case id.Selects() == endpoint.SelectsStored:
		return norm{samples: 1, series: seriesJSON, sample: sampleJSON}
	case id.Decode() == endpoint.DecodeLabelSets:
		return norm{series: seriesJSON}
	}
	return norm{series: nameJSON}
}

// samplesIn is how many samples a series usually has between two moments.
func samplesIn(from, until int64) int64 { return max(until-from, 0)/usualInterval.Milliseconds() + 1 }

// selections are how many series each selector has, and on which shards.
type selections struct {
	k      *Known
	hashes cost.Hashes
	each   []int64
	shards []*shard.Shard
	parts  []int64              // likewise, series of all selectors
	met    map[*shard.Shard]int // where among shards, once there are many

	only, onlyShape cost.Print // of the selector that was met last
}

// selections finds out what the selectors have, as far as it is known.
func (k *Known) selections(a *Asked, e *Estimate) *selections {
	s := &selections{k: k, each: make([]int64, max(len(a.Selectors), 1))}
	if len(a.Selectors) == 0 {
		s.one(a, e, 0, nil, a.From, a.Until)
	}
	for i, ms := range a.Selectors {
		from, until := a.From, a.Until
		if i < len(a.Windows) {
			from, until = a.Windows[i].Start, a.Windows[i].End
		}
		s.one(a, e, i, ms, from, until)
	}
	e.shards, e.parts = s.shards, s.parts
	return s
}

// one finds out what one selector has.
func (s *selections) one(a *Asked, e *Estimate, i int, ms []*labels.Matcher, from, until int64) {
	most, open, unknown := int64(0), false, false
	for _, l := range a.View.Legs(ms, from, until) {
		i := s.meets(l.Shard)
		n, ok := s.k.Sizes.Selects(l.Shard, l.Matchers, &s.hashes)
		if !ok {
			n, unknown = guessedSeries, true
		}
		open = open || !ok || from < s.k.Sizes.Since(l.Shard)
		most += n
		s.parts[i] += n
	}
	if open {
		e.By, e.told = ByGuess, false
	}
	guessed := open
	s.only, s.onlyShape = cost.PrintOfSelector(a.Tenant, ms, false), cost.Print{}
	if shown, ok := s.k.Learned.Look(s.only); ok {
		most, guessed = whole(shown.Series), false
	} else {
		s.onlyShape = cost.PrintOfSelector(a.Tenant, ms, true)
		if shown, ok := s.k.Learned.Look(s.onlyShape); ok && (open || shown.Series < float64(most)) {
			most, guessed = whole(shown.Series), false
		}
	}
	if a.Counted != nil {
		if n, ok := a.Counted(ms); ok {
			most, guessed = n, false
		}
	}
	e.Guessed = e.Guessed || guessed
	e.Unknown = e.Unknown || guessed && unknown
	s.each[i] = most
	e.Selected += most
	e.Read += most * samplesIn(from, until)
}

// fewShards is up to how many of them one is looked for in their order.
const fewShards = 16

// meets is where among the shards one is, from now on.
func (s *selections) meets(sh *shard.Shard) int {
	if len(s.shards) <= fewShards {
		if i := slices.Index(s.shards, sh); i >= 0 {
			return i
		}
	} else if i, ok := s.met[sh]; ok {
		return i
	}
	i := len(s.shards)
	s.shards, s.parts = append(s.shards, sh), append(s.parts, 0)
	if len(s.shards) > fewShards {
		if s.met == nil {
			s.met = make(map[*shard.Shard]int, 4*fewShards)
			for at, other := range s.shards {
				s.met[other] = at
			}
		}
		s.met[sh] = i
	}
	return i
}

// series gives the series of the expression's selectors.
func (s *selections) series(expr parser.Expr) cost.Series {
	if len(s.each) == 1 {
		n := s.each[0]
		return func(*parser.VectorSelector) (series, native int64) { return n, 0 }
	}
	by, i := make(map[*parser.VectorSelector]int64, len(s.each)), 0
	eachSelector(expr, func(vs *parser.VectorSelector) {
		by[vs], i = s.each[min(i, len(s.each)-1)], i+1
	})
	return func(vs *parser.VectorSelector) (series, native int64) { return by[vs], 0 }
}

// held is what shards hold, all together.
func (s *selections) held(a *Asked, e *Estimate) int64 {
	if a.Expr != nil && a.Request.ID.Evaluates() {
		return cost.Held(a.Expr, a.Grid, s.series(a.Expr), nil)
	}
	held := e.Selected * StoredBytes
	if a.Request.ID.Selects() == endpoint.SelectsStored {
		held += e.Read * sampleChunk
	}
	return held
}

// sent is how many series, names or values shards send at most, by what they say of themselves.
func (s *selections) sent(a *Asked, e *Estimate) int64 {
	id := a.Request.ID
	switch {
	case id.Evaluates():
		return cost.Sent(a.Expr, int64(len(s.shards)), s.series(a.Expr), s.values)
	case id.Decode() == endpoint.DecodeStrings && a.Request.Label == "":
		return min(s.labels(), int64(max(e.Selected, 1)*maxLabels))
	case a.Request.Label != "":
		if n, ok := s.values(a.Request.Label); ok {
			return min(n, e.Selected)
		}
	}
	return e.Selected
}

// maxLabels is how many labels a series is taken to have at most.
const maxLabels = 50

// values is how many values a label has on all shards together, at most: those of different ones
// may all be others.
func (s *selections) values(label string) (int64, bool) {
	all := int64(0)
	for _, sh := range s.shards {
		n, ok := s.k.Sizes.values(sh, label)
		if !ok {
			return 0, false
		}
		all += n
	}
	return all, len(s.shards) > 0
}

// labels is how many label names there are.
func (s *selections) labels() int64 {
	most := int64(0)
	for _, sh := range s.shards {
		n, ok := s.k.Sizes.labels(sh)
		if !ok {
			n = guessedSeries
		}
		most = max(most, n)
	}
	return most
}
