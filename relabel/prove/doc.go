// Package prove runs rules over every stored series, with Prometheus' own relabelling, and says
// what that would change for whom; and it asks Prometheus' own engine every known query, before and
// after.
//
//	proof, err := prove.Rules(ctx, source, inventory, index, rules, progress)
//	replay, err := prove.Play(ctx, source, set, rules, prove.ReplayOptions{})
//
// # What it promises
//
// Rules looks at each rule by itself and at all rules of a job one after the other. A rule passes
// when
//
//   - the series that it takes are exactly those that it was planned to take: of its job, with a
//     name and a value that are in its lists, and no other;
//   - no use selects a series that goes, and none that waits for series which are not there now
//     names the metric; but for buckets that only histogram_quantile reads, where the rule states
//     an error and the buckets that stay keep it, in all jobs alike;
//   - a label that goes is one that no use of the series shows, groups by or matches on, and no two
//     series become one without it;
//   - relabelling twice is relabelling once;
//   - the savings are the ones claimed.
//
// Chain is what runs the rules: it gives what relabel.ProcessBuilder gives, whatever the configs,
// and remembers for names and values what that decided.
//
// Play loads a sample of the data into two storages, before and after the rules, has recording
// rules record in both, and asks both every query of every use, at the newest moment and over a
// range. It knows nothing of needs, but for queries in which a variable names the metrics, and so
// finds what Rules would miss if a need were misunderstood. Answers are compared to the bit:
// series, labels, values, the kinds of NaN. Series are read sorted by their labels, and mostly
// their sums are the same to the bit. What the engine itself leaves open is no difference: the
// order in which it adds (values may differ by 1e-12 of themselves; it is another one at each run
// behind a binary operator, and another one where a label went), and which of equal values topk,
// bottomk and limitk take (the query is then compared without them). A query that is empty, as of
// an alert that is quiet, is asked once more without its thresholds: what they are compared with
// must be the same too. Answers that differ in what is open are counted apart, as are those within
// the error that a rule states, those that are empty on both sides, and those that fail on both
// sides: the last two prove nothing.
//
// # What it refuses
//
// A rule that fails any of this, with the series and the use that show it, and the metrics of the
// rule that it is about. An error means that nothing was proven: the source failed, or had other
// series when it was read again.
//
// # What it cannot see
//
// The sample of Play has whole targets of each job as far as they fit, and of a target that is
// larger than all of it a part. Of pages there is one sample for each series, which is continued:
// counters advance, gauges stand still, and up, which pages lack, is 1. A query that looks back for
// longer than the span sees the span. Dashboards' variables match anything, but for names of
// metrics. So an equal answer is evidence for the queries as they would be asked, and the scan of
// all series is what holds for every value.
//
// # Memory
//
// Rules streams series. It holds its rules, an entry for each metric of each job, at most 4096
// decisions for each config, and, for metrics that lose a label, 16 bytes for each of their series
// (and of those, where some become one, at most 65,536 label sets while they are read again). Play
// holds its sample, about 400 bytes and 16 for each real sample of every series, and the head of
// one storage at a time, from which a block is written to disk before the next one is loaded: 0.6
// GiB for 200,000 series of pages.
package prove
