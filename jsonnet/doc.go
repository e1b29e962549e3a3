// Package mixin renders the alerts, recording rules and dashboards of this folder's jsonnet, with a
// user's values in place of the defaults.
//
//	files, err := mixin.Render(mixin.Options{Config: "my-values.yaml", Format: mixin.FormatK8s})
//	if err == nil {
//		err = files.Write("out")
//	}
//
// The jsonnet beside these Go files is embedded, so that the binary renders it anywhere. It is an
// ordinary mixin: a jsonnet project may import mixin.libsonnet itself and needs nothing of this
// package.
//
// # What it promises
//
// Equal options give equal bytes. Every rule file that is rendered was read back by Prometheus' own
// rule parser: expressions, templates, label names and durations are valid, and no two groups have
// the same name. A value that the mixin does not have, or one of another type, is an error that
// says where it stands and what there is instead: a value that is silently not used would leave an
// alert as it was. A group goes to the file that is named as its jsonnet file, in the folder of its
// scope: global (a ruler that asks the proxy) or shard (each Prometheus). Files.Write changes no
// file whose bytes are right, and removes rule files that an earlier version rendered and this one
// does not.
//
// # What it refuses
//
// Files larger than 1 MiB as values; values in jsonnet that are functions; imports of the mixin
// from outside of this folder; a place for a rule file that a user wrote (one without the header;
// of dashboards it cannot tell).
//
// # Bounds
//
// A rendering takes some seconds of one processor and less than 200 MB, whatever the values are.
// By the library's %, which goes over formats a character at a time in jsonnet, it would be three
// times as long: percent.go puts formats together in Go, with the same bytes.
package mixin
