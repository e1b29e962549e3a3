// Package storm sends storms of requests, as data describes them, and says what became of each.
//
//	s, err := storm.Builtin(), error(nil)  // or storm.Load("mine.yaml")
//	a := storm.Attack{Targets: []storm.Target{{URL: "http://127.0.0.1:9090"}}, Seed: 1}
//	replies := a.Run(ctx, time.Now(), time.Minute, s.Parts...)
//
// # Promises
//
//   - Arrivals are open-loop: when each request is due is drawn from a seed before the first one is
//     sent, and no answer, however late, moves the next one. Latency counts from when a request was
//     due, so what waited because the one before was slow has waited (no coordinated omission).
//   - Two attacks with the same seed, length and parts are due at the same moments and ask the same
//     things, but for the time in them.
//   - A file is decoded strictly: unknown keys, missing and senseless values are errors with their
//     line, and all of them are reported.
//   - An answer is of use only if it was read whole, has a status of 2xx and, where it is JSON of
//     the API, says success.
//
// # What it refuses
//
// It asks nobody but its targets. It never has more than maxOpen requests of one part under way;
// what is due beyond that is not sent, and counted as such: a client has no more sockets either.
//
// # Memory
//
// Answers are thrown away as they come; of each 4 KiB are looked at. Two goroutines and some 40 KiB
// for each request under way, 150 bytes for each that is over.
package storm
