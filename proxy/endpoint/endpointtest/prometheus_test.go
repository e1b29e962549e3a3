package endpointtest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/endpoint/endpointtest"
)

// start runs a Prometheus that holds an hour of data at both times that the client requests ask
// about.
func start(t *testing.T) *url.URL {
	t.Helper()
	shard, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 10000 * time.Hour, RoutePrefix: "/prom"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shard.Close(); err != nil {
			t.Error(err)
		}
	})
	const data = `load 15s
		up{job="node",node="gpu-1",team="vision"} 1x260
		up{job="node",node="gpu-2"} 0x260
		node_load1{job="node",node="gpu-1"} 0+0.25x260
		kube_pod_info{namespace="research",team="vision"} 1x260
		requests_bucket{le="1"} 0+1x260
		requests_bucket{le="+Inf"} 0+2x260
		{__name__="http.requests","http.status"="200"} 0+3x260
`
	for _, begin := range []int64{1754999900, 1787389200} {
		if err := shard.LoadAt(data, time.Unix(begin, 0)); err != nil {
			t.Fatal(err)
		}
	}
	base, err := url.Parse(shard.URL())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(base.Path, "/prom") {
		base = base.JoinPath("prom")
	}
	return base
}

// answer is what a client makes of a response.
type answer struct {
	status int
	kind   string
	body   any
}

func read(t *testing.T, resp *http.Response, err error) answer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{resp.StatusCode, resp.Header.Get("Content-Type"), string(body)}
	var doc map[string]any
	if json.Unmarshal(body, &doc) == nil {
		if data, ok := doc["data"].(map[string]any); ok {
			delete(data, "stats") // timings
		}
		a.body = doc
	}
	return a
}

// direct sends the client's own bytes, its path below the server's prefix.
func direct(t *testing.T, base *url.URL, raw []byte) answer {
	t.Helper()
	conn, err := net.Dial("tcp", base.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw = bytes.Replace(raw, []byte(" /"), []byte(" "+base.Path+"/"), 1)
	raw = bytes.ReplaceAll(raw, []byte("Accept-Encoding: "), []byte("X-Encoding: ")) // both sides uncompressed
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return read(t, resp, err)
}

// rewritten sends what Spillway makes of the request.
func rewritten(t *testing.T, base *url.URL, req *endpoint.Request) answer {
	t.Helper()
	out, err := req.Write(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(out)
	return read(t, resp, err)
}

// TestPrometheusAgrees asks a real Prometheus twice: with the client's bytes and with the request
// that Spillway makes of them. The answers are equal.
func TestPrometheusAgrees(t *testing.T) {
	base := start(t)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	all, err := endpointtest.Load("../testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	compared, filled := 0, 0
	for _, c := range all {
		if c.Status != http.StatusOK {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.Raw)))
			if err != nil {
				t.Fatal(err)
			}
			req, err := endpoint.Parse(r, endpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want, got := direct(t, base, c.Raw), rewritten(t, base, req)
			if want.status == http.StatusMethodNotAllowed { // label values by POST: Spillway serves more than Prometheus does
				want.status, want.body = http.StatusOK, got.body
			}
			if strings.HasPrefix(c.Name, "prometheus-adapter") && req.ID == endpoint.Query {
				want = got // its negative timeout is an error to Prometheus and none to us
			}
			if got.status != want.status {
				t.Fatalf("status %d, directly %d: %v %v", got.status, want.status, got.body, want.body)
			}
			switch e := endpoint.Get(req.ID); {
			case e.Class == endpoint.ClassStatus, e.Class == endpoint.ClassLocal: // times and counts of the process
			case req.ID == endpoint.Query && !req.Time.Set: // now
			case req.ID == endpoint.Federate: // another format is accepted; the order of its metrics is the same
			default:
				compared++
				if !reflect.DeepEqual(got.body, want.body) {
					t.Errorf("got  %v\nwant %v", got.body, want.body)
				}
				if doc, ok := got.body.(map[string]any); ok && len(fmt.Sprint(doc["data"])) > 60 {
					filled++
				}
			}
		})
	}
	if compared < 40 || filled < 15 {
		t.Errorf("only %d answers were compared, %d of them with data", compared, filled)
	}
}

// TestPrometheusReadsTimesAlike compares the spellings of times and steps: time() tells at which
// instants Prometheus evaluated.
func TestPrometheusReadsTimesAlike(t *testing.T) {
	base := start(t)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	var targets []string
	for _, s := range []string{
		"0", "-0", "-1.5", "1755003600", "1755003600.123456789", "1755003600.1235", "1755003600.0005", "1.7550036e9", "0x1p4",
		"1754996400000", "9999999999999.9995", "1_000",
		"2026-08-22T10:00:00Z", "2026-08-22T10:00:00.1239999Z", "1969-12-31T23:59:59.999Z", "2026-08-22T12:00:00.5+02:00",
		"2026-12-31T23:59:60Z", "2026-08-22", "NaN", "x",
	} {
		targets = append(targets, "/api/v1/query?query=time()&time="+url.QueryEscape(s))
	}
	for _, s := range []string{
		"15", "0.2", "60.000", "300s", "1m0s", "5m", "1.001", "0.0015", "0.007", "1e1", "1d2h", "2h1d", "0", "-1",
		"x", "", "1500ms",
	} {
		targets = append(targets, "/api/v1/query_range?query=time()&start=1755003600.0005&end=1755003603.77&step="+url.QueryEscape(s))
	}
	for _, segment := range []string{
		"job", "__name__", "U__http_2e_status", "http.status", "http%2Estatus", "U__http_2E_status", "nothing",
		"%C3%A4", "U__bad_", "%ff",
	} {
		targets = append(targets, "/api/v1/label/"+segment+"/values")
	}
	for _, q := range []string{
		"/series?match[]=up&limit=1", "/series", "/series?match[]=up&limit=-1", "/labels?start=2&end=x",
		"/rules?type=x", "/rules?group_next_token=x", "/status/tsdb?limit=0",
	} {
		targets = append(targets, "/api/v1"+q)
	}
	for _, target := range targets {
		raw := "GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"
		want := direct(t, base, []byte(raw))
		req, err := endpoint.Parse(httptest.NewRequest(http.MethodGet, target, nil), endpoint.Options{})
		if err != nil {
			if want.status/100 != 4 && !strings.Contains(target, "NaN") && !strings.Contains(target, "%2E") {
				t.Errorf("%s: we say %v, Prometheus %d %v", target, err, want.status, want.body)
			}
			continue
		}
		if got := rewritten(t, base, req); got.status != want.status || !reflect.DeepEqual(got.body, want.body) {
			t.Errorf("%s:\ngot  %v\nwant %v", target, got, want)
		}
	}
}
