package plan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Mode is how a node of a query is answered.
type Mode string

// The modes that exist.
const (
	// ModePass: one shard holds it all; its answer is the answer.
	ModePass Mode = "pass"
	// ModeSplice: every result comes from series of one shard, so the shards' answers side by side
	// are the answer.
	ModeSplice Mode = "splice"
	// ModePush: an aggregate that the shards evaluate over what they hold, and that is finished
	// here.
	ModePush Mode = "push"
	// ModeRaw: series are fetched, or answers of the modes above taken, and evaluated here.
	ModeRaw Mode = "raw"
	// ModeParcels: series are fetched for some targets at a time and evaluated here, and the
	// results of the parcels are put together.
	ModeParcels Mode = "parcels"
	// ModeLocal: nothing is selected; evaluated here without a shard.
	ModeLocal Mode = "local"
)

// settle is how long after a shard's first millisecond its answers are not yet trusted alone: a
// window that ends earlier is read raw, so that samples from before the boundary take part.
const settle = 10 * time.Minute

// View is a topology as one request sees it: every relative time is fixed once.
type View struct {
	top *shard.Topology
	now time.Time
	own []*labels.Matcher // whatever is read here meets them
}

// NewView fixes the clock for one request.
func NewView(top *shard.Topology, now time.Time) *View { return &View{top: top, now: now} }

// Narrow has every series that is read to be evaluated here meet the matchers, which may be none,
// and keeps info() from running on shards, since it reads series that its text does not name. The
// selectors of the text are to have them already. It returns v.
func (v *View) Narrow(ms []*labels.Matcher) *View {
	v.own = ms
	return v
}

// Now is the request's time.
func (v *View) Now() time.Time { return v.now }

// Leg is a shard with the matchers to send it.
type Leg struct {
	Shard *shard.Shard
	// Matchers are the selector's without those on the group's labels; may be empty.
	Matchers []*labels.Matcher
	// From is the shard's first millisecond, Until the first one after it.
	From, Until int64
	// Alone tells that the shard is asked since it has the selector's metrics alone, by its names.
	Alone bool

	settled bool // a Thanos Query has part in the same leaf: nothing of it can be evaluated here
}

// Legs returns the shards that can hold series of the selector between from and until
// (milliseconds, inclusive), in the order of the configuration.
func (v *View) Legs(ms []*labels.Matcher, from, until int64) []Leg {
	var legs []Leg
	for _, g := range v.top.Groups {
		sent, ok := Strip(g, ms)
		if !ok {
			continue
		}
		holds, alone := g.Prune(ms, from, until, v.now)
		if holds == nil {
			legs = slices.Grow(legs, len(g.Shards))
		}
		for _, s := range g.Shards {
			f, u := s.Span(v.now)
			if f >= u || f > until || u != math.MaxInt64 && u <= from || holds != nil && !holds(s) {
				continue
			}
			legs = append(legs, Leg{Shard: s, Matchers: sent, From: f, Until: u, Alone: alone})
		}
	}
	return legs
}

// Plan is how one query is answered.
type Plan struct {
	// Mode is the road: that of the only leaf, where the whole query is one; else that of what is
	// evaluated here over the leaves and raw series.
	Mode Mode
	// Why says in a few words why no shard answers the whole query; empty where one does, or
	// several do.
	Why string
	// Leaves are the parts of the query that shards evaluate.
	Leaves []*Leaf
	// Whole tells that the only leaf is the whole query.
	Whole bool
	// Raw tells that series are fetched too, and Cause why; Shard is the one that the cause lies
	// with, nil where it lies with none.
	Raw   bool
	Cause Cause
	Shard *shard.Shard
	// Refused is why the query cannot be answered exactly; nil where it can.
	Refused error
	// Expr is what remains to be evaluated here, a leaf standing as a selector in it; nil where
	// Whole. It belongs to one evaluation, which changes it.
	Expr parser.Expr
	// Root is the plan as explain shows it; nil where the query has NoExplain.
	Root *Node
	// Together is what its selectors read at the same times; nil where that is of no matter.
	Together *Together
}

