// Package policy decides, before any shard is asked, what becomes of a request: answered as asked,
// answered within narrower bounds, or refused.
//
// It promises:
//   - Metadata (series, labels, label_values) is answered, within a window and a limit that are
//     always finite. Where the client gave a start and the window begins later, the decision
//     carries a warning.
//   - query, query_range, query_exemplars, federate and read are exact or refused. Nothing in them
//     is thinned, shortened or rewritten. The one default that is filled in, the start of
//     query_exemplars, is said in a warning.
//   - A refusal names the bound, its value, what was seen and what to do instead. What Prometheus
//     itself rejects is 400 with Prometheus' sentence.
//   - The cost of a verdict is bounded: a pass of the lexer over the text, unless it is too short
//     to break a bound, comes before the parser, which is quadratic and cannot be cancelled, and an
//     estimate of each regular expression before its compilation. Nearly all texts of 64 KiB take
//     less than 5 ms of a processor, the worst known about 20: docs/performance.md has the figures.
//   - What an expression makes is bounded too: labels that no shard stores and the work of regular
//     expressions, both of which multiply in the text. Where that depends on the series that are
//     read, the decision says what is made of each of them, and Making bounds the sum.
//   - Time arithmetic never wraps around, whatever the client sends.
//
// It refuses to guess: how many series a selector has is not known here (that is the business of
// package cost and of the byte and series budgets while answers are read), so a selector is judged
// by its form alone.
//
// Memory is a small multiple of the request's own text; that of compiled regular expressions, the
// largest part, is told to Known.Read beforehand, which may refuse or wait. There is no state
// and no I/O: the clock is a parameter.
//
//	d, err := policy.Decide(req, limits, isGroupOrReplicaLabel, time.Now())
//	if err != nil {
//		return err // a *qerr.Error; d.Verdict is policy.Refuse
//	}
//	// ask the shards for d.Request within d.Deadline, cut the merged answer at d.Limit, add d.Warnings
//
// CONTRIBUTING.md says what a new bound needs.
package policy
