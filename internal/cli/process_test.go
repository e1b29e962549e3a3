package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// process is the proxy as a process of its own: this test binary, run as the program.
type process struct {
	t           *testing.T
	cmd         *exec.Cmd
	main, admin string
	log         *watched
	ended       chan struct{}
	code        int // once ended
}

// startProcess runs the proxy with more in its environment and waits until it is ready.
func startProcess(t *testing.T, config string, environ ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: newWatched(), ended: make(chan struct{})}
	p.cmd = exec.Command(self, "proxy", "--config.file="+config, "--web.listen-address=127.0.0.1:0",
		"--web.admin-listen-address=127.0.0.1:0")
	p.cmd.Env = append(append(os.Environ(), environ...), processEnv+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the exit code says it
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended where all is well
		<-p.ended
		if t.Failed() {
			t.Logf("its log:\n%s", p.log)
		}
	})
	m, ok := p.log.wait(readyLine, p.ended)
	if !ok {
		t.Fatalf("the proxy did not get ready:\n%s", p.log)
	}
	p.main, p.admin = "http://"+m[1], "http://"+m[2]
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// logs waits for a line.
func (p *process) logs(pattern string) {
	p.t.Helper()
	if _, ok := p.log.wait(regexp.MustCompile(pattern), p.ended); !ok {
		p.t.Fatalf("%s is not in the log", pattern)
	}
}

// exits waits for the end and compares the exit code.
func (p *process) exits(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the process did not end")
	}
	if p.code != code {
		p.t.Errorf("exit code %d, want %d", p.code, code)
	}
}

// onShard writes a configuration of one shard and returns its file.
func onShard(t *testing.T, s *fakeshard.Shard, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	write(t, file, fmt.Sprintf("groups: [{name: main, shards: [{replicas: [{url: %q}]}]}]\n%s", s.URL(), more))
	return file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// slow is a query that the shard answers when it is let go.
const slow = "/api/v1/query?query=up%7Bjob=%22fake%22%7D"

func slowShard(t *testing.T) *fakeshard.Shard {
	return fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{
		Path: "/api/v1/query", Query: `up{job="fake"}`,
		Script: "wait go",
	}}})
}

// asking is a request under way.
type asking struct {
	status int
	body   string
	err    error
}

// ask sends the slow query and returns when the shard is at work on it.
func (p *process) ask(s *fakeshard.Shard) <-chan asking {
	p.t.Helper()
	answer := make(chan asking, 1)
	go func() {
		var a asking
		a.status, a.body, a.err = request(http.MethodGet, p.main+slow)
		answer <- a
	}()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		for _, r := range s.RequestsTo("/api/v1/query") {
			if r.Form.Get("query") == `up{job="fake"}` {
				return answer
			}
		}
		if time.Now().After(end) {
			p.t.Fatal("the shard was not asked")
		}
	}
}

// TestIdleExit: nothing under way, so the process ends at once; its drain limit is 15 s.
func TestIdleExit(t *testing.T) {
	s := fakeshard.Start(t, fakeshard.Config{})
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := startProcess(t, onShard(t, s, ""))
		// A client that keeps its connection must not hold it up.
		tr := &http.Transport{}
		resp, err := (&http.Client{Transport: tr}).Get(p.main + "/api/v1/query?query=up")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is kept
		resp.Body.Close()
		p.signal(sig)
		p.exits(0)
		if strings.Contains(p.log.String(), "were cut") {
			t.Errorf("%s: it waited for its drain limit", sig)
		}
		tr.CloseIdleConnections()
	}
}

// TestDrain: the first SIGTERM lets the request under way end with its whole answer and soon takes
// no new one; then the process ends with 0.
func TestDrain(t *testing.T) {
	s := slowShard(t)
	p := startProcess(t, onShard(t, s, ""))
	answer := p.ask(s)
	p.signal(syscall.SIGTERM)
	p.logs("stopping: no new requests")
	if status, body, err := request(http.MethodGet, p.admin+"/-/ready"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("ready while stopping: %d %s %v", status, body, err)
	}
	// Those who have not seen yet that it is not ready any more are served for a moment; then
	// nobody listens, while the request under way goes on.
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if status, body, err := request(http.MethodGet, p.main+"/api/v1/query?query=up"); err != nil {
			break
		} else if status != http.StatusOK || time.Now().After(end) {
			t.Errorf("a new request while stopping: %d %s", status, body)
			break
		}
	}
	s.Release("go")
	if a := <-answer; a.err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "node-0:9100") {
		t.Errorf("the request under way: %+v", a)
	}
	p.exits(0)
	p.logs("level=INFO.*msg=audit action=drain by=SIGTERM result=begun\n(?s:.*)msg=audit action=drain by=SIGTERM result=ended\n")
}

// TestSecondSignal: who asks twice does not want to wait.
func TestSecondSignal(t *testing.T) {
	s := slowShard(t)
	p := startProcess(t, onShard(t, s, ""))
	answer := p.ask(s)
	p.signal(syscall.SIGTERM)
	p.logs("stopping: no new requests")
	p.signal(syscall.SIGTERM)
	p.exits(1)
	if a := <-answer; a.err == nil && a.status == http.StatusOK {
		t.Errorf("the request that was cut: %+v", a)
	}
	if !strings.Contains(p.log.String(), "stopped before all requests had ended") {
		t.Error("it does not say why it ended with 1")
	}
}

