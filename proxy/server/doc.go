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
// Memory: per connection what net/http needs and 16 KiB of a request's head. 64 connections at once
// have one of up to 276 KiB (17 MiB, and up to three times that while net/http puts them together);
// others wait for their turn. It ends when the budget of the request holds its URL. Per request
// what endpoint.Parse may hold and what its admit.Budget grants out of memory.budget, which all
// requests share. Connections are capped. What the process really holds is watched (package heap):
// the heaviest request is ended before memory is.
package server
