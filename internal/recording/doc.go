// Package recording evaluates rule files over a past stretch of time, so that a history that was
// filled in has recorded series and alerts as if rules had always run:
//
//	f, err := recording.New(recording.Options{Rules: alerts.Shard(), Query: recording.FromEngine(engine, storage), Append: storage})
//	if err != nil { … }
//	stats, err := f.Fill(ctx, hourAgo, now)
//
// # What it promises
//
// Every sample is what Prometheus' own rule groups write: alerts wait for their `for`, series that
// end get a stale marker, ALERTS and ALERTS_FOR_STATE are written. Each rule is asked once as a
// range query in place of once for each step, and rules are evaluated in the order in which they
// read each other, whatever their group: a rule sees what the others recorded for the same moment
// or, where groups take turns within their interval as those of servers do (Options.Dir), just
// before. Rules that read each other in a circle, as where one reads what another one recorded a
// while ago, and those that read their own past are evaluated step by step. Stretches may follow
// each other; the state of alerts is kept between them.
//
// # What it refuses
//
// Files that do not parse, and stretches of more than 11,000 steps. A rule that fails is left out
// and told in the error; the others go on. Annotations are not expanded: nobody is notified of the
// past.
//
// # What it holds
//
// The answer of one rule at a time, for the whole stretch: series × steps × 16 bytes.
package recording
