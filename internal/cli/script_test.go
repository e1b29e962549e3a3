package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/testpki"
)

// processEnv makes the test binary the program itself, for tests of real processes.
const processEnv = "SPILLWAY_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(Spillway.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come. To render the mixin is 20 s of a processor,
// which it may share.
const patience = 4 * time.Minute

// TestScripts runs the scripts of testdata/script against the program in this process. Beside
// testscript's own commands they have:
//
//	spillway ARGS...          one command line to its end; fails where the exit code is not 0
//	code N                    the last exit code
//	shard NAME [KEY=VALUE]... a fake shard at $NAME; up=I-J: its targets; ext.LABEL=VALUE: an external label; default=SCRIPT: what it does
//	prom NAME FILE [LABEL=V]  an embedded Prometheus at $NAME with these external labels; FILE holds a load as in PromQL's tests, which begins 20 minutes ago, or begins=DURATION ago
//	dead NAME                 an address where nothing listens
//	fill FILE...              replaces $NAME in files
//	proxy NAME ARGS...        the proxy on free ports, ready, at $NAME and $NAME_ADMIN
//	credentials NAME U:P      asks the proxy $NAME with this user and password from here on
//	end NAME                  ends that proxy as SIGTERM does and waits; its log is stderr
//	http STATUS METHOD URL    a request; fails where the status is another; the body is stdout
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../docs/examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			e.Values[stageKey{}] = &stage{shards: map[string]*fakeshard.Shard{}, proxies: map[string]*background{}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"spillway": cmdSpillway, "code": cmdCode, "shard": cmdShard, "prom": cmdProm, "dead": cmdDead, "fill": cmdFill,
			"proxy": cmdProxy, "end": cmdEnd, "http": cmdHTTP, "credentials": cmdCredentials,
		},
	})
}

// stage is what one script has running.
type stage struct {
	code    int
	shards  map[string]*fakeshard.Shard
	proxies map[string]*background
}

type stageKey struct{}

func on(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

func cmdSpillway(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code := Spillway.Run(ctx, ctx, absolute(ts, args), ts.Stdout(), ts.Stderr())
	on(ts).code = code
	if ctx.Err() != nil {
		ts.Fatalf("it did not end by itself")
	}
	if (code != 0) != neg {
		ts.Fatalf("exit code %d", code)
	}
}

// absolute makes the names of files in args absolute: the program runs in this process, not in the
// script's folder.
func absolute(ts *testscript.TestScript, args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		flag, file, ok := strings.Cut(a, "=")
		switch {
		case strings.HasSuffix(a, ".yaml") && !ok:
			a = ts.MkAbs(a)
		case ok && (strings.HasSuffix(file, ".yaml") || strings.HasSuffix(file, ".yml")):
			a = flag + "=" + ts.MkAbs(file)
		}
		out[i] = a
	}
	return out
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: code N")
	}
	if got := strconv.Itoa(on(ts).code); (got == args[0]) == neg {
		ts.Fatalf("exit code %s", got)
	}
}

func cmdShard(ts *testscript.TestScript, _ bool, args []string) {
	cfg := fakeshard.Config{ExternalLabels: map[string]string{}}
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		label, external := strings.CutPrefix(key, "ext.")
		switch {
		case external:
			cfg.ExternalLabels[label] = value
		case key == "default":
			cfg.Default = value
		case key == "up":
			var from, to int
			if _, err := fmt.Sscanf(value, "%d-%d", &from, &to); err != nil {
				ts.Fatalf("up=%s: %v", value, err)
			}
			for i := from; i <= to; i++ {
				cfg.Series = append(cfg.Series,
					map[string]string{"__name__": "up", "job": "node", "instance": fmt.Sprintf("node-%d:9100", i)})
			}
		default:
			ts.Fatalf("shard knows up=, ext. and default=, not %s", key)
		}
	}
	s, err := fakeshard.New(cfg)
	ts.Check(err)
	ts.Defer(s.Close)
	on(ts).shards[args[0]] = s
	ts.Setenv(args[0], s.URL())
	ts.Setenv(args[0]+"_ADDR", s.Addr())
}

func cmdProm(ts *testscript.TestScript, _ bool, args []string) {
	external, ago := map[string]string{}, 20*time.Minute
	for _, a := range args[2:] {
		key, value, _ := strings.Cut(a, "=")
		if key == "begins" {
			var err error
			ago, err = time.ParseDuration(value)
			ts.Check(err)
			continue
		}
		external[key] = value
	}
	p, err := localprom.Start(context.Background(), localprom.Options{DisableWAL: true, ExternalLabels: labels.FromMap(external)})
	ts.Check(err)
	ts.Defer(func() { _ = p.Close() })
	ts.Check(p.LoadAt(ts.ReadFile(args[1]), time.Now().Add(-ago)))
	ts.Setenv(args[0], p.URL())
}

