// Package h1 speaks plain HTTP/1.1 to one server, each call in the goroutine that makes it.
//
// net/http gives each connection a goroutine that reads and one that writes, so that every call
// passes through three of them; on a proxy's road, where a call takes less than a millisecond,
// waking them is a third of the work (docs/decisions/0014). Here a call takes a connection out of
// the pool, writes, reads, and puts it back. Requests are written and answers parsed by net/http.
//
// Promised: a request whose context ends, in any stage, closes its connection at once. A connection
// goes back to the pool only when the answer was read to its end, nothing came after it, and the
// server keeps it open; one that the server closed in the meantime, or on which it said something
// unasked, is not used again. A call that fails is not repeated, except where it was made over a
// connection that had been idle, and that broke at once without a byte of an answer: the server had
// given it up. It is then made over a new one, and the other connections that have been idle as
// long are closed. An answer that comes before the request was sent whole is an answer, body and
// all. Redirects are answers.
//
// Refused: other schemes than http, and what needs the connection for itself (101 is an answer
// without a body, and the connection is closed).
//
// Memory: buffers of 16 and 4 KiB for each connection, and at most MaxHeaderBytes for the header of
// an answer. Idle connections: at most MaxIdle, a Few of them for IdleTimeout, what a burst left
// beyond them for BurstTimeout.
package h1
