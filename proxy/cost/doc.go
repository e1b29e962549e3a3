// Package cost says what a query makes a server hold, before the server is asked.
//
// A Prometheus counts the samples that a query holds (query.max-samples) and nothing else: not the
// room that its engine makes for steps without a sample, not labels, and not the answer as JSON,
// which it builds whole. A text that is harmless over a hundred series takes a gigabyte over a
// hundred thousand, and the text does not say how many there are. So Held is a function of the
// expression, of its steps, of the number of series of each selector, and of how many of them are
// alike where a join meets series that are chosen anew at each step; Names knows what a server says
// of its largest metrics, Counts remembers numbers of selectors, and Learned what answers showed.
//
// # Promises
//
//   - Held follows the engine of Prometheus 3.15 (promql/engine.go: rangeEval, rangeEvalAgg,
//     evalSeries, addToSeries), which evaluates the arguments of a node one after the other, keeps
//     them until the node is done, and makes room for each step of each series that it makes. It is
//     at least what the engine holds of series that have a sample at each step, as far as the
//     numbers of series are right, and native histograms have no more than 300 buckets.
//   - Held grows with the number of steps, except for what subqueries hold: a range query that is
//     asked in pieces of time holds less in each piece.
//   - A caller that asks for a number which another one is already finding out waits for that
//     number alone, and no longer than its own request lasts.
//
// # Refusals
//
// It asks nobody: the caller brings the way to count. Series that come and go between the moments
// of counting are missed: neither the text nor any number that is cheap to get shows them.
//
// # Memory
//
// Counts holds at most MaxCounts numbers of about 200 bytes each, 10 MiB; Names, of a shard,
// MaxNames each of metrics, pairs and labels, 16 bytes for each, 48 KiB, or MoreNames, 480 KiB,
// which an answer is read into name by name, no further than was asked for, and the names of
// MaxTold metrics and MaxJobs jobs, 50 KiB at most; Learned at most MaxLearned texts of about 200
// bytes, 10 MiB.
//
//	many := func(*parser.VectorSelector) (series, native int64) { return 20_000, 0 }
//	held := cost.Held(expr, cost.Grid{Steps: 241, Step: 15_000, Interval: 60_000}, many, nil)
package cost
