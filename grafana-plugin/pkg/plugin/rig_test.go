package plugin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/localprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// until is when the clusters of experiments/testdata/setup.load are looked at.
var until = time.UnixMilli(0).Add(100 * time.Minute).UTC()

// open makes an instance that ends with the test.
func open(t testing.TB, s backend.DataSourceInstanceSettings) *Datasource {
	t.Helper()
	s.Type, s.UID, s.Name = ID, "u", "Experiments"
	i, err := New(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	d := i.(*Datasource)
	d.now = func() time.Time { return until }
	t.Cleanup(d.Dispose)
	return d
}

// served is an instance whose proxy answers by h.
func served(t testing.TB, jsonData string, h http.HandlerFunc) *Datasource {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return open(t, backend.DataSourceInstanceSettings{URL: srv.URL, JSONData: []byte(jsonData)})
}

// setup is an instance over a Prometheus with experiments/testdata/setup.load, without the lines
// that have one of the texts.
func setup(t testing.TB, without ...string) *Datasource {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "experiments", "testdata", "setup.load"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(string(text), "\n") {
		keep := true
		for _, w := range without {
			keep = keep && !strings.Contains(line, w)
		}
		if keep {
			lines = append(lines, line)
		}
	}
	return loaded(t, strings.Join(lines, "\n"), "")
}

// loaded is an instance over a Prometheus that holds the series of a text.
func loaded(t testing.TB, text, jsonData string) *Datasource {
	t.Helper()
	shard, err := localprom.Start(context.Background(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shard.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := shard.Load(text); err != nil {
		t.Fatal(err)
	}
	return open(t, backend.DataSourceInstanceSettings{URL: shard.URL(), JSONData: []byte(jsonData)})
}

// queries makes a request of the JSON of queries, which are called A, B and so on.
func queries(list ...string) *backend.QueryDataRequest {
	req := &backend.QueryDataRequest{}
	for i, q := range list {
		req.Queries = append(req.Queries, backend.DataQuery{
			RefID: string(rune('A' + i)), JSON: []byte(q), TimeRange: backend.TimeRange{From: until.Add(-time.Hour), To: until},
			MaxDataPoints: 100, Interval: time.Minute,
		})
	}
	return req
}

func ask(t testing.TB, d *Datasource, list ...string) backend.Responses {
	t.Helper()
	resp, err := d.QueryData(t.Context(), queries(list...))
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Responses) != len(list) {
		t.Fatalf("%d answers to %d queries", len(resp.Responses), len(list))
	}
	return resp.Responses
}

// get calls a resource.
func get(t testing.TB, d *Datasource, method, path, params string) (int, string, map[string][]string) {
	t.Helper()
	var got *backend.CallResourceResponse
	err := d.CallResource(t.Context(), &backend.CallResourceRequest{Method: method, Path: path, URL: path + "?" + params},
		backend.CallResourceResponseSenderFunc(
			func(r *backend.CallResourceResponse) error {
				if got != nil {
					t.Errorf("%s: a second answer", path)
				}
				got = r
				return nil
			}))
	if err != nil || got == nil {
		t.Fatalf("%s: %v", path, err)
	}
	if !json.Valid(got.Body) || got.Headers["Content-Type"][0] != "application/json" {
		t.Errorf("%s: no JSON: %s", path, got.Body)
	}
	return got.Status, string(got.Body), got.Headers
}

const good = `{"status":"success","data":{"resultType":"vector","result":[]}}`
