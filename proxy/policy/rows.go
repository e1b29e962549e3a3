package policy

import (
	"fmt"
	"strconv"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Series that an expression makes. All of PromQL gives at most as many series as it reads, or twice
// or thrice that as the text says, but for count_values: at each step it makes one for each value,
// and those of other steps stay. The engine sets aside room for all steps in each, and goes through
// all of them at each step in whatever stands around count_values, so that 11,000 steps over one
// series take 880 MB and seconds. How many there will be is not in the text: of a build_info with
// three versions there are three. A shard is therefore not asked for such, beyond a few steps; here
// they are counted before count_values is evaluated.
//
// A join that copies labels (group_left(x)) does the same where the side that they come from is
// another series at each step, as topk or a comparison chooses one: each series of the other side
// then becomes as many as there were different labels. Where on() names labels, how many that may
// be is counted before a shard is asked (proxy/cost); on() without any lets every series meet all
// that was chosen.

const (
	// maxMadeSeriesBytes bounds what an evaluation holds of series that were made at its steps.
	maxMadeSeriesBytes = 128 << 20
	// pointBytes is what the engine sets aside for a point of a series, madeSeriesBytes what it
	// holds of a series beside them and the labels, and roomPoints for how many points it makes
	// room at most before it has seen any.
	pointBytes, madeSeriesBytes, roomPoints = 16, 384, 5000
	// PairBytes is what the engine holds for two series that met in a join, besides their labels.
	PairBytes = 160
	// madeVisits is what the engine takes to go past one series at one step where it has no value,
	// in visits.
	madeVisits = 4
)

// SeriesBytes is what the engine holds of a series that was made at that many steps, besides its
// labels.
func SeriesBytes(steps int64) int64 {
	return satAdd(satMul(min(steps, roomPoints), pointBytes), madeSeriesBytes)
}

// atSteps notes a node that is evaluated at so many steps: those that may make more series than a
// shard is asked for.
func (m *maker) atSteps(n parser.Node, steps int64) {
	if steps > 1 && satMul(steps, SeriesBytes(steps)) > shardRowBytes {
		if m.stepped == nil {
			m.stepped = map[posrange.PositionRange]int64{}
		}
		m.stepped[n.PositionRange()] = steps
	}
}

// steppedIn says why a part of the expression with such a node is not for shards.
func (m *maker) steppedIn(node parser.Node) string {
	if len(m.stepped) == 0 {
		return ""
	}
	switch n := node.(type) {
	case *parser.AggregateExpr:
		if steps, ok := m.stepped[n.PositionRange()]; ok && n.Op == parser.COUNT_VALUES {
			return "count_values may make a series of each value at each of " + strconv.FormatInt(steps, 10) + " steps, more than a shard is asked for"
		}
	case *parser.BinaryExpr:
		if steps, ok := m.stepped[n.PositionRange()]; ok && CopiesChosen(n) {
			return grouping(n) + " may copy other labels at each of " + strconv.FormatInt(steps, 10) + " steps onto every series, more than a shard is asked for"
		}
	}
	for child := range parser.ChildrenIter(node) {
		if why := m.steppedIn(child); why != "" {
			return why
		}
	}
	return ""
}

// CopiesChosen tells whether a join copies labels of series that may be different ones at each
// step.
func CopiesChosen(b *parser.BinaryExpr) bool { return len(include(b)) > 0 && MeetsChosen(b) }

func include(b *parser.BinaryExpr) []string {
	if b.VectorMatching == nil {
		return nil
	}
	return b.VectorMatching.Include
}

// MeetsChosen tells whether many series of one side of a join may each meet a different one of the
// other side at each step. The engine remembers every two that have met.
func MeetsChosen(b *parser.BinaryExpr) bool {
	switch vm := b.VectorMatching; {
	case vm == nil:
		return false
	case vm.Card == parser.CardOneToMany:
		return chooses(b.LHS)
	case vm.Card == parser.CardManyToOne:
		return chooses(b.RHS)
	}
	return false
}

// chooses tells whether anything in an expression gives some of its series at one step and others
// at another.
func chooses(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		switch n.Op {
		case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO, parser.COUNT_VALUES:
			return true
		}
	case *parser.BinaryExpr:
		if n.Op.IsSetOperator() || n.Op.IsComparisonOperator() && !n.ReturnBool {
			return true
		}
	}
	for child := range parser.ChildrenIter(node) {
		if chooses(child) {
			return true
		}
	}
	return false
}

