// Package realkube runs a genuine control plane on one machine, for the proofs that need one: etcd,
// kube-apiserver and kube-state-metrics, as tools/kubernetes pins them. By itself it has no
// scheduler, no controller manager and no kubelet: nodes and pods are written to the API with the
// status that they are to have, and stay as they are, so that a test decides what is wrong with
// them.
//
//	c, err := realkube.Start(ctx, realkube.Options{Dir: t.TempDir()})
//	if err != nil { … }
//	defer c.Stop()
//	err = c.Nodes(ctx, 2000, 8)
//
// StartNode adds these and one genuine node, on which pods run: containerd with runc, kubelet,
// kube-proxy and CoreDNS. All of that is in namespaces of Linux that nothing else shares.
//
// # What it promises
//
// All servers listen on free ports of 127.0.0.1 (of a cluster with a node, on its addresses in its
// own network), and end by Stop or, at the latest, with this process. Start returns when the API
// server is ready and kube-state-metrics serves its page.
//
// # What it refuses
//
// It downloads nothing: a missing program is an error that says which build makes it. A node pulls
// no image: it runs those that were imported.
//
// # What it holds
//
// About 0.5 GB together with 2,000 nodes and 1,000 pods; eight connections to the API server while
// it writes many objects. A node adds 0.4 GB, and what its pods take.
package realkube
