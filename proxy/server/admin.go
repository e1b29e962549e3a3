package server

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const adminAPI = "/api/spillway/v1/"

// adminHandler serves metrics, health, reload, profiles and the admin API.
func (s *Server) adminHandler() http.Handler {
	metrics := whenMade(promhttp.HandlerFor(s.opts.Gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}), metricsInFlight)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /-/healthy", s.healthy)
	mux.HandleFunc("GET /-/ready", s.readiness)
	mux.HandleFunc("POST /-/reload", s.reloadRequest)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET "+adminAPI+"limits", s.adminLimits)
	mux.HandleFunc("GET "+adminAPI+"shards", s.adminShards)
	mux.HandleFunc("GET "+adminAPI+"usage", s.adminUsage)
	mux.HandleFunc("GET "+adminAPI+"cardinality", s.adminCardinality)
	mux.HandleFunc("GET "+adminAPI+"queries", s.adminQueries)
	mux.HandleFunc("GET "+adminAPI+"queries/{id}", s.adminQuery)
	mux.HandleFunc("DELETE "+adminAPI+"queries", s.killQuery)
	mux.HandleFunc("DELETE "+adminAPI+"queries/{id}", s.killQuery)
	mux.HandleFunc("GET "+adminAPI+"deny", s.adminDeny)
	mux.HandleFunc("POST "+adminAPI+"deny", s.adminForbid)
	mux.HandleFunc("DELETE "+adminAPI+"deny/{name}", s.adminAllow)
	mux.HandleFunc("DELETE "+adminAPI+"stores/{name}", s.adminForgetStore)
	mux.HandleFunc("GET "+adminAPI+"explain", s.adminExplain)
	mux.HandleFunc("GET "+adminAPI+"refusals", s.adminRefusals)
	mux.HandleFunc("GET "+adminAPI+"glances", s.adminGlances)
	s.console.Mount(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { adminMissing(w, r) })
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		qerr.New(qerr.Forbidden, "this request comes from a page of another site, by its Origin or Sec-Fetch-Site header; the admin listener takes changes from its own pages and from programs only").WriteTo(w)
	}))
	protected := crossOrigin.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.boundBody(w, r)
		boundAnswerOf(w, maxProfile*time.Second) // nothing here takes longer than a profile
		if badHead(w, r) || s.stranger(w, r) ||
			wrongHost(w, r) || foreignPage(w, r) || longProfile(w, r) {
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// maxProfile is the longest profile or trace in seconds.
const maxProfile = 60

// linkedPages are those that people come to by a link of another page, such as that in an error
// which Grafana shows, besides each refusal's own.
var linkedPages = []string{"/", "/dashboard", "/panel", "/refusals", "/explain"}

// foreignPage refuses what a page of another site, or of another port of this one, has a browser
// ask for. It cannot read the answer, but a question costs processor time, or has a query run, and
// a browser asks for pictures and frames without a question. What a person follows a link to is
// shown, and what costs next to nothing is had. Changes are refused by the mux's own protection.
func foreignPage(w http.ResponseWriter, r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" || site == "same-origin" || site == "none" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	followed := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	switch p := r.URL.Path; {
	case p == "/metrics", isHealth(r):
		return false
	case followed && (slices.Contains(linkedPages, p) || strings.HasPrefix(p, "/refusals/")):
		return false
	}
	qerr.New(qerr.Forbidden, "this request comes from a page of another site, by its Sec-Fetch-Site header; the admin listener answers its own pages, programs, and whoever follows a link to one of its pages").WriteTo(w)
	return true
}

// longProfile refuses profiles that are longer than anybody needs.
func longProfile(w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
		return false
	}
	if v := r.FormValue("seconds"); v != "" {
		if n, err := strconv.ParseFloat(v, 64); err != nil || !(n > 0 && n <= maxProfile) {
			qerr.New(qerr.BadData, "seconds takes a number up to %d, not %.64q; take several profiles one after another", maxProfile, v).WriteTo(w)
			return true
		}
	}
	return false
}

// wrongHost refuses requests to a loopback listener under a name that is not loopback's: a page in
// a browser could have made them by DNS rebinding.
func wrongHost(w http.ResponseWriter, r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return false
	}
	qerr.New(qerr.Forbidden, "the admin listener on loopback answers to localhost and loopback addresses only, not to the Host %.64q", r.Host).WriteTo(w)
	return true
}

