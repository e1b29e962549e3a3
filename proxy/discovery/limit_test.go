package discovery

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/spillwayproject/spillway/proxy/config"
)

// spaces writes blanks until nobody takes them any more, or there were so many MiB.
func spaces(w io.Writer, most int) {
	blank := []byte(strings.Repeat(" ", 1<<20))
	for range most {
		if _, err := w.Write(blank); err != nil {
			return
		}
	}
}

// TestLongLists: a list that never ends, one that is small until it is inflated, and one of a great
// many targets are refused before they fill the memory; the list before stays in force.
func TestLongLists(t *testing.T) {
	good := func(host string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			fmt.Fprintf(w, `[{"targets":[%q],"labels":{"__spillway_shard__":"s"}}]`, host)
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	spaces(z, 32)
	_ = z.Close()
	for _, c := range []struct {
		name, want string
		will       func(http.ResponseWriter)
	}{
		{"endless", "/shards is longer than 16 MiB", func(w http.ResponseWriter) { spaces(w, 1<<20) }},
		{"announced", "/shards is longer than 16 MiB", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000000000000")
			spaces(w, 1)
		}},
		{"a bomb", "invalid character", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}},
		{"many targets", "has 1000001 commas, and 400000 are allowed", func(w http.ResponseWriter) {
			fmt.Fprint(w, `[{"targets":[""`+strings.Repeat(`,""`, 1_000_001)+"]}]")
		}},
		{"many groups", "has 1000001 commas, and 400000 are allowed", func(w http.ResponseWriter) {
			fmt.Fprint(w, "[{}"+strings.Repeat(",{}", 1_000_001)+"]")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var will atomic.Value
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				will.Load().(func(http.ResponseWriter))(w)
			}))
			t.Cleanup(web.Close)
			will.Store(good("a:9090"))
			r, book := logged(t, "{http_sd: '"+web.URL+"/shards?token=secret', refresh_interval: 2s, keep: 1ms}")
			r.becomes("a:9090")
			will.Store(c.will)
			book.has(t, "the list at "+web.URL+"/shards")
			book.has(t, c.want)
			if got := r.shape(); got != "a:9090" {
				t.Errorf("there is %q", got)
			}
			will.Store(good("b:9090"))
			r.becomes("b:9090")
			book.mu.Lock()
			defer book.mu.Unlock()
			if strings.Contains(book.all.String(), "secret") {
				t.Errorf("the log says what may be a credential:\n%s", book.all.String())
			}
		})
	}
}

// TestLongClusterAnswers: an API server's lists and errors are bounded by what they are when
// inflated, and its watches, which have no end, are not.
func TestLongClusterAnswers(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		if r.URL.Query().Get("fail") != "" {
			code = http.StatusForbidden
		}
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.WriteHeader(code)
			spaces(w, 8)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(code)
		z := gzip.NewWriter(w)
		spaces(z, 8)
		_ = z.Close()
	}))
	defer web.Close()
	kubeconfig := t.TempDir() + "/kubeconfig"
	replace(t, kubeconfig, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
  clusters: [{name: c, cluster: {server: '`+web.URL+`'}}]}`)
	for _, k := range []config.KubernetesSD{{KubeconfigFile: kubeconfig}, {APIServer: web.URL}} {
		k.Role = config.RolePod
		c, err := newCluster(&k, 0, slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			t.Fatal(err)
		}
		l := c.client.Transport.(observed).RoundTripper.(*limited)
		if l.most != maxAnswer {
			t.Errorf("%d bytes are allowed", l.most)
		}
		l.most = 1 << 20
		for path, long := range map[string]bool{
			"/api/v1/pods": false, "/api/v1/pods?watch=true": true, "/api/v1/pods?watch=1": true, "/api/v1/pods?watch=true&fail=1": false,
			"/api/v1/pods?watch=false": false,
		} {
			resp, err := c.client.Get(web.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			switch {
			case long && (n != 8<<20 || err != nil):
				t.Errorf("%s: %d bytes, %v", path, n, err)
			case !long && (n != 1<<20 || err == nil || !strings.Contains(err.Error(), "is longer than 1 MiB")):
				t.Errorf("%s: %d bytes, %v", path, n, err)
			}
		}
		utilnet.CloseIdleConnectionsFor(l)
	}
}
