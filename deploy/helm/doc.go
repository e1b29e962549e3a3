// Package helm holds the chart that delivers the proxy into Kubernetes (spillway/), and where they
// are switched on the remediator and the plugin's data source, and the tests that hold it to what
// it says. docs/install.md shows its use; deploy/kubernetes has the same objects as plain YAML, and
// a patch that brings the plugin into a Deployment of Grafana, written by a test here and never by
// hand.
//
// What it promises. Each file of values is either refused, by the schema or by a sentence that
// names the value, or becomes objects that a Kubernetes API server takes, whose pods meet the
// restricted Pod Security Standard, whose flags the program has and whose spillway.yaml it reads.
// The mixin's rules and dashboards are links to alerts/ and dashboards/, so that no copy of them
// can be old.
//
// What it refuses. Values that are not in values.yaml, by name; a volume of the host; to run
// without a server to ask. The rest of a part that is switched off refuses nothing.
//
// What it holds: nothing at run time. Helm's library renders the chart in tests only, and
// cmd/spillway does not link it (docs/decisions/0034).
package helm
