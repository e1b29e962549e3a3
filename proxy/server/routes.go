package server

import (
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// handlers answer the rows of the endpoint table; a test holds the two together.
var handlers map[endpoint.ID]func(*exchange) error

func init() {
	handlers = map[endpoint.ID]func(*exchange) error{
		endpoint.Query:             (*exchange).query,
		endpoint.QueryRange:        (*exchange).query,
		endpoint.QueryExemplars:    (*exchange).exemplars,
		endpoint.Series:            (*exchange).series,
		endpoint.Labels:            (*exchange).labels,
		endpoint.LabelValues:       (*exchange).labelValues,
		endpoint.SearchMetricNames: (*exchange).searchMetricNames,
		endpoint.SearchLabelNames:  (*exchange).searchLabelNames,
		endpoint.SearchLabelValues: (*exchange).searchLabelValues,
		endpoint.Metadata:          (*exchange).metadata,
		endpoint.Rules:             (*exchange).rules,
		endpoint.Alerts:            (*exchange).alerts,
		endpoint.Targets:           (*exchange).targetList,
		endpoint.TargetsMetadata:   (*exchange).targetsMetadata,
		endpoint.ScrapePools:       (*exchange).scrapePools,
		endpoint.Alertmanagers:     (*exchange).alertmanagers,
		endpoint.FormatQuery:       (*exchange).formatQuery,
		endpoint.ParseQuery:        (*exchange).parseQuery,
		endpoint.Features:          (*exchange).features,
		endpoint.Read:              (*exchange).read,
		endpoint.Federate:          (*exchange).federate,
		endpoint.StatusBuildinfo:   (*exchange).buildinfo,
		endpoint.StatusTSDB:        (*exchange).tsdb,
		endpoint.StatusFlags:       (*exchange).statusFlags,
		endpoint.StatusConfig:      (*exchange).statusConfig,
		endpoint.StatusRuntimeinfo: (*exchange).statusRuntimeinfo,
		endpoint.StatusWALReplay:   (*exchange).statusWALReplay,
		endpoint.Notifications:     (*exchange).notifications,
		endpoint.OpenAPIDocument:   (*exchange).openAPI,
	}
}

// mainHandler serves the API, the health of the proxy and its one page. There is no ServeMux: it
// would redirect paths that are nearly right, and a redirected POST loses its body.
func (s *Server) mainHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close") // the client asks elsewhere from here on
		}
		s.boundBody(w, r)
		conn(r).headCame()
		if badHead(w, r) {
			return
		}
		if len(r.RequestURI) <= shortHead { // with the fields it is twice that at most
			conn(r).headHeld()
		}
		if s.opts.RoutePrefix != "" {
			// Health is asked by machines that know no prefix.
			if !isHealth(r) && !s.trimPrefix(r) {
				refuse(w, qerr.New(qerr.NotFound, "nothing is served here; Spillway's paths begin with %s/", s.opts.RoutePrefix))
				return
			}
		}
		switch r.URL.EscapedPath() {
		case "/-/healthy":
			s.page(w, r, s.healthy)
		case "/-/ready":
			s.page(w, r, s.readiness)
		case "/", "/graph", "/query":
			if longURL(w, r, shortHead) || s.foreign(w, r) {
				return
			}
			s.page(w, r, s.home)
		default:
			if s.crossOrigin(w, r) {
				return
			}
			c, whole := s.coded(w, r), resetIfCut(r)
			defer c.release()
			s.serveAPI(c, r)
			if c.end() != nil {
				abort(r) // the client left in the last moment; what it has lacks its end
			}
			whole()
		}
	})
}

// overCap refuses what comes over a spare connection and does not ask for health.
func (s *Server) overCap(w http.ResponseWriter, r *http.Request) bool {
	c := conn(r)
	if c == nil || !c.spare() {
		return false
	}
	w.Header().Set("Connection", "close")
	if isHealth(r) {
		return false
	}
	e := qerr.New(qerr.Unavailable, "Spillway has as many client connections as it takes (%d, of one address %d); close idle ones, raise --web.max-connections, or run more replicas of it",
		s.opts.MaxConnections, s.opts.MaxPerAddress)
	e.RetryAfter = time.Second
	refuse(w, e)
	return true
}

