package adopt

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// cluster is a fake API server: it keeps objects by their paths, lists them, merges what is
// applied, and passes on to the servers behind pods. Who owns fields it knows as far as tests need
// it: by object.
type cluster struct {
	t *testing.T
	*Client

	mu      sync.Mutex // guards all below
	objects map[string]object
	version int
	servers map[string]http.Handler // by namespace/pod
	asked   []Rule
	// refuse, if not nil, may answer a request in the API server's place.
	refuse func(r *http.Request) (code int, message string)
	also   []string          // plurals of collections that are there besides
	kinds  map[string]string // what is said of which kinds there are, by path
	// data are the keys of data that adopt has applied, by the path of the object: what it leaves
	// out the next time goes.
	data map[string][]string
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, objects: map[string]object{}, servers: map[string]http.Handler{}, data: map[string][]string{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	client, err := NewClient(&rest.Config{Host: s.URL, BearerToken: "token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	client.seen = func(r *http.Request) {
		rule, ok := ruleOf(r)
		if !ok {
			t.Errorf("a request for no object: %s %s", r.Method, r.URL.Path)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked = append(c.asked, rule)
	}
	client.letGo = 0 // nobody reads what is written here
	c.Client = client
	return c
}

// put has the object there, as somebody else has made it.
func (c *cluster) put(o object) {
	c.t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	o = nil
	if err := json.Unmarshal(b, &o); err != nil {
		c.t.Fatal(err)
	}
	if texts, ok := o["stringData"].(map[string]any); ok {
		for key, text := range texts {
			o.set(base64.StdEncoding.EncodeToString([]byte(text.(string))), "data", key)
		}
		delete(o, "stringData")
	}
	if o.text("kind") == "Pod" { // the status of others is written with them
		o.set("Running", "status", "phase")
	}
	fields := map[string]any{}
	if data, ok := o["data"].(map[string]any); ok {
		for key := range data {
			object(fields).set(map[string]any{}, "f:data", "f:"+key)
		}
	}
	if o.at("spec", "datasource", "url") != nil {
		object(fields).set(map[string]any{}, "f:spec", "f:datasource", "f:url")
	}
	owner := map[string]any{"manager": "helm", "operation": "Update", "time": "2026-11-26T00:00:00Z", "fieldsV1": fields}
	o.set([]any{owner}, "metadata", "managedFields")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(collection(o.text("apiVersion"), o.text("kind"), o.at("metadata", "namespace"))+"/"+o.text("metadata", "name"), o)
}

// store keeps an object as its newest version.
func (c *cluster) store(at string, o object) object {
	c.version++
	o.set(fmt.Sprint(c.version), "metadata", "resourceVersion")
	if o.text("metadata", "uid") == "" {
		o.set(fmt.Sprintf("uid-%d", c.version), "metadata", "uid")
	}
	c.objects[at] = o
	return o
}

// change has somebody else change an object.
func (c *cluster) change(at string, how func(o object)) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[at]
	if !ok {
		c.t.Fatalf("there is no %s", at)
	}
	o = o.copy()
	how(o)
	c.store(at, o)
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, rest, ok := strings.Cut(r.URL.Path, "/pods/"); ok && strings.Contains(rest, "/proxy/") {
		pod, call, _ := strings.Cut(rest, "/proxy")
		name, _, _ := strings.Cut(strings.TrimPrefix(pod, "https:"), ":")
		ns := path.Base(strings.TrimSuffix(strings.Split(r.URL.Path, "/pods/")[0], "/"))
		c.mu.Lock()
		h := c.servers[ns+"/"+name]
		c.mu.Unlock()
		if h == nil {
			c.status(w, http.StatusServiceUnavailable, "no endpoints available for pod "+name)
			return
		}
		r.URL = &url.URL{Path: call, RawQuery: r.URL.RawQuery}
		h.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if code, message := c.refuse(r); code != 0 {
			c.status(w, code, message)
			return
		}
	}
	var body object
	if r.ContentLength > 0 {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			c.status(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	at := r.URL.Path
	there, known := c.objects[at]
	switch r.Method {
	case http.MethodGet:
		if kinds, ok := c.kinds[at]; ok {
			fmt.Fprint(w, kinds)
			return
		}
		if !known {
			c.list(w, r)
			return
		}
		c.answer(w, there)
	case http.MethodPost:
		if at += "/" + body.text("metadata", "name"); c.objects[at] != nil {
			c.status(w, http.StatusConflict, "the object is there already")
			return
		}
		c.answer(w, c.store(at, body))
	case http.MethodPatch:
		c.applied(w, r, body)
	case http.MethodPut:
		if !known || body.text("metadata", "resourceVersion") != there.text("metadata", "resourceVersion") {
			c.status(w, http.StatusConflict, "the object has been modified")
			return
		}
		c.answer(w, c.store(at, body))
	case http.MethodDelete:
		if !known || body.text("preconditions", "uid") != there.text("metadata", "uid") {
			c.status(w, http.StatusConflict, "the UID in the precondition does not match")
			return
		}
		delete(c.objects, at)
		c.answer(w, object{"status": "Success"})
	}
}

// applied merges what is applied into what is there.
func (c *cluster) applied(w http.ResponseWriter, r *http.Request, body object) {
	at := r.URL.Path
	there, known := c.objects[at]
	if v := body.text("metadata", "resourceVersion"); v != "" && v != there.text("metadata", "resourceVersion") {
		c.status(w, http.StatusConflict, "the object has been modified")
		return
	}
	out := body.copy()
	if known {
		out = there.copy()
		merge(out, body)
	}
	if r.URL.Query().Get("dryRun") != "" {
		c.answer(w, out)
		return
	}
	given, _ := body["data"].(map[string]any)
	if now, ok := out["data"].(map[string]any); ok {
		for _, key := range c.data[at] {
			if _, again := given[key]; !again {
				delete(now, key)
			}
		}
	}
	c.data[at] = slices.Collect(maps.Keys(given))
	mine := map[string]any{"manager": r.URL.Query().Get("fieldManager"), "operation": "Apply", "time": "2026-11-26T01:00:00Z"}
	others, _ := out.at("metadata", "managedFields").([]any)
	out.set(append(slices.Clone(others), mine), "metadata", "managedFields")
	c.answer(w, c.store(at, out))
}

func merge(into, from map[string]any) {
	for k, v := range from {
		a, isMap := into[k].(map[string]any)
		if b, too := v.(map[string]any); isMap && too {
			merge(a, b)
		} else {
			into[k] = v
		}
	}
}

// list answers with a collection, of one namespace or of all.
func (c *cluster) list(w http.ResponseWriter, r *http.Request) {
	at, items := r.URL.Path, []any{}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		c.status(w, http.StatusBadRequest, err.Error())
		return
	}
	if plural := path.Base(at); !slices.Contains(slices.AppendSeq(c.also, maps.Values(collections)), plural) {
		c.status(w, http.StatusNotFound, path.Base(at)+" not found")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		all := key // the path of its collection in all namespaces
		if head, rest, ok := strings.Cut(path.Dir(key), "/namespaces/"); ok {
			_, plural, _ := strings.Cut(rest, "/")
			all = head + "/" + plural
		}
		marks := labels.Set{}
		m, _ := c.objects[key].at("metadata", "labels").(map[string]any)
		for k, v := range m {
			marks[k] = fmt.Sprint(v)
		}
		if (path.Dir(key) == at || all == at) && selector.Matches(marks) {
			items = append(items, c.objects[key])
		}
	}
	c.answer(w, object{"metadata": map[string]any{}, "items": items})
}

func (c *cluster) answer(w http.ResponseWriter, o object) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(o); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) status(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "code": code, "message": message}) // a client that has left
}

