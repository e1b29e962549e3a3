// Package merge turns the answers of shards into one answer: it scans their JSON as a stream,
// counts what it reads against the request's budget (proxy/admit), merges, relabels, and writes
// what Prometheus itself would have written.
//
// # Promises
//
//   - What is read from shards is valid JSON of the expected shape, or the answer is an error that
//     names the shard. Garbage, truncation, a wrong shape and an exceeded bound are told apart
//     (ScanError). Nothing after the first error is used.
//   - Numbers mean what strconv and Prometheus' own decoder make of them, to the bit. A Table has
//     values at the times that were asked for and at no others.
//   - What Fold returns is the answer of one Prometheus that holds all shards' series: sums and
//     averages within 1e-12, everything else to the bit. Where partial results do not determine it,
//     or where shards that ought to be disjoint are not, the error is ErrInexact or ErrTwice, and
//     the caller evaluates over the series themselves.
//   - Order and duplicates are as in Prometheus: names and values sorted bytewise, series sorted by
//     labels.Compare, each once. How the same data was split over shards and replicas, in what
//     order the shards are listed and how their bytes were cut into reads never changes a byte of
//     the answer.
//   - A cut answer says so (Result.Truncated); the caller turns that into a warning. Only metadata
//     is ever cut. Query answers are whole or an error.
//   - Nothing reaches the client before Writer commits: when 1 MiB is held, or at the end. Until
//     then a failure can still become a named error; after that the caller must abort the
//     connection.
//
// # Refusals
//
// The package does not choose replicas, retry, time out or decide about partial answers: it
// reports, the caller decides. It starts no goroutine that outlives a call. It evaluates nothing
// but the last step of an aggregation (Fold).
//
// # Memory
//
// A Scanner holds one buffer of 64 KiB, grown up to MaxToken (1 MiB) while one string or label set
// is longer than that. A Writer holds at most 1 MiB and one chunk. Lists of strings, passed
// queries, and spliced ones, which have a Scanner for each shard, are streamed: they need nothing
// else, except 32 bytes a series where labels can be set or removed, or where vectors of several
// shards are joined. A Table takes 8 bytes for each step of each series, in a first 2 KiB and then
// in blocks of 64 KiB, and its label sets, until it is closed; Fold works in place, Union moves
// nothing, and both add 48 to 96 bytes for each series of the result. Series, exemplars and the
// small documents (rules, targets, ...) are collected. Every byte of all this is held in the
// request's admit.Budget.
//
// # Example
//
//	budget := admit.NewBudget(pool, admit.Limits{MaxSeries: 50000, MaxSamples: 50e6, MaxBytes: 64 << 20})
//	defer budget.Close()
//	w := merge.NewWriter(rw, budget)
//	defer w.Close()
//	w.Begin()
//	res, err := merge.Pass(ctx, w, merge.Source{Name: "jaguar 10.0.0.1:9090", Body: body, Relabel: rl}, budget)
//	if err == nil {
//		err = w.Finish(res.Warnings, res.Infos)
//	}
//	if err != nil && w.Committed() {
//		panic(http.ErrAbortHandler)
//	}
package merge
