// Package fidelity measures what an answer made of two copies is worth, against targets whose truth
// is known.
//
// Other proofs hold Spillway against its own rules. This one asks whether the rules are good:
// targets live and die as a script says, replicas scrape them, each at moments of its own, restart,
// crash, are cut off and time out; some seventy queries and alerts are asked of what the rules make
// of two of them, of replicas that never fail, and of a server that saw the truth. What differs
// from the truth is counted: points that are missing, points that are not so (ghosts), values that
// are wrong, minutes in which an alert says something else. What replicas that never fail get
// wrong, since they look at other moments, is the floor.
//
// It promises that the same seed gives the same world. It refuses nothing. A world of three hours
// holds half a million samples, some 40 MiB.
//
// The rules are those of internal/seamref, where each can be taken out; that Spillway keeps to them
// is shown elsewhere, sample by sample (proxy/plan/raw, proxy/server). TestServed asks Spillway
// itself over HTTP, in front of servers that hold what the pair has seen, so that the choice of
// whole replicas, stretches and pushes is measured with the rules.
//
// With -fidelity.peer other programs are asked the same about the same servers: Thanos Query over a
// sidecar of each replica, and whatever else answers as one Prometheus for several. The flag says
// how a program is started.
package fidelity
