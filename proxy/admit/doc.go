// Package admit says what one request may still use: of the process' memory for answers, of the
// series, samples and bytes that its bounds allow, and of the places at servers.
//
// # Promises
//
//   - What is held is taken from one Pool, in chunks, and given back whole when the request's
//     Budget is closed, whatever became of it. All requests together never hold more than the
//     pool's Limit, except for what was already held when the limit was made smaller.
//   - One request holds half of the pool at most, and those of one address three quarters; a
//     request that holds little still finds room while those that hold much fill the pool.
//   - A refusal names the bound, its value, what was seen and what to do: max_series, max_samples
//     and max_response_bytes are 422, memory.budget is 429.
//   - A Gate lets at most so many calls through. Each lane has the share that is its own as soon as
//     others leave, a part of it at once; in a lane the flow that has had the least is next; no
//     place is idle while somebody waits who may have it; one address has a part of the places.
//   - While a lane that is First has a place that it took within the last quarter of a second,
//     others get none but what is kept for them, and that for its share of the time at most. Places
//     are idle for that; and where who wants several of them has to wait so, others wait behind
//     him, those of such a lane too that are beyond what is kept for it. What a lane lacks for that
//     it gets back of a second at most.
//   - What a flow has had counts from half a call, of the widest of late, below the average of its
//     lane, to a call above it, or to what its longest call was worth, two minutes of its part at
//     most. So nobody waits for longer than that for what somebody else could not use, or he had.
//   - EnterAll takes a place at each of several doors, and holds none while it waits at another
//     one, so that a server that hangs keeps no places of others; only where places come and go
//     too fast for that does it hold some at last.
//
// # Refusals
//
// At a Gate at most MaxWaiting wait in each lane, of one flow at most 3,072; who finds no room, or
// no place in time, gets a *Refusal.
//
// For memory nothing waits here: there is room, or an error. What the bytes are held for, and how
// many a thing takes, is for the reader that holds them to say. Where the heap holds more than was
// declared, proxy/heap sees it and tightens the pool.
//
// # Memory
//
// A Budget is 160 bytes, a Ledger 24, an address that has budgets about 100. Of a gate each waiter
// takes about 250 bytes, each flow that has one 120, and each address that has a place or waits 70;
// nothing is kept of those that have gone.
package admit
