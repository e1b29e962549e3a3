// Command remediator is an example of what Alertmanager's receiver `remediation` can be: it takes
// alerts of severity auto, each about one node or GPU, and cordons the node, so that no further job
// is put there. docs/remediation.md has the payload and the reasons.
//
// What it promises. Without --act it changes nothing and says what it would have done. With it, it
// cordons at most --max-nodes nodes within --window, those that were given back since too, never
// while more than --max-cordoned of all nodes, or --max-of of those with a label in common, are
// cordoned, by whomever (of few nodes one), and none while a fleet alert fires. What it did is on
// the node itself (a label, an annotation and a taint), so its budget outlives a restart, but for
// nodes that are gone, and the same alert twice is one cordon. Every decision is one line of its
// log and one count of its metrics.
//
// What it refuses. Nodes of the control plane, or which --exclude names instead; nodes that
// somebody else has cordoned, without --mark-cordoned; nodes that are being deleted, and, until it
// leaves them, those that an autoscaler takes away. Alerts of another cluster, of another severity,
// without a node, with an action that it does not know.
// What waited is left alone while an active silence is for its alert, which Alertmanager would not
// post, and is over where its alert comes again by itself while there is something to mend and is
// gone: of one that is inhibited when it ends Alertmanager does not post the end. When it cannot
// ask Alertmanager for silences, for such an alert or whether a fleet alert fires, or the API
// server how many nodes there are, it does nothing: an answer that is missing is a no. It never
// drains, never deletes and never uncordons: the taint tells who does that what is to be done.
//
// What it holds: one payload of at most 8 MiB at a time, the metadata of the nodes that it
// cordoned, when it did, and of at most a thousand nodes the wishes that were refused and that
// Alertmanager will not repeat, those about Xids, one of each weight, for six hours, and a week
// more where fleet alerts fire. These wishes are gone with the program; it tells of them when it is
// told to end.
//
// What it cannot promise: a change that the API server answers with an error and makes all the same
// after the node was read again is one more than --max-nodes.
//
//	remediator --cluster=jaguar --alertmanager=http://alertmanager:9093 --token-file=/etc/remediator/token
package main
