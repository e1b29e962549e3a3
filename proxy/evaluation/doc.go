// Package evaluation shares the processors among the evaluations that run in the proxy, and makes
// Prometheus' engine stop.
//
// The engine looks at its context once for each series, or once for each step. One series over a
// subquery of many steps is minutes without a look, and whoever left burns a core meanwhile. So the
// functions of PromQL are wrapped, once for the process: a call that belongs to a Turn counts what
// it is given to do, and after every few thousand samples the Turn looks: at its context, and
// whether others are to run first. Evaluations without a Turn, such as those of a Prometheus in the
// same process, are called straight through.
//
// # Promises
//
//   - Between two calls of functions at most workBetweenLooks samples are worked on without a look;
//     the longest stretch is then one call, which is bounded by the samples of one window: some 4
//     ms of a processor for the largest, whatever the function. Iterators over stored series look
//     in the same way, by Turn.Work.
//   - Evaluations that have run for longer than Slice are long. At most one less than the
//     processors run at a time, one at least, so that passes, probes, health and the admin pages
//     find a processor. Of those that wait the one that has run least goes first, and takes the
//     place of one that has run Quantum longer: an evaluation of 200 ms is over soon, whatever else
//     there is.
//   - A long evaluation lets whoever is ready run at each look. Go itself would take the processor
//     away after 10 ms, of which a small request needs several turns.
//   - An evaluation that waits for a server holds no place (Pause).
//   - Who found no place shortly before its deadline is told so: 429 by the bound evaluations. Who
//     has ended is told the cause of its context.
//
// # Refusals
//
// What has no calls in it cannot be interrupted by this package: aggregations and operators look
// once for each step, label_replace and label_join never. What they may be given to do is bounded
// by policy; what is known to be heavy is long from the start (Heavy). How many series count_values
// makes at its steps is known only from the values, so these are looked at before, at all steps
// (Rows), and whoever is told of them may refuse.
//
// # Memory
//
// One Turn and one slice header for each call of the expression.
//
//	turn, err := gate.Begin(ctx)
//	defer turn.End()
//	turn.Watch(expr)
//	turn.Rows(expr, grid, tell)
//	res := qry.Exec(ctx)
package evaluation
