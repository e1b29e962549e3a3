package server

import (
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// listeners are what a server listens on.
type listeners struct {
	main, admin net.Listener
	metrics     net.Listener // nil where /metrics is not opened alone
}

func (l *listeners) close() {
	for _, one := range []net.Listener{l.main, l.admin, l.metrics} {
		if one != nil {
			_ = one.Close() // nobody has come yet
		}
	}
}

// listen opens the listeners.
func (s *Server) listen() (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	open := func(address string, n caps, name string) (net.Listener, error) {
		return listen(address, n, name, s.metrics, &s.timers, s.log)
	}
	if l.main, err = open(s.opts.ListenAddress, caps{s.opts.MaxConnections, s.opts.MaxPerAddress, spareConnections}, "main"); err != nil {
		return l, err
	}
	if main, ok := l.main.(*capped); ok {
		main.longHeads = &longHeadPlaces{admit.NewGate(longHeads, longHeadsOfAddress, nil), s.opts.HeaderTimeout}
	}
	if l.admin, err = open(s.opts.AdminListenAddress, caps{adminConnections, adminPerAddress, 0}, "admin"); err != nil {
		return l, err
	}
	if err = s.checkAdmin(l.admin.Addr()); err != nil {
		return l, err
	}
	if s.opts.MetricsListenAddress != "" {
		n := caps{metricsConnections, metricsPerAddress, 0}
		if l.metrics, err = open(s.opts.MetricsListenAddress, n, "metrics"); err != nil {
			return l, err
		}
		s.metricsAddr = l.metrics.Addr()
	}
	return l, nil
}

const (
	// Of the admin listener's connections one address has a quarter: whoever keeps as many as there
	// are, and it takes no password to do so, would keep out whoever comes to kill what he asks.
	adminConnections, adminPerAddress = 128, 32

	metricsConnections = 128
	// metricsPerAddress bounds what one address can have made and not read.
	metricsPerAddress = 16
	// metricsInFlight is how many pages of metrics are made over one listener at once; others wait.
	// The metrics' own one has places of its own: whoever floods it keeps nobody from those of the
	// admin listener.
	metricsInFlight = 4
)

// metricsHandler serves what may be had without the rest of the admin listener: the metrics, and
// health. Nothing here changes anything, tells more than a metric does, or can be made to take
// long. Paths are compared as they are: nothing is cleaned, decoded or redirected.
func (s *Server) metricsHandler() http.Handler {
	metrics := whenMade(promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}), metricsInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.boundBody(w, r)
		if badHead(w, r) {
			return
		}
		var answer http.HandlerFunc
		switch r.URL.EscapedPath() {
		case "/metrics":
			answer = metrics
		case "/-/healthy":
			answer = s.healthy
		case "/-/ready":
			answer = s.readiness
		default:
			qerr.New(qerr.NotFound, "this listener serves /metrics, /-/healthy and /-/ready and nothing else; the rest is on the admin listener, PromQL on the main one").WriteTo(w)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			(&qerr.Error{Kind: qerr.MethodNotAllowed, Message: "only GET is served here", Allow: []string{"GET", "HEAD"}}).WriteTo(w)
			return
		}
		answer(w, r)
	})
}
