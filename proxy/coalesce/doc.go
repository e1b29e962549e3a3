// Package coalesce lets identical requests that are under way at the same time be answered once.
// The first one to come, the leader, is answered as if it were alone; those that come while it has
// not begun to write wait for its answer and are given the same bytes. What "identical" means is
// the caller's business: it makes the keys, and must put into them all that an answer depends on,
// such as who may see what.
//
// What it promises:
//
//   - A leader that nobody joined streams as it did before: nothing is copied, nothing is held.
//   - The work ends when the last one that waits has left, and not before: the leader's own caller
//     may go, the others still get the answer.
//   - Nobody waits for somebody else's connection. An answer that several wait for is kept until it
//     is whole, and each writes it at its own pace.
//   - An answer is hardly older than the question: who comes later than the given age of a flight
//     begins one of its own.
//   - A failure is everybody's failure, and no byte of an answer that failed reaches anybody.
//
// What it refuses: to keep more than MaxBytes of an answer, an eighth of the pool for all answers,
// or more than the memory of the process has room for. Those that wait are then told to ask for
// themselves, before they have been given a byte, and the leader writes on as if alone.
//
// Memory: one entry for each flight, with its key; of answers that somebody waits for up to
// MaxBytes each and an eighth of the pool together, taken from the pool until the last one has
// written it.
package coalesce
