// Package dashboards holds the dashboards that jsonnet/ renders with its defaults, for those who
// have no jsonnet, and reads them.
//
//	for _, name := range dashboards.Names() {
//		d, err := dashboards.Load(name)
//		if err != nil {
//			return err
//		}
//		for _, q := range d.Queries() {
//			expr, err := dashboards.Substitute(q.Expr, vars)
//			...
//		}
//	}
//
// # What it promises
//
// Each file is what is rendered, is in the form that Grafana 11 to 13 take, and passes the lint
// beside this package: every query asks the data source and the cluster that the reader chose,
// every metric exists and is used as its type wants, no panel draws a line for each node, every
// link leads to a dashboard that is there. Load flattens what stands in rows. Substitute does what
// Grafana's Prometheus data source does with variables.
//
// # What it refuses
//
// A dashboard that does not exist; a variable without a value. Parse takes files of others too, but
// only knows what is written by our library: query variables are label_values of a selector.
//
// # Bounds
//
// The files are embedded, some hundred kilobytes. A dashboard is read in about a millisecond;
// nothing is cached.
package dashboards
