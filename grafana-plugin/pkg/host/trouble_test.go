package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

const up = `{"queryType":"promql","expr":"up","instant":true}`

// slack is how many goroutines a process may have more than before: its runtime and its collectors
// start some of their own.
const slack = 3

// requestsAtOnce is how many requests one instance of the datasource has at the API at most.
const requestsAtOnce = 32

// TestFiftyAtOnce: of fifty requests with three queries each, of several users and of alerts, as
// many as the plugin allows wait at the API at once and no more; all are answered, and when the
// datasource's settings change, nothing of the old instance is left in the plugin: no goroutine, no
// connection.
func TestFiftyAtOnce(t *testing.T) {
	h := start(t)
	api := fakeshard.Start(t, fakeshard.Config{Default: "wait go; answer"})
	i := at(api.URL(), "")
	// what is started once is started now
	if _, err := h.Query(t.Context(), request(contextOf(at("http://127.0.0.1:1", "")), up)); err != nil {
		t.Fatal(err)
	}
	i.Updated = time.UnixMilli(2)
	before := gauge(t, h, "go_goroutines")

	var wg sync.WaitGroup
	errs := make(chan error, 50*3)
	for n := range 50 {
		wg.Go(func() {
			req := request(contextOf(i), up, up, up)
			if req.PluginContext.User = (&backend.User{Login: fmt.Sprint("user", n%5)}); n%2 == 0 {
				req.Headers["FromAlert"] = "true"
			}
			answer, err := h.Query(t.Context(), req)
			if err != nil {
				errs <- err
				return
			}
			if len(answer.Responses) != 3 {
				errs <- fmt.Errorf("%d answers to three queries", len(answer.Responses))
			}
			for ref, r := range answer.Responses {
				if r.Error != nil || len(r.Frames) != 2 {
					errs <- fmt.Errorf("%s: %d frames, %w", ref, len(r.Frames), r.Error)
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := api.WaitSeen(ctx, "/api/v1/query", requestsAtOnce); err != nil {
		t.Fatalf("they did not come at once: %v", err)
	}
	if n := api.InFlight(); n != requestsAtOnce {
		t.Errorf("%d wait at the API at once, want %d", n, requestsAtOnce)
	}
	api.Release("go")
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if err := api.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
	if n := len(api.RequestsTo("/api/v1/query")); n != 150 {
		t.Errorf("%d requests for 150 queries", n)
	}

	i.URL, i.Updated = "http://127.0.0.1:1", time.UnixMilli(3)
	if _, err := h.Query(t.Context(), request(contextOf(i), up)); err != nil {
		t.Fatal(err)
	}
	if err := api.WaitConns(ctx, 0); err != nil {
		t.Errorf("connections of the old instance are left: %v", err)
	}
	eventually(t, "the plugin has its goroutines of before", func() bool { return gauge(t, h, "go_goroutines") <= before+slack })
}

// TestReaderLeaves: whoever leaves ends the plugin's request, a query, a health check and a
// resource, and no goroutine of it is left.
func TestReaderLeaves(t *testing.T) {
	h := start(t)
	api := fakeshard.Start(t, fakeshard.Config{Default: "stall", Probe: func(fakeshard.Record) bool { return false }})
	p := contextOf(at(api.URL(), ""))
	asks := map[string]func(ctx context.Context) error{
		"query": func(ctx context.Context) error { _, err := h.Query(ctx, request(p, up)); return err },
		"experiments": func(ctx context.Context) error {
			_, err := h.Query(ctx, request(p, `{"queryType":"experiments"}`))
			return err
		},
		"health": func(ctx context.Context) error { _, err := h.Health(ctx, p, nil); return err },
		"resource": func(ctx context.Context) error {
			_, err := h.Call(ctx, &backend.CallResourceRequest{PluginContext: p, Method: http.MethodGet, Path: "teams", URL: "teams"})
			return err
		},
	}
	before := 0.0
	for round := range 2 { // the first one starts what is started once
		for what, ask := range asks {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			seen := api.Seen()
			go func() { ended <- ask(ctx) }()
			eventually(t, what+" asks the API", func() bool { return api.Seen() > seen })
			cancel()
			if err := <-ended; err == nil {
				t.Errorf("%s was answered by an API that answers nothing", what)
			}
			wait, done := context.WithTimeout(t.Context(), 30*time.Second)
			if err := api.WaitIdle(wait); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			done()
		}
		if round == 0 {
			before = gauge(t, h, "go_goroutines")
		}
	}
	for _, r := range api.Requests() {
		if !r.End.PeerLeft() {
			t.Errorf("%s", r)
		}
	}
	eventually(t, "the plugin has its goroutines of before", func() bool { return gauge(t, h, "go_goroutines") <= before+slack })
}

// TestHostDies: a host that is killed, in the middle of a query or while nobody asks anything,
// leaves no request, and no process that would hold the datasource's secrets for ever.
func TestHostDies(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the plugin")
	}
	api := fakeshard.Start(t, fakeshard.Config{Default: "stall", Probe: func(fakeshard.Record) bool { return false }})
	for what, url := range map[string]string{"in a query": api.URL(), "idle": ""} {
		t.Run(what, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helper+"="+*binary+"|"+url)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			line, err := bufio.NewReader(out).ReadString('\n')
			pid, _ := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || pid == 0 {
				t.Fatalf("the host said %q: %v", line, err)
			}
			t.Cleanup(func() {
				if !gone(pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if url != "" {
				if err := api.WaitSeen(ctx, "/api/v1/query*", 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if err := api.WaitIdle(ctx); err != nil {
				t.Errorf("the host's query goes on without it: %v", err)
			}
			eventually(t, "the plugin's process has ended", func() bool { return gone(pid) })
		})
	}
}

// gone tells whether a process has ended; one that nobody has waited for has, too.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// TestPluginDies: requests that run end with an error, and later ones say that the plugin has
// ended.
func TestPluginDies(t *testing.T) {
	h := start(t)
	api := fakeshard.Start(t, fakeshard.Config{Default: "stall", Probe: func(fakeshard.Record) bool { return false }})
	p := contextOf(at(api.URL(), ""))
	ended := make(chan error, 1)
	go func() { _, err := h.Query(t.Context(), request(p, up)); ended <- err }()
	eventually(t, "the query is at the API", func() bool { return api.InFlight() == 1 })
	if err := syscall.Kill(h.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a query was answered by a plugin that was killed")
	}
	eventually(t, "the host has noticed", h.Exited)
	for what, ask := range map[string]func() error{
		"query":   func() error { _, err := h.Query(t.Context(), request(p, up)); return err },
		"health":  func() error { _, err := h.Health(t.Context(), p, nil); return err },
		"metrics": func() error { _, err := h.Metrics(t.Context()); return err },
		"resource": func() error {
			_, err := h.Call(t.Context(), &backend.CallResourceRequest{
				PluginContext: p, Method: http.MethodGet, Path: "teams",
				URL: "teams",
			})
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "has ended") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// closed is an address at which nobody listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// TestTroubledProxy: whatever is wrong with the proxy is no fault of the plugin's, and is said of
// each query by itself.
func TestTroubledProxy(t *testing.T) {
	h := start(t)
	stalls := fakeshard.Start(t, fakeshard.Config{Default: "stall", Probe: func(fakeshard.Record) bool { return false }})
	script := func(s string) string {
		return fakeshard.Start(t, fakeshard.Config{Default: s, Probe: func(fakeshard.Record) bool { return false }}).URL()
	}
	both := map[string]string{"jaguar": shard(t, "jaguar").URL(), "ibis": shard(t, "ibis").URL()}
	half := map[string]string{"jaguar": both["jaguar"], "ibis": closed(t)}
	for _, c := range []struct {
		what, url, settings, query string
		status                     backend.Status // 0: any error's
		want                       []string       // of the error
	}{
		{"down", closed(t), "", up, 502, []string{"refused"}},
		{"slow", stalls.URL(), `{"timeout":1}`, up, 504, nil},
		{"refuses: max_series", proxy(t, "limits: {max_series: 3}", both), "", `{"queryType":"promql","expr":"kube_pod_status_phase"}`, 0, []string{"max_series", "3"}},
		{"refuses: overloaded", script("header Retry-After 7; error 429 too_many_requests too many queries"), "", up, 429, []string{"too many queries"}},
		{"partial, and only whole answers are wanted", proxy(t, "partial_response: abort", half), "", up, 0, []string{"ibis"}},
		{"a login page", script("garbage html"), "", up, 502, nil},
		{"nonsense", script("garbage shape"), "", up, 502, nil},
		{"a redirect elsewhere", script("redirect http://10.0.0.9/ 307"), "", up, 502, nil},
		{"ends in the middle", script("length 1000; send '{\"status\":'; close"), "", up, 502, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			i := at(c.url, c.settings)
			i.UID = c.what
			answer, err := h.Query(t.Context(), request(contextOf(i), c.query, `{"queryType":"nonsense"}`))
			if err != nil {
				t.Fatal(err)
			}
			got := answer.Responses["A"]
			switch {
			case got.Error == nil:
				t.Fatalf("it was answered, with %d frames", len(got.Frames))
			case got.ErrorSource != backend.ErrorSourceDownstream:
				t.Errorf("its source is %q: %v", got.ErrorSource, got.Error)
			case c.status != 0 && got.Status != c.status:
				t.Errorf("status %d, want %d: %v", got.Status, c.status, got.Error)
			}
			for _, w := range c.want {
				if !strings.Contains(got.Error.Error(), w) {
					t.Errorf("no %q in %v", w, got.Error)
				}
			}
			// The neighbour is told what is wrong with itself.
			if err := answer.Responses["B"].Error; err == nil || !strings.Contains(err.Error(), "nonsense") {
				t.Errorf("a query of an unknown type: %v", err)
			}
			found, err := h.Health(t.Context(), contextOf(i), nil)
			if err != nil {
				t.Fatal(err)
			}
			if found.Message == "" || found.Status != backend.HealthStatusError && !strings.HasPrefix(c.what, "refuses: max_series") {
				t.Errorf("health: %s %q", found.Status, found.Message)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stalls.WaitIdle(ctx); err != nil {
		t.Error(err)
	}
}

// TestPartialAnswer: with a shard gone, what the others hold is shown, and a notice names the one
// that is missing.
func TestPartialAnswer(t *testing.T) {
	h := start(t)
	half := map[string]string{"jaguar": shard(t, "jaguar").URL(), "ibis": closed(t)}
	p := contextOf(at(proxy(t, "", half), `{"partialResponse":"warn"}`))
	for _, query := range []string{`{"queryType":"promql","instant":true,"expr":"experiment:pod:info"}`, `{"queryType":"experiments"}`} {
		answer, err := h.Query(t.Context(), request(p, query))
		if err != nil {
			t.Fatal(err)
		}
		got := answer.Responses["A"]
		if got.Error != nil || len(got.Frames) == 0 || got.Frames[0].Rows() == 0 {
			t.Fatalf("%s: %d frames, %v", query, len(got.Frames), got.Error)
		}
		var notices []string
		for _, f := range got.Frames {
			for _, n := range f.Meta.Notices {
				notices = append(notices, n.Text)
			}
		}
		if !strings.Contains(strings.Join(notices, "\n"), "ibis") {
			t.Errorf("%s: no notice names the shard that is missing: %q", query, notices)
		}
		// A rule sees no notices, so that it is told in place of an answer.
		alert := request(p, query)
		alert.Headers["FromAlert"] = "true"
		if answer, err = h.Query(t.Context(), alert); err != nil {
			t.Fatal(err)
		}
		if got := answer.Responses["A"]; got.Error == nil || !strings.Contains(got.Error.Error(), "ibis") || len(got.Frames) > 0 {
			t.Errorf("%s: an alert got %d frames, %v", query, len(got.Frames), got.Error)
		}
	}
}
