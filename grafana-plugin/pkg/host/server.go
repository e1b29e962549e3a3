package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/config"
)

// maxBody is the largest body of a request: Grafana itself has no bound, a dashboard's queries have
// some kilobytes.
const maxBody = 4 << 20

// attribution are the headers of a browser's query that Grafana passes on to a plugin.
var attribution = []string{
	"X-Dashboard-Title", "X-Dashboard-Uid", "X-Datasource-Uid", "X-Grafana-From-Expr", "X-Grafana-Org-Id", "X-Panel-Id",
	"X-Panel-Plugin-Id", "X-Panel-Title",
	"X-Query-Group-Id",
}

// ServerOptions are what a Server stands for.
type ServerOptions struct {
	Host *Host
	// Instance is the datasource as Grafana has it stored. UID must be set.
	Instance backend.DataSourceInstanceSettings
	// User is who is logged in; the zero value is an anonymous reader, of whom the plugin is told
	// nothing.
	User backend.User
	// Files is the plugin's folder as it is installed, with module.js and plugin.json, served at
	// /public/plugins/PluginID/; nil serves none.
	Files fs.FS
}

// Server is the part of Grafana's HTTP API that one datasource's front end uses.
type Server struct {
	host *Host
	user *backend.User
	mux  *http.ServeMux

	mu       sync.Mutex
	instance backend.DataSourceInstanceSettings
}

var _ http.Handler = (*Server)(nil)

// NewServer makes one. It starts nothing: Host is the caller's to close.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Host == nil || o.Instance.UID == "" {
		return nil, errors.New("a server needs a host, and a datasource with a uid")
	}
	s := &Server{host: o.Host, instance: o.Instance, mux: http.NewServeMux()}
	if o.User != (backend.User{}) {
		s.user = &o.User
	}
	s.instance.Type, s.instance.ID = PluginID, 1
	if s.instance.Updated.IsZero() {
		s.instance.Updated = time.Now()
	}
	s.mux.HandleFunc("POST /api/ds/query", s.query)
	s.mux.HandleFunc("GET /api/datasources", s.list)
	s.mux.HandleFunc("GET /api/datasources/uid/{uid}", s.get)
	s.mux.HandleFunc("PUT /api/datasources/uid/{uid}", s.put)
	s.mux.HandleFunc("GET /api/datasources/uid/{uid}/health", s.health)
	s.mux.HandleFunc("/api/datasources/uid/{uid}/resources/{path...}", s.resource)
	if o.Files != nil {
		prefix := "/public/plugins/" + PluginID + "/"
		files := http.StripPrefix(prefix, http.FileServerFS(o.Files))
		s.mux.HandleFunc("GET "+prefix, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(path.Base(r.URL.Path), "gpx_") || strings.HasSuffix(r.URL.Path, "/") {
				fail(w, http.StatusNotFound, "plugin file not found") // the program, and lists of files, are nobody's to load
				return
			}
			files.ServeHTTP(w, r)
		})
	}
	return s, nil
}

// ServeHTTP answers what stands below /api/ds/, /api/datasources and /public/plugins/; all else is
// 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	s.mux.ServeHTTP(w, r)
}

// context is what the plugin is told with each request.
func (s *Server) context() backend.PluginContext {
	s.mu.Lock()
	instance := s.instance
	s.mu.Unlock()
	return backend.PluginContext{
		OrgID: 1, PluginID: PluginID, User: s.user, DataSourceInstanceSettings: &instance, Namespace: "default",
		GrafanaConfig: config.NewGrafanaCfg(map[string]string{config.AppURL: "http://localhost:3000/", config.ConcurrentQueryCount: "10"}),
	}
}

// headers are those that a plugin gets of a request.
func (s *Server) headers(r *http.Request) map[string]string {
	h := map[string]string{}
	for _, name := range attribution {
		if v := r.Header.Get(name); v != "" {
			h[name] = v
		}
	}
	if s.user != nil {
		h["X-Grafana-User"] = s.user.Login
	}
	return h
}

// known answers requests about another datasource, with false.
func (s *Server) known(w http.ResponseWriter, uid string) bool {
	if uid != s.context().DataSourceInstanceSettings.UID {
		fail(w, http.StatusNotFound, "Data source not found")
		return false
	}
	return true
}

// query is what each panel asks.
func (s *Server) query(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Queries  []json.RawMessage `json:"queries"`
		From, To string
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "bad request data: "+err.Error())
		return
	}
	from, until, err := times(body.From, body.To)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	req := &backend.QueryDataRequest{PluginContext: s.context(), Headers: map[string]string{}}
	for name, v := range s.headers(r) {
		req.SetHTTPHeader(name, v)
	}
	for i, raw := range body.Queries {
		q := struct {
			RefID         string `json:"refId"`
			QueryType     string `json:"queryType"`
			MaxDataPoints int64  `json:"maxDataPoints"`
			IntervalMS    int64  `json:"intervalMs"`
			Datasource    struct {
				UID string `json:"uid"`
			} `json:"datasource"`
		}{RefID: "A", MaxDataPoints: 100, IntervalMS: 1000} // Grafana's defaults
		if err := json.Unmarshal(raw, &q); err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("queries[%d]: %v", i, err))
			return
		}
		if !s.known(w, q.Datasource.UID) {
			return
		}
		req.Queries = append(req.Queries, backend.DataQuery{
			RefID: q.RefID, QueryType: q.QueryType, MaxDataPoints: q.MaxDataPoints,
			Interval:  time.Duration(q.IntervalMS) * time.Millisecond,
			TimeRange: backend.TimeRange{From: from, To: until}, JSON: raw,
		})
	}
	if len(req.Queries) == 0 {
		fail(w, http.StatusBadRequest, "No queries found")
		return
	}
	answer, err := s.host.Query(r.Context(), req)
	if err != nil {
		broken(w, r, err)
		return
	}
	status := http.StatusOK
	for _, one := range answer.Responses {
		if one.Error != nil {
			status = http.StatusBadRequest
		}
	}
	reply(w, status, answer)
}