// adminMissing explains what is not there.
func adminMissing(w http.ResponseWriter, r *http.Request) {
	boundAnswer(w)
	get, post, remove := []string{http.MethodGet}, []string{http.MethodPost}, []string{http.MethodGet, http.MethodDelete}
	for path, methods := range map[string][]string{
		"/-/reload": post, "/metrics": get, "/-/healthy": get, "/-/ready": get,
		adminAPI + "limits": get, adminAPI + "shards": get, adminAPI + "explain": get, adminAPI + "usage": get,
		adminAPI + "cardinality": get,
		adminAPI + "refusals":    get, adminAPI + "glances": get, "/kill": post,
		"/dashboard": get, "/panel": get, "/refusals": get, "/explain": get,
		adminAPI + "queries": remove, adminAPI + "deny": {http.MethodGet, http.MethodPost, http.MethodDelete},
		adminAPI + "stores": {http.MethodDelete},
	} {
		if r.URL.Path == path || !slices.Equal(methods, get) && strings.HasPrefix(r.URL.Path, path+"/") {
			takes := path + " takes " + strings.Join(methods, " and ")
			(&qerr.Error{Kind: qerr.MethodNotAllowed, Message: takes, Allow: methods}).WriteTo(w)
			return
		}
	}
	qerr.New(qerr.NotFound, "the admin listener serves /, /metrics, /-/healthy, /-/ready, POST /-/reload, /debug/pprof/ and %slimits, shards, explain, usage, queries, refusals, glances, deny and stores/ADDRESS; PromQL is on the main listener", adminAPI).WriteTo(w)
}

// reloadRequest answers POST /-/reload: 200, or the problems. With force=true a configuration is
// taken of which no server answers.
func (s *Server) reloadRequest(w http.ResponseWriter, r *http.Request) {
	b := s.requestedBy(r, "/-/reload")
	if v := r.URL.Query().Get("force"); v != "" {
		var err error
		if b.force, err = strconv.ParseBool(v); err != nil {
			qerr.New(qerr.BadData, "force takes true or false, not %.64q", v).WriteTo(w)
			return
		}
	}
	if err := s.reload(b); err != nil {
		text(w, http.StatusBadRequest, "the configuration was not reloaded; the old one stays in force:\n"+err.Error()+"\n")
		return
	}
	if s.waitsForStart(s.state.Load().cfg) {
		text(w, http.StatusOK, "reloaded; state_dir has changed, which is taken up at the next start\n")
		return
	}
	text(w, http.StatusOK, "reloaded\n")
}

// adminData writes an admin answer.
func adminData(w http.ResponseWriter, v any) {
	b, err := json.Marshal(struct {
		Status string `json:"status"`
		Data   any    `json:"data"`
	}{"success", v})
	if err != nil {
		qerr.Wrap(qerr.Internal, err, "Spillway failed to write its answer; its log has the cause").WriteTo(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	boundAnswer(w)                  // an explanation with the answer may have taken longer than a profile
	_, _ = w.Write(append(b, '\n')) // the caller may be gone
}

func (s *Server) adminLimits(w http.ResponseWriter, _ *http.Request) {
	st := s.acquire()
	defer st.release()
	adminData(w, json.RawMessage(st.cfg.LimitsJSON()))
}

func (s *Server) adminShards(w http.ResponseWriter, _ *http.Request) {
	st := s.acquire()
	defer st.release()
	adminData(w, st.top.Status())
}

// adminCardinality answers GET cardinality of the admin API: what status/tsdb tells of all shards,
// merged, to whoever runs Spillway. Its parameters are that endpoint's, and no others.
func (s *Server) adminCardinality(w http.ResponseWriter, r *http.Request) {
	asked := asNobody(r)
	asked.Method, asked.URL = http.MethodGet, &url.URL{Path: "/api/v1/status/tsdb", RawQuery: r.URL.RawQuery}
	req, err := endpoint.Parse(asked, endpoint.Options{StrictParameters: true})
	if err != nil {
		qerr.From(err).WriteTo(w)
		return
	}
	client, qe := s.road(w, asNobody(r), &inner{req: req, operator: true, page: true})
	tell(r, client, qe)
}
