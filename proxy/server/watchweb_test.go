package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestBrokenWebConfigIsTold: where certificate and key do not fit, or the web configuration is
// broken, nobody is answered over TLS: the log has the reason once, and the gauge is 0, until it is
// mended.
func TestBrokenWebConfigIsTold(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "another")
	ca.issue("server")
	web := ca.webConfig("")
	text, err := os.ReadFile(web)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Issue("server")
	_, strange := other.Issue("server")
	shard := fakeshard.Start(t, fakeshard.Config{})
	r := &rig{t: t, log: &logbook{}}
	var at []string
	r.s, _ = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", shard.URL()), func(o *Options) {
		o.WebConfigFile, o.webLooks, o.Logger = web, 5*time.Millisecond, slog.New(r.log)
		o.Ready = func(main, admin netAddr) { at = []string{main.String(), admin.String()} }
	})
	// A listener reads the file once more as it begins, and gives up over one that is broken then.
	for _, addr := range at {
		resp, err := ca.client().Get("https://" + addr + "/-/healthy")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	well := func() bool { return r.metric("spillway_web_config_last_reload_successful") == 1 }
	told := func() []string {
		return slices.DeleteFunc(r.log.atLeast(slog.LevelError), func(line string) bool {
			return !strings.Contains(line, "the web configuration, its certificate or its key is broken")
		})
	}
	if !well() {
		t.Fatal("it is not well to begin with")
	}
	for i, c := range []struct {
		what, want string
		do         func()
	}{
		{"a key of another certificate", "private key does not match public key", func() { ca.write("server.key", strange) }},
		{"no key", "no such file or directory", func() {
			if err := os.Remove(strings.TrimSuffix(ca.dir, "/") + "/server.key"); err != nil {
				t.Fatal(err)
			}
		}},
		{"a broken file", "field nonsense not found", func() { writeText(t, web, string(text)+"nonsense: 1\n") }},
		{"a file without TLS", "tls_server_config is gone", func() { writeText(t, web, "http_server_config: {http2: false}\n") }},
	} {
		c.do()
		r.eventually(c.what+" is told", func() bool { return !well() && len(told()) > i })
		if lines := told(); len(lines) != i+1 || !strings.Contains(lines[i], c.want) {
			t.Errorf("%s: %q", c.what, lines)
		}
		ca.write("server.pem", cert)
		ca.write("server.key", key)
		writeText(t, web, string(text))
		r.eventually("it is well after "+c.what, well)
	}
}

// TestWebConfigOfLessIsToldByTheGauge: where the passwords are gone from the file everybody is
// refused, and the gauge says so.
func TestWebConfigOfLessIsToldByTheGauge(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	writeText(t, web, "basic_auth_users: {a: $2a$04$U2dMbDKQbM1TsoFgsYrfaOyu.9jw0ZRFAsaS8pcOxcVGVy8dNEyz6}\n")
	shard := fakeshard.Start(t, fakeshard.Config{})
	s, _ := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]\n", shard.URL()),
		func(o *Options) { o.WebConfigFile = web })
	gauge := func() float64 { return testutil.ToFloat64(webConfigWell{s}) }
	if gauge() != 1 {
		t.Error("it is not well to begin with")
	}
	writeText(t, web, "")
	if gauge() != 0 {
		t.Error("the gauge says well while everybody is refused")
	}
}
