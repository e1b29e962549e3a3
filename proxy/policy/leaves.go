package policy

import (
	"fmt"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxLeaves bounds the selectors of a query text that differ, and maxSelectors all of them.
	// Each is asked of every shard that may hold its series. The dashboards and rules that Spillway
	// brings have six at most, those of service level objectives about twenty.
	maxLeaves    = 64
	maxSelectors = 256
)

// queryLeaves bounds how many selectors a query text has.
type queryLeaves struct{}

func (queryLeaves) Name() string { return BoundQueryLeaves }

func (queryLeaves) Check(q *Query) error {
	if q.reach == nil || len(q.reach.windows) <= maxLeaves {
		return nil
	}
	if n := len(q.reach.windows); n > maxSelectors {
		return refuseLeaves(maxSelectors, n, "the query has %d selectors and at most %d are read", n, maxSelectors)
	}
	type leaf struct {
		text       string
		start, end int64
	}
	seen := map[leaf]bool{}
	for _, w := range q.reach.windows {
		seen[leaf{w.selector.String(), w.start, w.end}] = true
	}
	if n := len(seen); n > maxLeaves {
		return refuseLeaves(maxLeaves, n, "the query has %d selectors that differ and at most %d are read", n, maxLeaves)
	}
	return nil
}

func refuseLeaves(most, seen int, format string, args ...any) error {
	return qerr.Refuse(BoundQueryLeaves, fmt.Sprint(most), fmt.Sprint(seen),
		`join selectors that differ in one label or in the name into one, {__name__=~"a|b|c"}, split the query, or move parts of it into recording rules`, format, args...)
}
