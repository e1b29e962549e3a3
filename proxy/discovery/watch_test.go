package discovery

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/spillwayproject/spillway/proxy/config"
)

const patience = 20 * time.Second

// parse is a configuration with one group that has its shards from somewhere.
func parse(t *testing.T, from string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte("groups:\n  - name: jaguar\n    shards_from: "+from+"\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shape is a group's shards in one line: the hosts of replicas, shards apart.
func shape(c *config.Config) string {
	var out []string
	for _, s := range c.Groups[0].Shards {
		var hosts []string
		for _, r := range s.Replicas {
			hosts = append(hosts, strings.TrimPrefix(r.URL, "http://"))
		}
		out = append(out, strings.Join(hosts, "+"))
	}
	return strings.Join(out, " ")
}

// replace writes a file the way that leaves nobody a half written one.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// rig is a watch, and what it tells.
type rig struct {
	*Watch
	t       *testing.T
	cfg     *config.Config
	reg     *prometheus.Registry
	changes atomic.Int64
}

func newRig(t *testing.T, from string) *rig {
	t.Helper()
	r := &rig{t: t, cfg: parse(t, from), reg: prometheus.NewRegistry()}
	r.Watch = New(t.Context(), Options{Registerer: r.reg, Changed: func() { r.changes.Add(1) }, Patience: patience})
	r.there = answers
	t.Cleanup(r.Close)
	return r
}

// answers is for servers that are nowhere.
func answers(context.Context, config.Replica) bool { return true }

func (r *rig) shape() string {
	r.t.Helper()
	c, err := r.Fill(r.t.Context(), r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return shape(c)
}

func (r *rig) becomes(want string) {
	r.t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = r.shape(); got == want {
			return
		}
	}
	r.t.Fatalf("it is %q, want %q", got, want)
}

func (r *rig) refused(want float64) {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if testutil.ToFloat64(r.metrics.refused.WithLabelValues("jaguar")) == want {
			return
		}
	}
	r.t.Fatalf("spillway_discovery_refused is not %g", want)
}

// told waits until so many changes were told.
func (r *rig) told(want int64) {
	r.t.Helper()
	for end := time.Now().Add(patience); r.changes.Load() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%d changes were told, want %d", r.changes.Load(), want)
		}
	}
}

const target = "- {targets: [%q], labels: {__spillway_shard__: %q, __spillway_replica__: %q}}\n"

// TestFiles: what stands in files is in force, in the order of shards and replicas; a change is
// told; what cannot be used changes nothing, and is told by a metric.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "1.yml"), filepath.Join(dir, "2.yml")
	replace(t, one, fmt.Sprintf(target+target, "b:9090", "s-10", "r1", "a:9090", "s-9", "r0"))
	replace(t, two, fmt.Sprintf(target, "c:9090", "s-10", "r0"))
	r := newRig(t, "{files: ['"+dir+"/*.yml'], keep: 1ms, refresh_interval: 200ms}")
	if got := r.shape(); got != "a:9090 c:9090+b:9090" {
		t.Fatalf("found %q", got)
	}
	if r.changes.Load() != 0 {
		t.Error("the first answer is no change")
	}
	replace(t, two, fmt.Sprintf(target+target, "c:9090", "s-10", "r0", "d:9090", "s-11", "r0"))
	r.becomes("a:9090 c:9090+b:9090 d:9090")
	r.told(1)
	for _, bad := range []string{
		"- {targets: ['d:9090']}\n",                                                         // of no shard
		fmt.Sprintf(target, "a:9090", "s-10", "r0"),                                         // in two places
		fmt.Sprintf(target, "user:secret@d:9090", "s-10", "r0"),                             // no address
		"- {targets: ['d:9090'], labels: {__spillway_shard__: s-10, __spillway_hash__: 1}}", // differs from its copy
		"- {targets: ['d:9090'], labels: {__spillway_shard__: x, __spillway_from__: soon}}", // no time
	} {
		replace(t, two, bad)
		r.refused(1)
		if got := r.shape(); got != "a:9090 c:9090+b:9090 d:9090" {
			t.Errorf("after %q there is %q", bad, got)
		}
		replace(t, two, fmt.Sprintf(target+target, "c:9090", "s-10", "r0", "d:9090", "s-11", "r0"))
		r.refused(0)
	}
	replace(t, two, "- {targets: [") // half written: Prometheus' discovery does not take it
	replace(t, one, fmt.Sprintf(target, "e:9090", "s-9", "r0"))
	r.becomes("e:9090 c:9090+b:9090 d:9090") // b may stand in it
	r.told(2)
	replace(t, two, fmt.Sprintf(target+target, "c:9090", "s-10", "r0", "d:9090", "s-11", "r0"))
	r.becomes("e:9090 c:9090 d:9090")
	r.told(3)
}

