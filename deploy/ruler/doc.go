// Package ruler holds the deployment that evaluates the global rules through Spillway
// (kubernetes.yaml, spillway.yaml) and runs its parts, the real thanos rule and the small
// Prometheus to which it writes, on free ports with the flags and files of that manifest, for tests
// and rehearsals. docs/ruler.md says where which rule runs and why.
//
// What it promises. StartStore and StartRule use the arguments and the configuration of
// kubernetes.yaml and change only what a machine has to: addresses, folders, rule files, and waits
// where asked to. So what was tried is what is deployed. Servers listen on 127.0.0.1 and end with
// Stop, or with this process.
//
// What it refuses. A manifest without an argument that would have to be changed is an error: it
// never tries something else in silence. It builds nothing; package realprom says what to do then.
//
// What it holds: the manifest, and what package realprom holds for two programs.
//
//	store, err := ruler.StartStore(ctx, ruler.StoreOptions{Name: "ruler-0"})      // a replica of the group `rules` of the proxy
//	rule, err := ruler.StartRule(ctx, ruler.RuleOptions{Name: "ruler-0", Query: proxyURL, Store: store.URL(), Alertmanagers: []string{amURL}, RuleFiles: []string{"alerts/global/*.yaml"}})
package ruler
