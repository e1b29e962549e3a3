package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	prom "github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/dns"
	"github.com/prometheus/prometheus/discovery/file"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/proxy/config"
)

// source looks up the shards of one group.
type source struct {
	w     *Watch
	group string
	from  config.ShardsFrom
	rules []*relabel.Config
	log   *slog.Logger
	stop  context.CancelFunc
	now   func() time.Time

	clusters []*cluster    // of kubernetes_sd_configs
	list     *list         // of http
	nudged   chan struct{} // one of them began to work or to fail

	mu       sync.Mutex
	groups   map[string]*targetgroup.Group // by their source, as last told
	heard    map[string]time.Time          // when a file, a pattern of some, or a name was told of last
	told     chan struct{}                 // closed, and another one made, each time something was learned
	ready    bool                          // all have answered once, and could be used
	followed bool                          // it takes the place of one that was ready: whoever has no record now is kept
	refused  error                         // why what is found cannot be used; nil where it can
	known    map[string]*server            // by address
	awaited  map[string]*awaited           // shards that nobody asks yet, by name
	awaits   chan struct{}                 // there are some
	shards   []config.Shard                // in force
	print    string                        // of shards, to know a change by
	silent   time.Time                     // since when something does not answer; zero where all do
	mute     map[string]bool               // what does not, of files, patterns and names
	origins  map[string][]string           // the files or names that told of each server last, by its address
}

// server is one that was found.
type server struct {
	found
	seen time.Time // when it was found last, where it is kept
	kept bool      // no longer found
	lost bool      // kept, while its address is that of another server now
}

// discoverers are Prometheus' own for what is configured.
func (s *source) discoverers() ([]prom.Discoverer, error) {
	if len(s.from.Kubernetes) == 0 {
		d, err := s.discoverer()
		return []prom.Discoverer{d}, err
	}
	var out []prom.Discoverer
	for i := range s.from.Kubernetes {
		c, err := newCluster(&s.from.Kubernetes[i], i, s.log, s.nudge)
		if err != nil {
			return nil, fmt.Errorf("kubernetes_sd_configs[%d]: %w", i, err)
		}
		s.clusters, out = append(s.clusters, c), append(out, c)
	}
	return out, nil
}

// nudge has it looked at anew.
func (s *source) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// discoverer is the one of what refreshes.
func (s *source) discoverer() (prom.Discoverer, error) {
	every := model.Duration(s.every())
	var c prom.Config
	o := prom.DiscovererOptions{Logger: s.log, SetName: s.group}
	switch {
	case len(s.from.Files) > 0:
		for _, pattern := range s.from.Files {
			if names, err := filepath.Glob(pattern); err != nil || len(names) == 0 {
				return nil, fmt.Errorf("no file is called %s; write it, with the servers' addresses under targets", pattern)
			}
		}
		c = &file.SDConfig{Files: s.from.Files, RefreshInterval: every}
	case len(s.from.DNSSRV) > 0:
		c = &dns.SDConfig{Names: s.from.DNSSRV, RefreshInterval: every, Type: "SRV"}
	}
	reg := prometheus.NewRegistry() // theirs are of single mechanisms; ours are of groups
	refresh := prom.NewRefreshMetrics(reg)
	if c == nil {
		s.list = &list{url: s.from.HTTP, every: time.Duration(every)}
		return s.list.discoverer(s.from.Replica("").HTTPClient, o, refresh)
	}
	m := c.NewDiscovererMetrics(reg, refresh)
	if err := refresh.Register(); err != nil {
		return nil, err
	}
	if err := m.Register(); err != nil {
		return nil, err
	}
	o.Metrics = m
	return c.NewDiscoverer(o)
}

// gather is how long more is waited for, once something was told: API servers tell each object by
// itself.
const gather = 20 * time.Millisecond

// follow takes what is found until the context ends.
func (s *source) follow(ctx context.Context, ch <-chan []*targetgroup.Group) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case groups := <-ch:
			s.take(more(ch, groups))
		case <-s.nudged:
			s.take(nil)
		case <-timer.C:
			s.take(nil)
		}
		timer.Reset(s.nextEnd())
	}
}

// more are the groups and those that follow at once.
func more(ch <-chan []*targetgroup.Group, groups []*targetgroup.Group) []*targetgroup.Group {
	timer := time.NewTimer(gather)
	defer timer.Stop()
	all := slices.Clone(groups)
	for range 10_000 {
		select {
		case next := <-ch:
			all = append(all, next...)
		case <-timer.C:
			return all
		}
	}
	return all
}

