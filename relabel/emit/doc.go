// Package emit writes proven rules down as configuration, in the forms of
// `spillway relabel emit --format`, and the recording rules by which an alert sees that they still
// work.
//
//	merged, diff, err := emit.Merge(plan, promYAML)
//
// # What it promises
//
// The same rules give the same bytes. Whatever characters names and values hold, the text is valid
// for Prometheus' own loader and means the rules it was given: each is read back and compared
// before it is written. Above each rule stands its evidence. A prometheus.yml that is merged into
// keeps every byte that is not ours: lines are put in and taken out, nothing is encoded again. Ours
// stand between `# spillway: begin ID CHECKSUM` and `# spillway: end ID`, so that the next merge
// replaces them; in a monitor, whose comments the API server forgets, a group in the regex that
// matches nothing, (?P<spillway_CHECKSUM>), says the same.
//
// # What it refuses
//
// Rules that Prometheus does not accept, names that are not UTF-8 (YAML cannot hold them), jobs
// that the file does not have, lists that are written so that no line can be put in ([…] in one
// line, an anchor that several jobs share), and a file whose rules of ours were changed by hand. A
// refusal names the line and what to do.
//
// # Memory
//
// The file, its lines and its nodes, twice: some twenty times the size of the prometheus.yml.
package emit
