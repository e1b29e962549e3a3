package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A Prometheus that reads its log answers nothing of its API but how far it has come. It is not
// asked meanwhile, as one that is not there, and is asked again as soon as its readiness page says
// that it is ready. A server is taken for one only where everything says so: its readiness page, a
// page of its API that any other server answers, and a log of which it has not read all. What
// stands before a server may answer 503 for the one page or the other while queries pass.

// startsAgain is when who needs a server that reads its log may come again.
const startsAgain = 5 * time.Second

// errStarting is the private cause of a call that is not made because of that.
var errStarting = errors.New("the server reads its log")

// startingError is why a server is not ready that reads its log.
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
	n, all := read.Current-read.Min, read.Max-read.Min
	if asked != nil || n < 0 || n >= all {
		return err
	}
	api := r.get(ctx, probeJSON, "/api/v1/status/buildinfo", nil, smallPage, func([]byte) error { return nil })
	if statusOf(api) != http.StatusServiceUnavailable {
		return err
	}
	text := fmt.Sprintf("has been started and reads its log, of which it has read %d of %d segments", n, all)
	return &startingError{name: r.Name(), text: text, err: err}
}