// nextEnd is how long until the next kept server may be let go, an awaited shard is needed, or a
// silence has lasted too long.
func (s *source) nextEnd() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, held := time.Hour, !s.silent.IsZero() || s.late() // until somebody answers, or has been silent for too long
	for _, k := range s.known {
		if k.kept && !held {
			next = min(next, max(k.seen.Add(s.keeps()).Sub(s.now()), time.Second))
		}
	}
	for _, a := range s.awaited {
		next = min(next, max(a.since.Add(s.keep()).Sub(s.now()), time.Second)) // long past where what is found cannot be used
	}
	if end := s.silent.Add(s.keep()); !s.silent.IsZero() && end.After(s.now()) {
		next = min(next, end.Sub(s.now()))
	}
	if s.ready {
		s.unanswered(func(_ string, last time.Time, _ func() error) {
			if end := last.Add(s.patience()); !end.Before(s.now()) {
				next = min(next, end.Sub(s.now())+time.Millisecond)
			}
		})
	}
	return next
}

func (s *source) keep() time.Duration { return cmp.Or(s.from.Keep, config.DefaultKeep) }

// take learns what was found; nothing is what time alone has changed.
func (s *source) take(groups []*targetgroup.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		close(s.told)
		s.told = make(chan struct{})
	}()
	s.hear(groups)
	for _, g := range groups {
		switch {
		case g == nil:
		case s.ready && len(s.clusters) > 0 && len(g.Targets) == 0: // pods come and go without end
			delete(s.groups, g.Source)
		case len(g.Targets) == 0 && s.isGone(g): // nor do files
			delete(s.groups, g.Source)
		default:
			s.groups[g.Source] = g
		}
	}
	all := sortedValues(s.groups)
	if len(s.clusters) > 0 && !s.ready && !s.answered() {
		return // the rest is to come, and nothing is reckoned for each of many objects
	}
	servers, err := s.servers(all)
	if err == nil && !s.ready && len(s.clusters) == 0 && !s.answered() {
		return // the rest is to come
	}
	var shards []config.Shard
	known, over := s.known, 0
	if err == nil {
		known = s.merged(servers)
		over = bound(known)
		s.leaveOut(known)
		if shards, err = s.assemble(known); errors.Is(err, errNoServer) {
			err = fmt.Errorf("%w; before relabel_configs there are %s", err, s.count(all))
		}
	}
	if err != nil {
		s.refuse(err)
		return
	}
	s.listen()
	s.report(known, over)
	s.known, s.shards = known, shards
	var b strings.Builder
	for _, k := range sortedValues(known) {
		fmt.Fprintln(&b, k.found)
	}
	changed := b.String() != s.print
	s.print = b.String()
	if s.ready && changed {
		s.w.touch()
	}
	s.ready = true
}

// refuse keeps what was found before, and says why.
func (s *source) refuse(err error) {
	if s.refused == nil || s.refused.Error() != err.Error() {
		s.log.Error("what shards_from finds cannot be used; what was found before stays in force", "err", err)
	}
	s.refused = err
	s.w.metrics.refused.WithLabelValues(s.group).Set(1)
}

// listen learns whether all answer who are asked. Who does not says nothing of who has gone: the
// last ones are asked on, however long it takes, and after a while that counts as refused.
func (s *source) listen() {
	since, err := s.silence()
	switch {
	case err != nil && s.silent.IsZero():
		s.log.Warn("shards_from: what was found last is asked on, since it cannot be looked up", "err", err)
	case err == nil && !s.silent.IsZero():
		s.log.Info("shards_from: it can be looked up again", "after", s.now().Sub(s.silent).Round(time.Second))
	}
	s.silent = since
	if err != nil && s.now().Sub(since) >= s.keep() {
		s.refuse(fmt.Errorf("nothing could be looked up for longer than keep (%s): %w", s.keep(), err))
		return
	}
	s.refused = nil
	s.w.metrics.refused.WithLabelValues(s.group).Set(0)
}

// silence is since when somebody does not answer, and why; nil where all do.
func (s *source) silence() (since time.Time, why error) {
	if len(s.clusters) == 0 {
		return s.quiet()
	}
	for _, c := range s.clusters {
		for _, f := range c.feeds {
			if at, err := f.fails(); err != nil && (why == nil || at.Before(since)) {
				if since, why = at, c.refused(); why == nil {
					why = fmt.Errorf("%s of %s: %s", f, serverOf(c.host), said(err))
				}
			}
		}
	}
	return since, why
}

