package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/grafana/regexp"
	"github.com/prometheus/prometheus/util/httputil"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// corsOrigin compiles Options.CORSOrigin, anchored as Prometheus does it; nil for none.
func corsOrigin(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	return regexp.Compile("^(?:" + text + ")$")
}

// crossOrigin says which pages of other sites may read the answer, and answers the question for it
// that a browser asks before: true where it did.
func (s *Server) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	if s.cors == nil {
		return false
	}
	httputil.SetCORS(w, s.cors, r)
	if r.Method != http.MethodOptions {
		return false
	}
	_, _, err := endpoint.Lookup(r)
	e := qerr.From(err)
	if err == nil || e.Kind != qerr.MethodNotAllowed {
		return false
	}
	w.Header().Set("Allow", strings.Join(append(e.Allow, http.MethodOptions), ", "))
	w.Header().Set(verdictHeader, string(policy.Pass))
	w.WriteHeader(http.StatusNoContent)
	return true
}

// guard puts s.web before exporter-toolkit, and returns a listener to serve hs by. exporter-toolkit
// puts its own handler in the place of hs's before the first Accept, and that is when the guard is
// put before it. It has read the file once more by then, and where that was empty in this moment
// the listener would be one without TLS to its end: nobody is accepted, and Spillway ends, as over
// a file that is broken then. health serves health without a password, whatever the web
// configuration says: those who ask for it have none.
func (s *Server) guard(hs *http.Server, l net.Listener, health bool) net.Listener {
	open := hs.Handler
	return &firstAccept{Listener: l, first: func() error {
		encrypts := hs.TLSConfig != nil && hs.TLSConfig.GetConfigForClient != nil // net/http makes an empty one
		if !encrypts && s.web.encrypted() {
			return errBareListener
		}
		hs.Handler = s.behindGuard(hs.Handler, open, health)
		return nil
	}}
}

var errBareListener = errors.New("--web.config.file had no tls_server_config in the moment in which a listener began, as one that is being written; start Spillway again")

// behindGuard is inner for whomever the guard lets in, and open for those who ask for health.
func (s *Server) behindGuard(inner, open http.Handler, health bool) http.Handler {
	words := tenant.NewPasswords() // who guesses here is waited for by nobody on another listener
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.boundBody(w, r)
		conn(r).headCame()
		if s.overCap(w, r) || s.web.refuses(w, r, words, health) {
			return
		}
		if _, _, password := r.BasicAuth(); health && !password && isHealth(r) {
			open.ServeHTTP(w, r)
			return
		}
		boundAnswer(w) // of exporter-toolkit; who answers something larger sets its own
		inner.ServeHTTP(w, r)
	})
}

func isHealth(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return p == "/-/healthy" || p == "/-/ready"
}

// firstAccept calls first before the first Accept, and accepts nobody where that fails.
type firstAccept struct {
	net.Listener
	once  sync.Once
	first func() error
	err   error
}

// Accept implements net.Listener.
func (l *firstAccept) Accept() (net.Conn, error) {
	l.once.Do(func() { l.err = l.first() })
	if l.err != nil {
		return nil, l.err
	}
	return l.Listener.Accept()
}

// stranger refuses a request to a guarded admin listener that is a tenant's: whoever has a
// certificate by which a tenant is known, or was since the start, may ask for what is that
// tenant's, and for metrics and health, which the metrics listener gives him too. Of everybody else
// the guard of the web configuration has made sure.
func (s *Server) stranger(w http.ResponseWriter, r *http.Request) bool {
	looks := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !s.guarded.Load() || looks && (r.URL.Path == "/metrics" || isHealth(r)) {
		return false
	}
	name := s.certified.of(r.TLS)
	if name == "" {
		return false
	}
	qerr.New(qerr.Forbidden, "this client certificate is that of tenant %s (client_cert_cn), or was since Spillway started, and the admin listener is not for tenants; come with one of another common name", name).WriteTo(w)
	return true
}

// certified are the common names of the certificates by which tenants are known, or were since the
// start, with the tenants' names: one that has left keeps its certificate, and is nobody's operator
// for that. The zero certified has none.
type certified struct{ names sync.Map }

// took remembers a configuration that is about to be in force.
func (c *certified) took(cfg *config.Config) {
	for i := range cfg.Tenants {
		if t := &cfg.Tenants[i]; t.ClientCertCN != "" {
			c.names.Store(t.ClientCertCN, t.Name)
		}
	}
}

// of is the name of the tenant whose certificate was verified on a connection; empty where it was
// no tenant's.
func (c *certified) of(conn *tls.ConnectionState) string {
	if !verified(conn) {
		return ""
	}
	name, _ := c.names.Load(conn.VerifiedChains[0][0].Subject.CommonName)
	text, _ := name.(string)
	return text
}

// verified tells whether the client has shown a certificate that was verified.
func verified(c *tls.ConnectionState) bool { return c != nil && len(c.VerifiedChains) > 0 }
