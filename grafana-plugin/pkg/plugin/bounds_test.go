package plugin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/httpclient"
	"github.com/grafana/grafana-plugin-sdk-go/config"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// holding answers nothing until it is let go, and counts who waits.
type holding struct {
	mu      sync.Mutex
	waiting int
	release chan struct{}
}

func (h *holding) Instant(context.Context, string, time.Time) (prom.Answer, error) {
	h.mu.Lock()
	h.waiting++
	h.mu.Unlock()
	<-h.release
	return prom.Answer{}, nil
}

func (h *holding) Range(ctx context.Context, query string, _, until time.Time, _ time.Duration) (prom.Answer, error) {
	return h.Instant(ctx, query, until)
}

// Queries of one request run at once, as many as Grafana's configuration says, and ten at most.
func TestConcurrentQueries(t *testing.T) {
	d := open(t, backend.DataSourceInstanceSettings{URL: "http://127.0.0.1:1"})
	for configured, want := range map[string]int{"": maxAtOnce, "2": 2, "1": 1, "0": maxAtOnce, "50": maxAtOnce, "x": maxAtOnce} {
		synctest.Test(t, func(t *testing.T) {
			h := &holding{release: make(chan struct{})}
			one := &Datasource{settings: d.settings, asker: h, now: func() time.Time { return until }}
			var list []string
			for range 2 * maxAtOnce {
				list = append(list, `{"queryType":"promql","expr":"up"}`)
			}
			req := queries(list...)
			if configured != "" {
				req.PluginContext.GrafanaConfig = config.NewGrafanaCfg(map[string]string{config.ConcurrentQueryCount: configured})
			}
			var resp *backend.QueryDataResponse
			done := make(chan struct{})
			go func() {
				defer close(done)
				var err error
				if resp, err = one.QueryData(t.Context(), req); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			h.mu.Lock()
			if h.waiting != want {
				t.Errorf("%q: %d queries run at once, want %d", configured, h.waiting, want)
			}
			h.mu.Unlock()
			close(h.release)
			<-done
			if len(resp.Responses) != len(list) {
				t.Errorf("%q: %d answers", configured, len(resp.Responses))
			}
		})
	}
}

// The width of a panel and its interval are what steps are made of.
func TestStepOfAPanel(t *testing.T) {
	var step string
	d := served(t, "", func(w http.ResponseWriter, r *http.Request) {
		step = r.FormValue("step")
		_, _ = w.Write([]byte(good))
	})
	for _, c := range []struct {
		points   int64
		interval time.Duration
		want     string
	}{{100, time.Minute, "60"}, {10, time.Minute, "360"}, {100, 10 * time.Minute, "600"}, {1000, 0, "15"}} {
		req := queries(`{"queryType":"promql","expr":"up"}`)
		req.Queries[0].MaxDataPoints, req.Queries[0].Interval = c.points, c.interval
		if resp, err := d.QueryData(t.Context(), req); err != nil || resp.Responses["A"].Error != nil || step != c.want {
			t.Errorf("%d points, interval %s: step %s, want %s; %v", c.points, c.interval, step, c.want, err)
		}
	}
}

// A request ends after the time of the settings, Grafana's own where they have none, and goes
// through no proxy of the environment.
func TestHTTPClient(t *testing.T) {
	usual := httpclient.DefaultTimeoutOptions.Timeout
	for jsonData, want := range map[string]time.Duration{
		`{}`: usual, `{"timeout":0}`: usual, `{"timeout":-1}`: usual,
		`{"timeout":150}`: 150 * time.Second,
	} {
		c, err := httpClient(t.Context(), backend.DataSourceInstanceSettings{URL: "http://spillway:9090", JSONData: []byte(jsonData)})
		if err != nil {
			t.Fatal(err)
		}
		if c.Timeout != want || want <= 0 {
			t.Errorf("%s: a request may take %s, want %s", jsonData, c.Timeout, want)
		}
		if base := c.Transport.(closing).base; base == nil || base.Proxy != nil {
			t.Errorf("%s: a proxy of the environment is asked for the way", jsonData)
		}
	}
}

// An instance that ends leaves no connection behind.
func TestDispose(t *testing.T) {
	closed := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(good)) }))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			close(closed)
		}
	}
	srv.Start()
	d := open(t, backend.DataSourceInstanceSettings{URL: srv.URL})
	if r := ask(t, d, `{"queryType":"promql","expr":"up"}`)["A"]; r.Error != nil {
		t.Fatal(r.Error)
	}
	d.Dispose()
	select {
	case <-closed:
		srv.Close()
	case <-time.After(time.Minute):
		t.Error("a connection is still open")
		srv.CloseClientConnections()
		srv.Close()
	}
}

