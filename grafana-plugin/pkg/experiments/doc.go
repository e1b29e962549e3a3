// Package experiments answers the datasource's queries about experiments: each query type is a file
// with a Handler that asks PromQL and makes data frames.
//
// # How it asks
//
// Which pods belong to an experiment is read from the recorded series experiment:pod:info, never
// from raw labels. What is known of pods, nodes and GPUs is asked for exactly those by name, and
// joined here: a join in PromQL would select the whole cluster's series first, a hundred thousand
// at 7,500 nodes. All matchers come from Selector, which escapes: a name selects itself whatever it
// contains.
//
// # What it promises
//
// Frames follow Grafana's data-plane contract: timeseries-multi, numeric-long or -multi for what
// alerts and expressions use, table for the rest, each with its TypeVersion.
// Meta.ExecutedQueryString is every query that was sent. Warnings of the proxy, what a bound of
// ours left out, and what an empty answer means are notices; where an alert asks (Run.Alert), which
// sees none, what a bound left out is an error. A handler is a pure function of what it was asked
// and what was answered: no clock, sorted rows.
//
// # What it refuses
//
// To show nothing without a reason. Where a query gives nothing since something is not set up (no
// allow-list, no recording rules, no DCGM), the handler returns *SetupError with every Finding and
// its fix.
//
// # Bounds
//
// A query asks at most maxQueries questions, parallel of them at once, and holds their answers: the
// proxy's bounds for each. Its frames have at most the settings' MaxSeries or MaxRows.
package experiments
