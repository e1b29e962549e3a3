// Package operation does to the built program what those do who run it, while clients ask it: it
// reloads configurations of which a third is broken, rotates tokens and certificates, changes
// where shards are looked up, stops it, and lets a fifth of its shards' answers go wrong.
//
// It promises: no request fails that could be answered, no answer is of two configurations, no
// series is doubled, whoever is under way at a stop gets the whole of its answer, and after a great
// many requests the program holds what it held before them: goroutines, descriptors, memory.
//
// What it does not: a certificate's key changes. The files of both are read one after the other, by
// the libraries of both ends, and a handshake in between meets the halves of two pairs.
//
// It needs nothing but Go; with -genuine also etcd and kube-apiserver, which ./tools/build.sh
// kubernetes builds, and in which shards are then looked up with the rights that docs/discovery.md
// grants. Each test starts the program once or a few times, over scripted shards in the test's
// process; -operation.reloads, -operation.changes and -operation.requests say how long it is at it.
// Memory: shards remember the last 100,000 requests each, 4 GB after a thousand changes.
package operation
