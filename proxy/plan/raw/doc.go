// Package raw evaluates nothing itself: it is the storage under Prometheus' own engine when a query
// needs series from several shards or copies.
//
// For each selector it reads the series of every slice that may hold them (a slice is one shard of
// one group, held by one or more copies), as compressed chunks, and makes of them what one
// Prometheus would hold:
//
//   - selectors: equal ones of one query are read once.
//   - labels: names that belong to the group (its labels and replica labels) are removed from what
//     is stored, then the group's labels are set. Two series that become equal by that are a
//     label_collision, never merged.
//   - copies: where the slice is not known to be whole on one copy, each series is spliced from
//     segments; in one segment all samples come from one copy, so samples of two replicas are never
//     interleaved (splice.go has the rules). Where it is known when the base may lack something,
//     the others are read then and not else (Slice.Lacking, weave.go).
//   - copies that fail: a whole one is replaced by whole ones alone (Slice.Spare); else the caller
//     decides (Queryable.Failed), since what is left may lack something. What fills a known gap is
//     waited for.
//   - time: samples outside a slice's own span are dropped; where two slices with different starts
//     hold an equal label set, the later one supplies everything from its start on. Two slices for
//     the same time ought not to hold the same series; where they do, they are merged as copies
//     are, and the caller is told.
//
// Memory: the chunks of all selected series are held compressed and charged to the request's Budget
// as they are read; decoding goes through iterators, one sample at a time, which look at the
// evaluation's Turn at each series and chunk. Splicing decodes the time stamps of one series of two
// copies at once, as far as both were read. What exceeds the budget ends the request with the
// bound's name.
//
//	q := &raw.Queryable{Legs: legs, Meter: budget}
//	qry, err := engine.NewRangeQuery(ctx, q, opts, text, start, end, step)
package raw
