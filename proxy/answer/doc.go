// Package answer says what an attempt to answer a request is, and what the next one may be after it
// has failed.
//
// An attempt is a value: which parts of the work are left to the shards, which replicas are not
// asked, which shards the answer goes without. Next is a pure function of the attempt, of its error
// and of what is true of the request by then. It promises that attempts come to an end: each next
// one gives something up that no later one takes back, so that there are at most as many as there
// are shards and replicas, and four more. Whether the budget for retries has room for it
// (shard.Shard.MayRetry) is checked by the caller that asks the shards.
//
// It refuses nothing by itself, keeps nothing between calls, and holds the names of shards and
// replicas that failed.
package answer
