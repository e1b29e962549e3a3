package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// recordTraces makes servers that are built from now on record their spans, up to the end of the
// test.
func recordTraces(t *testing.T, sampler sdktrace.Sampler) *tracetest.InMemoryExporter {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sampler))
	propagator := otel.GetTextMapPropagator()
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		otel.SetTextMapPropagator(propagator)
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return exporter
}

const (
	clientTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan   = "00f067aa0ba902b7"
	clientParent = "00-" + clientTrace + "-" + clientSpan + "-01"
)

// spansOf are the spans of one request: the server span whose endpoint is set, and its descendants,
// by name.
func spansOf(t *testing.T, all tracetest.SpanStubs) (root tracetest.SpanStub, under []string) {
	t.Helper()
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == "request" })
	if i < 0 {
		t.Fatalf("no span of the request among %d", len(all))
	}
	root = all[i]
	ids := map[trace.SpanID]bool{root.SpanContext.SpanID(): true}
	for range all { // spans end before their parents, so the order says nothing
		for _, s := range all {
			if ids[s.Parent.SpanID()] {
				ids[s.SpanContext.SpanID()] = true
			}
		}
	}
	for _, s := range all {
		// Prometheus' engine has spans of its own under evaluate.
		if s.SpanContext.SpanID() != root.SpanContext.SpanID() && ids[s.SpanContext.SpanID()] &&
			strings.HasPrefix(s.InstrumentationScope.Name, "github.com/spillwayproject/") {
			under = append(under, s.Name)
		}
		if s.SpanContext.TraceID() != root.SpanContext.TraceID() && s.SpanContext.TraceID() != fakeshard.EngineTrace {
			t.Errorf("the span %s is in another trace", s.Name)
		}
	}
	slices.Sort(under)
	return root, under
}

func attributes(s tracetest.SpanStub) map[string]string {
	out := map[string]string{}
	for _, kv := range s.Attributes {
		out[string(kv.Key)] = kv.Value.String()
	}
	return out
}