// Leaf is a part of a query that one or several shards evaluate.
type Leaf struct {
	// Mode is ModePass, ModeSplice, ModePush or ModeParcels.
	Mode Mode
	// Grid is when it is evaluated; Range tells that query_range is asked, else query.
	Grid  merge.Grid
	Range bool
	// Parts are the shards with what each is asked.
	Parts []*Part
	// Expr is what is evaluated, as the client wrote it: matchers on the group's labels included.
	// It is only read.
	Expr parser.Expr
	// Text is what is evaluated of each parcel, and Reads what its selectors read, in the order of
	// the text; both are empty where it is not in parcels.
	Text  string
	Reads []Read
	// Why says why the leaf is in parcels, where it is, and Cause is what the metric says of that.
	Why   string
	Cause Cause
	// Fold puts partial aggregates together where Folds.
	Fold  merge.FoldOp
	Folds bool
	// Strict tells that the last bit of a folded sum may decide about more than the last bit of the
	// answer, so that the sum has to be exact, as one of whole numbers is. Near are numbers that it
	// is compared with: close to them the same holds.
	Strict bool
	Near   []float64
	// Loose tells that there is a comparison above the leaf which Near does not describe, such as
	// that of two sums, or a function that jumps, such as round: the last bit decides there only if
	// the answer changes with it, which the code that evaluates the rest has to find out.
	Loose bool
	// At is where it stands in the query's text, the first of several places; empty where the whole
	// query was not parsed.
	At posrange.PositionRange
	// Distinct tells that series of two shards cannot become equal in it.
	Distinct bool
	// Guards are asked of all parts' shards first: where one has a series, the leaf cannot be put
	// together from the shards' answers.
	Guards []Guard
	// Uses are, for each place of the query where the leaf occurs, the selectors in it, numbered
	// through the whole query as Query.Windows are.
	Uses [][]int
	// Streams tells that answers side by side show all duplicates without being decoded: all groups
	// own the same label names.
	Streams bool
	// Node is the leaf as explain shows it; nil where the query has NoExplain.
	Node *Node
}

// Part is one shard's part in a leaf.
type Part struct {
	// Shard is asked, one of Replicas: those known to be whole over the leaf's window, the base
	// first.
	Shard    *shard.Shard
	Replicas []*shard.Replica
	// Query is the text to send.
	Query string
	// Relabel is what the answer needs: the group's labels set, or nil for nothing.
	Relabel *merge.Relabel
	// From and Until bound what its selectors read, in milliseconds, inclusive.
	From, Until int64
	// Call is the part as explain shows it; nil where the query has NoExplain.
	Call *Call
}

// Guard asks whether a shard has a series that must not be there.
type Guard struct {
	// Shard is asked for Match between From and Until, in milliseconds, inclusive.
	Shard       *shard.Shard
	Match       string
	From, Until int64
}

// narrowed are the matchers with those of Narrow.
func (v *View) narrowed(ms []*labels.Matcher) []*labels.Matcher {
	for _, own := range v.own {
		same := func(m *labels.Matcher) bool { return m.Name == own.Name && m.Type == own.Type && m.Value == own.Value }
		if !slices.ContainsFunc(ms, same) {
			ms = append(slices.Clip(ms), own)
		}
	}
	return ms
}

// Reading is how series are read to be evaluated here.
type Reading struct {
	// Budget is charged with what is read, of which one replica may send MaxBytes.
	Budget   *admit.Budget
	MaxBytes int64
	// Gone are shards that are not asked, Avoid replicas that failed before; may be nil.
	Gone  func(*shard.Shard) bool
	Avoid func(*shard.Replica) bool
	// Lost decides about shards that do not answer (raw.Queryable.Lost).
	Lost func(string, error) error
	// Note is told what a reader of the answer should know of a shard, in words that have a key;
	// may be nil. Several goroutines may tell it at once. Unseen tells that nobody reads it.
	Note   func(key, text string)
	Unseen bool
	// Together is the plan's, nil where one selector is read alone.
	Together *Together
}

