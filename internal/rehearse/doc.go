// Package rehearse asks two servers the same questions, those that were really asked and those of
// all rules, and tells which answers would change: before an upgrade of Prometheus or of Spillway,
// and before a change of a configuration.
//
// # Promises
//
//   - Each question is asked of both servers at one time, pinned, so that both look at the same
//     samples. A difference counts when it is there a second time, after all others were asked: what
//     was still being written is no change.
//   - A change is one of the answer (its first differing sample is told), of its warnings, of a
//     refusal or error, or of the cost: samples that Prometheus read for it, or that shards sent to
//     Spillway, and Spillway's plan.
//   - Which of several series with equal values topk or bottomk takes is no change, where what they
//     choose from is the same and has each series with the value that either answer has of it.
//     What else changes beside such a tie is told.
//   - What could not be compared is told apart from what is equal: texts that the log has cut,
//     endpoints whose parameters it does not have, answers that are too large, servers that fail.
//
// # Refusals
//
// A log of another version, rules that do not parse, a server that is none.
//
// # Memory
//
// MaxQuestions questions with texts of at most 8 KiB; for each question under way two answers of at
// most Options.MaxAnswerBytes, and what they are decoded to, about ten times as much.
package rehearse