// dump is every object but for its resourceVersion, by its path.
func (c *cluster) dump() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for at, o := range c.objects {
		o = o.copy()
		delete(o["metadata"].(map[string]any), "resourceVersion")
		b, err := json.Marshal(o)
		if err != nil {
			c.t.Fatal(err)
		}
		out[at] = string(b)
	}
	return out
}

// prometheus answers what adopt asks of a server: its configuration, and its targets.
func prometheus(conf string, external map[string]string, targets ...string) http.Handler {
	mux := http.NewServeMux()
	send := func(w http.ResponseWriter, data any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}) // a client that has left
	}
	mux.HandleFunc("/api/v1/status/config", func(w http.ResponseWriter, _ *http.Request) {
		b, err := yaml.Marshal(map[string]any{"global": map[string]any{"external_labels": external}})
		if err != nil {
			panic(err)
		}
		send(w, map[string]any{"yaml": string(b) + conf})
	})
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, _ *http.Request) {
		var result []any
		for _, instance := range targets {
			metric := map[string]any{"__name__": "up", "job": "node", "instance": instance}
			result = append(result, map[string]any{"metric": metric, "value": []any{0, "1"}})
		}
		send(w, map[string]any{"resultType": "vector", "result": result})
	})
	return mux
}

// targetsOf are the targets of one part of parts.
func targetsOf(part, parts int) (out []string) {
	for i := range 12 {
		if instance := fmt.Sprintf("10.0.0.%d:9100", i); partOf(instance, parts) == part {
			out = append(out, instance)
		}
	}
	return out
}

// populate writes a fleet's objects into the fake, with servers behind its pods.
func (c *cluster) populate(f *fleet) {
	for _, o := range fixture(c.t, filepath.Join("testdata/fleets", f.file+".yaml")) {
		c.put(o)
	}
	for i, s := range f.servers {
		for _, o := range f.placed(s, fmt.Sprintf("10.1.0.%d", i), 9090) {
			c.put(o)
		}
		c.mu.Lock()
		c.servers[f.namespace+"/"+s.name] = prometheus(f.conf(s), s.external, targetsOf(s.part, f.parts)...)
		c.mu.Unlock()
	}
}

// plan reads and makes.
func (c *cluster) plan(s Scope) *Plan {
	c.t.Helper()
	found, err := c.Read(c.t.Context(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	p, err := Make(c.t.Context(), found, c.reach(), true)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// reach is the road through the API server, on which nobody waits long for Spillway's pods.
func (c *cluster) reach() *Reach {
	c.t.Helper()
	r, err := Through(c.Client)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(r.Close)
	r.patience = 100 * time.Millisecond
	return r
}

// sum is a short name of a text.
func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:8] }

// passOn is a handler that asks another server.
func passOn(t *testing.T, to string) http.Handler {
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
}
