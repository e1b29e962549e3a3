package fakeshard

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Config describes a shard. Its zero value is a healthy one with two series.
type Config struct {
	// Routes are the scripts for certain requests; the first that matches is run.
	Routes []Route
	// Default is the script for requests that no route matches and that are not probes. Empty: the
	// healthy answer.
	Default string
	// Accept are scripts for connections, run before anything is read from them: delay, stall,
	// reset, close, raw, wait.
	Accept []AcceptRoute

	// Prefix is the path under which the API is served ("/prometheus"); empty for none. Outside of
	// it everything is 404.
	Prefix string
	// Version is what status/buildinfo says. Empty: 3.15.0.
	Version string
	// ExternalLabels are in the global section of status/config.
	ExternalLabels map[string]string
	// Flags are added to, or replace, those of status/flags. query.lookback-delta is 5m unless it
	// is here.
	Flags map[string]string
	// Series are what the healthy answers speak of, label sets with __name__, each with the value 1
	// at any time. Nil: up of two instances. They are answered in the order of their labels.
	Series []map[string]string
	// Queries are answers by the text of the query: what "data" is in the answer, in JSON. They
	// hold for query and query_range, before the built-in answers (a scalar for a number or a sum
	// of two, else all Series).
	Queries map[string]string
	// Metrics are values on /metrics, by name. They replace those of a small Prometheus without a
	// memory limit; a NaN takes one away.
	Metrics map[string]float64
	// Probe tells whether a request that no route matches is one of those with which a proxy
	// examines its shards; Default is not run for these. Nil: DefaultProbe.
	Probe func(Record) bool
	// Answer, if it is set, is asked first for every healthy answer; what it returns is given
	// unless ok is false. It is called from several goroutines.
	Answer func(Record) (a Answer, ok bool)

	// Listener is served, and closed at the end. Nil: 127.0.0.1, any free port.
	Listener net.Listener
}

// A Route says which requests a script answers.
type Route struct {
	// Path is exact or a pattern of path.Match ("/api/v1/label/*/values"); empty matches every
	// path. Config.Prefix does not belong to it.
	Path string
	// Method is one method; empty matches all.
	Method string
	// Query matches the text of the query parameter exactly; empty matches all.
	Query string
	// Nth is the first of the requests matching Path, Method and Query that this route answers,
	// counted from 1, To the last. Zero To means Nth alone, zero Nth from the first on without end;
	// math.MaxInt is a good way to write "and all later ones".
	Nth, To int
	// Script is what is done (see Parse).
	Script string
}

// An AcceptRoute is a script for connections, counted from 1 as they come; Nth and To are as in
// Route. Where it ends without closing the connection, requests are served as usual.
type AcceptRoute struct {
	Nth, To int
	Script  string
}

func within(n, nth, to int) bool {
	switch {
	case nth == 0 && to == 0:
		return true
	case to == 0:
		return n == nth
	}
	return n >= nth && n <= to
}

// DefaultProbe is true for health, readiness and the server's own metrics, status/config,
// status/flags, status/buildinfo, features, and for the two queries that need no or hardly any
// series: 1+1, and those about the heartbeat, which count the samples of up.
func DefaultProbe(r Record) bool {
	switch {
	case strings.HasSuffix(r.Path, "/-/healthy"), strings.HasSuffix(r.Path, "/-/ready"), strings.HasSuffix(r.Path, "/metrics"),
		strings.HasSuffix(r.Path, "/api/v1/status/config"), strings.HasSuffix(r.Path, "/api/v1/status/flags"),
		strings.HasSuffix(r.Path, "/api/v1/status/buildinfo"), strings.HasSuffix(r.Path, "/api/v1/features"):
		return true
	case strings.HasSuffix(r.Path, "/api/v1/query"), strings.HasSuffix(r.Path, "/api/v1/query_range"):
		q := strings.ReplaceAll(r.Form.Get("query"), " ", "")
		return q == "1+1" || strings.Contains(q, "count_over_time(up[") || strings.Contains(q, "sum_over_time(up[")
	}
	return false
}

// A Shard is a running server. Its methods may be called from any goroutine.
type Shard struct {
	cfg    Config
	series []map[string]string
	lis    net.Listener
	start  time.Time

	stop chan struct{}  // closed by Close
	wg   sync.WaitGroup // the accept loop and every connection

	mu       sync.Mutex
	wake     chan struct{} // closed and replaced whenever something below changes
	scripts  scripts
	records  []*Record
	seen     int
	inFlight int
	conns    map[net.Conn]struct{}
	accepted int
	most     int // connections at once
	released map[string]chan struct{}
	closed   bool
}

type scripts struct {
	routes []route
	def    Script
	accept []acceptRoute
}

type route struct {
	Route
	script Script
	count  int // requests that matched all but Nth
}

type acceptRoute struct {
	AcceptRoute
	script Script
}

func compile(def string, routes []Route, accept []AcceptRoute) (scripts, error) {
	var c scripts
	var err error
	if c.def, err = Parse(def); err != nil {
		return c, fmt.Errorf("default script %q: %w", def, err)
	}
	for i, r := range routes {
		script, err := Parse(r.Script)
		if err != nil {
			return c, fmt.Errorf("routes[%d]: script %q: %w", i, r.Script, err)
		}
		if _, err := path.Match(r.Path, "/"); err != nil {
			return c, fmt.Errorf("routes[%d]: path %q: %w", i, r.Path, err)
		}
		if err := checkSpan(r.Nth, r.To); err != nil {
			return c, fmt.Errorf("routes[%d]: %w", i, err)
		}
		c.routes = append(c.routes, route{Route: r, script: script})
	}
	for i, a := range accept {
		script, err := Parse(a.Script)
		if err == nil {
			err = script.validateAccept()
		}
		if err == nil {
			err = checkSpan(a.Nth, a.To)
		}
		if err != nil {
			return c, fmt.Errorf("accept[%d]: script %q: %w", i, a.Script, err)
		}
		c.accept = append(c.accept, acceptRoute{AcceptRoute: a, script: script})
	}
	return c, nil
}

