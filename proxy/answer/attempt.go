package answer

import (
	"errors"
	"slices"
)

// Attempt is one way to answer a request. The zero value is the first: all replicas may be asked,
// no shard is left out, and shards do as much of the work as is exact. An Attempt does not change,
// and one that is derived from it shares nothing mutable with it.
type Attempt struct {
	// Raw says why no part of a query runs on shards; empty while it may.
	Raw string
	// Parcels tells that series for which no replica is whole are read and evaluated here, in
	// parcels.
	Parcels bool
	// NoStats tells that the answer has no statistics of its evaluation, since what counts them
	// here would read too many series.
	NoStats bool
	// Sorted tells that the series of a spliced answer are gathered and sorted here.
	Sorted bool
	// Without are the names of the shards that the answer goes without, sorted.
	Without []string
	// Avoid are the names of the replicas that are not asked, since they failed in the middle of
	// their answer, sorted.
	Avoid []string
	// After is the last loss of a replica that led here; nil without one.
	After *LostReplica
}

// LeavesOut tells whether the answer goes without the shard.
func (a Attempt) LeavesOut(shard string) bool { return has(a.Without, shard) }

// Avoids tells whether the replica is not asked.
func (a Attempt) Avoids(replica string) bool { return has(a.Avoid, replica) }

// Leaving is the attempt without the named shards too.
func (a Attempt) Leaving(shards ...string) Attempt {
	a.Without = with(a.Without, shards)
	return a
}

// Avoiding is the attempt that does not ask the named replicas either.
func (a Attempt) Avoiding(replicas ...string) Attempt {
	a.Avoid = with(a.Avoid, replicas)
	return a
}

func has(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

func with(sorted, names []string) []string {
	all := slices.Concat(sorted, names)
	slices.Sort(all)
	return slices.Compact(all)
}

// Case is what is true of a request when an attempt has failed.
type Case struct {
	// Over tells that nothing can begin again: time has run out, the client has left, or a byte of
	// the answer was sent.
	Over bool
	// MayLack tells whether the caller accepts an answer without the shard of that name; nil is
	// that it wants all of them.
	MayLack func(shard string) bool
	// Shards is how many shards there are; an answer without any of them is no answer.
	Shards int
	// Gone are the shards that were found to fail by now, so that several cost one more attempt and
	// not one each.
	Gone []string
}

// Reason is why the next attempt is made.
type Reason string

const (
	// None: there is no next attempt; the error is the answer.
	None Reason = ""
	// Apart: the shards' answers to parts cannot be combined into the exact answer; all series are
	// read and everything is computed here.
	Apart Reason = "apart"
	// Parcels: series that nobody is trusted to evaluate are too many to be read at once.
	Parcels Reason = "parcels"
	// NoStats: series that are only read so that statistics are of one evaluation are too many.
	NoStats Reason = "stats"
	// Order: setting labels changes the order of the series, so they are gathered and sorted.
	Order Reason = "order"
	// Replica: a replica failed in the middle of its answer, and its shard has another one.
	Replica Reason = "replica"
	// Shard: a shard is lost, and the caller accepts an answer without it.
	Shard Reason = "shard"
)

// Next is the attempt to make after this one ended in err, with the reason; None where there is
// none.
func (a Attempt) Next(err error, c Case) (Attempt, Reason) {
	if c.Over {
		return a, None
	}
	if apart := (*Inexact)(nil); errors.As(err, &apart) && a.Raw == "" {
		a.Raw = apart.Why
		return a, Apart
	}
	if counted := (*TooManyCounted)(nil); errors.As(err, &counted) && !a.NoStats {
		a.NoStats = true
		return a, NoStats
	}
	if many := (*TooMany)(nil); errors.As(err, &many) && !a.Parcels && a.Raw == "" {
		a.Parcels = true
		return a, Parcels
	}
	if errors.Is(err, ErrOrder) && !a.Sorted {
		a.Sorted = true
		return a, Order
	}
	lostReplica := (*LostReplica)(nil)
	if errors.As(err, &lostReplica) && slices.ContainsFunc(lostReplica.Names, func(name string) bool { return !a.Avoids(name) }) {
		a = a.Avoiding(lostReplica.Names...)
		a.After = lostReplica
		return a, Replica
	}
	lostShard := (*LostShard)(nil)
	if c.MayLack == nil || !errors.As(err, &lostShard) || !c.MayLack(lostShard.Name) || a.LeavesOut(lostShard.Name) {
		return a, None
	}
	gone := slices.DeleteFunc(slices.Clone(c.Gone), func(name string) bool { return !c.MayLack(name) })
	if a = a.Leaving(lostShard.Name).Leaving(gone...); len(a.Without) >= c.Shards {
		return a, None
	}
	return a, Shard
}