// TestStart: a group is not begun with a part of it: all files and names have to be there and of
// use.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "1.yml")
	// What is found and refused is told at once; what is never there when the patience ends.
	fill := func(from string, never bool) error {
		o := Options{Patience: patience}
		if never {
			o.Patience = 500 * time.Millisecond
		}
		w := New(t.Context(), o)
		defer w.Close()
		_, err := w.Fill(t.Context(), parse(t, from))
		return err
	}
	for _, c := range []struct{ text, from, want string }{
		{"", "{files: ['" + dir + "/none*.yml']}", "no file is called " + dir + "/none*.yml"},
		{"[]", "{files: ['" + file + "']}", "no servers yet from " + file},
		{"- {targets: ['a:9090']}", "{files: ['" + file + "']}", "the target a:9090 has no label __spillway_shard__"},
		{fmt.Sprintf(target, "a:9090", "s", "r"), "{files: ['" + file + "'], relabel_configs: [{action: drop, source_labels: [__address__], regex: 'a:.*'}]}", "no server is found"},
		{"", "{http_sd: 'http://127.0.0.1:1/'}", "no servers yet from http://127.0.0.1:1/"},
	} {
		replace(t, file, c.text)
		never := strings.Contains(c.want, "no servers yet") || strings.Contains(c.want, "no file")
		if err := fill(c.from, never); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "group jaguar: shards_from: ") {
			t.Errorf("%s: %v, want %s", c.from, err, c.want)
		}
	}
}

// TestNames: all names have to be answered with records before any is asked, and a name without one
// is named where it is waited for in vain; what stands under one is a shard. Later a name may have
// none: its servers are kept.
func TestNames(t *testing.T) {
	s := sourceOf(t, "{dns_srv: [_web._tcp.one, _web._tcp.two]}")
	group := func(name string, hosts ...string) *targetgroup.Group {
		g := &targetgroup.Group{Source: name}
		for _, h := range hosts {
			g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(h), dnsName: model.LabelValue(name)})
		}
		return g
	}
	s.take([]*targetgroup.Group{group("_web._tcp.one", "b:9090", "a:9090")})
	if s.ready {
		t.Fatal("one of two names is not all")
	}
	s.take([]*targetgroup.Group{group("_web._tcp.two")})
	if s.ready {
		t.Fatalf("one of two names has no record, and the group is begun with %q", s.shape())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.await(ctx); err == nil || !strings.Contains(err.Error(), "no servers yet from _web._tcp.two (the name has no record);") {
		t.Errorf("waited in vain: %v", err)
	}
	s.take([]*targetgroup.Group{group("_web._tcp.two", "c:9090")})
	if got := s.shape(); !s.ready || got != "a:9090+b:9090 c:9090" {
		t.Fatalf("ready %v: %q", s.ready, got)
	}
	s.take([]*targetgroup.Group{group("_web._tcp.two")})
	if got := s.shape(); s.refused != nil || got != "a:9090+b:9090 c:9090" {
		t.Errorf("a name without a record, later: %v, %q", s.refused, got)
	}
	next := sourceOf(t, "{dns_srv: [_web._tcp.one, _web._tcp.two], keep: 24h}")
	next.follows(s)
	next.take([]*targetgroup.Group{group("_web._tcp.two")})
	if next.ready {
		t.Error("the other name has not been answered")
	}
	next.take([]*targetgroup.Group{group("_web._tcp.one", "a:9090", "b:9090")})
	if got := next.shape(); !next.ready || got != "a:9090+b:9090 c:9090" {
		t.Errorf("one that takes its place meanwhile: ready %v, %q", next.ready, got)
	}
}

