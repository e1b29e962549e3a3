// Package uses says what is looked at: dashboards, rules, autoscalers, logged queries, and what
// somebody wants kept.
//
//	set := new(uses.Set)
//	err := errors.Join(uses.Dashboards(set, "dashboards/"), uses.Rules(set, "rules/"), uses.Log(ctx, set, "usage.jsonl", uses.LogOptions{Window: window, Now: now}),
//		uses.Keep(set, "keep.yaml", now))
//	index := set.Index(uses.External, inventory.Known())
//	for _, need := range index.For("node_cpu_seconds_total") { … }
//
// # What it promises
//
// A use needs every series that one of its queries selects, and of each series the labels that can
// change the answer: a label that is in no Need.Labels of a metric, and in none of its matchers,
// can be taken from all series of the metric, or of one job of it, without any answer changing, as
// long as no two series become one. Excepted are what Prometheus itself does not promise: which of
// equal values topk and bottomk choose, and the last digits of a sum, which follow from the order
// of its terms.
//
// A document is read for what it is, whichever folder it stands in, and once: rules, dashboards,
// autoscalers, analyses of rollouts, SLOs; so is each object of Kubernetes, group of rules and rule
// of prometheus-adapter inside of another document. Of kinds that are not known, every text that is
// a query is one: those under a key for queries (expr, promql, match[], what ends in query); those
// under expression, or in a list of queries, that parse as PromQL and name a metric; and any text
// or line that parses and has a metric in a function, with matchers, over a range, compared with a
// number, or on both sides of an operator, with names that are no words of a language (a_b / c_d).
// Of a text that calls Prometheus' API, the queries of the calls are; where one of them is not in
// it, every metric named in it is needed. What known programs ask by themselves is used where their
// images, charts or settings stand, and a warning names them.
//
// What is not understood is needed whole: of a query that neither PromQL nor MetricsQL parses,
// every metric is needed that is named in it; a variable that nothing resolves can have any value,
// also as a name; a selector without a name needs all that it matches; a label that is chosen by a
// variable is every label. A template in the place of a name is what other documents give for it,
// once Unmade was asked, which is when all is read.
//
// A matcher on a label that no stored series of a metric has, or that is added outside, excludes no
// series of it: the need waits for a trouble, or the label is an external one. Of a selector
// without a name, {app="x"}, metrics that lack the label are not meant.
//
// Lists of what there is are no use of what they list, or nothing could ever be dropped:
// label_values(label) without a metric, label_names() and metrics() of everything, and calls of
// series, labels and values whose selectors select nothing in particular, such as {le!=""}. A
// warning names them. Lists of what a selector without a name selects keep that, but where
// Set.IgnoreListings says otherwise.
//
// # What it refuses
//
// A file that cannot be read or is not what its folder promises (JSON with queries that is no
// dashboard, a rule file that does not parse, a library panel that is in none of the files, a
// dashboard that is fetched from elsewhere, a query that is filled in or made elsewhere, sources
// that nobody has rendered) is an error that names file and line: leaving it out would drop what it
// uses. What cannot be read beside the rules of a file is a warning, and so is what a Secret holds
// that is no text. Files in which nothing could be a query are passed over with a warning.
//
// # Memory
//
// Equal matchers and equal needs are held once. Of a usage log of any length, read as a stream, one
// entry stays for each different query text, 2 KiB for the query and about as much for each regular
// expression of its own, at most MaxQueries of them, beyond which it is an error. Of files, one is
// held at a time, at most 64 MiB of it, and library panels until all dashboards are read.
package uses
