// Package qerr is the closed set of ways in which Spillway says no.
//
// Every error that can reach a client is an *Error of one Kind. The kind alone fixes the HTTP
// status, the Prometheus errorType, the metric label and whether trying again makes sense; the text
// is one public sentence that says what is wrong and what to do. The private cause is for the log
// only and never leaves the process.
//
// A refusal by a bound also names the bound, its value, what was seen and an advice; they become
// the "spillway" object of the answer:
//
//	return qerr.Refuse("max_series", "50000", "more than 50000", "add a label matcher, such as namespace=\"…\"",
//		"the query selects more series than max_series allows")
//
// The package holds no state and imports nothing of Spillway.
package qerr