func sourceOf(t *testing.T, from string) *source {
	t.Helper()
	w := New(t.Context(), Options{})
	t.Cleanup(w.Close)
	cfg := parse(t, from)
	s, err := newSource(w, &cfg.Groups[0])
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *source) shape() string {
	return shape(&config.Config{Groups: []config.Group{{Shards: s.shards}}})
}

// TestKept: a server that is not found any more is asked on for as long as keep says, unless
// another one came in its place; the last of all stay.
func TestKept(t *testing.T) {
	s := sourceOf(t, "{http_sd: 'http://x/', keep: 10m}")
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	find := func(servers ...string) {
		g := &targetgroup.Group{Source: "x"}
		for _, text := range servers {
			shard, rest, _ := strings.Cut(text, "/")
			replica, host, _ := strings.Cut(rest, "/")
			g.Targets = append(g.Targets, model.LabelSet{
				model.AddressLabel: model.LabelValue(host), ShardLabel: model.LabelValue(shard), ReplicaLabel: model.LabelValue(replica),
			})
		}
		s.take([]*targetgroup.Group{g})
	}
	is := func(want string) {
		t.Helper()
		if got := s.shape(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	find("0/a/h1", "0/b/h2", "1/a/h3")
	is("h1+h2 h3")
	now = now.Add(time.Hour) // in which nothing was told, since nothing had changed
	find("0/a/h1", "1/a/h4") // h2 is gone, h3 has moved to h4
	is("h1+h2 h4")
	if got := s.nextEnd(); got != 10*time.Minute {
		t.Errorf("looked again in %s", got)
	}
	now = now.Add(10*time.Minute - time.Second)
	s.take(nil)
	is("h1+h2 h4")
	now = now.Add(time.Second)
	s.take(nil)
	is("h1 h4")
	find("0/a/h1", "1/a/h1") // of no use: h1 twice
	now = now.Add(time.Hour)
	s.take(nil)
	is("h1 h4")
	find() // a discovery that lost its mind
	is("h1 h4")
	now = now.Add(time.Hour)
	s.take(nil)
	is("h1 h4")
	find("2/a/h9")
	is("h9")
	// An address that is another's now: its shard stays, at none, unless it has another copy.
	find("0/a/h1", "0/b/h2", "1/a/h3")
	now = now.Add(time.Hour)
	find("0/a/h1", "0/b/h3")
	is("h1+h3 h3-83dcefb7.moved.invalid")
	now = now.Add(10*time.Minute - time.Second)
	s.take(nil)
	is("h1+h3 h3-83dcefb7.moved.invalid")
	now = now.Add(time.Second)
	s.take(nil)
	is("h1+h3")
	find("0/a/h1", "1/a/h3")
	is("h1 h3")
	find("0/a/h3", "1/a/h1")
	is("h3 h1")
}

// TestKeptUnderAnotherKeep: who is kept when keep, or anything that does not say who is found, is
// changed is kept on, for as long as the new keep says since it was found last.
func TestKeptUnderAnotherKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "1.yml")
	both := fmt.Sprintf(target+target, "a:1", "0", "x", "b:1", "1", "x")
	replace(t, file, both)
	r := newRig(t, fmt.Sprintf("{files: [%q], keep: 15m}", file))
	r.becomes("a:1 b:1")
	replace(t, file, fmt.Sprintf(target, "a:1", "0", "x"))
	for end := time.Now().Add(patience); r.state("kept") != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("b is not kept")
		}
	}
	seen := func() time.Time {
		s := r.sources[len(r.sources)-1]
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.known["http://b:1"].seen
	}
	was := seen()
	r.cfg = parse(t, fmt.Sprintf("{files: [%q], keep: 24h, type: thanos}", file))
	if got := r.shape(); got != "a:1 b:1" {
		t.Fatalf("with a longer keep: %q", got)
	}
	if now := seen(); !now.Equal(was) {
		t.Errorf("found last at %s, and %s before", now, was)
	}
	r.Retain(r.cfg)
	r.cfg = parse(t, fmt.Sprintf("{files: [%q], keep: 24h, relabel_configs: [{action: drop, source_labels: [__address__], regex: 'b:.*'}]}", file))
	if got := r.shape(); got != "a:1" {
		t.Errorf("where other servers are looked for: %q", got)
	}
}

