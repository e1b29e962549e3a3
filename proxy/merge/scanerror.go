package merge

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// ScanKind tells what is wrong with a shard's answer.
type ScanKind uint8

// The ways in which an answer is wrong.
const (
	// Garbage is not JSON: a login page, binary data, something after the end of the document.
	Garbage ScanKind = iota + 1
	// Truncated ends in the middle of the document.
	Truncated
	// WrongShape is JSON, but not what the endpoint answers.
	WrongShape
	// OverBound is JSON with a string, label set or nesting larger than any real answer has.
	OverBound
	// OutOfOrder is a list that is not sorted as Prometheus sorts it.
	OutOfOrder
)

// String says it in words.
func (k ScanKind) String() string {
	switch k {
	case Garbage:
		return "not JSON"
	case Truncated:
		return "truncated"
	case WrongShape:
		return "of the wrong shape"
	case OverBound:
		return "over a bound"
	case OutOfOrder:
		return "out of order"
	default:
		return "wrong"
	}
}

// ScanError is a fault of a shard's answer.
type ScanError struct {
	// Kind tells the fault.
	Kind ScanKind
	// Offset is the number of inflated bytes before the fault.
	Offset int64
	// Reason is a short sentence; it quotes at most a few bytes of the answer, escaped. It is for
	// logs.
	Reason string
}

// Error is for logs.
func (e *ScanError) Error() string {
	return fmt.Sprintf("the answer is %s at byte %d: %s", e.Kind, e.Offset, e.Reason)
}

// UpstreamError is an error object sent by a shard: well-formed, but not a result.
type UpstreamError struct {
	// Type is its errorType, such as execution; at most 1 KiB, as Message.
	Type string
	// Message is its error.
	Message string
}

// Error is for logs.
func (e *UpstreamError) Error() string { return "the shard answered " + e.Type + ": " + e.Message }

// shardErr makes an error about one shard's answer out of what went wrong while reading it.
// Refusals by a bound and ended contexts stay what they are; anything else is the shard's fault.
func shardErr(ctx context.Context, name string, err error) error {
	if err == nil {
		return nil
	}
	var known *qerr.Error
	if errors.As(err, &known) || errors.Is(err, qerr.ErrClientLeft) {
		return err
	}
	if ctx != nil && ctx.Err() != nil {
		return qerr.FromContext(ctx, err)
	}
	var (
		scan *ScanError
		up   *UpstreamError
		e    *qerr.Error
	)
	switch {
	case errors.As(err, &scan):
		e = qerr.Wrap(qerr.ShardFailed, err, "shard %s sent an answer that is %s", name, scan.Kind)
	case errors.As(err, &up):
		e = qerr.Wrap(qerr.ShardFailed, err, "shard %s answered an error of type %s where a result was expected", name, up.Type)
	default:
		e = qerr.Wrap(qerr.ShardFailed, err, "shard %s: reading its answer failed", name)
	}
	e.Shards = []string{name}
	return e
}
