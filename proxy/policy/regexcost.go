package policy

import (
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxRegexCost bounds the cost of all regular expressions of a query text together. A unit is
	// one part that is compiled and that a value of the label may come by at each of its
	// characters: a quarter to half a microsecond once, and as much again for each value. Names in
	// parentheses cost a tenth of that (onceFactor), so that max_query_bytes of them pass. Each
	// occurrence counts: Prometheus compiles and runs each matcher of a text anew.
	maxRegexCost = 8_000
	// maxMatchRegexCost is the same for match[] and remote read, where one selector may bring all
	// values of a variable: what max_query_bytes lets pass there passes, too.
	maxMatchRegexCost = 32_000
	// maxMatchFullCost is how much of that may be anything else than names that a value comes by
	// once: that much is compiled in some 15 ms, which nothing can interrupt.
	maxMatchFullCost = 12_000
	// maxRepeatedCost bounds what counted repetitions such as {30} blow up in one request: every
	// value of the label is run through all of it.
	maxRepeatedCost = 500
	// maxWideClasses bounds the classes of nearly all characters, [^/] or \S, in the expressions of
	// a request that differ: Prometheus looks through all characters for each when it compiles it,
	// for more than a millisecond, to see whether letter case matters.
	maxWideClasses = 10
)

// regexCost refuses regular expressions that are dear to compile or to run. It reads their text
// only: the parser would compile them.
type regexCost struct{}

func (regexCost) Name() string { return BoundRegexCost }

func (regexCost) Check(q *Query) error {
	most := maxRegexCost
	if !q.Request.ID.HasQuery() {
		most = maxMatchRegexCost
	}
	var seen map[string]bool // with such classes
	once := slices.Clone(q.known.Once)
	add := func(re string) error {
		if slices.Contains(q.known.Once, re) {
			i := slices.Index(once, re)
			if i < 0 {
				return nil
			}
			once = slices.Delete(once, i, i+1)
		}
		size := sizeOf(re)
		if size.wide > 0 {
			if seen[re] { // it is compiled once
				size.wide = 0
			} else {
				if seen == nil {
					seen = map[string]bool{}
				}
				seen[re] = true
			}
		}
		q.sizes = q.sizes.plus(size)
		return refuseRegexps(q.sizes, most)
	}
	for _, re := range q.regexps {
		if err := add(re); err != nil {
			return err
		}
	}
	if q.Request.ReadQuery != nil {
		return readShape(q.Request.ReadQuery.Queries, add)
	}
	return nil
}

// refuseRegexps refuses regular expressions that come to more than most, or whose counted
// repetitions do to more than maxRepeatedCost.
func refuseRegexps(sum regexSize, most int) error {
	if sum.repeated > maxRepeatedCost {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(maxRepeatedCost), strconv.Itoa(sum.repeated), "replace counted repetitions such as {30} by * or +",
			"counted repetitions blow the regular expressions of the request up to %d parts and at most %d are run", sum.repeated, maxRepeatedCost)
	}
	if sum.wide > maxWideClasses {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(maxWideClasses), strconv.Itoa(sum.wide), "replace classes such as [^/] and \\S by .* or by the characters that are meant",
			"the regular expressions of the request have %d classes of nearly all characters, such as [^/], and at most %d are read", sum.wide, maxWideClasses)
	}
	if full := sum.all - sum.fixed; most > maxMatchFullCost && full > maxMatchFullCost {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(maxMatchFullCost), strconv.Itoa(full), cheaperRegexps,
			"the regular expressions of the request cost about %d units without lists of names and at most %d are allowed", full, maxMatchFullCost)
	}
	if cost := sum.cost(); cost > most {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(most), strconv.Itoa(cost), cheaperRegexps,
			"the regular expressions of the request cost about %d units and at most %d are allowed", cost, most)
	}
	return nil
}

// cheaperRegexps is what to do about regular expressions that cost too much. Grafana's format
// :regex is no way out: it costs what its ordinary form costs, and it escapes with a single
// backslash, which PromQL rejects between double quotes.
const cheaperRegexps = "in Grafana give the variable's option All the custom value .*, or write ${name:pipe} where no value has a dot or another sign of regular expressions; " +
	"elsewhere use a shorter pattern with fewer .* and repetitions, or match on another label"

// readShape bounds what a remote read request brings instead of a text.
func readShape(queries []*prompb.Query, add func(re string) error) error {
	if len(queries) > maxMatches {
		return tooMany("queries in one remote read request", maxMatches, len(queries))
	}
	for _, rq := range queries {
		if rq == nil {
			continue
		}
		if n := len(rq.Matchers); n > maxMatchersPerSelector {
			return tooMany("matchers in one selector", maxMatchersPerSelector, n)
		}
		for _, m := range rq.Matchers {
			if m == nil || m.Type != prompb.LabelMatcher_RE && m.Type != prompb.LabelMatcher_NRE {
				continue
			}
			if err := add(m.Value); err != nil {
				return err
			}
		}
	}
	return nil
}
