// Package canary asks what alerts, recording rules and dashboards look at, and says which of it is
// no longer there.
//
//	r, err := canary.Run(ctx, canary.Options{Uses: set, API: api, Now: time.Now(), ClusterLabel: "cluster"})
//	err = r.WriteText(os.Stdout)
//
// An alert whose series are gone is quiet, and looks well. So each selector is asked how many
// series it finds in each cluster, now and at this time of day on the seven days before, in one
// range query. What was there on three days in a row, not since then, and not for an hour is gone,
// for as long as those three days are seen: a look that was missed, as over a weekend, loses
// nothing. What was never there is told apart: a reason that no pod has had, or a name that is
// wrong.
//
// Two things go without anything being lost, and are not called gone: a value while the metric is
// there with others of the same labels (a code, a reason, an alert that was mended), and what a
// rule records when it has nothing to record.
//
// What it promises: no memory of its own is needed, the servers have it; a cluster of which nothing
// at all is left is one finding, not a hundred; a selector that could not be asked is never called
// found nor gone, and where nobody answers any more it ends. What is asked about absence (absent(),
// the right side of unless) counts like the rest: an `unless` whose right side is gone fires for
// everything.
//
// What it does not ask: selectors that name no metric, and those with a variable in the name.
//
// Cost: as many range queries of eight steps as there are different selectors, and up to three
// questions more for what is missing, at most four at a time, each refused rather than cut by what
// bounds the server that is asked. Memory: a few hundred bytes for each selector and cluster.
package canary
