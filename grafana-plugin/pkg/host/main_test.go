package host

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/prometheus/common/expfmt"
	commonmodel "github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/host/hosttest"
)

// helper is the variable with which TestHostDies starts this program as the host that dies: the
// plugin's binary, and the URL of what its query asks.
const helper = "SPILLWAY_HOST_THAT_DIES"

var binary = flag.String("plugin", "", "the plugin's binary; built from source without it")

func TestMain(m *testing.M) {
	if v := os.Getenv(helper); v != "" {
		die(v)
	}
	flag.Parse()
	var dir string
	if *binary == "" && !testing.Short() {
		var err error
		if dir, err = os.MkdirTemp("", "spillway-plugin-"); err == nil {
			*binary, err = hosttest.Build(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.RemoveAll(dir)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir != "" {
			os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// logs is what a plugin writes.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the plugin until the test ends. Where the test failed, it shows what the plugin wrote.
func start(t *testing.T) *Host {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds and runs the plugin")
	}
	var l logs
	h, err := Start(Options{Binary: *binary, Log: &l})
	if err != nil {
		t.Fatalf("%v\n%s", err, l.String())
	}
	t.Cleanup(func() {
		h.Close()
		if text := l.String(); t.Failed() {
			t.Logf("the plugin wrote:\n%s", text[max(0, len(text)-4000):])
		} else if strings.Contains(text, "panic") {
			t.Errorf("the plugin panicked:\n%s", text)
		}
	})
	return h
}

// at is a datasource over url with settings.
func at(url, settings string) backend.DataSourceInstanceSettings {
	return backend.DataSourceInstanceSettings{
		ID: 1, UID: "x", Type: PluginID, Name: "Experiments", URL: url, JSONData: []byte(settings),
		Updated: time.UnixMilli(1),
	}
}

func contextOf(i backend.DataSourceInstanceSettings) backend.PluginContext {
	return backend.PluginContext{OrgID: 1, PluginID: PluginID, User: &backend.User{Login: "ada"}, DataSourceInstanceSettings: &i}
}

// request is one of queries, by their JSON, over the last half hour; their names are A, B, …
func request(p backend.PluginContext, queries ...string) *backend.QueryDataRequest {
	req := &backend.QueryDataRequest{PluginContext: p, Headers: map[string]string{}}
	until := time.Now()
	for i, q := range queries {
		req.Queries = append(req.Queries, backend.DataQuery{
			RefID: name(i), JSON: []byte(q), MaxDataPoints: 100, Interval: time.Minute,
			TimeRange: backend.TimeRange{From: until.Add(-30 * time.Minute), To: until},
		})
	}
	return req
}

// name is the i-th of A, B, …, Z, A1, B1, …
func name(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return string(rune('A'+i%26)) + strconv.Itoa(i/26)
}

// gauge reads one of the plugin's own metrics without labels.
func gauge(t *testing.T, h *Host, name string) float64 {
	t.Helper()
	text, err := h.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(commonmodel.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("the plugin's metrics: %v", err)
	}
	f := families[name]
	if f == nil || len(f.Metric) != 1 {
		t.Fatalf("the plugin has no metric %s", name)
	}
	return f.Metric[0].GetGauge().GetValue()
}

// eventually waits until ok, which looks at another process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not after 30 s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// die is the host that dies: it starts the plugin, tells its process, asks a query that gets no
// answer (or none, where there is no URL), and is killed meanwhile.
func die(v string) {
	binary, url, _ := strings.Cut(v, "|")
	h, err := Start(Options{Binary: binary})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(h.PID())
	if url == "" {
		select {}
	}
	_, err = h.Query(context.Background(), request(contextOf(at(url, "")), `{"queryType":"promql","expr":"up"}`))
	fmt.Fprintln(os.Stderr, "it should have been killed:", err)
	os.Exit(1)
}

// client leaves no connection behind.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