// cmdDead binds a port and does not listen on it: nobody else can take it meanwhile, and connecting
// to it is refused.
func cmdDead(ts *testscript.TestScript, _ bool, args []string) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	ts.Check(err)
	ts.Defer(func() { _ = syscall.Close(fd) })
	ts.Check(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	sa, err := syscall.Getsockname(fd)
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprintf("http://127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port))
}

func cmdFill(ts *testscript.TestScript, _ bool, args []string) {
	for _, file := range args {
		text := os.Expand(ts.ReadFile(file), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

func cmdHTTP(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 && len(args) != 4 {
		ts.Fatalf("usage: http STATUS METHOD URL [TEXT that the answer has at some time]")
	}
	status, body, err := request(args[1], args[2])
	for end := time.Now().Add(patience); len(args) == 4 && !strings.Contains(body, args[3]) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		status, body, err = request(args[1], args[2])
	}
	ts.Check(err)
	_, _ = io.WriteString(ts.Stdout(), body) // a buffer
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("status %d: %s", status, body)
	}
}

// request leaves no connection behind.
func request(method, target string) (status int, body string, err error) {
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		return 0, "", err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// background is a proxy that runs in this process.
type background struct {
	stop context.CancelFunc
	now  context.CancelFunc
	log  *watched
	code chan int
}

func cmdProxy(ts *testscript.TestScript, _ bool, args []string) {
	ctx, stop := context.WithCancel(context.Background())
	force, now := context.WithCancel(context.Background())
	b := &background{stop: stop, now: now, log: newWatched(), code: make(chan int, 1)}
	name, args := args[0], append([]string{"proxy"}, absolute(ts, args[1:])...)
	for _, f := range []string{"--web.listen-address=", "--web.admin-listen-address="} {
		if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, f) }) {
			args = append(args, f+"127.0.0.1:0")
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.code <- Spillway.Run(ctx, force, args, io.Discard, b.log)
	}()
	ts.Defer(func() { stop(); now(); <-ended })
	m, ok := b.log.wait(readyLine, ended)
	if !ok {
		ts.Fatalf("the proxy did not get ready:\n%s", b.log)
	}
	ts.Setenv(name, "http://"+m[1])
	ts.Setenv(name+"_ADMIN", "http://"+m[2])
	on(ts).proxies[name] = b
}

// cmdCredentials puts user and password into the proxy's addresses.
func cmdCredentials(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range []string{args[0], args[0] + "_ADMIN"} {
		u, err := url.Parse(ts.Getenv(name))
		ts.Check(err)
		user, password, _ := strings.Cut(args[1], ":")
		u.User = url.UserPassword(user, password)
		ts.Setenv(name, u.String())
	}
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	b := on(ts).proxies[args[0]]
	if b == nil {
		ts.Fatalf("there is no proxy %s", args[0])
	}
	b.stop()
	select {
	case code := <-b.code:
		_, _ = io.WriteString(ts.Stderr(), b.log.String()) // a buffer
		if (code != 0) != neg {
			ts.Fatalf("exit code %d:\n%s", code, b.log)
		}
	case <-time.After(patience):
		ts.Fatalf("the proxy did not end:\n%s", b.log)
	}
}

// readyLine is what the log says when the proxy can be asked, with the addresses of both listeners.
var readyLine = regexp.MustCompile(`Spillway is ready.*address"?[=:]"?([^" ]+)"?[ ,]"?admin"?[=:]"?([^"\s]+)`)

// watched is a log that can be waited on.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at each write
	left bool          // nobody reads any more
}

func newWatched() *watched { return &watched{more: make(chan struct{})} }

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return 0, io.ErrClosedPipe // os/exec closes its end of the pipe
	}
	close(w.more)
	w.more = make(chan struct{})
	return w.text.Write(p)
}

// leave reads no more than the next write.
func (w *watched) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// wait returns the first match in the log; false where none comes before ended or the end of
// patience.
func (w *watched) wait(re *regexp.Regexp, ended <-chan struct{}) ([]string, bool) {
	limit := time.After(patience)
	for {
		w.mu.Lock()
		m, more := re.FindStringSubmatch(w.text.String()), w.more
		w.mu.Unlock()
		if m != nil {
			return m, true
		}
		select {
		case <-more:
		case <-ended:
			m := re.FindStringSubmatch(w.String())
			return m, m != nil
		case <-limit:
			return nil, false
		}
	}
}

// namedFile is a file that an example names.
var namedFile = regexp.MustCompile(`_file: ([^\s,}]+)`)

// TestExamples checks each file of docs/examples as its reader would.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("the examples: %v %v", files, err)
	}
	cert, key := testpki.New(t, "examples").Issue("reader")
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			dir := t.TempDir()
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range namedFile.FindAllStringSubmatch(string(text), -1) { // passwords and certificates that its reader has
				file := filepath.Join(dir, m[1])
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(cert+key), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(dir, "spillway.yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := Spillway.Run(t.Context(), t.Context(), []string{"check", "config", file}, &out, &errs)
			if code != 0 || !strings.Contains(out.String(), "is valid: ") {
				t.Errorf("exit code %d: %s%s", code, &out, &errs)
			}
		})
	}
}