// answered tells whether every file and every name has been answered. A name without a record is
// one whose servers are not ready as a rule, and says nothing of who is there.
func (s *source) answered() bool {
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern) // a bad pattern was refused
		for _, name := range names {
			if !s.isRead(name) {
				return false
			}
		}
	}
	for _, name := range s.from.DNSSRV {
		if g := s.groups[name]; g == nil || len(g.Targets) == 0 && !s.followed {
			return false
		}
	}
	for _, c := range s.clusters {
		if !c.answered(s.groups) {
			return false
		}
	}
	return len(s.groups) > 0 || len(s.clusters) > 0
}

// hopeless is why waiting is of no use; nil where it may be.
func (s *source) hopeless() error {
	for _, c := range s.clusters {
		if err := c.hopeless(); err != nil {
			return err
		}
	}
	return nil
}

// denied is what an API server has refused; nil where that is nothing.
func (s *source) denied() error {
	for _, c := range s.clusters {
		if err := c.refused(); err != nil {
			return err
		}
	}
	return nil
}

// missing is who has not answered.
func (s *source) missing() string {
	var out, nothing []string
	for _, pattern := range s.from.Files {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			switch {
			case !s.isRead(name):
				out = append(out, name)
			case s.groups[name+":0"] == nil:
				nothing = append(nothing, name)
			}
		}
	}
	if len(out) == 0 {
		out = nothing
	}
	for _, name := range s.from.DNSSRV {
		switch g := s.groups[name]; {
		case g == nil:
			out = append(out, name)
		case len(g.Targets) == 0 && !s.followed:
			out = append(out, name+" (the name has no record)")
		}
	}
	if s.from.HTTP != "" {
		u, _ := url.Parse(s.from.HTTP) // checked when the file was read
		out = append(out, plain(u))
	}
	for _, c := range s.clusters {
		out = append(out, c.missing()...)
	}
	return strings.Join(out[:min(len(out), 5)], ", ")
}

// await waits until there are shards.
func (s *source) await(ctx context.Context) ([]config.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ready {
		if s.refused != nil && s.answered() {
			return nil, s.refused
		}
		if err := s.hopeless(); err != nil {
			return nil, err
		}
		told := s.told
		s.mu.Unlock()
		select {
		case <-told:
		case <-time.After(500 * time.Millisecond): // a refusal becomes one with time
		case <-ctx.Done():
		}
		s.mu.Lock()
		if !s.ready && ctx.Err() != nil {
			return nil, cmp.Or(s.refused, s.denied(), fmt.Errorf("no servers yet from %s; the log may say why, and a group is not asked by half", s.missing()))
		}
	}
	return slices.Clone(s.shards), nil
}

// count is how many targets there are, and where they were looked for.
func (s *source) count(groups []*targetgroup.Group) string {
	n := 0
	for _, g := range groups {
		n += len(g.Targets)
	}
	out := fmt.Sprint(n, " targets")
	var where []string
	for _, c := range s.clusters {
		for _, f := range c.main {
			where = append(where, f.String())
		}
	}
	if len(where) > 0 {
		out += ", looked for in " + strings.Join(where[:min(len(where), 5)], ", ")
	}
	return out
}

// merged are the servers that are in force: those found now, and those found not long ago that
// nobody has taken the place of.
func (s *source) merged(servers []found) map[string]*server {
	now := s.now()
	silent, _ := s.silence() // who says nothing of what he has may have any of those that are found no more
	late := s.late()
	out := map[string]*server{}
	places, shards := map[string]bool{}, map[string]bool{}
	for _, f := range servers {
		out[f.url] = &server{found: f, seen: now}
		shards[f.shard] = true
		if f.replica != "" {
			places[f.shard+"\x00"+f.replica] = true
		}
	}
	var lost []*server
	for _, was := range sortedValues(s.known) {
		k := &server{found: was.found, seen: was.seen, kept: true, lost: was.lost}
		if !was.kept { // it was found until now: who has nothing new to tell tells nothing
			k.seen = now
		}
		switch {
		case silent.IsZero() && !late && now.Sub(k.seen) >= s.keeps() || places[k.shard+"\x00"+k.replica]:
		case k.lost || out[k.url] != nil && out[k.url].shard != k.shard:
			lost = append(lost, k)
		case out[k.url] == nil:
			out[k.url] = k
			shards[k.shard] = true
		}
	}
	for _, k := range lost {
		if f := elsewhere(k.found); !shards[k.shard] {
			k.found, k.lost = f, true
			out[f.url] = k
			shards[k.shard] = true
		}
	}
	if len(out) == 0 { // the last ones stay
		for at, k := range s.known {
			out[at] = &server{found: k.found, seen: k.seen, kept: true, lost: k.lost}
		}
	}
	return out
}

