package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// reloadWays are the three by which a configuration is taken up. Each tells whether the file that
// was just written is in force, once that is decided.
var reloadWays = map[string]func(*rig) (taken bool, said string){
	"POST": func(r *rig) (bool, string) {
		a := r.sendForm(http.MethodPost, r.admin+"/-/reload", nil, "")
		if a.status != http.StatusOK && a.status != http.StatusBadRequest {
			r.t.Errorf("POST /-/reload: %s", a)
		}
		return a.status == http.StatusOK, string(a.body)
	},
	"SIGHUP": func(r *rig) (bool, string) {
		if err := r.s.Reload(); err != nil {
			return false, err.Error()
		}
		return true, ""
	},
	"watch": func(r *rig) (bool, string) {
		defer r.watched()()
		before, refused := r.s.state.Load(), len(r.refusals())
		taken := func() bool { return r.s.state.Load() != before }
		r.eventually("the file is taken up or refused", func() bool { return taken() || len(r.refusals()) > refused })
		if taken() {
			return true, ""
		}
		return false, r.refusals()[refused]
	},
}

// watched has the file looked at again and again, until stop is called.
func (r *rig) watched() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.s.watchConfig(ctx, 5*time.Millisecond) }()
	return func() { cancel(); <-ended }
}

// refusals are the log's lines of reloads that were refused.
func (r *rig) refusals() (out []string) {
	for _, line := range r.log.atLeast(slog.LevelError) {
		if strings.HasPrefix(line, "the configuration was not reloaded") {
			out = append(out, line)
		}
	}
	return out
}

// movable is a rig of one group of one server, in force from its file.
func movable(t *testing.T, change ...func(*Options)) (r *rig, file string, old *fakeshard.Shard) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "spillway.yaml")
	r = newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, limits(ample), append([]func(*Options){func(o *Options) {
		o.ConfigFile = file
		o.shards = shard.Options{ProbeInterval: 50 * time.Millisecond, MoveTimeout: patience}
	}}, change...)...)
	writeText(t, file, r.config)
	return r, file, r.shards["jaguar"][0][0]
}

// nobodies counts the ports of nobodyAt.
var nobodies atomic.Int64

// nobodyAt is a URL at which nothing listens, another one each time: of the lowest ports, which no
// test that runs beside is given.
func nobodyAt() string { return fmt.Sprintf("http://127.0.0.1:%d", 1+nobodies.Add(1)%6) }

// jaguarAt is a configuration of that group, of one server.
func jaguarAt(url string) string {
	return strings.ReplaceAll(groupsOver(url), "g0", "jaguar") + limits(ample)
}

// guarded is a server that lets in who sends the token.
func guarded(t *testing.T, token string) *fakeshard.Shard {
	return fakeshard.Start(t, fakeshard.Config{Answer: func(rec fakeshard.Record) (a fakeshard.Answer, other bool) {
		if rec.Header.Get("X-Token") != token {
			return fakeshard.Answer{Status: http.StatusUnauthorized, Body: []byte("not with " + rec.Header.Get("X-Token"))}, true
		}
		return a, false
	}})
}