// Raw is the storage for evaluating here.
func (v *View) Raw(how Reading) *raw.Queryable {
	return &raw.Queryable{
		Meter: how.Budget,
		Lost:  how.Lost,
		Legs: func(ctx context.Context, from, until int64, ms []*labels.Matcher) ([]raw.Leg, error) {
			legs := v.Legs(v.narrowed(ms), from, until)
			out := make([]raw.Leg, 0, len(legs))
			for _, l := range legs {
				if how.Gone != nil && how.Gone(l.Shard) {
					continue
				}
				slice, err := v.slice(ctx, l, from, until, how)
				if err != nil {
					if how.Lost == nil {
						return nil, err
					}
					if err := how.Lost(l.Shard.Name(), err); err != nil {
						return nil, err
					}
					continue
				}
				out = append(out, raw.Leg{Slice: slice, Matchers: l.Matchers})
			}
			return out, nil
		},
	}
}

// slice is the shard as raw reads it: its whole replica alone, else all that can be asked, the base
// first and the others where that one lacks something.
func (v *View) slice(ctx context.Context, l Leg, from, until int64, how Reading) (*raw.Slice, error) {
	if l.Shard.Thanos() {
		return nil, shard.ErrNoRaw(l.Shard)
	}
	from, until = max(from, l.From), min(until, l.Until)
	w := Window{from, until}
	choice := how.Together.of(ctx, l, w, v.now)
	wholes, err := how.Together.wholes(ctx, l, w, v.now, how.Avoid)
	if err != nil {
		return nil, err
	}
	g := l.Shard.Group
	s := &raw.Slice{Name: l.Shard.Name(), Labels: g.Labels, Drop: Owned(g), From: l.From, Until: l.Until}
	out := l.Shard.LeftOut(ctx, from, until, v.now, how.Unseen)
	well, err := l.Shard.Well()
	if err != nil {
		return nil, err
	}
	read := func(r *shard.Replica, spare bool) *replica {
		return &replica{r: r, budget: how.Budget, maxBytes: how.MaxBytes, spare: spare}
	}
	if base := how.Together.take(choice, wholes, l.Shard, how.Avoid); base != nil {
		s.Copies = append(s.Copies, read(base, len(well) > 1))
		for _, r := range wholes { // of who lacks something nobody would know that
			if r != base && slices.Contains(well, r) && (len(s.Spare) == 0 || l.Shard.Relabelled(from, until) == "") {
				s.Spare = append(s.Spare, read(r, false))
			}
		}
		return s, nil
	}
	if err := FailedWholes(l.Shard, wholes, well); err != nil {
		return nil, err
	}
	all := slices.Concat(well, out)
	well = how.Together.sorted(choice, well, how.Avoid)
	if well, err = how.apart(ctx, l.Shard, well, w, v.now); err != nil {
		return nil, err
	}
	if err := how.unread(ctx, l.Shard, all, out, well, w, v.now); err != nil {
		return nil, err
	}
	for _, r := range well {
		s.Copies = append(s.Copies, read(r, len(well) > 1))
	}
	if len(well) > 1 {
		s.Lacking, s.Known = lackedBy(ctx, l.Shard, well[0], from, until, v.now)
	}
	return s, nil
}