func checkSpan(nth, to int) error {
	if nth < 0 || to < 0 || to > 0 && to < nth {
		return fmt.Errorf("nth %d to %d is no span; requests are counted from 1", nth, to)
	}
	return nil
}

// New starts a shard. The error says which script or series is wrong and why.
func New(cfg Config) (*Shard, error) {
	c, err := compile(cfg.Default, cfg.Routes, cfg.Accept)
	if err != nil {
		return nil, fmt.Errorf("fakeshard: %w", err)
	}
	if cfg.Version == "" {
		cfg.Version = "3.15.0"
	}
	if cfg.Probe == nil {
		cfg.Probe = DefaultProbe
	}
	if cfg.Prefix != "" && (!strings.HasPrefix(cfg.Prefix, "/") || strings.HasSuffix(cfg.Prefix, "/")) {
		return nil, fmt.Errorf("fakeshard: prefix %q: write it with a slash before it and none behind it", cfg.Prefix)
	}
	s := &Shard{
		cfg: cfg, scripts: c, lis: cfg.Listener, start: time.Now(),
		stop: make(chan struct{}), wake: make(chan struct{}), conns: map[net.Conn]struct{}{}, released: map[string]chan struct{}{},
	}
	if s.series, err = sortSeries(cfg.Series); err != nil {
		return nil, fmt.Errorf("fakeshard: %w", err)
	}
	if s.lis == nil {
		if s.lis, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("fakeshard: %w", err)
		}
	}
	s.wg.Go(s.acceptLoop)
	return s, nil
}

// TB is what Start needs of testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start is New for a test: it fails the test where New returns an error, and closes the shard when
// the test ends.
func Start(t TB, cfg Config) *Shard {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Addr returns the shard's host:port.
func (s *Shard) Addr() string { return s.lis.Addr().String() }

// URL returns the base of the shard's API, with its prefix and without a slash at the end.
func (s *Shard) URL() string { return "http://" + s.Addr() + s.cfg.Prefix }

// Close stops the shard: it closes the listener and every connection and returns when nothing of
// the shard runs any more. Requests in flight end as Stopped. It may be called twice.
func (s *Shard) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	_ = s.lis.Close() // the only error is that it is closed already
	for c := range s.conns {
		_ = c.Close() // likewise
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Set replaces the default script and the routes, whose counts begin anew; requests in flight go on
// as they began. So a shard can fail, recover and flap.
func (s *Shard) Set(def string, routes ...Route) error {
	c, err := compile(def, routes, nil)
	if err != nil {
		return fmt.Errorf("fakeshard: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.accept = s.scripts.accept
	s.scripts = c
	return nil
}

// Release ends every present and future step "wait name".
func (s *Shard) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.gate(name)
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// gate returns the channel that Release(name) closes. The caller holds s.mu.
func (s *Shard) gate(name string) chan struct{} {
	ch := s.released[name]
	if ch == nil {
		ch = make(chan struct{})
		s.released[name] = ch
	}
	return ch
}

func (s *Shard) acceptLoop() {
	for {
		c, err := s.lis.Accept()
		if err != nil {
			return // closed, or nothing that a test could mend
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close() // nobody has used it
			return
		}
		s.accepted++
		n := s.accepted
		s.conns[c] = struct{}{}
		s.most = max(s.most, len(s.conns))
		s.changed()
		s.wg.Go(func() {
			defer func() {
				_ = c.Close() // it may be closed by the script
				s.mu.Lock()
				delete(s.conns, c)
				s.changed()
				s.mu.Unlock()
			}()
			newConn(s, c, n).serve()
		})
		s.mu.Unlock()
	}
}

// strip takes Config.Prefix off a request's path.
func (s *Shard) strip(p string) (string, bool) {
	if s.cfg.Prefix == "" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, s.cfg.Prefix)
	return rest, ok && strings.HasPrefix(rest, "/")
}

func pathMatches(pattern, p string) bool {
	if pattern == "" || pattern == p {
		return true
	}
	ok, err := path.Match(pattern, p)
	return ok && err == nil
}

// choose returns the script for a request. Every route that matches counts it, also those that
// stand behind the one that is chosen.
func (s *Shard) choose(r *Record) Script {
	p, ok := s.strip(r.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *route
	for i := range s.scripts.routes {
		t := &s.scripts.routes[i]
		if !ok || !pathMatches(t.Path, p) || t.Method != "" && t.Method != r.Method || t.Query != "" && t.Query != r.Form.Get("query") {
			continue
		}
		t.count++
		if found == nil && within(t.count, t.Nth, t.To) {
			found = t
		}
	}
	switch {
	case found != nil:
		return found.script
	case s.cfg.Probe(*r):
		return nil
	}
	return s.scripts.def
}

// chooseAccept returns the script for the nth connection.
func (s *Shard) chooseAccept(n int) Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.scripts.accept {
		if within(n, a.Nth, a.To) {
			return a.script
		}
	}
	return nil
}

// An Answer is a whole response.
type Answer struct {
	Status int // 0 means 200
	Header http.Header
	Body   []byte
}
