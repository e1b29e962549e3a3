package operation

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

var (
	reloads  = flag.Int("operation.reloads", 60, "how many configurations are loaded under load, every third of them broken")
	changes  = flag.Int("operation.changes", 60, "how often it changes where shards are looked up")
	requests = flag.Int("operation.requests", 20_000, "how many requests are asked of shards of which a fifth of the answers goes wrong")
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

// patience bounds how long a test waits for what has to happen.
const patience = time.Minute

// program is the proxy, running.
type program struct {
	*realprom.Process
	t           *testing.T
	main, admin string       // URLs without a slash at their ends
	client      *http.Client // of the test itself
}

// start runs the proxy over a configuration file until the test ends; a web configuration, where
// there is one, is for both listeners, and roots is who signs their certificates.
func start(t *testing.T, file, web string, roots *x509.CertPool) *program {
	t.Helper()
	path := realpromtest.Spillway(t)
	ports, err := realprom.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	at := [2]string{fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])}
	scheme := "http://"
	args := []string{"proxy", "--config.file=" + file, "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1]}
	if web != "" {
		args, scheme = append(args, "--web.config.file="+web), "https://"
	}
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: path, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill() // it has ended where a test is about that
		if t.Failed() {
			t.Logf("the end of its log:\n%s", lastLines(p.Log(), 40))
		}
	})
	out := &program{Process: p, t: t, main: scheme + at[0], admin: scheme + at[1], client: newClient(t, roots)}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if status, _, err := get(out.client, out.main+"/-/ready"); err == nil && status == http.StatusOK {
			return out
		}
		if p.Err() != nil || time.Now().After(end) {
			t.Fatalf("it does not get ready: %v\n%s", p.Err(), lastLines(p.Log(), 40))
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// newClient is a client with connections of its own, which are closed when the test ends.
func newClient(t *testing.T, roots *x509.CertPool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func get(c *http.Client, target string) (status int, body []byte, err error) {
	resp, err := c.Get(target)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(p.PID(), s); err != nil {
		p.t.Fatal(err)
	}
}

// metrics are the program's, by name and labels as they are written there.
func (p *program) metrics() map[string]float64 {
	p.t.Helper()
	status, body, err := get(p.client, p.admin+"/metrics")
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("metrics: %d %v", status, err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if ok {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out
}

// eventually waits for what is about to become true; false is that it did not.
func eventually(ok func() bool) bool {
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// replace puts a file into the place of another one, at once.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// folder is a directory whose files change all at once, as a volume of Kubernetes' does: they are
// links into a folder that is behind a link.
type folder struct {
	t   *testing.T
	dir string
	n   int
}

// swap gives the folder these files. Those of the last time stay where they are for a while.
func (f *folder) swap(files map[string]string) {
	f.t.Helper()
	f.n++
	fresh := fmt.Sprint("..", f.n)
	if err := os.Mkdir(filepath.Join(f.dir, fresh), 0o700); err != nil {
		f.t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.dir, fresh, name), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
		if f.n == 1 {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(f.dir, name)); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	link := filepath.Join(f.dir, "..link")
	if err := os.Symlink(fresh, link); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(f.dir, "..data")); err != nil {
		f.t.Fatal(err)
	}
	_ = os.RemoveAll(filepath.Join(f.dir, fmt.Sprint("..", f.n-3))) // there is none at first
}

// path is that of one of its files.
func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// complaints are what went wrong, the first few of it.
type complaints struct {
	mu  sync.Mutex
	n   int
	all []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; len(c.all) < 10 {
		c.all = append(c.all, fmt.Sprintf(format, args...))
	}
}

// some tells whether there are any.
func (c *complaints) some() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n > 0
}

// tell fails the test with them.
func (c *complaints) tell(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n > 0 {
		t.Errorf("%d requests went wrong, such as:\n%s", c.n, strings.Join(c.all, "\n"))
	}
}

// asked is one request of those that clients ask all the time.
type asked struct {
	path string
	form url.Values
}

// askedNow are requests about the last ten minutes, of each kind that a dashboard asks.
func askedNow() []asked {
	now := time.Now()
	unix := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	from, until := unix(now.Add(-10*time.Minute)), unix(now)
	return []asked{
		{"/api/v1/query", url.Values{"query": {"up"}}},
		{"/api/v1/query", url.Values{"query": {"count by (cluster, set, job) (up)"}}},
		{"/api/v1/query", url.Values{"query": {"quantile by (cluster, set, job, instance) (1, up)"}}},
		{"/api/v1/query_range", url.Values{"query": {"up"}, "start": {from}, "end": {until}, "step": {"60"}}},
		{"/api/v1/series", url.Values{"match[]": {"up"}, "start": {from}, "end": {until}}},
		{"/api/v1/label/cluster/values", url.Values{"match[]": {"up"}}},
		{"/api/v1/labels", url.Values{"match[]": {"up"}}},
	}
}

func (a asked) url(base string) string { return base + a.path + "?" + a.form.Encode() }

// answer is what is looked at in an answer's JSON.
type answer struct {
	Status   string
	Warnings []string
	Error    string
	Data     json.RawMessage
}

var labelPair = regexp.MustCompile(`"([a-z_]+)":"([^"]*)"`)

// valuesOf are the values that a label has in the text of an answer, and how often.
func valuesOf(body []byte, label string) map[string]int {
	out := map[string]int{}
	for _, m := range labelPair.FindAllSubmatch(body, -1) {
		if string(m[1]) == label {
			out[string(m[2])]++
		}
	}
	return out
}
