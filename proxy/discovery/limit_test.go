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
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"
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

// TestKeptWithinBound: found and kept servers together are no more than a group may have, and a
// list that flaps writes no line for each of them.
func TestKeptWithinBound(t *testing.T) {
	s := sourceOf(t, "{http_sd: 'http://x/', keep: 10m}")
	book := &logbook{}
	s.log = slog.New(slog.NewTextHandler(book, nil))
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	find := func(generation, servers int) {
		g := &targetgroup.Group{Source: "x"}
		for i := range servers {
			name := model.LabelValue(fmt.Sprintf("g%d-%d", generation, i))
			g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: name + ":9090", ShardLabel: name})
		}
		s.take([]*targetgroup.Group{g})
		now = now.Add(time.Minute)
	}
	// is tells how many there are of each generation.
	is := func(want ...int) {
		t.Helper()
		got := make([]int, len(want))
		for _, sh := range s.shards {
			var generation, i int
			if _, err := fmt.Sscanf(sh.Replicas[0].URL, "http://g%d-%d:9090", &generation, &i); err != nil {
				t.Fatal(err)
			}
			got[generation]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v of each generation, want %v", got, want)
		}
	}
	find(0, 3000)
	is(3000)
	find(1, 3000)
	is(3000, 3000)
	find(2, 3000)
	is(3000, 3000, 3000)
	book.lacks(t, "than a group may have")
	find(3, 3000)
	is(1000, 3000, 3000, 3000)
	book.has(t, "servers=2000 limit=10000")
	find(4, MaxServers)
	is(0, 0, 0, 0, MaxServers)
	find(5, 1)
	is(0, 0, 0, 0, MaxServers-1, 1)
	book.has(t, "level=INFO msg=\"shards_from: a server has come; so have others\" others=2990\n")
	book.has(t, "level=WARN msg=\"shards_from: a server is asked no more; nor are others\" others=1990\n")
	book.has(t, "msg=\"shards_from: a server is no longer found; it is asked on for a while; so are others\" others=2990 keep=10m0s\n")
	book.mu.Lock()
	defer book.mu.Unlock()
	if n := strings.Count(book.all.String(), "\n"); n > 200 {
		t.Errorf("the log has %d lines", n)
	}
}

func (l *logbook) lacks(t *testing.T, text string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(l.all.String(), text) {
		t.Errorf("the log says %q", text)
	}
}
