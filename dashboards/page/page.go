package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/dashboards"
)

// maxForm is the largest form that is passed on; the proxy has a bound of its own for the query's
// text.
const maxForm = 1 << 20

// Options are what is served, and where queries go.
type Options struct {
	// Bundle holds index.html and what it needs, as dashboards/render/bundle.mjs writes them.
	Bundle fs.FS
	// Dashboards holds each dashboard as NAME.json.
	Dashboards fs.FS
	// API is the Prometheus HTTP API, without /api/v1.
	API *url.URL
	// Plugin answers what the front end of a datasource plugin asks of Grafana, below
	// /api/datasources, /api/ds/ and /public/plugins/: a host.Server of grafana-plugin/pkg/host.
	// Without one there is no such datasource, and dashboards that need it show so.
	Plugin http.Handler
	// Transport is what the API is asked with; nil is a transport of the server's own, whose idle
	// connections end with Run.
	Transport http.RoundTripper
}

// Entry is a dashboard in the list.
type Entry struct {
	Name        string   `json:"name"`
	UID         string   `json:"uid"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// Server is the page.
type Server struct {
	handler http.Handler
	idle    func()
}

// Check looks for the bundle and the dashboards, for who wants to know before the API is there.
func Check(o Options) error {
	if _, err := fs.Stat(o.Bundle, "index.html"); err != nil {
		return fmt.Errorf("the page is not bundled; make dashboards does it, or npm ci && npm run bundle in dashboards/render: %w", err)
	}
	_, err := list(o.Dashboards)
	return err
}

// New reads the dashboards and looks for the bundle.
func New(o Options) (*Server, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	if o.API == nil || (o.API.Scheme != "http" && o.API.Scheme != "https") || o.API.Host == "" {
		return nil, fmt.Errorf("the API's address is %q; write it like http://127.0.0.1:9090", o.API)
	}
	s := &Server{idle: func() {}}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil // the proxy of dashboards stands next to them
		o.Transport, s.idle = t, t.CloseIdleConnections
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(o.Bundle)))
	// Grafana's components ask for their icons and fonts there.
	mux.Handle("GET /public/build/img/", http.StripPrefix("/public/build/", http.FileServerFS(o.Bundle)))
	mux.Handle("GET /public/fonts/", http.StripPrefix("/public/", http.FileServerFS(o.Bundle)))
	mux.HandleFunc("GET /dashboards", func(w http.ResponseWriter, _ *http.Request) {
		now, err := list(o.Dashboards) // a folder's dashboards may have been rendered again
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(now)
	})
	mux.Handle("GET /dashboards/", http.StripPrefix("/dashboards/", http.FileServerFS(o.Dashboards)))
	index := func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, o.Bundle, "index.html") }
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /d/", index)
	mux.HandleFunc("GET /edit/", index)
	if o.Plugin == nil {
		o.Plugin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/datasources" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("[]"))
		})
	}
	for _, path := range []string{"/api/datasources", "/api/datasources/", "/api/ds/", "/public/plugins/"} {
		mux.Handle(path, o.Plugin)
	}
	api := forward(o.API, o.Transport)
	mux.Handle("GET /api/v1/", api)
	mux.Handle("POST /api/v1/", api)
	s.handler = here(mux)
	return s, nil
}

// list reads what the list shows of each dashboard.
func list(fsys fs.FS) ([]Entry, error) {
	names, err := fs.Glob(fsys, "*.json")
	if err != nil {
		return nil, fmt.Errorf("list the dashboards: %w", err)
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", name, err)
		}
		d, err := dashboards.Parse(b)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", name, err)
		}
		if i := slices.IndexFunc(entries, func(e Entry) bool { return e.UID == d.UID }); d.UID == "" || i >= 0 {
			return nil, fmt.Errorf("dashboard %s: its uid %q must be set and its own", name, d.UID)
		}
		entries = append(entries, Entry{
			Name: strings.TrimSuffix(name, ".json"), UID: d.UID, Title: d.Title, Description: d.Description,
			Tags: d.Tags,
		})
	}
	return entries, nil
}

// forward passes a request on. Headers of the browser stay here, but for those that describe the
// body and ask for an encoding.
func forward(api *url.URL, transport http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			kept := http.Header{}
			for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type"} {
				if v := r.In.Header.Get(name); v != "" {
					kept.Set(name, v)
				}
			}
			r.Out.Header = kept
			r.SetURL(api)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the reader is gone
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			_ = json.NewEncoder(w).Encode(map[string]string{
				"status": "error", "errorType": "internal",
				"error": fmt.Sprintf("%s does not answer (%v); is it running?", api.Redacted(), err),
			})
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		proxy.ServeHTTP(w, r)
	})
}

// here refuses requests that a browser sends for another name than this machine's own.
func here(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); host != "localhost" && (err != nil || !a.IsLoopback()) {
			http.Error(w, "this page is for this machine alone: open it as http://localhost or http://127.0.0.1 with its port", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Run listens on address until ctx ends, then gives requests a moment to end. ready, where it is
// set, is told the address.
func (s *Server) Run(ctx context.Context, address string, ready func(net.Addr)) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the page's address %q: write it like 127.0.0.1:3300", address)
	}
	if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
		return fmt.Errorf("the page's address %s is not on loopback: whoever reaches it can ask the proxy everything; write 127.0.0.1, and reach it over ssh -L", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	defer s.idle()
	srv := &http.Server{
		Handler: http.NewCrossOriginProtection().Handler(s.handler), ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: time.Minute,
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	if ready != nil {
		ready(l.Addr())
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve the page: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*time.Second,
		errors.New("the page's requests had their time to end"))
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	<-ended
	return nil
}
