// Package evaluation shares the processors among the evaluations that run in the proxy, and makes
// Prometheus' engine stop.
//
// The engine looks at its context once for each series, or once for each step. One series over a
// subquery of many steps takes minutes without a look, and an evaluation whose client has left
// burns a core meanwhile. So the functions of PromQL are wrapped, once for the process: a call that
// belongs to a Turn counts what it is given to do, and after every few thousand samples the Turn
// looks: at its context, and whether others are to run first. Evaluations without a Turn, such as
// those of a Prometheus in the same process, are called straight through.
//
// # Promises
//
//   - Between two calls of functions at most workBetweenLooks samples are worked on without a look;
//     the longest stretch is then one call, which is bounded by the samples of one window: some 4
//     ms of a processor for the largest, whatever the function. Iterators over stored series look
//     in the same way, by Turn.Work.
//   - Evaluations that have run for longer than Slice are long. At most one fewer than there are
//     processors run at a time, and at least one, so that passes, probes, health and the admin
//     pages find a processor. Of those that wait the one that has run least goes first, and takes
//     the place of one that has run Quantum longer: an evaluation of 200 ms is over soon, whatever
//     else there is. A quarter of the time goes to those that began first, by lanes in turn: where
//     ever new ones come that have run less, another one ends nevertheless.
//   - An evaluation that is made in parts is as long as all of them (Turn.After).
//   - At each look a long evaluation yields to whatever is ready to run. Go itself would take the
//     processor away only after 10 ms, and a small request needs several turns.
//   - An evaluation that waits for a server holds no place (Pause).
//   - An evaluation that has found no place shortly before its deadline is told so: 429 by the
//     bound evaluations. One whose context has ended is told the cause.
//
// # Refusals
//
// What has no calls in it cannot be interrupted by this package: aggregations and operators look
// once for each step, label_replace and label_join never. Policy bounds how much they may be given
// to do; what is known to be heavy counts as long from the start (Heavy). How many series
// count_values makes at its steps is known only from the values, so these are looked at beforehand,
// at all steps (Rows), and the caller that is told of them may refuse.
//
// # Memory
//
// One Turn and one slice header for each call of the expression.
//
//	turn, err := gate.Begin(ctx, lane)
//	defer turn.End()
//	turn.Watch(expr)
//	turn.Rows(expr, grid, tell)
//	res := qry.Exec(ctx)
package evaluation
