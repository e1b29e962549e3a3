// Package rewrite answers what else could be asked: for a request that a bound has refused, one
// that asks for less, keeps as much of the question as it can, and fits.
//
// # Promises
//
//   - What is proposed can be parsed, and says in words or in its text all that differs from what
//     was refused (Kind).
//   - A shorter window and a longer step have the very values of the original at each of their
//     moments: these lie on the grid of the original, and nothing in the query looks at its start.
//   - What changes the text does so only where the text then says all of what it means: nothing is
//     put below and, or, unless, absent, scalar or fill, no matcher on one side of a join alone, no
//     two ranges that were different are made the same, none is shortened beside what was chosen for
//     its length, and what adds up is added alone.
//   - It fits its bounds by the same estimator as any request, and is not estimated to be heavier
//     than what was refused. Tried says of it that it was asked, answered whole, and not with
//     nothing.
//   - Ways are tried in the order of what they keep; on each way the candidate that keeps most comes
//     first.
//   - It ends: at most MaxCandidates are estimated and MaxTries tried, and a context that ends ends
//     it at once.
//   - What came of it is remembered for a while (Memory), and nobody has it looked for more often
//     than others let him (Flows).
//
// # Refusals
//
// It knows no servers and asks nobody: the caller estimates and tries, and says what names and
// values may be told to whoever asks. Of a text longer than MaxText nothing is made. Nor is
// it of what lists names, values or series, which is narrowed as it is typed, nor of remote read,
// which has no text. Recording rules are not proposed: docs/rewrites.md says why.
//
// # Memory
//
// One candidate at a time, a small multiple of the text each. Memory holds MaxRemembered outcomes
// with a text of its own of at most 2*MaxText, 4 MiB; Flows MaxFlows counts, 100 KiB.
//
//	p, ok := rewrite.Propose(ctx, rewrite.Question{Request: req, Expr: expr, Bound: policy.BoundMaxSamples, Parser: p}, estimator, try)
package rewrite
