// Package vitals tells how a server is by its own metrics: how much memory it holds of how much it
// may have, how many queries it evaluates, and whether it has read its log.
//
//	s, err := vitals.Read(page)             // the text of GET /metrics, as it comes
//	w.Saw(s, configuredLimit, 30*time.Second, now)
//	w.Now(configuredLimit, now).State       // unknown, sound, busy or sick
//
// What it promises: what a server does not say is not known, and never guessed; without a limit
// nothing is busy or sick. What is older than the time given to Saw is not known any more, but that
// a server which is too slow to send another page (Late) had little memory, which holds for ten
// minutes: it is when a server has none that it comes to nothing. A state that is worse holds at
// once, one that is better after three pages running, below a threshold that is lower than the one
// by which it got worse. Where pages of several processes come from one address nothing is known.
//
// The memory that is compared with a limit is what the server cannot give back. Where its runtime
// knows the limit (GOMEMLIMIT) that is what was reachable when it last collected garbage: such a
// process fills all it may have with garbage before it collects, however little it needs. After
// half a minute without a collection that is no sign of sickness any more, unless two collections
// running have left it sick: one query's peak is over by then. Where it does not know the limit,
// garbage counts as well. Resident memory, which has pages of mapped files in it that the kernel
// takes back when it likes, decides only where nothing else is served.
//
// What it refuses: to ask anybody. A page is read line by line; only lines of the few names that
// are wanted, without labels, are kept and given to Prometheus' own parser, and reading ends once
// all of them were seen. What makes no sense (NaN, below zero) is not known.
//
// Memory: 16 KiB while a page is read, however long it or one of its lines is; about 300 bytes for
// each Watch.
package vitals
