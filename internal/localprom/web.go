package localprom

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/util/netconnlimit"
	"github.com/prometheus/prometheus/web"
)

// The server's defaults; status/flags shows them.
const (
	maxConnections         = 512
	webReadTimeout         = 5 * time.Minute
	remoteReadSampleLimit  = 50_000_000
	remoteReadBytesInFrame = 1 << 20
	probeTimeout           = 30 * time.Second
)

// buildInfo is what status/buildinfo and prometheus_build_info say.
func buildInfo() *web.PrometheusVersion {
	v := &web.PrometheusVersion{Version: Version, Revision: "unknown", Branch: "embedded", GoVersion: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/prometheus/prometheus" {
				v.Revision = dep.Version
			}
		}
	}
	return v
}

// newRegistry is a registry with what cmd/prometheus registers for itself.
func newRegistry(v *web.PrometheusVersion) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "prometheus_build_info",
		Help: "A metric with a constant '1' value labeled by version, revision, branch, goversion from which prometheus was built, and the goos and goarch for the build.",
		ConstLabels: prometheus.Labels{
			"version": v.Version, "revision": v.Revision, "branch": v.Branch, "goversion": v.GoVersion, "goos": runtime.GOOS,
			"goarch": runtime.GOARCH, "tags": "unknown",
		},
	})
	build.Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// handlerOf returns the http.Handler of a web handler.
//
// The handler's router is unexported and reachable only through Run, which makes a server of its
// own; and that router's /metrics serves the registry of the process, which would be the same for
// all shards. So Run is given a listener in memory and one federation request. net/http puts the
// *http.Server that serves a request into its context, storage sees that context and passes the
// server on. Run ends then; its handler, with every route and their instrumentation, is served by
// our own server.
func handlerOf(ctx context.Context, h *web.Handler, db *localStorage, opts *web.Options) (http.Handler, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errors.New("the web handler did not answer"))
	defer cancel()
	found := make(chan *http.Server, 1)
	db.server.Store(&found)
	defer db.server.Store(nil)

	ours, theirs := net.Pipe()
	defer ours.Close()
	l := newOneConnListener(theirs)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	runErr := make(chan error, 1)
	wg.Go(func() { runErr <- h.Run(ctx, []net.Listener{l}, "") })
	asked := make(chan error, 1)
	wg.Go(func() { asked <- ask(ours, opts.RoutePrefix) })
	stop := context.AfterFunc(ctx, func() { ours.Close() })
	defer stop()

	select {
	case err := <-runErr:
		return nil, fmt.Errorf("run the web handler: %w", err)
	case err := <-asked:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("ask the web handler for its server: %w", err)
		}
	}
	select {
	case srv := <-found:
		return srv.Handler, nil
	default:
		return nil, errors.New("the web handler answered without reading storage: this Prometheus version is wired otherwise than the one this package was written for")
	}
}

func ask(conn net.Conn, prefix string) error {
	path, err := url.JoinPath(prefix, "/federate")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s?match[]=up HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("federation answered %s", res.Status)
	}
	return nil
}

// oneConnListener gives one connection, then waits to be closed.
type oneConnListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	addr  net.Addr
}

func newOneConnListener(c net.Conn) *oneConnListener {
	l := &oneConnListener{conns: make(chan net.Conn, 1), done: make(chan struct{}), addr: c.LocalAddr()}
	l.conns <- c
	return l
}

func (l *oneConnListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *oneConnListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConnListener) Addr() net.Addr { return l.addr }

// server serves one shard's HTTP API. Its stop ends it: connections are closed and every handler
// has returned.
type server struct {
	http   *http.Server
	cancel context.CancelCauseFunc
	accept sync.WaitGroup // the accept loop

	mu       sync.Mutex
	stopped  bool           // no handler begins any more: the TSDB is about to be unmapped
	handlers sync.WaitGroup // requests being served; added to under mu, while not stopped
}

var errClosed = errors.New("the shard was closed")

// serve starts to serve next on l; metricsPath is served from reg instead.
func serve(l net.Listener, next http.Handler, metricsPath string, reg *prometheus.Registry, logger *slog.Logger) *server {
	ctx, cancel := context.WithCancelCause(context.Background())
	metrics := promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	s := &server{cancel: cancel}
	s.http = &http.Server{
		ReadTimeout: webReadTimeout,
		ErrorLog:    slog.NewLogLogger(logger.Handler(), slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !s.enter() {
				panic(http.ErrAbortHandler) // its connection is being closed
			}
			defer s.handlers.Done()
			if r.URL.Path == metricsPath && (r.Method == http.MethodGet || r.Method == http.MethodOptions) {
				metrics.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		}),
	}
	l = netconnlimit.SharedLimitListener(l, netconnlimit.NewSharedSemaphore(maxConnections))
	s.accept.Go(func() { _ = s.http.Serve(l) }) // ends with ErrServerClosed when stop closes it
	return s
}

func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.handlers.Add(1)
	return true
}

// stop cancels all requests, closes all connections and waits until no handler runs.
func (s *server) stop() error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.cancel(errClosed)
	err := s.http.Close()
	s.accept.Wait()
	s.handlers.Wait()
	return err
}
