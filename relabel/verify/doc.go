// Package verify holds the drop rules that a configuration has, whoever wrote them, against what is
// used.
//
//	result, err := verify.Check(ctx, verify.Options{Prometheus: []string{"prometheus.yml"}, Dashboards: []string{"dashboards/"}, Rules: []string{"rules/"}})
//	err = result.Text(os.Stdout)
//
// # What it promises
//
// Each query that loses a series is named with file and line, and with the rule that takes the
// series; each list of buckets that misses the form that Prometheus 3 stores (30.0) is too, and so
// are the traps of relabelling: labels that begin with __tmp_ and stay, keep rules that forget,
// labelkeep without __name__, rules of one job that differ between servers, series that become one
// without a word.
//
// With stored series the answer is exact for these: each goes through the rules of its job, by
// Prometheus' own code. Without them, and for queries that select nothing today, series are made
// up: of a query's own values where it names them (equality, and expressions with finitely many
// matches), of the values that the rules name, and of one value and none where neither does. What
// is lost in every such case is an error, what is lost in some is a warning. So it is for what a
// rule takes of a metric where the series are from a server and it takes none of these: it may be
// in force there. Of what is selected in other jobs alone that is a warning, where this job has
// nothing of the metric; so are values that a query names and this job does not have where a rule
// that lists them takes something else of the metric: it may have been extended.
//
// What rules read that are used and not given is not known: Result.Unrecorded has their names, and
// an alarm says so first. What such a name itself names is looked at, and its loss is a warning.
//
// # What it refuses
//
// What it cannot check is told apart from what is wrong: a file that cannot be read is in
// Result.Unchecked, and the rest is checked.
//
// # Memory
//
// The uses, the label names of each metric (behind rules in force, in each job), and 8 bytes (some
// 20 in a map) for each series that loses a label. Series are streamed.
package verify
