package answer

import "errors"

// Inexact is the error of an attempt whose parts, as the shards answered them, cannot be combined
// into the exact answer. Only the answers themselves could show that.
type Inexact struct {
	// Why is a clause for explain and for the log: "a shard cut its answer to a part".
	Why string
}

// Error implements error.
func (e *Inexact) Error() string { return e.Why }

// ErrPieces is the error of an attempt whose answer was to be joined from pieces of time but has
// native histograms, which are not joined as tables.
var ErrPieces = &Inexact{Why: "native histograms are not joined over stretches of time"}

// TooMany is the error of an attempt that would have to read more series than may be held at a
// time, because no replica is whole; they may be read in parcels.
type TooMany struct {
	// Err is the refusal.
	Err error
}

// Error implements error.
func (e *TooMany) Error() string { return e.Err.Error() }

// Unwrap implements the protocol of package errors.
func (e *TooMany) Unwrap() error { return e.Err }

// TooManyCounted is the error of an attempt that would have to read more series than may be held at
// a time, because statistics are asked for, which count the samples of one evaluation.
type TooManyCounted struct {
	// Err is the refusal.
	Err error
}

// Error implements error.
func (e *TooManyCounted) Error() string { return e.Err.Error() }

// Unwrap implements the protocol of package errors.
func (e *TooManyCounted) Unwrap() error { return e.Err }

// ErrOrder is the error of an attempt that streamed series whose order changes when labels are set.
var ErrOrder = errors.New("labels that are set change the order of the series")

// LostReplica is the failure of replicas of a shard that has another one.
type LostReplica struct {
	// Names are those of the replicas, one at least.
	Names []string
	// Err is what happened to the first of them.
	Err error
}

// Error implements error.
func (e *LostReplica) Error() string { return e.Err.Error() }

// Unwrap implements the protocol of package errors.
func (e *LostReplica) Unwrap() error { return e.Err }

// LostShard is the failure of a shard, which a partial answer can go on without.
type LostShard struct {
	// Name is the shard's.
	Name string
	// Err is what happened.
	Err error
}

// Error implements error.
func (e *LostShard) Error() string { return e.Err.Error() }

// Unwrap implements the protocol of package errors.
func (e *LostShard) Unwrap() error { return e.Err }
