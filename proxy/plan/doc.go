// Package plan decides how a request is answered: which groups and shards can hold what it selects,
// with which matchers each is asked, and, for PromQL, which parts of a query shards evaluate and
// what is left to do here.
//
// Exact or refused, never guessed. Each part of a query takes one of five roads:
//
//   - pass: the matchers leave exactly one shard, one of its replicas is known to hold all of it,
//     and the group's labels, which the shard does not store, can be set on the finished answer.
//     labels.go proves the last point for each expression.
//   - splice: every result comes from series of one shard, so the shards' answers stand side by
//     side.
//   - push: an aggregate over such an expression; each shard aggregates what it holds, and package
//     merge folds the partial results.
//   - raw: everything else. Prometheus' own engine runs in the proxy over series read from the
//     shards (package raw), and over the answers to the parts above.
//   - parcels, only with Query.Parcels: an aggregate over what nobody is trusted with, which raw
//     would read all at once, is evaluated in the proxy over the series of some targets at a time,
//     and folded as push is (parcels.go).
//
// grammar.go says which expressions may run on several shards, key.go what tells shards apart,
// walk.go goes through the syntax tree, leaf.go makes a leaf of a part of it, part.go finds which
// servers to ask, and for what. What only the answers can show (native histograms, warnings, series
// on two shards, sums that cancel) is for the caller to see: it plans again with Query.Raw set.
//
// What an expression reads of a shard over times that overlap is read from one of its replicas,
// whichever road each part takes (together.go).
//
// Matchers on a group's labels and replica labels choose groups and are never sent. A replica label
// is on no series of an answer, so a matcher on one is decided against the empty value. In a group
// that does not have the label, a matcher is sent like any other.
//
// Of what servers write of the alerts that they evaluate several shards may hold the same series,
// so a selector that names it is evaluated here (grammar.go). Where a tenant sees a part of what is
// stored, View.Narrow has all that is read to be evaluated here meet its matchers, and keeps info()
// here, whose text does not show what it reads.
//
// Memory: planning holds the expression, one list of matchers per selector and group, and one text
// for each group; it reads nothing from shards except what is needed to judge wholeness. What raw
// holds is said in package raw.
package plan