// gone ends the hosts of servers whose address is that of another one now. No such name exists
// (RFC 6761).
const gone = ".moved.invalid"

// elsewhere is a server whose address has been given to another one, as addresses of pods are. It
// was the only one of its shard, which without it would be missing from answers that look whole: it
// is asked at a name that does not exist, so that requests are refused and name it.
func elsewhere(f found) found {
	u, err := url.Parse(f.url)
	if err != nil || strings.HasSuffix(u.Hostname(), gone) {
		return f
	}
	host := strings.ReplaceAll(u.Hostname(), ":", "-") + fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(f.shard))) + gone
	u.Host = strings.TrimSuffix(host+":"+u.Port(), ":")
	f.url = u.String()
	return f
}

// bound lets go of kept servers, of those first that went longest ago, until together with those
// that are found they are no more than a group may have. It returns how many.
func bound(servers map[string]*server) int {
	over := len(servers) - MaxServers
	if over <= 0 {
		return 0
	}
	var kept []string
	for at, k := range servers {
		if k.kept {
			kept = append(kept, at)
		}
	}
	slices.SortFunc(kept, func(a, b string) int {
		return cmp.Or(servers[a].seen.Compare(servers[b].seen), strings.Compare(a, b))
	})
	over = min(over, len(kept))
	for _, at := range kept[:over] {
		delete(servers, at)
	}
	return over
}

// mostLines is how many servers are named of those to which the same has happened at once.
const mostLines = 10

// report logs and counts what came and went; over is how many had to be let go before keep.
func (s *source) report(known map[string]*server, over int) {
	var moved, come, went, ended []string
	kept := 0
	for _, at := range slices.Sorted(maps.Keys(known)) {
		k, was := known[at], s.known[at]
		switch {
		case k.lost && was == nil:
			moved = append(moved, at)
		case was == nil && s.ready:
			come = append(come, at)
		case k.kept && !was.kept:
			went = append(went, at)
		}
		if k.kept || s.unread(at) {
			kept++
		}
	}
	for _, at := range slices.Sorted(maps.Keys(s.known)) {
		if known[at] == nil {
			ended = append(ended, at)
		}
	}
	keep := slog.Duration("keep", s.keep())
	if over > 0 {
		s.log.Warn("shards_from: those found and those kept are more than a group may have; the ones that went longest ago are asked no more, before keep has ended",
			"servers", over, "limit", MaxServers, keep)
	}
	s.each(slog.LevelWarn, moved, known, "shards_from: a server is no longer found, and another has its address; requests that need it are refused for a while", "so it is with others", keep)
	s.each(slog.LevelInfo, come, known, "shards_from: a server has come", "so have others")
	s.each(slog.LevelWarn, went, known, "shards_from: a server is no longer found; it is asked on for a while", "so are others", keep)
	s.each(slog.LevelWarn, ended, s.known, "shards_from: a server is asked no more", "nor are others")
	s.w.metrics.servers.WithLabelValues(s.group, "found").Set(float64(len(known) - kept))
	s.w.metrics.servers.WithLabelValues(s.group, "kept").Set(float64(kept))
}

// each logs what has happened to servers, and of the last of many how many they are.
func (s *source) each(level slog.Level, servers []string, of map[string]*server, what, others string, more ...slog.Attr) {
	ctx := context.Background()
	for _, at := range servers[:min(len(servers), mostLines)] {
		s.log.LogAttrs(ctx, level, what, append([]slog.Attr{slog.String("url", at), slog.String("shard", of[at].shard)}, more...)...)
	}
	if n := len(servers) - mostLines; n > 0 {
		s.log.LogAttrs(ctx, level, what+"; "+others, append([]slog.Attr{slog.Int("others", n)}, more...)...)
	}
}

var errNoServer = errors.New("no server is found; a group has at least one")