// TestKeptForLess: a keep that is shortened holds for who is kept already.
func TestKeptForLess(t *testing.T) {
	now := time.Unix(1e9, 0)
	begin := func(keep string, before *source) *source {
		s := sourceOf(t, "{http_sd: 'http://x/', keep: "+keep+"}")
		s.now = func() time.Time { return now }
		s.follows(before)
		return s
	}
	find := func(s *source, hosts ...string) string {
		g := &targetgroup.Group{Source: "x"}
		for _, h := range hosts {
			g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(h), ShardLabel: model.LabelValue(h)})
		}
		s.take([]*targetgroup.Group{g})
		return s.shape()
	}
	first := begin("1h", nil)
	find(first, "h1", "h2", "h3")
	find(first, "h1", "h2")
	now = now.Add(10 * time.Minute)
	for _, tc := range []struct{ keep, want string }{{"5m", "h1 h2"}, {"11m", "h1 h2 h3"}} {
		if got := find(begin(tc.keep, first), "h1"); got != tc.want {
			t.Errorf("h3 is gone for 10m, h2 just now, keep is %s: %q, want %q", tc.keep, got, tc.want)
		}
	}
	if got := find(begin("1h", sourceOf(t, "{http_sd: 'http://x/'}")), "h1"); got != "h1" {
		t.Errorf("after one that had found nothing yet: %q", got)
	}
}

// TestHTTP: a list at a URL, and rules that make shards of the names of pods as the Prometheus
// operator gives them.
func TestHTTP(t *testing.T) {
	var list atomic.Value
	list.Store(`[{"targets":["10.0.0.1:9090"],"labels":{"pod":"prometheus-k8s-0"}},{"targets":["10.0.0.2:9090"],"labels":{"pod":"prometheus-k8s-shard-1-0"}},
		{"targets":["10.0.0.3:9090"],"labels":{"pod":"prometheus-k8s-1"}},{"targets":["10.0.0.9:9090"],"labels":{"pod":"grafana-0"}}]`)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, list.Load())
	}))
	defer web.Close()
	r := newRig(t, `
      http_sd: `+web.URL+`
      refresh_interval: 50ms
      keep: 1ms
      http_client: {basic_auth: {username: u, password: secret}}
      relabel_configs:
        - {source_labels: [pod], regex: 'prometheus-k8s-.*', action: keep}
        - {source_labels: [pod], regex: '(prometheus-k8s(?:-shard-\d+)?)-(\d+)', target_label: __spillway_shard__}
        - {source_labels: [pod], regex: '.*-(\d+)', target_label: __spillway_replica__}`)
	r.becomes("10.0.0.1:9090+10.0.0.3:9090 10.0.0.2:9090")
	c, err := r.Fill(t.Context(), r.cfg)
	if err != nil || c.Groups[0].Shards[0].Replicas[0].HTTPClient.BasicAuth == nil {
		t.Errorf("servers without their credentials: %v", err)
	}
	if c.Hash == r.cfg.Hash {
		t.Error("another configuration has the same hash")
	}
	list.Store(`[{"targets":["10.0.0.1:9090"],"labels":{"pod":"prometheus-k8s-0"}}]`)
	r.becomes("10.0.0.1:9090")
	// A configuration that has another group leaves nothing of this one.
	r.Retain(config.Of(config.Group{Name: "ibis"}))
	if n := testutil.CollectAndCount(r.metrics.servers); n != 0 {
		t.Errorf("%d metrics are left", n)
	}
}

