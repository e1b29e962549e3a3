// Package servertest runs Spillway, over the text of a configuration, for the length of a test: the
// whole server of package server on free ports of 127.0.0.1, in the test's process.
//
//	url, stop := servertest.Start(t, `groups: [{name: eu, labels: {cluster: eu}, shards: [{replicas: [{url: "http://127.0.0.1:9090"}]}]}]`)
//
// # What it promises
//
// The server is ready when Start returns, and has ended, with all its goroutines, when the test
// has. What the server says is wrong fails the test.
//
// # What it refuses
//
// A configuration from a file, reloads, TLS and flags: tests of those build the server themselves,
// as package server's do.
package servertest