// times are those of a query, which the front end writes as milliseconds since 1970.
func times(from, until string) (time.Time, time.Time, error) {
	var at [2]time.Time
	for i, text := range []string{from, until} {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return at[0], at[1], fmt.Errorf("from and to are milliseconds since 1970 in quotes, not %q", text)
		}
		at[i] = time.UnixMilli(ms)
	}
	return at[0], at[1], nil
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if !s.known(w, r.PathValue("uid")) {
		return
	}
	found, err := s.host.Health(r.Context(), s.context(), s.headers(r))
	if err != nil {
		broken(w, r, err)
		return
	}
	answer := map[string]any{"status": found.Status.String(), "message": found.Message}
	if len(found.JSONDetails) > 0 {
		answer["details"] = json.RawMessage(found.JSONDetails)
	}
	status := http.StatusOK
	if found.Status != backend.HealthStatusOk {
		status = http.StatusBadRequest
	}
	reply(w, status, answer)
}

func (s *Server) resource(w http.ResponseWriter, r *http.Request) {
	if !s.known(w, r.PathValue("uid")) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	// Grafana passes the path on as it is escaped, and the whole of it beside.
	tail := r.PathValue("path")
	u := url.URL{Path: tail, RawQuery: r.URL.RawQuery}
	headers := map[string][]string{}
	for _, name := range []string{"Accept", "Accept-Encoding", "Content-Type"} {
		if v := r.Header.Values(name); len(v) > 0 {
			headers[name] = v
		}
	}
	if s.user != nil {
		headers["X-Grafana-User"] = []string{s.user.Login}
	}
	answer, err := s.host.Call(r.Context(), &backend.CallResourceRequest{
		PluginContext: s.context(), Path: tail, Method: r.Method,
		URL: u.String(), Headers: headers, Body: body,
	})
	if err != nil {
		broken(w, r, err)
		return
	}
	for name, values := range answer.Headers {
		if !slices.Contains([]string{"Set-Cookie", "Content-Length", "Connection", "Transfer-Encoding"}, http.CanonicalHeaderKey(name)) {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
	}
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body)
}

// datasource is what Grafana tells of one. Of secrets it tells which are set.
type datasource struct {
	ID               int64             `json:"id"`
	UID              string            `json:"uid"`
	OrgID            int64             `json:"orgId"`
	Name             string            `json:"name"`
	Type             string            `json:"type"`
	Access           string            `json:"access"`
	URL              string            `json:"url"`
	BasicAuth        bool              `json:"basicAuth"`
	BasicAuthUser    string            `json:"basicAuthUser"`
	JSONData         json.RawMessage   `json:"jsonData"`
	SecureJSONFields map[string]bool   `json:"secureJsonFields"`
	SecureJSONData   map[string]string `json:"secureJsonData,omitempty"` // only read
	ReadOnly         bool              `json:"readOnly"`
}

func (s *Server) described() datasource {
	i := s.context().DataSourceInstanceSettings
	d := datasource{
		ID: i.ID, UID: i.UID, OrgID: 1, Name: i.Name, Type: i.Type, Access: "proxy", URL: i.URL, BasicAuth: i.BasicAuthEnabled,
		BasicAuthUser: i.BasicAuthUser,
		JSONData:      i.JSONData, SecureJSONFields: map[string]bool{},
	}
	if len(d.JSONData) == 0 {
		d.JSONData = json.RawMessage("{}")
	}
	for name := range i.DecryptedSecureJSONData {
		d.SecureJSONFields[name] = true
	}
	return d
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, []datasource{s.described()})
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	if s.known(w, r.PathValue("uid")) {
		reply(w, http.StatusOK, s.described())
	}
}

// put stores settings; the plugin makes a new instance of them. Secrets that are not in the request
// stay as they are, as in Grafana.
func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	if !s.known(w, r.PathValue("uid")) {
		return
	}
	var d datasource
	if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
		fail(w, http.StatusBadRequest, "bad request data: "+err.Error())
		return
	}
	s.mu.Lock()
	i := &s.instance
	i.Name, i.URL, i.BasicAuthEnabled, i.BasicAuthUser, i.JSONData = d.Name, d.URL, d.BasicAuth, d.BasicAuthUser, d.JSONData
	secrets := maps.Clone(i.DecryptedSecureJSONData)
	if secrets == nil {
		secrets = map[string]string{}
	}
	for name, v := range d.SecureJSONData {
		if v == "" {
			delete(secrets, name)
		} else {
			secrets[name] = v
		}
	}
	i.DecryptedSecureJSONData = secrets
	// The plugin tells settings apart by this, in milliseconds.
	now, next := time.Now(), i.Updated.Add(time.Millisecond)
	if now.Before(next) {
		now = next
	}
	i.Updated = now
	s.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"message": "Datasource updated", "datasource": s.described()})
}

// broken answers a request that the plugin did not.
func broken(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(context.Cause(r.Context()), context.Canceled) {
		return // the reader is gone
	}
	fail(w, http.StatusInternalServerError, err.Error())
}

func fail(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"message": message})
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"message":"the answer is no JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
