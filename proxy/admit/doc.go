// Package admit says what one request may still use: of the process' memory for answers, and of
// the series, samples and bytes that its bounds allow.
//
// # Promises
//
//   - What is held is taken from one Pool, in chunks, and given back whole when the request's Budget
//     is closed, whatever became of it. What all requests hold together is never more than the
//     pool's Limit, but for what was held when the limit was made smaller.
//   - One request holds half of the pool at most, and who holds little finds room while those who
//     hold much fill it.
//   - A refusal names the bound, its value, what was seen and what to do: max_series, max_samples
//     and max_response_bytes are 422, memory.budget is 429.
//
// # Refusals
//
// Nothing waits here: there is room, or an error. What the bytes are held for, and how many a thing
// takes, the reader says who holds them. That the heap holds more than was said is seen by
// proxy/heap, which tightens the pool.
//
// # Memory
//
// A Budget is 96 bytes, a Ledger 24. Nothing else is held.
package admit