// TestWithShards: what is found is checked as a file would be.
func TestWithShards(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "1.yml")
	replace(t, file, fmt.Sprintf(target, "a:9090", "s", "r"))
	c, err := config.Parse([]byte("groups:\n  - {name: jaguar, labels: {cluster: a}, shards_from: {files: ['"+file+"']}}\n  - {name: ibis, labels: {cluster: b}, shards: [{replicas: [{url: 'http://a:9090'}]}]}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	w := New(t.Context(), Options{})
	defer w.Close()
	if _, err := w.Fill(context.Background(), c); err == nil || !strings.Contains(err.Error(), "one server is one replica of one shard") {
		t.Errorf("a server in two groups: %v", err)
	}
	if len(w.sources) != 0 {
		t.Error("what was begun in vain goes on")
	}
	if text := string(c.Redacted()); !strings.Contains(text, "shards_from") {
		t.Errorf("printed without where shards are from:\n%s", text)
	}
}

// TestShardsWithHash: shards that are looked up have their numbers under the group's hashmod, and
// one that has none is refused.
func TestShardsWithHash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "1.yml")
	c, err := config.Parse([]byte("groups:\n  - {name: jaguar, hashmod: {labels: [node], modulus: 2}, shards_from: {files: ['"+file+"']}}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	fill := func(second string) (*config.Config, error) {
		replace(t, file, "[{targets: ['a:9090'], labels: {__spillway_shard__: s0, __spillway_hash__: 0}}, {targets: ['b:9090'], labels: {__spillway_shard__: s1"+second+"}}]")
		w := New(t.Context(), Options{})
		defer w.Close()
		return w.Fill(t.Context(), c)
	}
	out, err := fill(", __spillway_hash__: 1")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range out.Groups[0].Shards {
		if !s.Hash.Set || s.Hash.N != uint64(i) {
			t.Errorf("shard %d has the hash %q", i, s.Hash)
		}
	}
	if _, err := fill(""); err == nil || !strings.Contains(err.Error(), "each of its shards needs its hash") {
		t.Errorf("a shard without a hash: %v", err)
	}
}

// TestRemaindersThatAreNotFound are remarked on once the shards are known, and not before.
func TestRemaindersThatAreNotFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "1.yml")
	c, err := config.Parse([]byte("limits: {max_range: 30d, metadata_range: 60d}\ngroups:\n  - {name: jaguar, hashmod: {labels: [node], modulus: 2}, shards_from: {files: ['"+file+"']}}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	own := c.Notes
	if len(own) != 1 || own[0].Path != "limits.metadata_range" {
		t.Fatalf("notes of the file: %v", own)
	}
	for n, hashes := range [][]int{{0, 1}, {1}} {
		var text strings.Builder
		for _, h := range hashes {
			fmt.Fprintf(&text, "- {targets: ['s%d:9090'], labels: {__spillway_shard__: s%d, __spillway_hash__: %d}}\n", h, h, h)
		}
		replace(t, file, text.String())
		w := New(t.Context(), Options{})
		out, err := w.Fill(t.Context(), c)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Notes) != 1+n || !slices.Contains(out.Notes, own[0]) || n == 1 &&
			!strings.Contains(out.Notes.Error(), "groups[0].hashmod: 1 of 2 remainders are on no shard, the first is 0") {
			t.Errorf("notes with the shards %v: %v", hashes, out.Notes)
		}
		if len(c.Notes) != 1 {
			t.Errorf("the file's own notes: %v", c.Notes)
		}
	}
}

// FuzzTargets: whatever labels are found, there is an answer or an error, and an address keeps to
// one place.
func FuzzTargets(f *testing.F) {
	f.Add("a:9090", "s", "r", "1", "-1d", "", "/p", "http")
	f.Add("[::1]:9090", "s-10", "", "", "", "2026-10-01T00:00:00Z", "/../x", "https")
	f.Fuzz(func(t *testing.T, address, shard, replica, hash, from, until, path, scheme string) {
		s := &source{from: config.ShardsFrom{HTTP: "http://x/"}}
		set := model.LabelSet{}
		for name, v := range map[model.LabelName]string{
			model.AddressLabel: address, ShardLabel: shard, ReplicaLabel: replica, HashLabel: hash, FromLabel: from, UntilLabel: until,
			PathLabel: path, model.SchemeLabel: scheme,
		} {
			set[name] = model.LabelValue(v)
		}
		servers, err := s.servers([]*targetgroup.Group{{Targets: []model.LabelSet{set, {model.AddressLabel: "b:9090", ShardLabel: "s"}}}})
		if err != nil {
			return
		}
		known := map[string]*server{}
		for _, f := range servers {
			known[f.url] = &server{found: f}
		}
		shards, err := s.assemble(known)
		if err != nil {
			return
		}
		n := 0
		for _, sh := range shards {
			n += len(sh.Replicas)
			for _, r := range sh.Replicas {
				if _, err := r.Base(); err != nil {
					t.Errorf("%q: %v", r.URL, err)
				}
			}
		}
		if n != len(servers) || slices.ContainsFunc(shards, func(s config.Shard) bool { return len(s.Replicas) == 0 }) {
			t.Errorf("%d of %d servers in %v", n, len(servers), shards)
		}
	})
}
