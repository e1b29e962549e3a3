package credentials

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds how long a test waits for what has to happen.
const patience = time.Minute

// door is a shard that answers only requests that it lets in, and counts the others.
type door struct {
	srv     *httptest.Server
	refused atomic.Int64
	let     atomic.Int64

	mu       sync.Mutex
	lets     func(*http.Request) bool
	redirect string // where it sends those whom it lets in; "" answers them
	tls      *tls.Config
}

// newDoor is one over TLS where there is a configuration, which set can replace.
func newDoor(t *testing.T, lets func(*http.Request) bool, cfg *tls.Config) *door {
	t.Helper()
	behind, err := url.Parse(fakeshard.Start(t, fakeshard.Config{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	quiet := log.New(io.Discard, "", 0)
	pass := httputil.NewSingleHostReverseProxy(behind)
	pass.Transport, pass.ErrorLog = tr, quiet
	d := &door{lets: lets, tls: cfg}
	d.srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		ok, redirect := d.lets == nil || d.lets(r), d.redirect
		d.mu.Unlock()
		switch {
		case !ok:
			d.refused.Add(1)
			http.Error(w, "who are you", http.StatusUnauthorized)
		case redirect != "":
			d.let.Add(1)
			http.Redirect(w, r, redirect+r.URL.Path, http.StatusTemporaryRedirect)
		default:
			d.let.Add(1)
			r.URL.Scheme, r.URL.Host = "", "" // a proxy's are whole
			pass.ServeHTTP(w, r)
		}
	}))
	d.srv.Config.ErrorLog = quiet
	if cfg != nil {
		d.srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.tls, nil
		}}
		d.srv.StartTLS()
	} else {
		d.srv.Start()
	}
	t.Cleanup(func() { d.srv.Close(); tr.CloseIdleConnections() })
	return d
}

func (d *door) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// write puts a file into the place of another one, at once, and is its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// newClient has connections of its own, which are closed when the test ends.
func newClient(t *testing.T, cfg *tls.Config) *http.Client {
	tr := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

func get(c *http.Client, target, bearer string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		return 0, "", err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// roads are a request that is passed on, one that reads series, one that is asked by POST, and one
// of the others.
var roads = []string{
	"/api/v1/query?query=up", "/api/v1/query?query=" + url.QueryEscape("count(info(up))"), "/api/v1/series?match[]=up",
	"/api/v1/query?query=" + url.QueryEscape(`up{instance!="`+strings.Repeat("x", 4000)+`"}`), "/api/v1/metadata",
}

// answered asks by all roads; what is not answered is the error.
func answered(c *http.Client, base, bearer string) error {
	for _, road := range roads {
		status, body, err := get(c, base+road, bearer)
		if err != nil || status != http.StatusOK || !strings.Contains(body, "up") && !strings.Contains(body, `"2"`) {
			return fmt.Errorf("%.60s: %d %v %.300s", road, status, err, body)
		}
	}
	return nil
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