// grouping is the word that makes a join copy labels.
func grouping(b *parser.BinaryExpr) string {
	if b.VectorMatching.Card == parser.CardOneToMany {
		return "group_right"
	}
	return "group_left"
}

// MadeSeries is what one evaluation holds of the series that are made at its steps. It is not for
// several goroutines at once.
type MadeSeries struct {
	n, pairs, bytes, visits int64
}

// Row is one such series: Labels are the bytes of its labels, Points the steps at which it may have
// a value, Held how many copies of its points are held at a time, and Visits how often the steps of
// the expressions around it look at it.
type Row struct {
	Labels, Points, Held, Visits int64
	// Pairs, where not 0, says that the row is not a series but that many pairs that meet in a
	// join: Labels are then those of both and of their result.
	Pairs int64
}

// Add charges a series that count_values or a join of the text is about to make, and refuses where
// that is too much. It returns the bytes.
func (s *MadeSeries) Add(of parser.Expr, r Row, query string) (int64, error) {
	bytes := satAdd(r.Labels, satMul(max(1, r.Held), SeriesBytes(r.Points)))
	if r.Pairs > 0 {
		bytes = satMul(r.Pairs, satAdd(r.Labels, PairBytes))
		s.pairs = satAdd(s.pairs, r.Pairs)
	} else {
		s.n++
	}
	s.bytes = satAdd(s.bytes, bytes)
	s.visits = satAdd(s.visits, satMul(r.Visits, madeVisits))
	if s.bytes <= maxMadeSeriesBytes && s.visits <= maxEffort {
		return bytes, nil
	}
	by, what, advice := "count_values", "each value", fewerValues
	if b, ok := of.(*parser.BinaryExpr); ok {
		by, what, advice = grouping(b), "each set of labels to copy", fewerLabels
	}
	if r.Pairs > 0 {
		return 0, qerr.Refuse(BoundLabelBytes, bytesText(maxMadeSeriesBytes), fmt.Sprintf("%d pairs", s.pairs), fewerMeet,
			"%s at %s lets many series meet others at each step; each two that have met are remembered, "+
				"and %d pairs do not fit into the %s that are held of such",
			by, of.PositionRange().StartPosInput(query, 0), s.pairs, bytesText(maxMadeSeriesBytes))
	}
	made := fmt.Sprintf("%s at %s makes a series of %s that it meets at %d steps", by, of.PositionRange().StartPosInput(query, 0), what, r.Points)
	if s.bytes > maxMadeSeriesBytes {
		return 0, qerr.Refuse(BoundLabelBytes, bytesText(maxMadeSeriesBytes), fmt.Sprintf("%d series", s.n), advice,
			"%s, and %d of them do not fit into the %s that are held of such", made, s.n, bytesText(maxMadeSeriesBytes))
	}
	return 0, qerr.Refuse(BoundMaxPoints, strconv.Itoa(maxEffort), count(s.visits), advice,
		"%s; what stands around it looks at points of the first %d of them %s times, and the bound is %d", made, s.n, count(s.visits), maxEffort)
}

// What to do where too many series are made.
const (
	fewerValues = `round the values, as in count_values("v", round(x, 10)), ask for fewer steps or give the subquery a longer one, or count by ranges: count(x >= 10 < 20)`
	fewerMeet   = "name the labels in on() that tell apart what is chosen, ask for fewer steps, or leave out what chooses other series at each step (topk, comparisons)"
	fewerLabels = "name the labels in on() that tell its series apart, copy fewer labels, ask for fewer steps, or leave out what chooses other series at each step (topk, comparisons)"
)
