// Package usage writes down what was asked: one JSON object a line for each request, in the file
// that the configuration calls usage_log.
//
// Everything that learns from use (drop rules, tables of cost) reads only this file, so it
// promises:
//   - a line is whole or absent, has every field of Record, and nothing else; docs/usage-log.md
//     describes them;
//   - what a query looks at (metrics, matchers, labels) is complete where its text is cut, or the
//     line says which list of it is not: a line is bounded, whatever a caller sends;
//   - a line that is not written is counted, and the log itself tells of it, see losses.go.
//
// It refuses to make a request wait: Write puts the line into a bounded queue and returns. Where
// the disk is slow or full, lines are dropped, counted and mentioned in the process' log at most
// once a minute; requests go on being served.
//
// It refuses to let one caller push the others out by long texts: each has a share of the files for
// what makes lines long, see share.go.
//
// Memory: the queue holds at most QueueBytes, and the writer one batch of at most 256 KiB or one
// line; what is remembered of an hour's callers and texts comes to 10 MiB at most.
//
//	log, err := usage.Open(usage.Options{Path: "usage.jsonl", MaxSize: 256 << 20, MaxFiles: 8, Metrics: usage.NewMetrics(registry), Logger: logger})
//	…
//	log.Write(&usage.Record{ID: id, Endpoint: "query", Facts: usage.Describe(expr), Verdict: "pass"})
//	…
//	err = log.Close(ctx)
package usage
