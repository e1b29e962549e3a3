package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

func TestQueries(t *testing.T) {
	d := setup(t)
	got := ask(t, d,
		`{"queryType":"promql","instant":true,"expr":"sum(experiment:pod:gpus{$__experiment})","clusters":["full"]}`,
		`{"queryType":"experiments","clusters":["full"]}`,
		`{"queryType":"pending","clusters":["no-labels"]}`,
		`{"queryType":"nonsense"}`,
		`[`,
		`{"queryType":"promql","expr":"sum("}`,
		`{"queryType":"pods","clusters":["full"]}`)
	first := got["A"]
	if first.Error != nil || first.Status != 200 || len(first.Frames) != 1 || first.Frames[0].RefID != "A" ||
		first.Frames[0].Meta.Type != data.FrameTypeNumericMulti ||
		first.Frames[0].Meta.ExecutedQueryString != `group by (cluster) (last_over_time(cluster:nodes:count{cluster="full"}[86400s])) `+
			`unless on (cluster) cluster:nodes:count{cluster="full"} `+
			`or label_replace(group by (cluster) (cluster:gpu_allocated:sum{cluster="full"} > 0) `+
			`unless on (cluster) experiment:pods:count{cluster="full"}, "held", "yes", "", "") `+
			`or label_replace(group by (cluster) ((cluster:nodes_measured:count{cluster="full"} `+
			`/ on (cluster) cluster:nodes_measured_usual:count{cluster="full"} < 0.9) < on (cluster) `+
			`(0.9 * max by (cluster) (cluster_job:targets:count{cluster="full",job=~".*node.*exporter.*"} `+
			`/ on (cluster, job) cluster_job:targets_usual:count{cluster="full"}))), "part", "yes", "", "")`+"\n"+`sum(experiment:pod:gpus{cluster="full"})` {
		t.Fatalf("%+v", first)
	}
	if v, ok := first.Frames[0].Fields[0].ConcreteAt(0); !ok || v != 8.0 {
		t.Errorf("GPUs: %v", v)
	}
	for ref, want := range map[string]struct {
		status backend.Status
		says   string
	}{
		"C": {http.StatusFailedDependency, "--metric-labels-allowlist=pods=[experiment,"},
		"D": {400, `query D: queryType: "nonsense" is unknown`},
		"E": {400, "query E is not what this datasource's editor writes"},
		"F": {400, "parse error"},
	} {
		r := got[ref]
		if r.Error == nil || r.Status != want.status || r.ErrorSource != backend.ErrorSourceDownstream ||
			!backend.IsDownstreamError(r.Error) || !strings.Contains(r.Error.Error(), want.says) {
			t.Errorf("%s: %d %s %v, want %d with %q", ref, r.Status, r.ErrorSource, r.Error, want.status, want.says)
		}
	}
	for _, ref := range []string{"B", "G"} {
		if got[ref].Error != nil || got[ref].Frames[0].Rows() != 1 {
			t.Errorf("%s: %v", ref, got[ref].Error)
		}
	}
	req := queries(`{"queryType":"experiments"}`)
	req.Queries[0].TimeRange.From = until
	if resp, err := d.QueryData(t.Context(), req); err != nil || resp.Responses["A"].Status != 400 ||
		!strings.Contains(resp.Responses["A"].Error.Error(), "ends before it begins") {
		t.Errorf("an empty range: %+v, %v", resp, err)
	}
}

