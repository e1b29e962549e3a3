// Package hostile writes queries that mean harm: PromQL texts of at most 64 KiB, aimed at what
// multiplies in it. Labels that are made of labels, selectors, points that subqueries look at,
// regular expressions, joins, series that are others at each step. Only tests import it.
//
// It promises that the same random numbers give the same texts, that all of them are of the
// grammar's shape though some do not parse, and that their sizes lie on both sides of every bound:
// each size is drawn with its logarithm even, so that small ones are as common as large ones.
//
// It refuses to know the bounds: what is right about a text is for the tests to say, which put it
// to the built program and watch its memory, its processor time, the server behind it and whoever
// else asks (TestNothingIsTakenDown).
//
// # What is held
//
// The proxy has 300 MiB over rest, with its default memory.budget and the memory limit that it
// gives itself, a third more where other things run beside. With -hostile.strict, alone on a
// machine, times are held too: a verdict or an answer half a second after the deadline, no
// processor at work half a second after any text that took 100 ms, somebody else's p99 below 50
// ms, or below twice what it is without the proxy. Otherwise they are printed. An answer that had
// begun is cut off at the deadline or at max_response_bytes, which is no verdict; it is counted
// and printed.
//
// A server has a quarter over rest with -hostile.strict, else as much again. It holds two hundred
// thousand series besides, which makes it a small one, and max_shard_bytes is a tenth of what it
// holds; its query.max-samples is the default.
//
// Memory is a small multiple of one text.
//
//	w := hostile.NewWriter(seed)
//	q := w.Next() // q.Text, q.Range, q.Step, q.Kind
package hostile
