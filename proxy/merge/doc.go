// Package merge turns the answers of shards into one answer: it scans their JSON as a stream, counts what it reads against the request's budget, merges,
// relabels, and writes what Prometheus itself would have written.
//
// # Promises
//
//   - What is read from shards is valid JSON of the expected shape, or the answer is an error that names the shard. Garbage, truncation, a wrong shape and
//     an exceeded bound are told apart (ScanError). Nothing after the first error is used.
//   - Order and duplicates are as in Prometheus: names and values sorted bytewise, series sorted by labels.Compare, each once. How the same data was split
//     over shards and replicas, in what order the shards are listed and how their bytes were cut into reads never changes a byte of the answer.
//   - A cut answer says so (Result.Truncated); the caller turns that into a warning. Only metadata is ever cut. Query answers are whole or an error.
//   - Nothing reaches the client before Writer commits: when 1 MiB is held, or at the end. Until then a failure can still become a named error; after that
//     the caller must abort the connection.
//
// # Refusals
//
// The package does not choose replicas, retry, time out or decide about partial answers: it reports, the caller decides. It starts no goroutine that
// outlives a call, and never evaluates anything.
//
// # Memory
//
// A Scanner holds one buffer of 64 KiB, grown up to MaxToken (1 MiB) while one string or label set is longer than that. A Writer holds at most 1 MiB and one
// chunk. Lists of strings and passed queries stream: they need nothing else, but for 32 bytes a series where labels can be removed. Series, exemplars and
// the small documents (rules, targets, ...) are collected, every byte of them held in the request's Budget, which takes it from the process' Pool. So one
// request is bounded by its Limits, and all together by the Pool.
//
// # Example
//
//	budget := merge.NewBudget(pool, merge.Limits{MaxSeries: 50000, MaxSamples: 50e6, MaxBytes: 64 << 20})
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
