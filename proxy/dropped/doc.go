// Package dropped knows what drop rules have taken away, and tells a request that asks for it.
//
//	set, err := dropped.Load([]string{"plan.json"})
//	found := set.Look(dropped.Asked{Expr: expr, Selectors: selectors, Until: until})
//	// found.Warnings: metric go_goroutines is dropped since 2026-11-21 by rule node/names/1 (owner platform): …
//
// The plans are those that `spillway relabel plan` writes. Only their rules, jobs, date and owner
// are read, and which metrics are kept elsewhere.
//
// # What it promises
//
// A message concerns a use that came after the plan: the uses that the plan was made from select
// nothing that it drops. It is a warning where the selector can find nothing but what was dropped,
// and an info where a part of what it selects is missing:
//
//	rule     the selector names the metric, accepts the rule's job, and     says
//	names    no job keeps the metric, or none that the selector accepts      warning
//	         another job keeps it, and the selector has no other matcher     info
//	slice    accepts some value that goes: only such values, or others too   warning, info
//	buckets  likewise; a rule that thins what quantiles are made of counts   warning, info
//	         only for selectors with a matcher on le
//	label    has a matcher on the label, or is grouped by it directly        warning
//
// Of several plans, one whose servers may have what another one's rule takes makes an info of the
// warning: it knows the rule's job or the metric, and has no rule that takes as much.
//
// The exception is a use that is kept from a job's series by a label other than job: the plan does
// not list these labels, so such a use can have a message by a slice or a label that it does not
// need.
//
// Selectors that end before the plan was made find what was stored then, and have no message. At
// most MaxMessages of both kinds together are given for a request, warnings first. The order is
// that of the metrics' names.
//
// # What it refuses
//
// Files that are no plan, plans of a version that it does not know, rules that it cannot
// understand, and more than its bounds: each an error that names the file, and the line where the
// JSON is bad.
//
// It does not say anything about selectors that name no metric, such as {job="node"}, and nothing
// about what a function reads without a selector (target_info under info).
//
// # Memory and time
//
// A plan may have MaxBytes, all of them together MaxRules rules and MaxEntries pairs of a rule and
// a metric; what is kept is about 100 bytes for each pair. A selector with the metric's name costs
// one look into a map. A regular expression for the name is tried on the dropped names that begin
// with its literal prefix. A request makes at most maxTries comparisons; beyond them it may have
// fewer messages than it could.
package dropped
