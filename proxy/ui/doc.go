// Package ui draws answers of the Prometheus API for a page: a table of the values now, and a plot
// of recent values as SVG that a browser shows without a script.
//
// It promises: whatever an answer holds is shown as text (html/template escapes it, in SVG as in
// HTML); no drawing has more than MaxLines lines, MaxRows rows or MaxPoints points in a line, and
// what is left out is said; NaN, infinities and gaps are left out of a line and never drawn as
// zero.
//
// It refuses to ask anybody or to choose what is shown: callers bring the bytes of an answer.
//
//	a, err := ui.Read(body)                      // the answer of query or query_range
//	rows, more := a.Rows()                       // what a table shows
//	svg := ui.Plot(a.Lines(), from, until, step) // a picture
//
// Memory is a small multiple of the answer's bytes, which the caller bounds.
package ui
