// Package credentials shows who proves what to whom, on the wire: Spillway to shards by every way
// that http_client has, against a net/http server that checks it, also after what proves it was
// replaced; and clients to Spillway by certificates on both listeners.
//
// It promises that no credential goes to a server that the configuration does not name, whatever a
// shard or a token endpoint answers.
//
// It needs nothing but Go, and holds a server and a proxy at a time.
package credentials