// Of a user's own query with very many series the first are kept, and all are counted.
func TestManySeries(t *testing.T) {
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		for i := range 10_050 {
			fmt.Fprintf(&b, `,{"metric":{"a":"%05d"},"value":[1,"1"],"values":[[1,"1"]]}`, 20_000-i)
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[` + b.String()[1:] + `]}}`))
	})
	for ref, r := range ask(t, d, `{"queryType":"promql","expr":"x","instant":true}`, `{"queryType":"promql","expr":"x"}`) {
		if r.Error != nil || len(r.Frames) != 200 || len(r.Frames[0].Meta.Notices) != 2 {
			t.Fatalf("%s: %v, %d frames", ref, r.Error, len(r.Frames))
		}
		for i, says := range []string{"9850 series are not shown: the query gives 10050,", "Only the first 10000 series"} {
			if n := r.Frames[0].Meta.Notices[i]; !strings.HasPrefix(n.Text, says) {
				t.Errorf("%s: %q, want %q", ref, n.Text, says)
			}
		}
		if l := r.Frames[0].Fields[len(r.Frames[0].Fields)-1].Labels["a"]; l != "10001" {
			t.Errorf("%s: the first is %s", ref, l)
		}
	}
}

// What resources look at, and how much of it they answer with.
func TestResourceBounds(t *testing.T) {
	var (
		mu    sync.Mutex
		asked []string
	)
	h := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.FormValue("query"))
		mu.Unlock()
		var series []string
		for i := range 150 {
			series = append(series, fmt.Sprintf(`{"metric":{"cluster":"c","namespace":"n","experiment":"e%d","team":"t"},"value":[1,"1"]}`, i))
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`))
	}
	for _, c := range []struct {
		jsonData, path, params string
		names                  int
		asks                   string
	}{
		{"", "experiments", "", defaultLimit, "[604800s:"}, // a week
		{"", "experiments", "limit=120", 120, ""},
		{"", "experiments", "limit=100000", 150, ""},
		{`{"maxRows":20}`, "experiments", "", 20, ""},
		{`{"maxRows":20}`, "experiments", "limit=120", 20, ""},
		{"", "experiments", "namespace=n&namespace=m", defaultLimit, `namespace=~"m|n"`},
		{"", "teams", "", 0, "[86400s]"}, // each day
		{"", "clusters", "namespace=n", 0, `namespace="n"`},
	} {
		asked = nil
		status, body, headers := get(t, served(t, c.jsonData, h), "GET", c.path, c.params)
		if n := strings.Count(body, `"name"`); status != 200 || n != c.names {
			t.Errorf("%s?%s: %d with %d names, want %d", c.path, c.params, status, n, c.names)
		}
		if !strings.Contains(strings.Join(asked, "\n"), c.asks) {
			t.Errorf("%s?%s: nothing of %s was asked:\n%s", c.path, c.params, c.asks, strings.Join(asked, "\n"))
		}
		// Names are for who asked, and are never run.
		if headers["Cache-Control"][0] != "no-store" || headers["X-Content-Type-Options"][0] != "nosniff" {
			t.Errorf("%s: headers %v", c.path, headers)
		}
	}
}

// Of many clusters one that is not set up is told and spoils nothing.
func TestHealthOfManyClusters(t *testing.T) {
	h, err := setup(t).CheckHealth(t.Context(), &backend.CheckHealthRequest{})
	if err != nil || h.Status != backend.HealthStatusOk || !strings.Contains(h.Message, "things are not set up; the first: ") ||
		!strings.Contains(string(h.JSONDetails), "no-labels") {
		t.Errorf("%s %q, %v", h.Status, h.Message, err)
	}
}
