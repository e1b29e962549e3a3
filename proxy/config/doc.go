// Package config reads Spillway's one YAML file.
//
// It promises:
//   - Nothing in the file is ignored. Unknown keys, keys that occur twice, a second document,
//     anchors and aliases are problems. So are keys of the contract that this version does not
//     serve yet: they are refused by name.
//   - All problems are reported at once, each with its path, written like
//     groups[0].shards[0].replicas[0].url, and its line, sorted by line.
//   - Every limit has a finite default, and zero never means unlimited: 0 and negative numbers are
//     problems.
//   - Secrets print as stars in every form: fmt, slog, JSON and YAML. Only Write spells them out,
//     for programs that make files.
//   - What Write writes, Load reads as the same configuration; what Load takes, the JSON schema
//     takes.
//
// It refuses to touch the network: whether a shard answers, and whether it is what the file says,
// is found out by package shard. A file larger than 4 MiB is refused without being read beyond
// that, and aliases are never expanded, so memory is bounded by a small multiple of the cap.
//
//	cfg, err := config.Load("spillway.yaml")
//	if err != nil {
//		return err // Problems, one a line
//	}
//	limits := cfg.LimitsFor(endpoint.Series)
//
// A *Config is immutable after Load; it may be shared freely.
package config