// TestHangup: SIGHUP reloads, and keeps the old configuration where the new one is broken.
func TestHangup(t *testing.T) {
	s := fakeshard.Start(t, fakeshard.Config{})
	file := onShard(t, s, "")
	p := startProcess(t, file)
	limit := func(want string) {
		t.Helper()
		status, body, err := request(http.MethodGet, p.admin+"/api/spillway/v1/limits")
		if err != nil || status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("limits: %d %v: %s, want %s", status, err, body, want)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text)+"limits: {max_series: 4321}\n")
	p.signal(syscall.SIGHUP)
	p.logs("the configuration was reloaded")
	p.logs("level=INFO.*msg=audit action=reload by=SIGHUP result=reloaded hash_before=[0-9a-f]{12} hash_after=[0-9a-f]{12}\n")
	limit(`"max_series":4321`)
	write(t, file, string(text)+"limits: {max_series: many}\n")
	p.signal(syscall.SIGHUP)
	p.logs("the configuration was not reloaded; the old one stays in force.*limits.max_series")
	p.logs("msg=audit action=reload by=SIGHUP result=refused")
	limit(`"max_series":4321`)
	p.signal(syscall.SIGTERM)
	p.exits(0)
}

// TestTracesAreSent: one standard variable is enough for spans to reach the collector, the last
// ones at the end of the process at the latest.
func TestTracesAreSent(t *testing.T) {
	var mu sync.Mutex
	var got []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("the collector was sent %s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, body...)
	}))
	defer collector.Close()
	s := fakeshard.Start(t, fakeshard.Config{})
	p := startProcess(t, onShard(t, s, ""), "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment.environment=testing")
	if status, body, err := request(http.MethodGet, p.main+"/api/v1/query?query=up"); err != nil || status != http.StatusOK {
		t.Errorf("%d %s %v", status, body, err)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{
		"service.name", "spillway", "deployment.environment", "testing", "spillway.request_id", "shard query",
		"policy",
	} {
		if !bytes.Contains(got, []byte(want)) { // strings stand as they are in protobuf
			t.Errorf("%s is not in the %d bytes that the collector was sent", want, len(got))
		}
	}
}

// TestTracesRefused: variables that make no sense are an error at the start, not silence.
func TestTracesRefused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := fakeshard.Start(t, fakeshard.Config{})
	cmd := exec.Command(self, "proxy", "--config.file="+onShard(t, s, ""), "--web.listen-address=127.0.0.1:0",
		"--web.admin-listen-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), processEnv+"=1", "OTEL_TRACES_EXPORTER=carrier-pigeon")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "traces (OTEL_ variables): ") {
		t.Errorf("exit code %d, %v: %s", cmd.ProcessState.ExitCode(), err, out)
	}
}

// TestLogReaderLeaves: whoever reads the proxy's log goes away. What it logs then reaches nobody,
// and it goes on answering.
func TestLogReaderLeaves(t *testing.T) {
	s := fakeshard.Start(t, fakeshard.Config{})
	config := onShard(t, s, "")
	p := startProcess(t, config)
	p.log.leave()
	for i := range 4 { // the first line finds the reader there still: it leaves over it
		write(t, config, fmt.Sprintf("groups: [{name: main, shards: [{replicas: [{url: %q}]}]}]\nmemory: {budget: %dMiB}\n", s.URL(), 64+i))
		status, body, err := request(http.MethodPost, p.admin+"/-/reload")
		if err != nil || status != http.StatusOK {
			t.Fatalf("reload %d, which logs a line: %d %s %v", i, status, body, err)
		}
	}
	if status, body, err := request(http.MethodGet, p.main+"/-/ready"); err != nil || status != http.StatusOK {
		t.Errorf("after the reader of the log has left: %d %s %v", status, body, err)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
}

// TestCheckOfStandardInput: `check config -` checks what comes over a pipe, as out of `helm
// template`; relative paths in it start from the working directory.
func TestCheckOfStandardInput(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret.txt"), []byte("pw"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `groups: [{name: a, shards: [{replicas: [{url: "http://10.0.0.1:9090", http_client: {basic_auth: {username: u, password_file: FILE}}}]}]}]` + "\n"
	for _, c := range []struct{ text, want string }{
		{strings.Replace(text, "FILE", "secret.txt", 1), "standard input is valid: 1 group, 1 shard, 1 replica\n"},
		{strings.Replace(text, "FILE", "none.txt", 1), "groups[0].shards[0].replicas[0].http_client.basic_auth.password_file: cannot be read: open none.txt: no such file or directory (line 1)\n"},
		{"", "the file is empty; it needs at least groups"},
	} {
		for _, name := range []string{"-", "/dev/stdin"} {
			cmd := exec.Command(self, "check", "config", name)
			cmd.Env, cmd.Dir = append(os.Environ(), processEnv+"=1"), dir
			cmd.Stdin = io.MultiReader(strings.NewReader(c.text)) // no file, so that it is a pipe
			out, _ := cmd.CombinedOutput()                        // the text says how it ended
			if !strings.HasPrefix(string(out), c.want) {
				t.Errorf("%s of %q: %s", name, c.text, out)
			}
		}
	}
}
