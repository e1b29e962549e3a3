// Package report shows a plan as one page: what is stored, what is used, what goes, what that
// saves, what may not go and what to do instead, and how all of it was proven.
//
//	err := report.HTML(plan, w)
//
// # What it promises
//
// The page is one file that needs no other: no script, no font, no picture from elsewhere. It is
// light or dark as the reader's screen is, reads on a telephone and on paper, and its plots are SVG
// whose numbers stand in a table beside them. Equal plans give equal bytes. Names from the plan are
// shown as they are, whatever characters they have; what cannot be seen, such as a change of the
// writing direction, is shown by its number.
//
// It shows what people decide by, not everything: the largest MaxJobs jobs, MaxMetrics metrics,
// MaxRules rules with MaxNames names each, MaxRefused refusals. It says where it leaves something
// out.
//
// # What it refuses
//
// A plan with a rule that cannot be written as a configuration.
//
// # Memory
//
// The page, which is held before it is written: some 2 KiB for each rule and at most a few
// megabytes.
package report