// TestTraces follows requests through their rooms to the shards: each has the spans that
// docs/traces.md names, in the client's trace, which the shards are told too.
func TestTraces(t *testing.T) {
	exporter := recordTraces(t, sdktrace.ParentBased(sdktrace.NeverSample()))
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}, {name: "heron", replicas: []int{1}}},
		"usage_log: {path: usage.jsonl}\n")
	for _, tc := range []struct {
		name   string
		path   string
		form   url.Values
		status int
		want   []string
		shards []string // whose servers see the trace
		attrs  map[string]string
	}{
		{
			name: "raw over two shards", path: "/api/v1/query_range",
			form:   url.Values{"query": {`quantile(0.5, up{cluster="jaguar"})`}, "start": {"1000"}, "end": {"1060"}, "step": {"15"}},
			status: 200,
			want:   []string{"encode", "endpoint", "evaluate", "identity", "plan", "policy", "shard read", "shard read", "usage", "write"},
			shards: []string{"jaguar"},
			attrs: map[string]string{
				"spillway.endpoint": "query_range", "spillway.verdict": "pass", "spillway.outcome": "success",
				"spillway.series": "2",
			},
		},
		{
			name: "pushed to two shards", path: "/api/v1/query", form: url.Values{"query": {`count(up{cluster="jaguar"})`}}, status: 200,
			want:   []string{"encode", "endpoint", "identity", "merge", "plan", "policy", "shard query", "shard query", "usage", "write"},
			shards: []string{"jaguar"},
			attrs: map[string]string{
				"spillway.endpoint": "query", "spillway.verdict": "pass", "spillway.outcome": "success",
				"spillway.series": "1",
			},
		},
		{
			name: "joined of two pushed parts", path: "/api/v1/query", form: url.Values{"query": {`sum(up{cluster="jaguar"}) / count(up{cluster="jaguar"})`}}, status: 200,
			want: []string{
				"encode", "endpoint", "evaluate", "identity", "merge", "plan", "policy", "shard query", "shard query", "shard query",
				"shard query", "usage", "write",
			},
			shards: []string{"jaguar"},
			attrs:  map[string]string{"spillway.endpoint": "query", "spillway.outcome": "success"},
		},
		{
			name: "passed to one shard", path: "/api/v1/query", form: url.Values{"query": {`up{cluster="heron"}`}}, status: 200,
			want:   []string{"endpoint", "identity", "merge", "plan", "policy", "shard query", "usage", "write"},
			shards: []string{"heron"},
			attrs:  map[string]string{"spillway.endpoint": "query", "spillway.outcome": "success"},
		},
		{
			name: "series", path: "/api/v1/series", form: url.Values{"match[]": {`up`}}, status: 200,
			want:   []string{"endpoint", "identity", "merge", "policy", "shard series", "shard series", "shard series", "usage", "write"},
			shards: []string{"jaguar", "heron"},
			attrs:  map[string]string{"spillway.endpoint": "series"},
		},
		{
			name: "federate", path: "/federate", form: url.Values{"match[]": {`up{cluster="heron"}`}}, status: 200,
			want: []string{"endpoint", "identity", "policy", "select", "shard read", "usage"}, shards: []string{"heron"},
			attrs: map[string]string{"spillway.endpoint": "federate"},
		},
		{
			name: "refused", path: "/api/v1/query", form: url.Values{"query": {`{le!=""}`}}, status: 422,
			want:  []string{"endpoint", "identity", "policy", "rewrite", "usage"},
			attrs: map[string]string{"spillway.verdict": "refuse", "spillway.bound": "unselective", "spillway.outcome": "too_expensive"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exporter.Reset()
			seen := map[string]int{}
			for s, name := range r.names {
				seen[name] = s.Seen()
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+tc.path+"?"+tc.form.Encode(), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("traceparent", clientParent)
			if a := r.ask(req); a.status != tc.status {
				t.Fatal(a)
			}
			// The answer may reach its client before the last spans have ended.
			r.eventually("the span of the request has ended", func() bool {
				return slices.ContainsFunc(exporter.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name == "request" })
			})
			all := exporter.GetSpans()
			root, under := spansOf(t, all)
			if !slices.Equal(under, tc.want) {
				t.Errorf("spans %q\nwant  %q", under, tc.want)
			}
			if root.SpanContext.TraceID().String() != clientTrace || root.Parent.SpanID().String() != clientSpan ||
				root.SpanKind != trace.SpanKindServer {
				t.Errorf("the request is not a server span in the client's trace: %v under %v", root.SpanContext, root.Parent)
			}
			if failed := root.Status.Code == codes.Error; failed != (tc.status != 200) {
				t.Errorf("status of the span: %v", root.Status)
			}
			got := attributes(root)
			for k, v := range tc.attrs {
				if got[k] != v {
					t.Errorf("%s = %q, want %q (of %v)", k, got[k], v, got)
				}
			}
			for _, s := range all {
				if strings.HasPrefix(s.Name, "shard ") {
					if a := attributes(s); s.SpanKind != trace.SpanKindClient || a["spillway.group"] == "" || a["server.address"] == "" ||
						a["http.response.status_code"] != "200" {
						t.Errorf("the span %s has %v", s.Name, a)
					}
				}
			}

			// What the shards were told: the client's trace, and our own span as the parent.
			calls := map[string]int{}
			for s, name := range r.names {
				for _, rec := range s.Requests() {
					parent := rec.Header.Get("Traceparent")
					if rec.N <= seen[name] || parent == "" {
						continue
					}
					group, _, _ := strings.Cut(name, "/")
					calls[group]++
					i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool {
						return strings.HasPrefix(s.Name, "shard ") && parent == "00-"+clientTrace+"-"+s.SpanContext.SpanID().String()+"-01"
					})
					if i < 0 {
						t.Errorf("%s saw the traceparent %s, which is no shard call of ours", name, parent)
					}
				}
			}
			for _, g := range []string{"jaguar", "heron"} {
				if want := slices.Contains(tc.shards, g); (calls[g] > 0) != want {
					t.Errorf("%d calls to %s with the trace, wanted some: %v", calls[g], g, want)
				}
			}
		})
	}

	t.Run("a client that is not sampled", func(t *testing.T) {
		exporter.Reset()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			r.url+"/api/v1/query?query="+url.QueryEscape(`up{cluster="heron"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("traceparent", strings.TrimSuffix(clientParent, "01")+"00")
		if a := r.ask(req); a.status != 200 {
			t.Fatal(a)
		}
		r.idle()
		if got := exporter.GetSpans(); len(got) > 0 {
			t.Errorf("%d spans of a request whose client is not sampled", len(got))
		}
		told := slices.ContainsFunc(r.shards["heron"][0][0].Requests(), func(rec fakeshard.Record) bool {
			p := rec.Header.Get("Traceparent")
			return strings.HasPrefix(p, "00-"+clientTrace) && strings.HasSuffix(p, "-00")
		})
		if !told {
			t.Error("the shard was not told the client's trace")
		}
	})
}

// TestTracesFailedShard marks the span of the call that failed, and the request's.
func TestTracesFailedShard(t *testing.T) {
	exporter := recordTraces(t, sdktrace.AlwaysSample())
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}}, "")
	if err := r.shards["jaguar"][1][0].Set("status 500; send nothing"); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/query?query="+url.QueryEscape(`count(up)`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := r.ask(req); a.status != http.StatusBadGateway {
		t.Fatal(a)
	}
	r.eventually("the span of the request has ended", func() bool {
		return slices.ContainsFunc(exporter.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name == "request" })
	})
	root, _ := spansOf(t, exporter.GetSpans())
	if root.Status.Code != codes.Error || attributes(root)["spillway.outcome"] != "shard_failed" {
		t.Errorf("the request's span: %v %v", root.Status, root.Attributes)
	}
	if !slices.ContainsFunc(exporter.GetSpans(), func(s tracetest.SpanStub) bool {
		return s.Name == "shard query" && s.Status.Code == codes.Error &&
			slices.Contains(s.Attributes, attribute.Int("http.response.status_code", 500))
	}) {
		t.Error("no span of a shard call carries the failure")
	}
}

// TestUntraced: where nobody records, a room costs nothing.
func TestUntraced(t *testing.T) {
	s := &Server{tracer: otel.Tracer("test")}
	ctx := trace.ContextWithRemoteSpanContext(t.Context(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	allocs := testing.AllocsPerRun(100, func() {
		inner, span := s.room(ctx, "plan")
		if inner != ctx {
			t.Error("another context")
		}
		span.End()
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a room that nobody records", allocs)
	}
}
