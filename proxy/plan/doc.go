// Package plan decides how a request is answered: which groups and shards can hold what it selects, with which matchers each is asked, and, for PromQL,
// whether one shard's own answer is the answer.
//
// Exact or refused, never guessed. Two roads exist for a query:
//
//   - pass: the matchers leave exactly one shard, one of its replicas is known to hold all of it, and the group's labels, which the shard does not store,
//     can be set on the finished answer. labels.go proves the last point for each expression; what it cannot prove is raw.
//   - raw: everything else. Prometheus' own engine runs in the proxy over series read from the shards (package raw).
//
// Matchers on a group's labels and replica labels choose groups and are never sent. A replica label is on no series of an answer, so a matcher on one is
// decided against the empty value. In a group that does not have the label, a matcher is sent like any other.
//
// Memory: planning holds the expression and one list of matchers per group; it reads nothing from shards. What raw holds is said there.
package plan
