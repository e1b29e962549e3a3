// Package timers has timers for waits that nearly always end before they are over: the deadline of
// a request, the patience with a server, the time that a client may be silent.
//
// Each timer of the runtime that becomes the earliest one wakes a thread, so that a request which
// sets a dozen of them, one shorter than the other, and stops them all a millisecond later, pays
// for a dozen wakings that nobody needed. Timers of a Set share one timer of the runtime. It is
// only ever moved to an earlier time; when it goes off it runs what is due and is set for what is
// then the earliest. Under load that is once in as long as the shortest wait lasts.
//
// Promised: a function runs once its time has come, as exactly as the runtime's own timers would
// run it, in the order of these times, and not after Stop has returned true. Functions of a Set
// that are due together run one after the other, so they must not block.
//
// Cost: setting and stopping take a mutex and are independent of how many timers there are; going
// off looks at all that are set, which is why waits of less than a second have timers of the
// runtime to themselves.
//
// Memory: 100 bytes for each timer that is held.
package timers
