package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grafana/regexp"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/exporter-toolkit/web"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/coalesce"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/console"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/discovery"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/journal"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/usage"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// Options are what a Server is made of. Zero durations and counts take the defaults named.
type Options struct {
	// Config is the loaded configuration.
	Config *config.Config
	// ConfigFile is where Reload reads it from; empty where there is no file.
	ConfigFile string
	// ReloadInterval is how often that file is checked for changes; 0 is never.
	ReloadInterval time.Duration
	// ListenAddress is the main listener's host:port.
	ListenAddress string
	// AdminListenAddress is the admin listener's host:port.
	AdminListenAddress string
	// MetricsListenAddress is the host:port of a listener that serves the metrics and health alone,
	// to anybody that the web configuration lets in; empty is none.
	MetricsListenAddress string
	// AdminInsecure allows an admin listener beyond loopback whose callers nothing authenticates.
	AdminInsecure bool
	// WebConfigFile is exporter-toolkit's web configuration: TLS for both listeners; empty is plain
	// HTTP.
	WebConfigFile string
	// ExternalURL is where users reach Spillway, for links; empty is relative links.
	ExternalURL string
	// GraphURL is where else the page can have a query drawn, with {expr} (percent-encoded) or
	// {expr_json} (as it stands inside a JSON string, percent-encoded) in the query's place and,
	// where wanted, {from} and {until} (Unix milliseconds); empty is nowhere.
	GraphURL string
	// ConsoleURL is where users reach the admin listener, for a link in each refusal to the page
	// that says why; empty is no link.
	ConsoleURL string
	// CORSOrigin is a regular expression, anchored, of the origins whose pages may read answers of
	// the main listener in a browser; empty is none.
	CORSOrigin string
	// RoutePrefix stands before every path of the main listener; / is none, and empty is the path
	// of ExternalURL, as in Prometheus.
	RoutePrefix string
	// Flags are the command line's, for status/flags.
	Flags map[string]string
	// Version is Spillway's own.
	Version string
	// Registerer and Gatherer hold the metrics; nil makes a registry.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// Logger is where it logs; nil is nowhere.
	Logger *slog.Logger

	// HeaderTimeout is how long a request's head may take; 5 s.
	HeaderTimeout time.Duration
	// BodyTimeout is how long its body may take; 10 s.
	BodyTimeout time.Duration
	// IdleTimeout is how long a connection may be idle; 130 s: Go's clients give theirs up after
	// 90 s, load balancers and nginx after 60 s, and a POST that meets the end is lost, since
	// nobody repeats it. Nor is it a round number, at which rules are evaluated.
	IdleTimeout time.Duration
	// DrainTimeout is how long requests may go on after the end was asked for; 15 s.
	DrainTimeout time.Duration
	// ShutdownDelay is how long new connections are taken, whether or not there are any, after the
	// end was asked for and /-/ready has turned 503; DrainTimeout begins then. 0 is not at all.
	ShutdownDelay time.Duration
	// ReadyWait is how long a start may be not ready because there is a group of which no server
	// has answered yet. 0 is not at all.
	ReadyWait time.Duration
	// RewriteTime is how long a refusal is kept back while something cheaper to ask is looked for;
	// 500 ms.
	RewriteTime time.Duration
	// MaxConnections caps the main listener's connections; 4,096. The others have 128 each.
	MaxConnections int
	// MaxPerAddress caps those of them that come from one address, or from one /64 of IPv6; three
	// quarters of MaxConnections.
	MaxPerAddress int
	// Ready, where set, is told the addresses once both listeners listen, every replica was probed
	// once, and what ReadyWait asks for is there.
	Ready func(main, admin net.Addr)

	// LimitMemory, where set, says for a memory.budget where Go's memory limit (GOMEMLIMIT) is to
	// be, with Claimed left to the server; it is called at the start and after each reload.
	LimitMemory func(budget int64) *heap.Aim
	// MemoryCeiling is a second bound, besides GOMEMLIMIT, on what the process may hold: what its
	// container allows. 0 is no such bound.
	MemoryCeiling int64
	// MoreMemory, where set, says what would give the process more memory under Go's limit and this
	// memory.budget, as in "raise GOMEMLIMIT (…)". It is part of what requests are told that are
	// ended or refused for want of memory.
	MoreMemory func(goLimit, budget int64) string

	// lame is how long a connection without a request may wait for one when the proxy stops, before
	// it is closed; 500 ms. For tests.
	lame time.Duration
	// webLooks is how often the web configuration is looked at; 0 is webLooks.
	webLooks time.Duration
	// writePatience is how long one write of an API's answer may take; 10 s. For tests, whose
	// clients are to be slow for as long as the machine is.
	writePatience time.Duration
	// shards has other patience with shards than the defaults, in tests.
	shards shard.Options
}

