package policy

import (
	"strconv"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxRowBytes bounds the labels that an expression makes of each series of a selector. Those of
	// dashboards are one or two names of nodes or pods long.
	maxRowBytes = 4 << 10
	// maxOnceBytes bounds those that it makes of series whose number is known, such as vector(1),
	// all together.
	maxOnceBytes = 1 << 20
	// maxHeldBytes bounds those that one request makes of the series that were read.
	maxHeldBytes = 64 << 20
	// maxWork bounds the steps of the regular expressions of label_replace, and of sort_by_label,
	// over all series. The engine looks at no context there. Those that people write take about a
	// nanosecond a step, the worst known three: 0.1 to 0.3 s.
	maxWork = 100_000_000
	// shardRowBytes and shardWork are what a shard is asked to make of one series, of which it may
	// have a million.
	shardRowBytes = 1 << 10
	shardWork     = 16 << 10
)

// What to do where too much is made.
const (
	shorterLabels = "shorten the replacement or the separator, use fewer $1 in it, nest fewer of these functions, or set the label when scraping (metric_relabel_configs)"
	lighterWork   = "use a shorter regular expression with fewer repetitions, select fewer series, or set the label when scraping (metric_relabel_configs)"
)

// labelBytes refuses expressions that make much out of nothing, before anybody is asked.
type labelBytes struct{}

func (labelBytes) Name() string { return BoundLabelBytes }

func (labelBytes) Check(q *Query) error {
	if !q.Request.ID.Evaluates() || !makesAny(q.Expr) {
		return nil
	}
	m := makingOf(q.Expr, q.reach.outer.steps, q.points)
	if err := refuseRegexps(q.sizes.plus(m.sizes), maxRegexCost); err != nil {
		return err
	}
	at := func(w making) string { return w.name + " at " + w.pos.StartPosInput(q.Request.Query, 0) }
	switch {
	case m.wide.seen > maxRowBytes:
		return refuseLabels(maxRowBytes, m.wide.seen, "%s makes %s bytes of labels for each series and at most %s are made", at(m.wide), count(m.wide.seen), bytesText(maxRowBytes))
	case m.once > maxOnceBytes:
		return refuseLabels(maxOnceBytes, m.once, "the query makes %s bytes of labels, most of them by %s, and at most %s are made", count(m.once), at(m.most), bytesText(maxOnceBytes))
	case m.work > maxWork:
		return refuseWork(m.work, "%s runs through %s steps of regular expressions for a series and at most %d are run", at(m.slow), count(m.slow.seen), maxWork)
	}
	q.making = m
	return nil
}

func refuseLabels(most, seen int64, format string, args ...any) error {
	return qerr.Refuse(BoundLabelBytes, bytesText(most), strconv.FormatInt(seen, 10)+"B", shorterLabels, format, args...)
}

func refuseWork(seen int64, format string, args ...any) error {
	return qerr.Refuse(BoundRegexCost, strconv.Itoa(maxWork), strconv.FormatInt(seen, 10), lighterWork, format, args...)
}

// points are the steps of a subquery of the text.
func (q *Query) points(n *parser.SubqueryExpr) int64 {
	pos := n.PositionRange()
	for _, s := range q.reach.subqueries {
		if s.pos == pos {
			return s.points
		}
	}
	return maxSubqueryPoints
}

// heavy returns what tells why a part of the expression is not for shards; nil where the whole is.
func heavy(q *Query) func(parser.Expr) string {
	reason := func(m *maker) string {
		for _, made := range m.each {
			if n := made.Labels.At(assumedLabel); n > shardRowBytes {
				return "it makes " + count(n) + " bytes of labels for each series, more than the " + bytesText(shardRowBytes) +
					" that a shard is asked for"
			}
			if n := made.Work.At(assumedLabel); n > shardWork {
				return "it runs through " + count(n) + " steps of regular expressions for each series, more than the " + strconv.Itoa(shardWork) + " that a shard is asked for"
			}
		}
		return ""
	}
	if reason(q.making) == "" && q.making.stepped == nil {
		return nil
	}
	steps := q.reach.outer.steps
	return func(part parser.Expr) string {
		if !makesAny(part) {
			return ""
		}
		if why := q.making.steppedIn(part); why != "" {
			return why
		}
		return reason(makingOf(part, steps, q.points))
	}
}

// Making is what one evaluation has made so far. It is not for several goroutines at once.
type Making struct {
	labels, work int64
}

// Add charges what is made of n series whose longest label has that many bytes, and refuses where
// the evaluation would make too much. It returns the bytes of labels.
func (m *Making) Add(made Made, n, longest int) (int64, error) {
	bytes := satMul(int64(n), made.Labels.At(longest))
	m.labels = satAdd(m.labels, bytes)
	m.work = satAdd(m.work, satMul(int64(n), made.Work.At(longest)))
	switch {
	case m.labels > maxHeldBytes:
		return 0, refuseLabels(maxHeldBytes, m.labels, "the query makes %s bytes of labels for the series that it reads and at most %s are made", count(m.labels), bytesText(maxHeldBytes))
	case m.work > maxWork:
		return 0, refuseWork(m.work, "the query runs the series that it reads through %s steps of regular expressions and at most %d are run", count(m.work), maxWork)
	}
	return bytes, nil
}
