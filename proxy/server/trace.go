package server

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// unrecorded is the span of whoever is not traced. Ending it does nothing.
var unrecorded = trace.SpanFromContext(context.Background())

// room starts the span of one room of the request's road; docs/traces.md lists them. Where the
// request is not recorded, because there is no provider or its sampler left it out, nothing is
// allocated and ctx is returned as it is.
func (s *Server) room(ctx context.Context, name string) (context.Context, trace.Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, unrecorded
	}
	return s.tracer.Start(ctx, name)
}