// DefaultMaxConnections is the cap on the main listener's connections.
const DefaultMaxConnections = 4096

// Server is the proxy.
type Server struct {
	opts         Options
	id           string // as every call to a server has it, of identity.NewID
	log          *slog.Logger
	metrics      *metrics
	usageMetrics *usage.Metrics
	usageLogs    usage.Shared
	tracer       trace.Tracer
	propagator   propagation.TextMapPropagator
	started      time.Time
	now          func() time.Time
	observe      func(raw.Selected) // for tests; nil elsewhere
	// observeCall is told who answered for a leaf of a plan, for tests; nil elsewhere. Several
	// goroutines call it.
	observeCall func(mode plan.Mode, shard, replica, query string)
	// observeSteps is told the steps that are answered next: a query's, or those of one of its
	// stretches. For tests; nil elsewhere.
	observeSteps func(g merge.Grid, stretch bool)
	// learned is what answers showed, whatever the configuration is.
	learned cost.Learned
	// lightSeries is what a text may make a server hold for one series, in bytes, before these are
	// counted.
	lightSeries int64
	// divide is in how many pieces range queries are asked where that can be, whatever they
	// weigh. For tests; 0 elsewhere.
	divide int
	// parcel is how many targets are in a parcel, for tests: what no replica is whole for is then
	// always evaluated in parcels. 0 is parcelValues, where it is too much at once.
	parcel int
	walls  walls // without holes, but in tests

	state        atomic.Pointer[state]
	reloading    sync.Mutex
	base         *config.Config // in force, as the file has it; reloading guards it
	fileRefused  bool           // the newest attempt to load it failed; reloading guards it
	unreached    bool           // of that, since no server answers that a group is moved to; likewise
	keptTo       keptTo         // what tenants had; likewise
	certified    certified      // by what certificates tenants were ever known
	discovery    *discovery.Watch
	reloadedWell atomic.Bool
	asked        atomic.Int64   // reloads of the file by others than the watch
	guarded      atomic.Bool    // the admin listener needs authentication
	web          *webGuard      // of all listeners
	webBroken    atomic.Bool    // the web configuration, its certificate or its key
	metricsAddr  net.Addr       // of the metrics listener, set before Ready is told; nil for none
	cors         *regexp.Regexp // origins; nil for none
	ready        atomic.Bool
	awaited      atomic.Pointer[[]string] // groups that a start waits for; nil before the first probes
	draining     atomic.Bool
	unselective  slots // outlives reloads, as the gates of the replicas do
	conns        clientConns
	inexacts     inexacts
	reordered    inexacts
	parcelled    inexacts // what had to be read in parcels
	large        inexacts // what is answered too largely to be kept for others
	uncounted    inexacts // what was too much to be read for statistics, see exchange.counted
	listed       inexacts // shards whose own search is not to be relied on
	engines      engines
	spent        attribution.Table // what callers took
	told         sync.Map          // ratios by ratioKey
	live         live.Table        // requests under way
	rewrites     rewrites
	rewriteTime  time.Duration         // how long a refusal is kept back for it; longer in tests
	flights      coalesce.Group[facts] // requests under way that others may wait for
	gate         *evaluation.Gate      // of evaluations; outlives reloads
	readers      *admit.Gate           // of those who read long texts; outlives reloads
	heap         *heap.Watch
	deny         deny.Table       // rules that refuse requests
	journal      *journal.Journal // of what is under way; nil where it is not kept
	stateDir     string           // where both are kept, since the start; empty for nowhere
	digest       digest
	console      *console.Console
	timers       timers.Set // of requests and connections

	background context.Context // ends with the server; owns the topology's probes
	stop       context.CancelFunc
	staying    context.Context // ends when draining begins
	leave      context.CancelCauseFunc
	drained    context.Context // ends when draining may take no longer
	cut        context.CancelCauseFunc
}

