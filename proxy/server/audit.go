package server

import (
	"context"
	"net/http"

	"github.com/spillwayproject/spillway/proxy/identity"
)

// by is who, or what, had the server change its state.
type by struct {
	// how says in which way it was asked: a signal, a request's method and path, a file that has
	// changed, servers that were found.
	how string
	// peer is the address that a request came from, caller who the web configuration knows its
	// sender to be; empty where there is no request, or nobody is known.
	peer, caller string
	// force takes a configuration whatever its servers answer.
	force bool
	// again is that the files were loaded before and refused.
	again bool
}

// What changes the state by itself.
const (
	bySignal    = "SIGHUP"
	byWatch     = "file change"
	byDiscovery = "discovery"
)

// What came of it.
const (
	resultReloaded  = "reloaded"
	resultUnchanged = "unchanged" // the files hold what is in force
	resultRefused   = "refused"   // what was in force stays
	resultBegun     = "begun"
	resultEnded     = "ended"
	resultCut       = "cut" // requests were under way still
)

// audit writes the line that every change of the server's state has, and every attempt at one: at
// level info, with the constant message "audit". Neither the configuration nor an error is in it:
// these may hold what nobody is to read.
func (s *Server) audit(action string, b by, result string, more ...any) {
	line := []any{"action", action, "by", b.how, "result", result}
	if b.peer != "" {
		line = append(line, "peer", b.peer)
	}
	if b.caller != "" {
		line = append(line, "caller", b.caller)
	}
	if b.force {
		line = append(line, "force", true)
	}
	s.log.Info("audit", append(line, more...)...)
}

// requestedBy is whoever sends the request, which is one to the path. A name counts where somebody
// has verified it: the common name of a client certificate, or the user of a password where the web
// configuration asks for one. Any other name may be made up, or be a secret in the wrong place.
func (s *Server) requestedBy(r *http.Request, path string) by {
	b := by{how: r.Method + " " + path, peer: identity.Peer(r)}
	if verified(r.TLS) {
		b.caller = identity.Clean(r.TLS.VerifiedChains[0][0].Subject.CommonName)
	} else if name, _, ok := r.BasicAuth(); ok {
		if c, _ := s.web.look(); c.passwords() {
			b.caller = identity.Clean(name)
		}
	}
	return b
}

// endedBy is what has ended the context: a signal where the command line says so.
func endedBy(ctx context.Context) by {
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return by{how: cause.Error()}
	}
	return by{how: "its own process"}
}

// auditReload writes the line of a reload: which configuration was in force before, and which is
// now. A look at files or servers that finds nothing new is no attempt at anything.
func (s *Server) auditReload(b by, before *state, err error) {
	after, result := s.state.Load(), resultReloaded
	switch {
	case err != nil:
		result = resultRefused
	case after == before && (b.how == byWatch || b.how == byDiscovery):
		return
	case after == before:
		result = resultUnchanged
	}
	s.audit("reload", b, result, "hash_before", before.shortHash(), "hash_after", after.shortHash())
}

// shortHash names a loaded configuration, with the plans of drop rules that it was loaded with: the
// label of spillway_config_info, and where there are plans as much of their hash.
func (st *state) shortHash() string {
	h := st.cfg.Hash[:12]
	if plans := st.drops.Hash(); plans != "" {
		h += "+" + plans[:min(12, len(plans))]
	}
	return h
}
