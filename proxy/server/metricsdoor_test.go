package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// openMetrics starts a proxy whose metrics are open to everybody, and the rest of the admin
// listener on loopback; web is its web configuration, empty for none. It returns the addresses of
// both, as a machine elsewhere has the first one.
func openMetrics(t *testing.T, web string) (metrics, admin string) {
	t.Helper()
	fake := fakeshard.Start(t, fakeshard.Config{})
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	s, _ := startProxy(t, t.Context(), text, func(o *Options) {
		o.MetricsListenAddress, o.HeaderTimeout = "0.0.0.0:0", 10*patience
		o.Ready = func(_, a netAddr) { admin = a.String() }
		if web != "" {
			o.WebConfigFile = filepath.Join(t.TempDir(), "web.yml")
			if err := os.WriteFile(o.WebConfigFile, []byte(web), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	_, port, err := net.SplitHostPort(s.metricsAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port, admin
}

// spoken sends a request line with a Host and gives the answer's status, header and body.
func spoken(t *testing.T, address, line string) (int, http.Header, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: prometheus.example\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(line, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// TestMetricsAlone: where /metrics is opened alone, it and health are had over a listener beyond
// loopback; whatever else either other listener serves is refused there in words, and nothing
// happens.
func TestMetricsAlone(t *testing.T) {
	metrics, admin := openMetrics(t, "")
	for line, want := range map[string]string{
		"GET /metrics": "spillway_connections{listener=\"metrics\"}", "GET /metrics?x=1": "spillway_connections",
		"GET /-/healthy": "healthy", "GET /-/ready": "ready", "HEAD /metrics": "",
	} {
		if code, _, body := spoken(t, metrics, line); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s", line, code, body)
		}
	}
	code, h, body := spoken(t, metrics, "POST /metrics")
	if code != 405 || h.Get("Allow") != "GET, HEAD" || !strings.Contains(body, "only GET") {
		t.Errorf("POST /metrics: %d %q %s", code, h.Get("Allow"), body)
	}
	for _, line := range []string{
		"GET /", "POST /-/reload", "GET /-/reload", "POST /-/quit", "GET /debug/pprof/", "GET /debug/pprof/heap",
		"GET /debug/pprof/profile?seconds=1",
		"GET /debug/pprof/cmdline", "GET /api/spillway/v1/limits", "GET /api/spillway/v1/shards", "GET /api/spillway/v1/explain?query=up",
		"GET /api/spillway/v1/queries", "DELETE /api/spillway/v1/queries/1", "GET /api/v1/query?query=up", "GET /api/v1/status/config",
		"GET /federate", "GET /metrics/", "GET //metrics", "GET /./metrics", "GET /x/../metrics", "GET /%6detrics", "GET /metrics;x",
		"GET /Metrics",
		"GET /metrics/../-/reload", "GET /-/healthy/../reload", "POST /-/healthy/../reload", "GET http://127.0.0.1/debug/pprof/heap",
		"OPTIONS /-/reload",
	} {
		code, h, body := spoken(t, metrics, line)
		if code != 404 || !strings.Contains(body, "serves /metrics, /-/healthy and /-/ready and nothing else") || h.Get("Location") != "" {
			t.Errorf("%s: %d %.300s", line, code, body)
		}
	}
	// What was refused there is served where it belongs, to those on this machine.
	for _, path := range []string{"/metrics", "/debug/pprof/cmdline", "/api/spillway/v1/limits"} {
		if code, body := got(t, "http://"+admin+path); code != 200 {
			t.Errorf("%s of the admin listener: %d %s", path, code, body)
		}
	}
}

// TestMetricsAloneWithPasswords: the web configuration holds for that listener too, but health
// needs no password, as on the main listener.
func TestMetricsAloneWithPasswords(t *testing.T) {
	metrics, _ := openMetrics(t, "basic_auth_users: {ada: "+passwordTest+"}\n")
	for line, want := range map[string]int{"GET /metrics": 401, "GET /-/healthy": 200, "GET /-/ready": 200, "POST /-/reload": 401} {
		if code, _, body := spoken(t, metrics, line); code != want {
			t.Errorf("%s: %d, want %d: %.200s", line, code, want, body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("ada", "test")
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("with the password: %d", resp.StatusCode)
	}
}

// TestAdminStaysUnderAFlood: one address that keeps as many connections of the admin listener as it
// gets, without a password, keeps out nobody who comes from elsewhere.
func TestAdminStaysUnderAFlood(t *testing.T) {
	_, admin := openMetrics(t, "")
	for range adminConnections {
		conn, err := net.Dial("tcp", admin)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	elsewhere := &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	(&rig{t: t}).eventually("one from elsewhere is answered, and the others were turned away", func() bool {
		resp, err := elsewhere.Get("http://" + admin + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		over := fmt.Sprintf("spillway_connections_over_share_total{listener=\"admin\"} %d\n", adminConnections-adminPerAddress)
		return err == nil && strings.Contains(string(body), over)
	})
}

// TestMetricsStayUnderAFlood: whoever holds all places of the open listener takes none from the
// admin listener, and those on the open one are bounded, of one address at metricsPerAddress.
func TestMetricsStayUnderAFlood(t *testing.T) {
	metrics, admin := openMetrics(t, "")
	for range metricsConnections {
		conn, err := net.Dial("tcp", metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	(&rig{t: t}).eventually("as many are open as may be, and the others were turned away", func() bool {
		_, body := got(t, "http://"+admin+"/metrics")
		open := fmt.Sprintf("spillway_connections{listener=\"metrics\"} %d\n", metricsPerAddress)
		over := fmt.Sprintf("spillway_connections_over_share_total{listener=\"metrics\"} %d\n", metricsConnections-metricsPerAddress)
		return strings.Contains(string(body), open) && strings.Contains(string(body), over)
	})
}