// New builds a server. It listens and asks nothing before Run.
func New(o Options) (*Server, error) {
	if o.Config == nil {
		return nil, errors.New("server: a configuration is needed")
	}
	setDefault(&o.HeaderTimeout, 5*time.Second)
	setDefault(&o.BodyTimeout, 10*time.Second)
	setDefault(&o.IdleTimeout, 130*time.Second)
	setDefault(&o.DrainTimeout, 15*time.Second)
	setDefault(&o.MaxConnections, DefaultMaxConnections)
	setDefault(&o.MaxPerAddress, max(1, o.MaxConnections*3/4))
	setDefault(&o.lame, 500*time.Millisecond)
	setDefault(&o.writePatience, writePatience)
	if o.Registerer == nil {
		reg := prometheus.NewRegistry()
		o.Registerer, o.Gatherer = reg, reg
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(checkGraphURL(o.GraphURL), checkConsoleURL(o.ConsoleURL)); err != nil {
		return nil, err
	}
	o.ConsoleURL = strings.TrimSuffix(o.ConsoleURL, "/")
	cors, err := corsOrigin(o.CORSOrigin)
	if err != nil {
		return nil, fmt.Errorf("the origins of --web.cors.origin are no regular expression: %w", err)
	}
	external, err := url.Parse(o.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("the external URL cannot be read: %w", err)
	}
	if o.RoutePrefix == "" {
		o.RoutePrefix = external.Path
	}
	o.RoutePrefix = strings.TrimSuffix("/"+strings.Trim(o.RoutePrefix, "/"), "/")
	s := &Server{
		opts: o, id: identity.NewID(), cors: cors, log: o.Logger, now: time.Now, started: time.Now(), walls: standing(),
		propagator: otel.GetTextMapPropagator(), lightSeries: weigh.LightSeries, rewriteTime: cmp.Or(o.RewriteTime, rewriteTime),
		rewrites: rewrites{places: make(chan struct{}, rewritesAtOnce())}, web: newWebGuard(o.WebConfigFile, o.Logger), keptTo: keptTo{},
		readers: newReaders(),
	}
	s.console = console.New(consoleSource{s})
	s.tracer = otel.Tracer("github.com/spillwayproject/spillway/proxy/server")
	s.begin()
	s.metrics = newMetrics(o.Registerer, s)
	s.gate = evaluation.NewGate(0, func(d time.Duration) { s.metrics.waited.Observe(d.Seconds()) })
	s.heap = heap.New(heap.Options{
		Ceiling: s.memoryCeiling, Pressed: func(e *qerr.Error) { s.poolNow().Tighten(e) }, Evicted: s.metrics.evictions.Inc,
		More: s.moreMemory,
	})
	s.usageMetrics, s.base = usage.NewMetrics(o.Registerer), o.Config
	s.discovery = discovery.New(s.background, discovery.Options{Logger: o.Logger, Registerer: o.Registerer, Changed: s.rediscovered})
	cfg, err := s.discovery.Fill(s.background, o.Config)
	if err != nil {
		s.end()
		return nil, err
	}
	var st *state
	drops, err := loadDrops(cfg)
	if err == nil {
		err = s.keeps(cfg)
	}
	if err == nil {
		st, err = s.build(cfg, drops, nil, false)
	}
	if err != nil {
		s.end()
		return nil, err
	}
	s.certified.took(cfg)
	s.state.Store(st)
	s.keptTo.took(cfg)
	s.limitMemory(cfg)
	s.reloadedWell.Store(true)
	s.metrics.reloadOK.Set(1)
	s.metrics.reloadTime.Set(float64(st.loaded.Unix()))
	s.metrics.configHash(cfg.Hash)
	s.noteFound(cfg, o.Config)
	return s, nil
}

// begin makes the contexts that end with the server, and those that end before.
func (s *Server) begin() {
	s.background, s.stop = context.WithCancel(context.Background())
	s.staying, s.leave = context.WithCancelCause(s.background)
	s.drained, s.cut = context.WithCancelCause(context.Background())
}

// memoryCeiling is what the process may hold, GOMEMLIMIT apart.
func (s *Server) memoryCeiling() int64 {
	if s.opts.MemoryCeiling > 0 {
		return s.opts.MemoryCeiling
	}
	return math.MaxInt64
}

// moreMemory says what would give the process more memory than its limit of now; nothing where
// nobody knows.
func (s *Server) moreMemory(goLimit int64) string {
	st := s.state.Load()
	if st == nil || s.opts.MoreMemory == nil {
		return ""
	}
	return s.opts.MoreMemory(goLimit, int64(st.cfg.Memory.Budget))
}

// roomShare is the part of the memory limit, in percent, that answers in progress may take: the
// rest is for the collector, whose work grows without bound as what is alive comes near the limit,
// and for connections and the knowledge about shards.
const roomShare = 60

// limitMemory makes a configuration's memory.budget the size of the pool, and what the process may
// hold its bound.
func (s *Server) limitMemory(cfg *config.Config) {
	budget, pool := int64(cfg.Memory.Budget), s.poolNow()
	if s.opts.LimitMemory != nil {
		aim := s.opts.LimitMemory(budget)
		aim.Claimed = pool.InUse
		s.heap.SetAim(aim)
	}
	_, ceiling := s.heap.Now()
	pool.SetRoom(ceiling / 100 * roomShare)
	pool.SetLimit(budget)
	if got := pool.Limit(); got < budget {
		s.log.Warn("memory.budget is more than the memory limit has room for; less is in force", "memory.budget", admit.FormatBytes(budget),
			"in_force", admit.FormatBytes(got), "memory_limit", admit.FormatBytes(ceiling))
	}
}

// end ends what goes on behind requests.
func (s *Server) end() {
	s.stop()
	s.discovery.Close()
	if err := s.journal.Close(); err != nil {
		s.log.Warn("closing the journal of what is under way", "err", err)
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// checkWebConfig says what is wrong with the web configuration, which is opened for each connection
// and by whoever asks.
func checkWebConfig(file string) error {
	if file == "" {
		return nil
	}
	if err := plainfile.Check(file); err != nil {
		return fmt.Errorf("--web.config.file: %w", err)
	}
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("--web.config.file=%s: %w", file, err)
	}
	return nil
}

// Run serves until ctx ends, then drains: not ready at once, no new connections, requests under way
// go on for at most DrainTimeout. It returns nil after a drain in which every request ended by
// itself. When force ends as well, requests are cut off at once.
func (s *Server) Run(ctx, force context.Context) error {
	defer s.end()
	if err := checkWebConfig(s.opts.WebConfigFile); err != nil {
		return err
	}
	s.web.look() // what it asks for at the start, it goes on asking for
	l, err := s.listen()
	if err != nil {
		return err
	}
	st := s.state.Load()
	st.top.Start(s.background)

	main := s.httpServer(s.mainHandler())
	main.ConnState, main.ConnContext = s.conns.watch, withConn
	main.MaxHeaderBytes = maxFieldBytes + maxURLBytes - headSlack
	admin := s.httpServer(s.adminHandler())
	var drainErr error
	var g run.Group
	// The first actor waits for the end and drains; the listeners are closed in their interrupts
	// after it, so that the drain can be watched.
	stopped := make(chan struct{})
	serve := func(hs *http.Server, l net.Listener) func() error {
		return func() error {
			flags := &web.FlagConfig{
				WebListenAddresses: &[]string{l.Addr().String()}, WebSystemdSocket: new(bool),
				WebConfigFile: &s.opts.WebConfigFile,
			}
			err := web.ServeMultiple([]net.Listener{l}, hs, flags, s.log)
			if err != nil && !errors.Is(err, http.ErrServerClosed) && !(s.draining.Load() && errors.Is(err, net.ErrClosed)) {
				return err
			}
			<-stopped // draining goes on; returning would end it for everybody
			return nil
		}
	}
	g.Add(func() error {
		select {
		case <-ctx.Done():
		case <-stopped:
			return nil
		}
		drainErr = s.drain(endedBy(ctx), main, l.main, force)
		return nil
	}, func(error) { close(stopped) })
	g.Add(serve(main, s.guard(main, l.main, true)), func(error) { _ = main.Close() })
	g.Add(serve(admin, s.guard(admin, l.admin, false)), func(error) { _ = admin.Close() })
	if metrics := s.httpServer(s.metricsHandler()); l.metrics != nil {
		g.Add(serve(metrics, s.guard(metrics, l.metrics, true)), func(error) { _ = metrics.Close() })
	}
	s.addWatches(&g, stopped)
	probed, cancelProbed := context.WithCancel(s.background)
	g.Add(func() error {
		s.becomeReady(probed, &l)
		<-probed.Done()
		return nil
	}, func(error) { cancelProbed() })
	digested, cancelDigested := context.WithCancel(context.Background())
	g.Add(func() error { s.report(digested); return nil }, func(error) { cancelDigested() })
	err = g.Run()
	s.ready.Store(false)
	s.state.Load().retire()
	return errors.Join(err, drainErr)
}

// errDrained ends requests that outlast the drain.
var errDrained = qerr.New(qerr.Unavailable, "Spillway is stopping and the request did not finish in the time left; send it again")

// errStopping ends what a reload waits for.
var errStopping = qerr.New(qerr.Unavailable, "Spillway is stopping")

// errForced is a second signal.
var errForced = errors.New("stopped before all requests had ended")

// drain lets requests end. Clients that ask one thing after another over a connection learn from
// the answer that it was the last one there: only then does the listener go, and only connections
// over which nothing came for a while are closed.
func (s *Server) drain(b by, main *http.Server, l net.Listener, force context.Context) error {
	s.ready.Store(false)
	s.draining.Store(true)
	s.leave(errStopping)
	s.audit("drain", b, resultBegun)
	result := resultEnded
	defer func() { s.audit("drain", b, result) }()
	s.awaitUnlisting(force)
	s.log.Info("stopping: no new requests, those under way go on", "limit", s.opts.DrainTimeout)
	// A little before the limit, what is left is ended with an answer that says so.
	wait, cancel := context.WithTimeout(force, s.opts.DrainTimeout-500*time.Millisecond)
	defer cancel()
	began := time.Now()
	s.conns.quiet(wait, began, s.opts.lame, min(4*s.opts.lame, s.opts.DrainTimeout/4))
	_ = l.Close() // what has come is served
	s.conns.quiet(wait, began, s.opts.lame, min(2*s.opts.lame, s.opts.DrainTimeout/4))
	s.conns.close()
	if shutDown(wait, main) == nil {
		return nil
	}
	s.cut(errDrained)
	result = resultCut
	if force.Err() != nil {
		return errForced
	}
	last, cancel := context.WithTimeout(force, 500*time.Millisecond)
	defer cancel()
	if shutDown(last, main) != nil {
		return fmt.Errorf("requests were still under way after %s and were cut", s.opts.DrainTimeout)
	}
	return nil
}

// shutDown waits for the requests of a server whose listener is closed already. Where the server
// has not seen that yet, Shutdown closes it again and gives that error once all requests have
// ended.
func shutDown(ctx context.Context, hs *http.Server) error {
	if err := hs.Shutdown(ctx); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// awaitUnlisting serves on for the delay, in which balancers learn that this proxy is not ready:
// they send new connections until then, and would have them refused.
func (s *Server) awaitUnlisting(force context.Context) {
	if s.opts.ShutdownDelay <= 0 {
		return
	}
	s.log.Info("stopping: not ready any more, new connections are still served", "delay", s.opts.ShutdownDelay)
	timer := time.NewTimer(s.opts.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-force.Done():
	}
}

// headSlack is what net/http adds to MaxHeaderBytes.
const headSlack = 4 << 10

func (s *Server) httpServer(h http.Handler) *http.Server {
	hs := &http.Server{
		Handler: h, ReadHeaderTimeout: s.opts.HeaderTimeout, IdleTimeout: s.opts.IdleTimeout, MaxHeaderBytes: maxHeaderBytes - headSlack,
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols: new(http.Protocols),
	}
	hs.Protocols.SetHTTP1(true) // HTTP/2's resets and windows are another set of bounds; nobody of the field's clients needs it
	return hs
}

// panicked turns a panic in the road of a request into an error; the process goes on.
func (s *Server) panicked(p any, stack []byte) error {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.metrics.panics.Inc()
	s.log.Error("a request ended in a fault of Spillway", "panic", fmt.Sprint(p), "stack", string(stack))
	return qerr.New(qerr.Internal, "Spillway failed to answer this request; its log has the cause")
}

// checkAdmin refuses an admin listener that anybody could reach: it can reload, and its profiles
// show memory.
func (s *Server) checkAdmin(addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsLoopback() {
		return nil
	}
	if s.opts.AdminInsecure {
		s.log.Warn("THE ADMIN LISTENER IS REACHABLE BEYOND LOOPBACK WITHOUT AUTHENTICATION (--web.admin-insecure)", "address", addr.String())
		return nil
	}
	if c, _ := s.web.look(); c.ways() > 0 {
		s.guarded.Store(true)
		return nil
	}
	return fmt.Errorf("the admin listener %s is not on loopback and nothing authenticates its callers: listen on 127.0.0.1, where --web.metrics-listen-address can open /metrics alone, require passwords (basic_auth_users) or client certificates (tls_server_config.client_auth_type: RequireAndVerifyClientCert) in --web.config.file, or override with --web.admin-insecure", addr)
}