// apart are the replicas that may be put together. Of those that gave the same targets other labels
// in the window it is one alone, which may lack something; of those that had other targets all,
// which are copies perhaps of which the labels differ altogether. The answer's reader is told of
// both. Where he would not see it, and the one that is read is known to lack something, it is an
// error.
func (how *Reading) apart(ctx context.Context, s *shard.Shard, well []*shard.Replica, w Window, now time.Time) ([]*shard.Replica, error) {
	if len(well) < 2 {
		return well, nil
	}
	note := func(format string, args ...any) {
		if how.Note != nil {
			how.Note("replicas "+s.Name(), fmt.Sprintf(format, args...))
		}
	}
	switch what := s.Relabelled(w.From, w.Until); {
	case what != "":
		if covers, known := s.Covers(ctx, well[:1], well[1:], w.From, w.Until, now); known && !covers && how.Unseen {
			return nil, qerr.Wrap(qerr.ShardFailed, ErrLacked, "%s: one of them can be read alone, and each lacks some of what another one has; ask for another time", what)
		}
		note("%s: %s alone is read, and what it lacks is not filled", what, well[0].Name())
		return well[:1], nil
	case s.Split(w.From, w.Until):
		note("the replicas of shard %s have, or had in this time, different targets: if they are copies that label them differently, each is counted twice", s.Name())
	}
	return well, nil
}

// FailedWholes is the error where all replicas that are whole have failed while the request was
// answered, and one of them is still there: what the others lack of it would be missing without a
// word. One that has gone takes no part, and the others are whole without it.
func FailedWholes(s *shard.Shard, wholes, well []*shard.Replica) error {
	if len(wholes) == 0 || !slices.ContainsFunc(wholes, func(r *shard.Replica) bool { return slices.Contains(well, r) }) ||
		!slices.ContainsFunc(well, func(r *shard.Replica) bool { return !slices.Contains(wholes, r) }) {
		return nil
	}
	return failedAndLacked(s, wholes[0])
}

// ErrLacked is the private cause of an error that is known without asking anybody: the replicas
// that are left lack some of what one has that failed.
var ErrLacked = errors.New("what is left is known to lack some of what failed")

func failedAndLacked(s *shard.Shard, r *shard.Replica) error {
	return qerr.Wrap(qerr.ShardFailed, ErrLacked, "%s failed while this request was answered, and the other replicas of shard %s lack some of what it has at that time; ask again, or for another time",
		r.Name(), s.Name())
}

// unread tells the answer's reader of replicas that failed while the request was answered, or too
// often before (out), and are still there, where nobody is whole and each of the others may lack
// some of what they have. Where he would not see it, and they are known to, it is an error.
func (how *Reading) unread(ctx context.Context, s *shard.Shard, all, out, left []*shard.Replica, w Window, now time.Time) error {
	failed := slices.DeleteFunc(all, func(r *shard.Replica) bool {
		return slices.Contains(left, r) || !slices.Contains(out, r) && (how.Avoid == nil || !how.Avoid(r))
	})
	if len(failed) == 0 {
		return nil
	}
	missing, err := Missing(ctx, s, failed, left, w, now, how.Unseen)
	if missing && how.Note != nil {
		for _, r := range failed {
			how.Note(Unread(r.Name()))
		}
	}
	return err
}

// Missing tells whether an answer of the shard lacks some of what replicas have that failed while
// the request was answered, and are still there, as far as anybody knows: those that are left may.
// Where nobody would see that the answer says so it is an error if they are known to, or if the
// heartbeat, which would tell, says nothing since the group's targets may be moving.
func Missing(ctx context.Context, s *shard.Shard, failed, left []*shard.Replica, w Window, now time.Time, unseen bool) (bool, error) {
	switch covers, known := s.Covers(ctx, left, failed, w.From, w.Until, now); {
	case covers:
		return false, nil
	case known && unseen:
		return false, failedAndLacked(s, failed[0])
	case unseen && s.Divides(w.Until) && !s.Unjudged():
		return false, qerr.Wrap(qerr.ShardFailed, ErrLacked, "%s failed, and the other replicas of shard %s may lack some of what it has, since the targets of group %s may be moving; ask again",
			failed[0].Name(), s.Name(), s.Group.Name)
	}
	return true, nil
}

// Unread is what an answer's reader is told of a replica that was not read, with the note's key.
func Unread(replica string) (key, text string) {
	return "unread " + replica, replica + " failed, or was too slow, while this request was answered: what only it has is missing"
}