// TestMovesToNobody: a group whose servers answer is not moved to such as do not, one and all,
// whichever way the configuration comes; and everything else is taken.
func TestMovesToNobody(t *testing.T) {
	t.Parallel()
	there := fakeshard.Start(t, fakeshard.Config{})
	sick := fakeshard.Start(t, fakeshard.Config{})
	hung := fakeshard.Start(t, fakeshard.Config{})
	closed := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/-/ready", Script: "status 403; send 'Forbidden'"}}})
	sidecar := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/*", Script: "status 404"}}})
	for s, script := range map[*fakeshard.Shard]string{sick: "status 500; send 'no'", hung: "stall"} {
		if err := s.Set(script, fakeshard.Route{Script: script}); err != nil {
			t.Fatal(err)
		}
	}
	gone := nobodyAt()
	group := func(name string, replicas ...string) string {
		text := fmt.Sprintf("  - name: %s\n    labels: {cluster: %s}\n    shards:\n      - replicas:\n", name, name)
		for _, r := range replicas {
			text += "          - {" + r + "}\n"
		}
		return text
	}
	at := func(url string) string { return fmt.Sprintf("url: %q", url) }
	for _, tc := range []struct {
		name string
		next func(old *fakeshard.Shard) string // groups
		want []string                          // what the refusal says; none: it is taken
	}{
		{
			"nothing listens", func(*fakeshard.Shard) string { return group("jaguar", at(gone)) },
			[]string{"group jaguar: ", gone, "force=true"},
		},
		{"500", func(*fakeshard.Shard) string { return group("jaguar", at(sick.URL())) }, []string{"group jaguar: ", sick.URL(), "500"}},
		{
			"another program, which is ready", func(*fakeshard.Shard) string { return group("jaguar", at(sidecar.URL())) },
			[]string{"group jaguar: ", sidecar.URL(), "404"},
		},
		{
			"it hangs", func(*fakeshard.Shard) string { return group("jaguar", at(hung.URL())) },
			[]string{"group jaguar: ", hung.URL(), "within 500ms"},
		},
		{
			"all of these, and another group that is new", func(*fakeshard.Shard) string {
				return group("jaguar", at(hung.URL()), at(sick.URL()), at(gone)) + group("ibis", at(there.URL()))
			},
			[]string{"group jaguar: ", gone, sick.URL(), hung.URL()},
		},
		{
			"another scheme", func(old *fakeshard.Shard) string {
				return group("jaguar", at(strings.Replace(old.URL(), "http:", "https:", 1)))
			},
			[]string{"group jaguar: ", "https://"},
		},
		{
			"another path", func(old *fakeshard.Shard) string { return group("jaguar", at(old.URL()+"/nobody")) },
			[]string{"group jaguar: ", "/nobody", "404"},
		},
		{
			"the same server by a proxy that is not there", func(old *fakeshard.Shard) string {
				return group("jaguar", at(old.URL())+", http_client: {proxy_url: '"+strings.Replace(gone, "//", "//user:hunter2@", 1)+"'}")
			},
			[]string{"group jaguar: "},
		},
		{"one of two answers", func(*fakeshard.Shard) string { return group("jaguar", at(gone), at(there.URL())) }, nil},
		{"one is known", func(old *fakeshard.Shard) string { return group("jaguar", at(gone), at(old.URL())) }, nil},
		{"its readiness page is closed", func(*fakeshard.Shard) string { return group("jaguar", at(closed.URL())) }, nil},
		{"another name", func(*fakeshard.Shard) string { return group("ibis", at(gone)) }, nil},
		{
			"another label", func(old *fakeshard.Shard) string {
				return strings.Replace(group("jaguar", at(old.URL())), "cluster: jaguar", "cluster: puma", 1)
			}, nil,
		},
		{"a group more", func(old *fakeshard.Shard) string { return group("jaguar", at(old.URL())) + group("ibis", at(gone)) }, nil},
	} {
		for way, reload := range reloadWays {
			t.Run(tc.name+"/"+way, func(t *testing.T) {
				t.Parallel()
				r, file, old := movable(t, func(o *Options) {
					if slices.Contains(tc.want, hung.URL()) {
						o.shards.MoveTimeout = 500 * time.Millisecond
					}
				})
				before := r.s.state.Load()
				writeText(t, file, "groups:\n"+tc.next(old)+limits(ample))
				taken, said := reload(r)
				if taken != (tc.want == nil) || taken != (r.s.state.Load() != before) {
					t.Fatalf("taken: %t, %s", taken, said)
				}
				if got := r.metric("spillway_config_last_reload_successful"); (got == 1) != taken {
					t.Errorf("the metric says %g", got)
				}
				for _, want := range tc.want {
					if !strings.Contains(said, want) {
						t.Errorf("%q is not in %q", want, said)
					}
				}
				if strings.Contains(strings.Join(r.log.atLeast(slog.LevelDebug), " ")+said, "hunter2") {
					t.Errorf("a secret is told: %s", said)
				}
				if tc.want == nil {
					return
				}
				if lines := r.refusals(); len(lines) != 1 {
					t.Errorf("%q", lines)
				}
				if lines := r.log.audits(); len(lines) != 1 || !strings.Contains(lines[0], "result=refused") {
					t.Errorf("%q", lines)
				}
				if a := r.query("up"); a.status != http.StatusOK || !strings.Contains(string(a.body), "jaguar-0") {
					t.Errorf("the configuration of before answers %s", a)
				}
			})
		}
	}
}

// TestMovesOfCredentials: what lets nobody in any more is no way to the servers that there are.
func TestMovesOfCredentials(t *testing.T) {
	t.Parallel()
	r, file, _ := movable(t)
	s := guarded(t, "right")
	with := func(token string) string {
		return fmt.Sprintf("groups:\n  - {name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q, headers: {X-Token: %s}}]}]}\n",
			s.URL(), token) + limits(ample)
	}
	writeText(t, file, with("right"))
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	before := r.s.state.Load()
	r.query("up")
	counted := r.metric("spillway_shard_requests_total", "outcome=ok")
	writeText(t, file, with("hunter2"))
	if err := r.s.Reload(); err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "hunter2") ||
		r.s.state.Load() != before {
		t.Error(err)
	}
	if a := r.query("up"); a.status != http.StatusOK {
		t.Error(a)
	}
	if got := r.metric("spillway_shard_requests_total", "outcome=ok"); counted == 0 || got <= counted {
		t.Errorf("%g calls are counted, %g before", got, counted)
	}
}

// TestMovesAwayFromNobody: servers that never answered are left for whatever there is.
func TestMovesAwayFromNobody(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	s, _ := startProxy(t, t.Context(), jaguarAt(nobodyAt()), func(o *Options) { o.ConfigFile = file })
	writeText(t, file, jaguarAt(nobodyAt()))
	before := s.state.Load()
	if err := s.Reload(); err != nil || s.state.Load() == before {
		t.Error(err)
	}
}

// TestMovesAreTriedAgain: what was refused since no server answers is tried at each look, without a
// word, and is in force once one of them does.
func TestMovesAreTriedAgain(t *testing.T) {
	t.Parallel()
	r, file, _ := movable(t)
	r.s.opts.ReloadInterval = 30 * time.Second // as it is said; here it looks more often
	late := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{away}})
	defer r.watched()()
	before := r.s.state.Load()
	writeText(t, file, jaguarAt(late.URL()))
	const looks = 3 * mostLooks // more than would be at all without it
	r.eventually("it is tried again and again", func() bool { return len(late.RequestsTo("/-/ready")) >= looks })
	lines := r.log.atLeast(slog.LevelWarn)
	if len(lines) != 1 || !strings.Contains(lines[0], "tried again every 30s, and in force once") ||
		r.s.state.Load() != before || r.metric("spillway_config_last_reload_successful") != 0 {
		t.Errorf("%q", lines)
	}
	if lines := r.log.audits(); len(lines) != 1 {
		t.Errorf("%q", lines)
	}
	refused := func(what string) (n int) {
		for _, line := range r.refusals() {
			if strings.Contains(line, what) {
				n++
			}
		}
		return n
	}
	const nobody = "none of the servers"
	writeText(t, file, "nonsense: 1\n")
	r.eventually("another mistake is told", func() bool { return refused("nonsense: unknown key") > 0 })
	writeText(t, file, jaguarAt(late.URL()))
	r.eventually("it is told once more", func() bool { return refused(nobody) == 2 })
	if err := late.Set(""); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is in force", func() bool {
		return r.s.state.Load() != before && r.metric("spillway_config_last_reload_successful") == 1
	})
	if n := refused(nobody); n != 2 {
		t.Errorf("it is told %d times", n)
	}
}

// TestMovesByForce: who knows that the servers come later says so.
func TestMovesByForce(t *testing.T) {
	t.Parallel()
	r, file, _ := movable(t)
	before := r.s.state.Load()
	writeText(t, file, jaguarAt(nobodyAt()))
	for _, tc := range []struct {
		query  string
		status int
		taken  bool
	}{
		{"", 400, false},
		{"?force=false", 400, false},
		{"?force=perhaps", 400, false},
		{"?force=true", 200, true},
		{"", 200, true}, // it is in force
	} {
		a := r.sendForm(http.MethodPost, r.admin+"/-/reload"+tc.query, nil, "")
		if a.status != tc.status || tc.taken != (r.s.state.Load() != before) {
			t.Errorf("POST /-/reload%s: %s", tc.query, a)
		}
	}
	lines := r.log.audits()
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "force=true") }); len(lines) != 4 || i != 2 ||
		!strings.Contains(lines[2], "result=reloaded") {
		t.Errorf("%q", lines)
	}
	writeText(t, file, jaguarAt(nobodyAt()))
	if err := r.s.Reload(); err != nil {
		t.Errorf("from servers that never answered: %v", err)
	}
}

// TestMovesWhileServing: while new servers are asked, requests are answered and other reloads come
// after.
func TestMovesWhileServing(t *testing.T) {
	t.Parallel()
	r, file, _ := movable(t)
	slow := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Script: "wait go; status 500"}}})
	writeText(t, file, jaguarAt(slow.URL()))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- r.s.Reload() }()
	if err := slow.WaitSeen(t.Context(), "/-/ready", 1); err != nil {
		t.Fatal(err)
	}
	if a := r.query("up"); a.status != http.StatusOK {
		t.Errorf("a request meanwhile: %s", a)
	}
	writeText(t, file, r.config+"partial_response: warn\n")
	go func() { second <- r.s.Reload() }()
	slow.Release("go")
	if err := <-first; err == nil || !strings.Contains(err.Error(), "group jaguar: ") {
		t.Errorf("the first one: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second one: %v", err)
	}
}

// TestMovesEndWithTheServer: who stops waits for no server that is asked.
func TestMovesEndWithTheServer(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	hung := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Script: "stall"}}})
	file, log := filepath.Join(t.TempDir(), "spillway.yaml"), &logbook{}
	old := fakeshard.Start(t, fakeshard.Config{})
	s, _ := startProxy(t, ctx, jaguarAt(old.URL()), func(o *Options) {
		o.ConfigFile, o.Logger, o.shards.MoveTimeout = file, slog.New(log), patience
	})
	writeText(t, file, jaguarAt(hung.URL()))
	asked := make(chan error, 1)
	go func() { asked <- s.Reload() }()
	if err := hung.WaitSeen(t.Context(), "/-/ready", 1); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-asked; err == nil || !strings.Contains(err.Error(), "Spillway is stopping") {
		t.Error(err)
	}
}
