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
// The proxy has 300 MiB over rest, with the memory limit that it gives itself; only where there are
// series to be read is memory.budget smaller than its default, 128 MiB, since a single request may
// hold half of what it says, and leaves garbage beside it. With -hostile.strict, alone on a
// machine, times are held too: a verdict or an answer half a second after the deadline, no
// processor at work half a second after any text that took 100 ms, somebody else's p99 below 50 ms.
// Otherwise they are printed. An answer that had begun is cut off at the deadline, which is no
// verdict; it is counted and printed.
//
// # What is left
//
// A server has 2 GiB beside the quarter over rest that is asked for. Its query.max-samples is 100
// points of each series, not its default of 50,000,000, and still one kind of text takes so much:
// whatever makes new series over a range, such as a join of 20,000 series over 3,254 steps.
// Prometheus' engine makes room for every step of each, up to 5,000 points or 80 kB, before it
// knows that most steps have none, and no setting of a server counts that; 1.5 GiB were seen, and
// nothing of the text is hostile but series times steps. The proxy, which does count it for what it
// evaluates itself, has no bound for what it passes on.
//
// All else came to 122 MiB beside the quarter in 1,400 texts: labels, subqueries, instant joins,
// regular expressions. Selectors are not what does it: 60 of them over all series in one text took
// 60 MiB, and one server evaluates a text as one query, so that there is nothing to ask one after
// another.
//
// Memory is a small multiple of one text.
//
//	w := hostile.NewWriter(seed)
//	q := w.Next() // q.Text, q.Range, q.Step, q.Kind
package hostile
