// Package heap looks at the memory that the process really holds, while requests are under way, and
// keeps it below a ceiling.
//
// What requests say that they hold (admit.Budget) is an estimate: the engine makes copies, the
// collector comes late. So a Watch asks the runtime every 100 ms: what was alive after the last
// collection, and what is not heap at all (stacks, the runtime's own). That, not the size of the
// heap, tells how near the end is: between two collections a heap of half the ceiling fills with
// garbage up to the ceiling, which is what the ceiling is for.
//
// # Promises
//
//   - Above Tight of the ceiling requests that are large get nothing more (Options.Pressed); small
//     ones go on.
//   - Above Full the heaviest request is ended with an error that says so: one, then no other
//     before the next collection has shown what that freed.
//   - Where it has an Aim it sets Go's memory limit by what is held, so that while little is held
//     garbage does not fill the memory that is meant for much.
//   - A heap that is not collected because nothing allocates does not count as full for long: a
//     collection is asked for.
//
// # Refusals
//
// It knows nothing of what requests do, and ends none that holds less than MinWeight: where
// something else holds the memory, ending requests does not help. Only where less than half of what
// is held was charged to any request does it end the largest of those that are being evaluated,
// whatever that one was charged.
//
// # Memory
//
// 100 bytes for each request.
package heap
