package merge

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// hanging is a body that says nothing until it is cancelled.
type hanging struct {
	once  sync.Once
	ended chan struct{}
}

func (h *hanging) Read([]byte) (int, error) { <-h.ended; return 0, errors.New("cancelled") }
func (h *hanging) cancel()                  { h.once.Do(func() { close(h.ended) }) }

// TestOneFailureEndsAllReads: with the first failing shard the others are cancelled, also those
// that hang.
func TestOneFailureEndsAllReads(t *testing.T) {
	for _, endpoint := range []string{"series", "rules", "exemplars"} {
		var shards []Source
		for range 4 {
			h := &hanging{ended: make(chan struct{})}
			shards = append(shards, Source{Name: "slow", Body: h, Cancel: h.cancel})
		}
		shards = append(shards, Source{Name: "liar", Body: strings.NewReader("<html>")})
		_, _, err := merged(t, endpoint, nil, shards, roomy)
		var e *qerr.Error
		if !errors.As(err, &e) || e.Kind != qerr.ShardFailed || len(e.Shards) != 1 || e.Shards[0] != "liar" {
			t.Errorf("%s: got %v, want the fault of liar", endpoint, err)
		}
	}
}

// panicky is a body whose reading panics.
type panicky struct{}

func (panicky) Read([]byte) (int, error) { panic("boom") }

func TestAPanicWhileReadingIsAnError(t *testing.T) {
	for _, endpoint := range []string{"series", "rules", "exemplars"} {
		_, _, err := merged(t, endpoint, nil, []Source{{Name: "a", Body: panicky{}}}, roomy)
		if e := qerr.From(err); e == nil || e.Kind != qerr.Internal || !strings.Contains(err.Error(), "boom") ||
			strings.Contains(e.Message, "boom") {
			t.Errorf("%s: got %v", endpoint, err)
		}
	}
}

// TestTheContextSpeaksFirst: when the request has ended, that is the error, whatever the read says.
func TestTheContextSpeaksFirst(t *testing.T) {
	cause := qerr.New(qerr.Timeout, "the deadline of 5s passed")
	for endpoint, merge := range mergers {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		b := admit.NewBudget(admit.NewPool(64<<20), roomy)
		w := NewWriter(io.Discard, b)
		_, err := merge(ctx, w, nil, []Source{{Name: "a", Body: strings.NewReader(`{"status":"succ`)}}, b)
		if !errors.Is(err, cause) {
			t.Errorf("%s: got %v", endpoint, err)
		}
		w.Close()
		b.Close()
	}
}

// TestCutTargetsMetadata: what a limit cuts here is said to be cut.
func TestCutTargetsMetadata(t *testing.T) {
	body := func() Source {
		return Source{Name: "a", Body: strings.NewReader(`{"status":"success","data":[{"target":{"job":"x"},"metric":"up","type":"gauge"},{"target":{"job":"y"},"metric":"up","type":"gauge"}]}`)}
	}
	for limit, cut := range map[string]bool{"1": true, "2": false, "0": false} {
		_, res, err := merged(t, "targets_metadata", map[string]string{"limit": limit}, []Source{body()}, roomy)
		if err != nil || res.Truncated != cut {
			t.Errorf("limit %s: cut %t, %v", limit, res.Truncated, err)
		}
	}
}
