// Package server is the proxy as a running thing: two listeners, the road of each request, and the
// one place that writes errors.
//
// It promises: every request ends by its deadline; when the client leaves, every call to a shard is
// cancelled with that cause; an answer is complete or it is an error (after the first byte went
// out, a broken connection); GET and POST are alike; nothing that is not in the endpoint table
// reaches a shard.
//
// It refuses to know how answers are computed: endpoint parses, policy judges, plan chooses, shard
// asks, merge joins. What is left here is the order of these rooms, and the answers that Spillway
// gives about itself.
//
// Processors: what is evaluated here takes turns (package evaluation), so that one processor is
// left for everything else.
//
// Memory: per connection what net/http needs and 16 KiB of headers; per request what endpoint.Parse
// may hold and what its admit.Budget grants out of memory.budget, which all requests share.
// Connections are capped. What the process really holds is watched (package heap): the heaviest
// request is ended before memory is.
package server
