package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// A Prometheus that reads its log answers nothing of its API but how far it has come. It is not
// asked meanwhile, as one that is not there, and is asked again as soon as its readiness page says
// that it is ready.

// startingError is why a server is not ready that has just been started, or is about to stop.
type startingError struct {
	name, text string
	err        error
}

func (e *startingError) Error() string { return e.name + " " + e.text }

func (e *startingError) Unwrap() error { return e.err }

// starting is the error of a server whose readiness page has answered with err, if that is so since
// it reads its log; else err.
func (r *Replica) starting(ctx context.Context, err error) error {
	if r.Thanos() || statusOf(err) != http.StatusServiceUnavailable {
		return err
	}
	var read struct{ Min, Max, Current int64 }
	asked := r.get(ctx, probeJSON, "/api/v1/status/walreplay", nil, smallPage, r.data(func(raw json.RawMessage) error {
		return json.Unmarshal(raw, &read)
	}))
	if asked != nil { // it is no Prometheus that says so, but what stands before it perhaps
		return err
	}
	e := &startingError{name: r.Name(), text: "is starting, or about to stop", err: err}
	if n, all := read.Current-read.Min, read.Max-read.Min; all > 0 && n >= 0 && n < all {
		e.text = fmt.Sprintf("has been started and reads its log, of which it has read %d of %d segments", n, all)
	}
	return e
}
