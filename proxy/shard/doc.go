// Package shard asks the servers behind Spillway: it knows which there are, how each is, which one
// of a shard's replicas to ask, and what every way in which a server can fail means.
//
// A Topology is built from the groups of a configuration. It is immutable but for what is learned
// about the servers; on a reload New takes over what did not change, so that a reload costs no
// connection and resets no queue.
//
//	t, err := shard.New(cfg.Groups, shard.Options{Logger: logger, Registerer: reg}, previous)
//	t.Start(ctx)                       // probes and heartbeats, until Close
//	resp, err := t.Groups[0].Shards[0].Do(ctx, req, shard.CallOptions{MaxBytes: 64 << 20})
//	defer resp.Body.Close()
//
// What it promises: the request is rebuilt from its typed form and nothing of the client's goes
// along. A call ends when its context does, at any stage, by closing its connection; nothing is
// drained, nothing goes on. Every error is a *qerr.Error that names the group and host:port, a
// success is an answer of the promised type, and a body that was cut short is never one. The
// context's cause is kept, so that the error's reader knows who ended the call. A server whose
// external labels its group does not name is not asked (see docs/trust.md), and a shard that cannot
// be asked is an error that names it: none is ever left out in silence.
//
// Queries go to one of a shard's whole replicas (Wholes; proxy/trust judges them), and a second one
// is asked where the first is unusually slow (Hedged). The servers of a topology are compared with
// each other every half minute, and when one says something new about itself; one that is up after
// it was away for long is examined and compared before its group is trusted (back.go). For some
// minutes after a group got another shard its targets may be moving, and what reads that time is
// not trusted to shards, nor to one replica of them (divided.go). Where they
// do not fit together (Group.Sick), nothing that they compute is trusted, only their series.
// Replicas that label the same targets differently are never put together, nor over a time in which
// they were seen to (Shard.Relabelled).
//
// Requests never have more than 24 calls to one replica under way, nor more than 640 to all
// (calls.go); a request that finds no place waits its turn, and is refused by name shortly before
// its deadline. No two requests wait for each other. Where this machine has no file or port left
// for a call, that is no failure of a server (dial.go).
//
// What a configuration says of which shard and which group holds what (hashmod, names) is believed
// only while every server has been seen to keep it, and has told its values of late: Group.Prune. A
// Thanos Query (type: thanos) is told what must not be left to its flags, and its answer counts as
// one only if all of its stores were there and its time was not over; see proxy/thanos.
//
// Each server's own metrics are read every ten seconds (proxy/vitals). One that has little memory
// left is spared what needs much of it (shed.go), and one that says that it is starting is not
// asked.
//
// What it refuses: redirects, encodings that were not asked for, HTTP/2 (a call has its connection
// for itself), bodies whose end cannot be told from a cut, and gzip that inflates more than 300
// times.
//
// Memory: one call holds its header (at most 64 KiB, with credentials in http_client 10 MiB as
// net/http has it), the first 200 bytes of its body, an inflater's window of about 40 KiB, and what
// its reader asks for at a time. An error's body is read up to 64 KiB, a probe's answer up to 8
// MiB, one at a time for each replica; of all replicas', eight at a time have more than 64 KiB, and
// one of these more than 1 MiB (page.go). An answer in which a Thanos Query warns of its stores is
// read whole, up to 1 MiB, and beyond that as far as CallOptions.Hold has room. What a shard with a
// heartbeat keeps is said in proxy/trust. Of a Thanos Query it keeps the list of its stores, and
// those seen in the last 24 hours, at most 10,000. Of a server's targets it keeps 8 bytes each, 4
// MiB at most, and reads them through 64 KiB; of times in which a shard's targets differed it keeps
// 32 of a sentence each. What a shard has learned about its calls takes about
// 1 KiB. While its own metrics are read a server takes about 60 KiB, 64 of them at once.
package shard
