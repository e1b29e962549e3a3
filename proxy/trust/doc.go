// Package trust judges what may be believed of servers: which replica of a shard is whole, by what
// all of them say of their heartbeats, and whether a group keeps what its configuration promises
// about where series are. It asks nobody itself.
//
//	h := trust.New("up", len(replicas))
//	w, ok := trust.WindowOf(from, until, now)           // the buckets that a request's samples are known by
//	whole, known := h.Lookup(part, w, now)              // a bit for each replica
//	if !known {
//		done, ok := h.Turn(ctx)
//		part, err = h.Learn(ctx, ask, part, w, now)     // ask is the caller's: it has the servers
//		done()
//	}
//
// In the background Refresh keeps the last hour and the last minute up to date (with the turn), and
// Renew asks again about what is known of the time before (without, nobody waits for it):
//
//	h.Refresh(ctx, ask, part, now)
//	h.Renew(ctx, patient, part, now)                    // patient waits for all, and charges nobody
//
// A replica is whole in a bucket of five minutes if it lacks nothing that another one has beyond
// what chance explains: series and samples of each job, scrapes of each minute, and targets reached
// at the newest scrape. Where each lacks something, the buckets before tell what small jobs lack by
// the phases of their scrapes alone, and of those that the last minute need not show the last five
// do. Of a replica that answers no more Without tells what the others are known to lack. What is
// written in docs/replicas.md is decided here: judge.go says which replica lacks what,
// heartbeats.go keeps it, ask.go asks for what is not known, lacking.go puts it into words.
//
// A promise is hashmod, names of a group or of a shard, or shard_by. Hashmod, Names and Homes say
// what matchers can select where, and a Fact says whether one server is known to keep it, from the
// Values that it has:
//
//	fact = trust.Check(fact, h.Promise(hash), h.Label, values, now, h.Wrong(hash))
//
// What was read long ago of a server that answers queries and not this is believed no more
// (Fact.After): targets move.
//
// Apart compares what all servers of a group have of the labels of shard_by.
//
// What it promises: a replica that was not asked is never whole, a bucket that is not closed is
// never taken for one that is, and a finding that may still change is asked for again. All that a
// server says is read within bounds.
//
// What it refuses: answers of more than 1 MiB or 200 jobs, and windows of more than 31 days. In a
// shard of more than 64 replicas none is known to be whole.
//
// Memory: 64 bytes for each bucket of the last 31 days that was asked about and 56 for each replica
// where one lacks something, below 1 MiB for a pair; while it asks, one answer of each replica. For
// shard_by, 16 bytes and more for each value of a label on each server.
package trust
