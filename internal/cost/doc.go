// Package cost makes the bill of a GPU cluster: which team, person, namespace, experiment and GPU
// model held how many GPUs for how long, from the metrics of kube-state-metrics, asked for through
// a Prometheus HTTP API (the proxy, or one server).
//
//	r, err := cost.ParseRange("2026-11-01", "2026-12-01", time.UTC, time.Now())
//	b, err := cost.Make(ctx, cost.Options{Client: c, Range: r, By: []cost.Dimension{cost.Team}, Directory: d})
//	err = b.WriteTable(os.Stdout)
//
// # What is counted
//
// The unit is the sample: one successful scrape of kube-state-metrics says which pods were Running,
// and stands for the time until the next one. A pod's time in a window (an hour, or less at the
// ends of a range) is
//
//	samples of kube_pod_status_phase{phase="Running"} = 1  /  scrapes  ×  the part of the window that the scrapes cover
//
// and its GPU time that, times the GPUs its containers request, in cards: a share of time slicing
// or a slice of MIG is a part of one. What pods have through ResourceClaims (DRA) no container
// requests: which cards those are dcgm-exporter says, by the labels dra_*. Pods are told apart by
// uid, so a name that is used again is another pod, and a container that is restarted in its pod is
// none. Pending pods hold nothing. Of several kube-state-metrics replicas the one seen most is
// taken in each window; where several were seen as much, their mean: the greatest of them would
// count every pod from the first replica that sees it begin to the last that sees it end, and that
// is too long. Each beginning and each end of a pod is known to one scrape interval, early as often
// as late.
//
// Where the directory prices cores or memory, pods on nodes without GPUs are counted in the same
// way by what they request of these.
//
// Raw metrics are read, no recorded ones: a rule that was late, or written anew last week, or not
// evaluated while its ruler was down, would be in the bill for ever; and what is counted here are
// samples, which no evaluation at fixed steps gives back.
//
// # What it promises
//
// The rows add up to what was allocated: the servers count the same samples once more, joined and
// summed by themselves, and Make refuses with an *Imbalance that names the difference where one
// sample is missing. (Of ResourceClaims they can count nothing; those are held against the cards
// that their nodes have.) Every row says which part of its time was covered. Time without scrapes
// is no row of zeros; it is listed as not covered, to the minute. Free, unhealthy and idle GPUs are
// shown beside the bill, with their money, and are in no row of it: what is billed, free and
// unhealthy is together what the machines cost. Only what stands free of a team's reserved nodes is
// in its rows where the directory asks for it. Warnings, partial and cut answers end it.
//
// # What it refuses
//
// Ranges that have not ended, ranges over 400 days, a directory that gives one namespace to two
// teams, an answer with a warning. It does not guess: a namespace that nobody claims is billed to
// "unassigned", a GPU model without a price has hours and no money.
//
// # Bounds
//
// A query covers at most a day and 200 namespaces; where a server refuses one (422) or runs out of
// time it is halved, by time and then by namespace. Each answer is at most 64 MiB, at most one is
// read at a time, and what is held is the pods of one day (about 500 bytes for each pod and hour)
// and the rows of the bill.
package cost
