package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// audits are the audit lines so far, without the word.
func (l *logbook) audits() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if text, ok := strings.CutPrefix(line.text, "audit "); ok && line.level == slog.LevelInfo {
			out = append(out, text)
		}
	}
	return out
}

// audited compares the audit lines so far.
func (r *rig) audited(want ...string) {
	r.t.Helper()
	if got := r.log.audits(); !slices.Equal(got, want) {
		r.t.Errorf("the audit lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:12]
}

func writeText(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestAuditOfReloads: each reload has one line: by whom, what came of it, and which configuration
// was and is in force. No word of the configuration or of the request is in it, right or wrong.
func TestAuditOfReloads(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample), func(o *Options) { o.ConfigFile = file })
	const secret = "hunter2"
	first, second, broken := r.config, r.config+"# "+secret+"\nstrict_parameters: true\n", r.config+"nonsense: "+secret+"\n"
	a, b := shortSum(first), shortSum(second)
	writeText(t, file, second)
	_ = r.s.Reload()
	_ = r.s.Reload()
	writeText(t, file, broken)
	_ = r.s.Reload()
	post := func(headers ...string) {
		t.Helper()
		resp, err := answered(t, r.client, http.MethodPost, r.admin+"/-/reload?token="+secret, headers...)
		if err != nil || resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Fatal(err, resp)
		}
	}
	post("Authorization", "Bearer "+secret, "Cookie", secret, "X-Forwarded-For", secret, "X-Grafana-User", secret)
	post("Authorization", "Basic "+"ZXZlOmh1bnRlcjI=") // whom nobody has asked for a password
	post("Sec-Fetch-Site", "cross-site")               // refused before anything is tried
	r.audited(
		"action=reload by=SIGHUP result=reloaded hash_before="+a+" hash_after="+b,
		"action=reload by=SIGHUP result=unchanged hash_before="+b+" hash_after="+b,
		"action=reload by=SIGHUP result=refused hash_before="+b+" hash_after="+b,
		"action=reload by=POST /-/reload result=refused peer=127.0.0.1 hash_before="+b+" hash_after="+b,
		"action=reload by=POST /-/reload result=refused peer=127.0.0.1 hash_before="+b+" hash_after="+b,
	)
}

// TestAuditNamesTheCaller: where the web configuration has found out who asks, the line says so;
// who is not let in changes nothing and has none.
func TestAuditNamesTheCaller(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	cert := ca.issue("operator")
	passwords := filepath.Join(t.TempDir(), "web.yml")
	writeText(t, passwords, "basic_auth_users: {ada: "+passwordTest+"}\n")
	for name, tc := range map[string]struct {
		web, scheme, user, caller string
		client                    *http.Client
		stranger                  func(target string) bool // is not let in
	}{
		"password": {passwords, "http://", "ada", "ada", newClient(t), func(target string) bool {
			resp, err := answered(t, newClient(t), http.MethodPost, target, "Authorization", "Basic ZXZlOmh1bnRlcjI=")
			return err == nil && resp.StatusCode == http.StatusUnauthorized
		}},
		// Beside a certificate a name in the head is what anybody may write.
		"certificate": {
			ca.webConfig("RequireAndVerifyClientCert"), "https://", "eve", "operator", ca.client(cert), func(target string) bool {
				_, err := answered(t, ca.client(), http.MethodPost, target)
				return err != nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample), func(o *Options) { o.WebConfigFile = tc.web })
			target := tc.scheme + strings.TrimPrefix(r.admin, "http://") + "/-/reload"
			if !tc.stranger(target) {
				t.Error("a stranger is let in")
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth(tc.user, "test")
			resp, err := tc.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			h := shortSum(r.config)
			r.audited("action=reload by=POST /-/reload result=refused peer=127.0.0.1 caller=" + tc.caller + " hash_before=" + h + " hash_after=" + h)
		})
	}
}

// TestAuditOfWhatChangesByItself: a file that has changed, and servers that were found; looks that
// find nothing new have no line.
func TestAuditOfWhatChangesByItself(t *testing.T) {
	dir := t.TempDir()
	file, targets := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "shards.yml")
	list := func(fakes ...*fakeshard.Shard) string {
		var b strings.Builder
		for i, s := range fakes {
			fmt.Fprintf(&b, "- {targets: [%q], labels: {__spillway_shard__: s%d}}\n", s.Addr(), i)
		}
		return b.String()
	}
	one, two := fakeshard.Start(t, fakeshard.Config{}), fakeshard.Start(t, fakeshard.Config{})
	writeText(t, targets, list(one))
	text := "groups:\n  - name: jaguar\n    shards_from: {files: [" + targets + "], keep: 1ms, refresh_interval: 200ms}\n" + limits(ample)
	writeText(t, file, text)
	r := &rig{t: t, log: &logbook{}}
	r.s, _ = startProxy(t, t.Context(), text, func(o *Options) {
		o.ConfigFile, o.ReloadInterval, o.Logger = file, 20*time.Millisecond, slog.New(r.log)
		o.shards = shard.Options{ProbeInterval: 200 * time.Millisecond}
	})
	now := func() string { return r.s.state.Load().shortHash() }
	step := func(what, by, result string, do func()) {
		t.Helper()
		before, n := now(), len(r.log.audits())
		do()
		r.eventually("a line is written of "+what, func() bool { return len(r.log.audits()) > n })
		after := now()
		want := "action=reload by=" + by + " result=" + result + " hash_before=" + before + " hash_after=" + after
		got := r.log.audits()[n:]
		if result == resultRefused { // it is looked at again, and refused again
			got = slices.Compact(got)
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %s", what, got, want)
		}
		if (before == after) != (result == resultRefused) {
			t.Errorf("%s: the hash was %s and is %s", what, before, after)
		}
	}
	time.Sleep(100 * time.Millisecond) // several looks
	r.audited()
	step("a new server", byDiscovery, resultReloaded, func() { writeText(t, targets, list(one, two)) })
	step("a new file", byWatch, resultReloaded, func() { writeText(t, file, text+"strict_parameters: true\n") })
	step("a broken file", byWatch, resultRefused, func() { writeText(t, file, text+"nonsense: 1\n") })
	writeText(t, targets, list(one))
	refused := now()
	r.eventually("a server goes, under the file before", func() bool { return now() != refused })
	r.s.reloading.Lock() // what put it into force has said how it went
	defer r.s.reloading.Unlock()
	if n := r.metric("spillway_config_last_reload_successful"); n != 0 || r.s.reloadedWell.Load() {
		t.Errorf("the file is still refused, and spillway_config_last_reload_successful is %v", n)
	}
}

// TestAuditOfTheEnd: a drain has a line when it begins, with what asked for it, and one when it is
// over.
func TestAuditOfTheEnd(t *testing.T) {
	t.Run("all requests end", func(t *testing.T) {
		r := runAlone(t, 10*patience)
		r.stop()
		if err := r.end(); err != nil {
			t.Error(err)
		}
		r.audited("action=drain by=its own process result=begun", "action=drain by=its own process result=ended")
	})
	t.Run("some are cut", func(t *testing.T) {
		r := runAlone(t, time.Second)
		got := r.slowly("wait go; answer")
		r.stop()
		_ = r.end() // TestDrainLimit
		<-got
		r.audited("action=drain by=its own process result=begun", "action=drain by=its own process result=cut")
	})
	t.Run("a signal", func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(errors.New("SIGTERM"))
		if b := endedBy(ctx); b != (by{how: "SIGTERM"}) {
			t.Errorf("%+v", b)
		}
	})
}
