// Package console is the page of the admin listener: what one looks at while something is wrong,
// and what can be left open on a wall when nothing is.
//
// It promises:
//   - Each page is whole without a script: it is drawn here, plots as SVG, and loads itself again
//     every five seconds; with its script only what has changed is exchanged, every two seconds.
//   - Whatever a client has said (queries, users, dashboards, labels) is shown as text. Pages load
//     nothing but this package's own style and script, and forbid everything else
//     (Content-Security-Policy: default-src 'none').
//   - A page has at most MaxRows rows of a kind and says how many more there are: 10,000 requests
//     under way make no larger page than twenty.
//   - Everything shown is JSON as well, under /api/spillway/v1/.
//   - From the first page it is two clicks to the panel that costs most: its dashboard, the panel.
//
// It refuses to ask any shard, but for explain, which goes the road of all queries without running
// them: what it shows its Source has at hand. One drawing of the first page serves everybody who
// looks within a second. A request is ended by POST only; whoever mounts it protects that from
// pages of other sites.
//
//	GET /                         shards, lanes, memory, requests under way, what cost most, what was refused
//	GET /dashboard?uid=…          one dashboard: its panels by cost, its requests, its refusals
//	GET /panel?uid=…&panel=…      one panel
//	GET /refusals, /refusals/ID   why a request was refused, with the selector that was in the way
//	GET /explain?query=…          how a query would be answered, as a tree
//	POST /kill                    ends id=…, or all of dashboard=… or user=…
//
// Memory: a history of HistorySpan, a few numbers for each lane and shard every HistoryStep, of at
// most maxLanes and maxShards (1,024) of them; MaxRefusals refusals of at most maxText bytes of
// each text; the ids of the last maxIDs refused requests.
package console
