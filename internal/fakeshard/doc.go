// Package fakeshard is a Prometheus server that misbehaves on request.
//
// It speaks HTTP/1.1 over bare connections, so it can do what a handler of net/http cannot: reset a
// connection in the middle of a body, send a wrong length, stop after k bytes, drip one byte at a
// time, or send ten gigabytes that never exist anywhere. What it does is data. A fault is a script
// of steps, and a script is one line in a table:
//
//	delay 2s; status 503
//	send '{"status":"success","data":['; stall
//	limit 1KiB reset; generate 10GiB
//	drip 1B/10ms; answer
//	gzip bomb 1GiB
//	redirect http://10.0.0.9/ 307
//
// Parse describes the language, and Steps lists every step.
//
// A shard in a test:
//
//	shard := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{
//		{Path: "/api/v1/series", Nth: 1, Script: "flush; stall"},
//	}})
//	// … ask shard.URL() through the code under test, and leave …
//	err := shard.WaitIdle(ctx) // nil: every request that the shard saw has ended
//	shard.Requests()[0].End    // fakeshard.PeerClosed
//
// Whatever no route names is answered as a small healthy Prometheus 3.15.0 would answer it: every
// endpoint of the API that a proxy may ask for, and the questions with which a proxy examines its
// shards (see Config.Probe), which a default script leaves alone. So a fault concerns the endpoint
// under test and nothing else.
//
// While a script runs, the connection is read in the background: the shard knows at once that its
// peer has left, even when it is waiting, stalling or computing, and records when and how (closed
// or reset). Config.Listener takes an in-memory listener (NewMemory) for tests under
// testing/synctest, where the operating system's sockets cannot serve.
//
// What it refuses: a script that cannot be parsed (New returns the reason), TLS, HTTP/2, request
// bodies over 16 MiB, and to be a Prometheus: the healthy answers are about a handful of configured
// series and evaluate no PromQL.
//
// Memory: one Record per request (the newest 100,000 are kept, with at most 64 KiB of the request's
// body each), 64 KiB per connection, and nothing for generated bodies, whatever their size.
package fakeshard
