package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// lateLog writes of requests when their deadline, and what is left for an answer after it, are
// over.
type lateLog struct{ *logbook }

// Handle implements slog.Handler.
func (l lateLog) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Message == "request" {
		time.Sleep(1500 * time.Millisecond)
	}
	return l.logbook.Handle(ctx, rec)
}

// WithAttrs implements slog.Handler.
func (l lateLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// TestLateErrorIsTold: on a machine that is so busy that the error of a request which had no time
// left is written long after its deadline, the client is told it, and not cut off without a word.
func TestLateErrorIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(5*time.Second), func(o *Options) { o.Logger = slog.New(lateLog{&logbook{}}) })
	if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/query", Script: "stall"}); err != nil {
		t.Fatal(err)
	}
	got := r.query("up")
	if got.err != nil || got.status != http.StatusServiceUnavailable || !strings.Contains(got.message.Error, r.names[r.all()[0]]) {
		t.Errorf("after %s: %s", got.took, got)
	}
	r.idle()
}