// trimPrefix takes the route prefix off the path; false where it does not begin with it.
func (s *Server) trimPrefix(r *http.Request) bool {
	p := s.opts.RoutePrefix
	if r.URL.Path == p {
		r.URL.Path, r.URL.RawPath = "/", ""
		return true
	}
	if !strings.HasPrefix(r.URL.EscapedPath(), p+"/") || !strings.HasPrefix(r.URL.Path, p+"/") {
		return false
	}
	r.URL.Path = r.URL.Path[len(p):]
	r.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, p)
	return true
}

// refuse answers with an error before or beside the road of a request; the verdict is on these
// answers too.
func refuse(w http.ResponseWriter, e *qerr.Error) {
	boundAnswer(w)
	w.Header().Set(verdictHeader, string(policy.Refuse))
	e.WriteTo(w)
}

// boundBody gives a body that nobody may read the time that one has: net/http reads what is left of
// it before it sends an answer.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.opts.BodyTimeout))
	}
}

// pagePatience is how long a client may take to read a page, or any other answer beside the API's.
const pagePatience = 3 * writePatience

// boundAnswer gives an answer that is written from now on the time that one has: who reads nothing
// must not hold its connection, and what the answer is of, for ever. net/http takes it back when
// the request is over.
func boundAnswer(w http.ResponseWriter) { boundAnswerOf(w, 0) }

// boundAnswerOf is boundAnswer of one that takes at most so long to make, from now on.
func boundAnswerOf(w http.ResponseWriter, made time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(made + pagePatience))
}

// whenMade answers with what the handler makes when all of it is there, so many pages at once: who
// reads slowly keeps nobody waiting. What it makes is held meanwhile, for pagePatience at most.
func whenMade(h http.Handler, atOnce int) http.HandlerFunc {
	places := make(chan struct{}, atOnce)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		made := madePage{header: w.Header(), code: http.StatusOK}
		func() {
			defer func() { <-places }()
			h.ServeHTTP(&made, r)
		}()
		boundAnswer(w)
		w.WriteHeader(made.code)
		_, _ = w.Write(made.body) // the client may be gone
	}
}

// madePage is an http.ResponseWriter that keeps all that is written.
type madePage struct {
	header http.Header
	code   int
	body   []byte
}

// Header implements http.ResponseWriter.
func (m *madePage) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *madePage) WriteHeader(code int) { m.code = code }

// Write implements io.Writer.
func (m *madePage) Write(p []byte) (int, error) {
	m.body = append(m.body, p...)
	return len(p), nil
}

// page serves GET and HEAD of something that is not the API.
func (s *Server) page(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, &qerr.Error{Kind: qerr.MethodNotAllowed, Message: "only GET is served here", Allow: []string{"GET", "HEAD"}})
		return
	}
	w.Header().Set(verdictHeader, string(policy.Pass))
	h(w, r)
}

func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK, "Spillway is healthy.\n")
}

func (s *Server) readiness(w http.ResponseWriter, _ *http.Request) {
	_, less := s.web.look()
	switch {
	case s.draining.Load():
		text(w, http.StatusServiceUnavailable, "Spillway is stopping.\n")
	case !s.ready.Load():
		text(w, http.StatusServiceUnavailable, s.unready())
	case less: // healthy it is: a restart would take the file as it is
		text(w, http.StatusServiceUnavailable, "Spillway answers nobody: --web.config.file asks callers for less than it did; see the log.\n")
	default:
		text(w, http.StatusOK, "Spillway is ready.\n")
	}
}

func text(w http.ResponseWriter, code int, body string) {
	boundAnswer(w)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // the client may be gone
}

func headerCarrier(h http.Header) propagation.TextMapCarrier { return propagation.HeaderCarrier(h) }

func (s *Server) poolNow() *admit.Pool { return s.state.Load().pool }
