package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// fakeAPI is an API server that has nodes and nothing else, with the rules that matter here: a
// merge patch that names an old version is a conflict, lists of taints are replaced, lists come in
// pages.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	nodes   map[string]*fakeNode
	patches int
	patched []string // the nodes of them, in their order
	calls   int
	delay   time.Duration   // of every answer
	page    int             // nodes in a page
	silent  bool            // does not say how many remain
	before  func(*fakeNode) // called before a patch is looked at, once
	broken  int             // status of every answer, if not 0
	lost    int             // status of the answer to the next patch, which is done all the same
	stuck   []string        // nodes that no patch is taken for
	refuses int             // status of the answer to every patch, of which none is done, if not 0
	unread  string          // a node that cannot be read by itself
	lists   int             // lists of all nodes, a page each
	token   string
}

type fakeNode struct {
	name          string
	version       int
	labels, notes map[string]string
	unschedulable bool
	taints        []taint
	boot          string
	ready         string    // the status of the condition Ready
	since         time.Time // when that changed last
	deleted       string    // when somebody deleted it; it stays until its finalizers are off
}

func newFakeAPI(t *testing.T, nodes int) *fakeAPI {
	t.Helper()
	f := &fakeAPI{nodes: map[string]*fakeNode{}, page: 500, token: "kube-token"}
	for i := range nodes {
		name := fmt.Sprintf("gpu-%05d", i)
		f.nodes[name] = &fakeNode{
			name: name, version: 1, boot: "first", ready: "True", since: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
			labels: map[string]string{"rack": "r1"}, notes: map[string]string{},
		}
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (n *fakeNode) object() map[string]any {
	of := map[string]any{"name": n.name, "resourceVersion": strconv.Itoa(n.version), "labels": n.labels, "annotations": n.notes}
	if n.deleted != "" {
		of["deletionTimestamp"] = n.deleted
	}
	return map[string]any{
		"kind": "Node", "apiVersion": "v1",
		"metadata": of,
		"spec":     map[string]any{"unschedulable": n.unschedulable, "taints": n.taints},
		"status": map[string]any{
			"nodeInfo": map[string]any{"bootID": n.boot},
			"conditions": []any{
				map[string]any{"type": "MemoryPressure", "status": "False", "lastTransitionTime": n.since.Add(time.Hour)},
				map[string]any{"type": "Ready", "status": n.ready, "lastTransitionTime": n.since},
			},
		},
	}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(f.delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	fail := func(code int, text string) { http.Error(w, text, code) }
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	n := f.nodes[name]
	switch {
	case r.Header.Get("Authorization") != "Bearer "+f.token:
		fail(http.StatusUnauthorized, "who are you")
	case f.broken != 0:
		fail(f.broken, "broken")
	case one && n == nil:
		fail(http.StatusNotFound, "no such node")
	case one && r.Method == http.MethodGet && name == f.unread:
		fail(http.StatusInternalServerError, "not now")
	case one && r.Method == http.MethodPatch && f.refuses != 0:
		fail(f.refuses, "failed calling webhook")
	case one && r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(n.object())
	case one && r.Method == http.MethodPatch && slices.Contains(f.stuck, name):
		fail(http.StatusForbidden, "an admission webhook says no")
	case one && r.Method == http.MethodPatch:
		f.patch(w, r, n)
	case r.URL.Path == "/api/v1/nodes" && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		f.list(w, r)
	default:
		fail(http.StatusForbidden, r.Method+" "+r.URL.Path)
	}
}

func (f *fakeAPI) patch(w http.ResponseWriter, r *http.Request, n *fakeNode) {
	if r.Header.Get("Content-Type") != "application/merge-patch+json" {
		http.Error(w, "only merge patches", http.StatusUnsupportedMediaType)
		return
	}
	if f.before != nil {
		f.before(n)
		f.before = nil
	}
	var p struct {
		Metadata struct {
			ResourceVersion     string
			Labels, Annotations map[string]string
		}
		Spec struct {
			Unschedulable bool
			Taints        []taint
		}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.Metadata.ResourceVersion != strconv.Itoa(n.version) {
		http.Error(w, "the object has been modified", http.StatusConflict)
		return
	}
	f.patches++
	f.patched = append(f.patched, n.name)
	n.version++
	maps.Copy(n.labels, p.Metadata.Labels)
	maps.Copy(n.notes, p.Metadata.Annotations)
	n.unschedulable, n.taints = p.Spec.Unschedulable, p.Spec.Taints
	if f.lost != 0 {
		http.Error(w, "no answer in time", f.lost)
		f.lost = 0
		return
	}
	_ = json.NewEncoder(w).Encode(n.object())
}

func (f *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("labelSelector") == "" && q.Get("fieldSelector") == "" && q.Get("limit") != "1" {
		f.lists++
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[name]
		switch {
		case q.Get("labelSelector") == markLabel+"=true" && n.labels[markLabel] != "true":
		case q.Get("fieldSelector") == "spec.unschedulable=true" && !n.unschedulable:
		default:
			names = append(names, name)
		}
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to := min(len(names), from+min(limit, f.page))
	items := []any{}
	for _, name := range names[from:to] {
		items = append(items, map[string]any{"metadata": f.nodes[name].object()["metadata"]})
	}
	m := map[string]any{}
	if to < len(names) {
		m["continue"] = strconv.Itoa(to)
		if q.Get("labelSelector") == "" && q.Get("fieldSelector") == "" && !f.silent {
			m["remainingItemCount"] = len(names) - to
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "PartialObjectMetadataList", "metadata": m, "items": items})
}

// out are the nodes that are cordoned, with the action of their taint.
func (f *fakeAPI) out() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for _, n := range f.nodes {
		if n.unschedulable {
			out[n.name] = ""
			for _, t := range n.taints {
				if t.Key == taintKey {
					out[n.name] = t.Value
				}
			}
		}
	}
	return out
}

// fakeManager answers which alerts fire.
type fakeManager struct {
	*httptest.Server
	mu      sync.Mutex
	names   []string
	always  []string // alerts that are there whichever are asked for by expression
	broken  string   // body of every answer, if not ""
	started any      // when it says that it was started; nil: long ago
	watched any      // when the Watchdog of the fleet's rules was sent last; nil: it is not there
	filters []string

	silences string // its answer to who asks for silences; "" is none
	asked    int    // how often somebody did

	alerts    []map[string]string // those that fire, as far as somebody asks by node
	askedNode int                 // how often somebody did
	ofNode    string              // its answer to that; "" is the list
	onNode    func()              // called after such an answer
}

// hears keeps what a payload says that Alertmanager has.
func (m *fakeManager) hears(alerts []alert) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range alerts {
		m.alerts = slices.DeleteFunc(m.alerts, func(l map[string]string) bool { return maps.Equal(l, a.Labels) })
		if a.Status == "firing" {
			m.alerts = append(m.alerts, a.Labels)
		}
	}
}

// byNode answers who asks for alerts of one node.
func (m *fakeManager) byNode(w http.ResponseWriter) {
	m.askedNode++
	if m.ofNode != "" {
		_, _ = io.WriteString(w, m.ofNode)
		return
	}
	list := []any{}
	for _, labels := range m.alerts {
		match := func(filter string) bool {
			name, value, _ := strings.Cut(filter, "=")
			text, err := strconv.Unquote(value)
			return err == nil && labels[name] == text
		}
		if !slices.ContainsFunc(m.filters, func(f string) bool { return !match(f) }) {
			list = append(list, map[string]any{"labels": labels})
		}
	}
	_ = json.NewEncoder(w).Encode(list)
	if m.onNode != nil {
		m.onNode()
	}
}

func newFakeManager(t *testing.T) *fakeManager {
	t.Helper()
	m := &fakeManager{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.broken != "" {
			_, _ = io.WriteString(w, m.broken)
			return
		}
		if r.URL.Path == "/api/v2/status" {
			_ = json.NewEncoder(w).Encode(map[string]any{"uptime": cmp.Or[any](m.started, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))})
			return
		}
		if r.URL.Path == "/api/v2/silences" {
			m.asked++
			_, _ = io.WriteString(w, cmp.Or(m.silences, "[]"))
			return
		}
		m.filters = r.URL.Query()["filter"]
		if slices.ContainsFunc(m.filters, func(f string) bool { return strings.HasPrefix(f, "node=") }) {
			m.byNode(w)
			return
		}
		list := []any{}
		if slices.Equal(m.filters, []string{`alertname="Watchdog"`, `cluster="jaguar"`, `scope="fleet"`}) {
			for _, at := range []any{"2026-11-01T00:00:00Z", m.watched} { // and one of another sender that is gone
				if m.watched != nil {
					list = append(list, map[string]any{"labels": map[string]string{"alertname": "Watchdog"}, "updatedAt": at})
				}
			}
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		names := m.names
		if !strings.Contains(m.filters[0], "=~") {
			names = m.always
		}
		for _, n := range names {
			list = append(list, map[string]any{"labels": map[string]string{"alertname": n}})
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(m.Close)
	return m
}

type rig struct {
	api     *fakeAPI
	manager *fakeManager
	c       *controller
	log     *bytes.Buffer
	clock   time.Time
}

func newRig(t *testing.T, nodes int, change func(*settings)) *rig {
	t.Helper()
	s := settings{
		cluster: "jaguar", act: true, maxNodes: 3, window: time.Hour, maxCordoned: 0.5, fleetAlerts: "Fleet.+",
		leavingTaints: leavingTaints,
	}
	if change != nil {
		change(&s)
	}
	r := &rig{
		api: newFakeAPI(t, nodes), manager: newFakeManager(t), log: &bytes.Buffer{},
		clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("kube-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := newKube(r.api.URL, token, "")
	if err != nil {
		t.Fatal(err)
	}
	r.c = newController(s, k, r.manager.URL, slog.New(slog.NewJSONHandler(r.log, nil)), prometheus.NewRegistry())
	r.c.now = func() time.Time { return r.clock }
	t.Cleanup(k.client.CloseIdleConnections)
	t.Cleanup(r.c.client.CloseIdleConnections)
	return r
}