// A panel that shows today asks until midnight: instant queries are asked now, not then.
func TestRangeInTheFuture(t *testing.T) {
	var asked []string
	d := served(t, "", func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.FormValue("time"))
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`))
	})
	req := queries(`{"queryType":"promql","expr":"up","instant":true}`)
	req.Queries[0].TimeRange.To = until.Add(6 * time.Hour)
	resp, err := d.QueryData(t.Context(), req)
	if err != nil || resp.Responses["A"].Error != nil || len(asked) != 1 || asked[0] != strconv.FormatInt(until.Unix(), 10) {
		t.Errorf("asked at %v, want %d: %v, %v", asked, until.Unix(), err, resp.Responses["A"].Error)
	}
	req.Queries[0].TimeRange.From = until.Add(time.Hour)
	resp, err = d.QueryData(t.Context(), req)
	if err != nil || resp.Responses["A"].Error == nil || !strings.Contains(resp.Responses["A"].Error.Error(), "future") || len(asked) != 1 {
		t.Errorf("a range in the future: %v, %v", err, resp.Responses["A"].Error)
	}
}

// Every type of query has a handler.
func TestHandlers(t *testing.T) {
	for _, kind := range model.QueryTypes {
		if experiments.Handlers[kind] == nil {
			t.Errorf("%s has none", kind)
		}
	}
	if len(experiments.Handlers) != len(model.QueryTypes) {
		t.Errorf("%d handlers of %d types", len(experiments.Handlers), len(model.QueryTypes))
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
	}{
		{&prom.Refusal{Status: 422}, 422},
		{fmt.Errorf("wrapped: %w", &prom.Refusal{Status: 429}), 429},
		{&prom.Refusal{Status: 401}, 401},
		{&prom.Refusal{Status: 200}, 502},
		{&prom.Refusal{Status: 500}, 502},
		{&prom.Refusal{Status: 503}, 503},
		{&prom.Failure{Status: 504}, 504},
		{&experiments.SetupError{}, 424},
		{fmt.Errorf("given up: %w", context.Canceled), 499},
		{context.DeadlineExceeded, 504},
		{errors.New("20001 pods are chosen"), 400},
		{errPanic, 500},
	} {
		r := failed(tc.err)
		source := backend.ErrorSourceDownstream
		if tc.status == 500 {
			source = backend.ErrorSourcePlugin
		}
		if int(r.Status) != tc.status || r.ErrorSource != source ||
			backend.IsDownstreamError(r.Error) != (source == backend.ErrorSourceDownstream) || r.Error.Error() != tc.err.Error() {
			t.Errorf("%v: %d %s, want %d %s", tc.err, r.Status, r.ErrorSource, tc.status, source)
		}
	}
}

// panics is a proxy's client that panics.
type panics struct{}

func (panics) Instant(context.Context, string, time.Time) (prom.Answer, error) { panic("secret") }

func (panics) Range(context.Context, string, time.Time, time.Time, time.Duration) (prom.Answer, error) {
	panic("secret")
}

func TestPanics(t *testing.T) {
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
	})
	d.asker = panics{}
	// the second asks in goroutines
	for ref, r := range ask(t, d, `{"queryType":"promql","expr":"up"}`, `{"queryType":"experiments"}`, `{"queryType":"cost"}`) {
		if r.Status != 500 || r.ErrorSource != backend.ErrorSourcePlugin || !errors.Is(r.Error, errPanic) ||
			strings.Contains(r.Error.Error(), "secret") {
			t.Errorf("%s: %d %s %v", ref, r.Status, r.ErrorSource, r.Error)
		}
	}
	if h, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{}); err != nil || h.Status != backend.HealthStatusError ||
		h.Message != errPanic.Error() {
		t.Errorf("%+v, %v", h, err)
	}
	for _, path := range []string{"health", "experiments", "teams"} {
		if status, body, _ := get(t, d, "GET", path, ""); status != 500 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Of an alert's query all series are looked at, or none: its notices are seen by nobody.
func TestAlertOnManySeries(t *testing.T) {
	var result []string
	for i := range 500 {
		result = append(result, fmt.Sprintf(`{"metric":{"node":"n%03d"},"value":[1,"%d"]}`, i, i/499))
	}
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(result, ","))
	})
	for _, alert := range []bool{false, true} {
		req := queries(`{"queryType":"promql","expr":"node_sick","instant":true}`)
		if alert {
			req.Headers = map[string]string{"FromAlert": "true"}
		}
		resp, err := d.QueryData(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.Responses["A"]
		switch {
		case !alert && (got.Error != nil || len(got.Frames) != 200):
			t.Errorf("a panel: %d frames, %v", len(got.Frames), got.Error)
		case alert && (got.Error == nil || got.Status != 400 || got.ErrorSource != backend.ErrorSourceDownstream || len(got.Frames) > 0 ||
			!strings.Contains(got.Error.Error(), "300 series are not shown")):
			t.Errorf("an alert: %d frames, %d, %v", len(got.Frames), got.Status, got.Error)
		}
	}
}

// No more than maxRequests are sent at a time, and ten queries of a request run at once; who leaves
// while waiting for room is let go.
func TestBounds(t *testing.T) {
	var (
		mu        sync.Mutex
		now, most int
	)
	full, once := make(chan struct{}), sync.Once{}
	d := served(t, "", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if now++; now > most {
			most = now
		}
		if now == maxRequests {
			once.Do(func() { close(full) })
		}
		mu.Unlock()
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
		mu.Lock()
		now--
		mu.Unlock()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	results := make(chan backend.DataResponse, 1000)
	for i := range 8 {
		wg.Go(func() {
			var list []string
			for range 12 {
				list = append(list, `{"queryType":"promql","expr":"up"}`)
			}
			req := queries(list...)
			if req.PluginContext.User = (&backend.User{Login: fmt.Sprint(i % 4)}); i >= 4 {
				req.Headers = map[string]string{"FromAlert": "true"}
			}
			resp, err := d.QueryData(ctx, req)
			if err != nil {
				t.Error(err)
				return
			}
			for _, r := range resp.Responses {
				results <- r
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-full:
	case <-ended:
		t.Error("the requests ended by themselves")
	}
	cancel()
	<-ended
	close(results)
	n := 0
	for r := range results {
		if n++; r.Error == nil || r.Status != 499 || r.ErrorSource != backend.ErrorSourceDownstream {
			t.Errorf("%d %s %v", r.Status, r.ErrorSource, r.Error)
		}
	}
	if n != 96 || most != maxRequests {
		t.Errorf("%d answers, %d requests at a time", n, most)
	}
	late, stop := context.WithTimeout(t.Context(), time.Nanosecond)
	defer stop()
	<-late.Done()
	g := newGate(panics{})
	g.all = maxRequests
	var f *prom.Failure
	if _, err := g.Instant(late, "up", until); !errors.As(err, &f) || f.Status != 504 {
		t.Errorf("%v", err)
	}
}
