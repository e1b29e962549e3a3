// Package adopt looks at a Kubernetes cluster, writes Spillway's configuration for the Prometheus
// servers that are there, proves it against them, and puts Spillway in front of them; and takes all
// of that back.
//
//	c, err := adopt.Connect(kubeconfig, "")
//	found, err := c.Read(ctx, adopt.Scope{})
//	reach, err := adopt.Through(c)
//	plan, err := adopt.Make(ctx, found, reach, false)
//	problems, err := plan.Prove(ctx, reach)
//
// # Promises
//
//   - Read and Make only look: they get and list. What is asked for is in Reads and Writes, which the
//     page shows and a test compares with the requests.
//   - What is not known is not guessed: it is a comment in the file. Whether two servers without an
//     operator are replicas or shards is seen from their targets, and a hashmod is written only where
//     the servers' own configurations have it, of a label that is stored.
//   - Apply changes nothing but what the plan shows. It writes first what it is about to do into an
//     object of its own, so that Undo knows it also where Apply was ended halfway.
//   - Where NetworkPolicies close the servers, Spillway is no way around them: it lets in whom those
//     of each closed server let in, and the Grafanas that read it.
//   - Undo deletes what Apply made, and gives what it changed its old value and its old owners, where
//     it is still as Apply left it. What somebody else has changed since stays, and is named; the
//     URLs in it that are Spillway's are those of before.
//
// # Refusals
//
// An object of the same name that adopt did not make is not touched. Several servers are put behind
// one Spillway only where each was named (Plan.Unsure), and servers that want TLS are not. A data
// source is rewritten only where it asks all of these servers and no others, over plain HTTP and
// without credentials. Spillway is not put in front of servers that contradict the configuration,
// Grafana is not pointed at a Spillway that is not available or whose pods do not reach each
// server, and Spillway is not deleted while a data source asks it, or a Grafana that read one at
// its start was not restarted, unless that is demanded. Two who apply at once, and fewer servers
// than the time before, are refused. Whether Grafana reaches Spillway is not asked.
//
// # Memory
//
// Lists are read in pages of 500 objects, each at most 64 MiB, and only what looks like a
// Prometheus is kept. Of each server its configuration (at most 16 MiB, while it is read) and the
// hashes of its targets, at most 524,288.
package adopt
