// Package hostile writes queries that mean harm: PromQL texts of at most 64 KiB, aimed at what
// multiplies in PromQL: labels that are made of labels, selectors, points that subqueries look at,
// regular expressions, joins, and series that differ at each step. Only tests import it.
//
// It promises that the same random numbers give the same texts, that all of them have the shape of
// the grammar though some do not parse, and that their sizes lie on both sides of every bound: the
// logarithm of each size is uniform, so that small ones are as common as large ones.
//
// It refuses to know the bounds: what is right about a text is for the tests to say. They put it to
// the built program and watch its memory, its processor time, the server behind it and another
// client (TestNothingIsTakenDown).
//
// # What is held
//
// The proxy may take 300 MiB more than at rest, with its default memory.budget and the memory limit
// that it gives itself, and a third more than that where other things run beside it. With
// -hostile.strict, alone on a machine, times are held too: a verdict or an answer at most half a
// second after the deadline, no processor at work half a second after any text that took 100 ms,
// and another client's p99 below 50 ms, or below twice what it is without the proxy. Otherwise they
// are printed. An answer that had begun is cut off at the deadline or at max_response_bytes, which
// is no verdict; it is counted and printed.
//
// A server may take a quarter more than at rest with -hostile.strict, else as much again. It holds
// two hundred thousand series besides, which makes it a small one, and max_shard_bytes is a tenth
// of what it holds; its query.max-samples is the default.
//
// Other texts are dear to read, whatever they compute: TextOf writes all that the grammar has,
// to be parsed, judged, printed and planned, and what is no query at all (BenchmarkVerdicts of
// package server). Parts are the worst of them that are known.
//
// Memory is a small multiple of one text.
//
//	w := hostile.NewWriter(seed)
//	q := w.Next() // q.Text, q.Range, q.Step, q.Kind
package hostile
