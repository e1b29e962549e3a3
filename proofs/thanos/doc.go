// Package thanos shows what users of Spillway see in front of real Thanos while its parts fail.
//
// Two shards of two Prometheus each, with a sidecar beside each, one or two Thanos Queries over
// them, and Spillway before those. Each sidecar, each Prometheus and pairs of them are killed, hung
// and restarted, while eight questions are asked again and again. Of every answer it is known what
// it must hold, since the targets do not change: more or less with status 200 is a failure, and so
// is an error while each shard has a replica that lives. Where none lives an error is right, if it
// names the store.
//
// What is tried stands as data in cases_test.go. go test ./proofs/thanos tries a few cases for some
// seconds each; -thanos.all tries all of them in random order, -thanos.cases so many of each
// topology, -thanos.watch says for how long a fault lasts, -parallel how many topologies stand
// beside each other, and -update writes what came out into docs/thanos.md.
//
// It promises that what it starts listens on 127.0.0.1 and ends with the test. It refuses nothing.
// A world has eleven processes, 1 GiB at the most.
package thanos
