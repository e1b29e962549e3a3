// Package hostile writes queries that mean harm: PromQL texts of at most 64 KiB, aimed at what multiplies in it. Labels that are made of labels, selectors,
// points that subqueries look at, regular expressions, joins. Only tests import it.
//
// It promises that the same random numbers give the same texts, that all of them are of the grammar's shape though some do not parse, and that their sizes lie on both
// sides of every bound: each size is drawn with its logarithm even, so that small ones are as common as large ones.
//
// It refuses to know the bounds: what is right about a text is for the tests to say, which put it to the built program and watch its memory, its processor time, the
// server behind it and whoever else asks (TestNothingIsTakenDown).
//
// Memory is a small multiple of one text.
//
//	w := hostile.NewWriter(seed)
//	q := w.Next() // q.Text, q.Range, q.Step, q.Kind
package hostile
