// Package attribution adds up what requests cost by who asked: by tenant, user, dashboard, panel,
// rule and query, over the last hour.
//
// It promises that what it says of somebody was really spent by it, and that all sums add up: what
// is not in a row is in Rest (of those that are not among the rows), or in Nobody (of requests that
// say nothing of the kind). It does not promise to have everybody: of each kind it keeps, for each
// five minutes, the MaxKeys that took most of the shards' time.
//
// It refuses nothing. Names are what callers say, see package identity: whoever invents a thousand
// users has a thousand small rows, and still one tenant.
//
// Memory: Buckets five minutes of MaxKeys rows for each kind, with names of at most MaxKeyBytes:
// 6 MB at the most.
package attribution
