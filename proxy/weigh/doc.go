// Package weigh finds out, before shards are asked, how much a query would make each of them hold,
// and in how many pieces of time it is to be asked so that none holds more than max_shard_bytes.
//
// What a server holds is a function of the text, of its steps, and of how many series its selectors
// have there (proxy/cost). What a server says of its metrics' sizes, which is asked for once in
// five minutes, usually shows that it is not too much. Where it shows too much, the series of the
// selectors are counted, which is no more than the query itself does first. Where it is not known,
// since the server has no head or the window is older, all series of the metric are counted, once
// for all who ask about it: that takes a quarter of what the server holds of them at rest. Where
// there may be so many that to count them would itself be more than the bound, they are listed, up
// to a number. A text that weighed at most half of the bound is not weighed again for ten minutes.
//
// A native histogram takes hundreds of times what a float does, and no text tells which series are
// native histograms. Where a metric is so large that it would be too much if its series were, its
// server is asked.
//
// Estimate says what any request that selects series will take, of what is known: nobody is asked,
// and nothing refused for it. docs/estimates.md has its units.
//
// It refuses (422, max_shard_bytes) what no number of pieces makes small enough, and
// (max_series_touched) what selects too many series on all shards together. Memory: 100,000
// numbers of about 200 bytes for a topology, 48 KiB for each shard or 480 KiB, and for a request
// about 200 bytes for each selector on each shard.
//
// docs/bounds/max_shard_bytes.md says what is not counted.
package weigh
