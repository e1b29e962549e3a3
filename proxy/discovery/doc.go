// Package discovery looks up the shards of groups whose configuration has shards_from: in files, in
// DNS, at a URL or in Kubernetes, by Prometheus' own discovery packages, and keeps looking. Only
// the list at a URL is read here, since Prometheus reads it however long it is.
//
// It promises:
//   - A group is never left with some of its shards because others have not been looked up yet: it
//     waits until every file and every name has been answered once, a name with a record, and where
//     that does not happen it is an error. In Kubernetes all lists have to have come, all watches to
//     stand, and all objects to have been told; a refusal is an error within seconds, which says
//     what to grant.
//   - What cannot be understood changes nothing: a target without a shard, two places for one
//     server, a file that is half written. What was found before stays in force, is counted, and
//     the log says why; what other files say is taken up.
//   - A server that is no longer found is still asked for a while (shards_from.keep), as is one
//     whose discovery fails, unless another one has taken its place. After that it is let go, with
//     a line in the log; the last shard of a group never is. Nor is anybody by the silence of an
//     API server, a file, a name or a list that cannot be read any more, which says nothing of who
//     has gone; it is counted, and logged. Where kept servers and found ones would be more than
//     MaxServers, those that went longest ago are let go earlier.
//   - A shard that comes by DNS or from Kubernetes while its group is in force is left out until one
//     of its servers answers its readiness page, or keep has passed: who has an address has not
//     started yet. In a file or a list, and at a start, every shard is needed at once.
//   - No shard vanishes because another one's server has its address now: requests that need it are
//     refused.
//   - No server is asked on a guess: where a slice begins or ends in time, only the labels
//     __spillway_from__ and __spillway_until__ say.
//
// It refuses groups of more than MaxServers servers, and follows no redirect. It holds the labels
// of what was found, of Kubernetes the objects that namespaces and selectors leave, and no answer.
// While it reads, it holds at most 16 MiB of a list or 256 MiB of an API server's answer, and some
// times as much of what that says; longer ones are errors, and what was found before stays.
package discovery
