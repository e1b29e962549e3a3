package server

import (
	"net/http"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// adminForgetStore has a store that was taken out of Thanos no longer be missed.
func (s *Server) adminForgetStore(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	st, done := s.peek()
	by, err := st.top.ForgetStore(name)
	done()
	switch {
	case len(by) == 0 && err != nil:
		qerr.New(qerr.BadData, "%.128q: %s", name, err).WriteTo(w)
		return
	case len(by) == 0:
		qerr.New(qerr.NotFound, "no Thanos Query is missing a store %.128q; GET %sshards says which are, as missingStores", name, adminAPI).WriteTo(w)
		return
	}
	s.audit("forget_store", s.requestedBy(r, adminAPI+"stores/"+name), resultEnded, "store", name)
	out := struct {
		Store    string   `json:"store"`
		Replicas []string `json:"replicas"` // that missed it
		Warning  string   `json:"warning,omitempty"`
	}{Store: name, Replicas: by}
	if err != nil {
		out.Warning = err.Error()
	}
	adminData(w, out)
}
