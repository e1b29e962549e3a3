package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/version"
)

// kube is an API server of a few kinds of objects: it lists and watches them, and goes wrong as its
// rules say.
type kube struct {
	*httptest.Server
	mu      sync.Mutex
	news    chan struct{} // closed, and another one made, whenever something has changed
	version int
	oldest  int // versions before it are forgotten
	objects map[string]map[string]any
	events  []event
	rules   []rule
	cut     int // how often all watches were ended
	asked   []string
}

type event struct {
	version       int
	resource, how string
	object        any
}

// rule is what happens to requests: "list pods 403" is refused, "watch * away" gets no answer at
// all, "list pods to http://…" is sent elsewhere. * stands for any verb or resource.
type rule struct{ verb, resource, what, where string }

func startKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{news: make(chan struct{}), version: 100, objects: map[string]map[string]any{}}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *kube) changed(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	close(k.news)
	k.news = make(chan struct{})
}

// rule sets what goes wrong from now on, and ends what is under way.
func (k *kube) rule(lines ...string) {
	k.changed(func() {
		k.rules = nil
		for _, line := range lines {
			w := strings.Fields(line)
			r := rule{verb: w[0], resource: w[1], what: w[2]}
			if len(w) > 3 {
				r.where = w[3]
			}
			k.rules = append(k.rules, r)
		}
		k.cut++
	})
}

// forget makes versions before now too old to be watched from.
func (k *kube) forget() { k.changed(func() { k.version += 10; k.oldest = k.version; k.cut++ }) }

// put writes an object; nil deletes it.
func (k *kube) put(resource, namespace, name string, object map[string]any) {
	k.changed(func() {
		k.version++
		key, how := namespace+"/"+name, "ADDED"
		was, there := k.objects[resource][key]
		switch {
		case object == nil:
			delete(k.objects[resource], key)
			k.events = append(k.events, event{k.version, resource, "DELETED", was})
			return
		case there:
			how = "MODIFIED"
		}
		meta := map[string]any{
			"name": name, "namespace": namespace, "uid": key, "resourceVersion": fmt.Sprint(k.version),
			"managedFields": []any{map[string]any{"manager": "x"}},
		}
		for key, v := range object["metadata"].(map[string]any) {
			meta[key] = v
		}
		object["metadata"] = meta
		if k.objects[resource] == nil {
			k.objects[resource] = map[string]any{}
		}
		k.objects[resource][key] = object
		k.events = append(k.events, event{k.version, resource, how, object})
	})
}

var kinds = map[string][2]string{
	"endpointslices": {"EndpointSlice", "discovery.k8s.io/v1"}, "pods": {"Pod", "v1"}, "services": {"Service", "v1"},
}

func (k *kube) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.UserAgent() != "Spillway/"+version.Version {
		http.Error(w, "who is that: "+r.UserAgent(), http.StatusBadRequest)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource, namespace, verb := parts[len(parts)-1], "", "list"
	if i := slices.Index(parts, "namespaces"); i >= 0 {
		namespace = parts[i+1]
	}
	q := r.URL.Query()
	if w := q.Get("watch"); w == "true" || w == "1" {
		verb = "watch"
	}
	k.mu.Lock()
	k.asked = append(k.asked, verb+" "+namespace+"/"+resource+" "+q.Get("labelSelector")+" "+q.Get("fieldSelector"))
	rules := k.rules
	k.mu.Unlock()
	for _, rule := range rules {
		if (rule.verb != "*" && rule.verb != verb) || (rule.resource != "*" && rule.resource != resource) {
			continue
		}
		switch rule.what {
		case "away":
			panic(http.ErrAbortHandler)
		case "to":
			http.Redirect(w, r, rule.where, http.StatusTemporaryRedirect)
		default:
			var code int
			_, _ = fmt.Sscan(rule.what, &code)
			reason := map[int]string{401: "Unauthorized", 403: "Forbidden", 500: "InternalError"}[code]
			status(w, code, reason, resource+` is forbidden: User "spillway" cannot `+verb+" it")
		}
		return
	}
	switch {
	case kinds[resource][0] == "":
		status(w, http.StatusNotFound, "NotFound", "no such resource")
	case q.Get("sendInitialEvents") != "": // as a server that has no streaming lists
		status(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch")
	case verb == "list":
		k.list(w, resource, namespace)
	default:
		from := 0
		_, _ = fmt.Sscan(q.Get("resourceVersion"), &from)
		k.watch(r.Context(), w, resource, namespace, from)
	}
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason, message))
}

func failure(code int, reason, message string) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
	}
}

func within(object any, namespace string) bool {
	return namespace == "" || object.(map[string]any)["metadata"].(map[string]any)["namespace"] == namespace
}

func (k *kube) list(w http.ResponseWriter, resource, namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	items := []any{}
	for _, o := range sortedValues(k.objects[resource]) {
		if within(o, namespace) {
			items = append(items, o)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kinds[resource][0] + "List", "apiVersion": kinds[resource][1],
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(k.version)}, "items": items,
	})
}

func (k *kube) watch(ctx context.Context, w http.ResponseWriter, resource, namespace string, from int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	k.mu.Lock()
	cut := k.cut
	old := from < k.oldest
	k.mu.Unlock()
	send := func(how string, object any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": how, "object": object})
		_ = http.NewResponseController(w).Flush()
	}
	if old {
		send("ERROR", failure(http.StatusGone, "Expired", "too old resource version"))
		return
	}
	for {
		k.mu.Lock()
		news := k.news
		if k.cut != cut {
			k.mu.Unlock()
			return
		}
		var all []event
		for _, e := range k.events {
			if e.version > from && e.resource == resource && within(e.object, namespace) {
				all = append(all, e)
			}
			from = max(from, e.version)
		}
		k.mu.Unlock()
		for _, e := range all {
			o := maps.Clone(e.object.(map[string]any))
			o["kind"], o["apiVersion"] = kinds[resource][0], kinds[resource][1]
			send(e.how, o)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
			return
		}
	}
}

// endpoint is a pod with its address in a slice; an empty address is none yet.
type endpoint struct {
	pod, ip  string
	notReady bool
}

// slice writes an endpointslice of a service, and the pods that it names.
func (k *kube) slice(name string, endpoints ...endpoint) {
	list := []any{}
	for _, e := range endpoints {
		k.pod(e.pod, e.ip, !e.notReady)
		list = append(list, map[string]any{
			"addresses": []any{e.ip}, "conditions": map[string]any{"ready": !e.notReady},
			"targetRef": map[string]any{"kind": "Pod", "name": e.pod, "namespace": "monitoring"},
		})
	}
	k.put("endpointslices", "monitoring", name, map[string]any{
		"metadata":    map[string]any{"labels": map[string]any{"kubernetes.io/service-name": "prometheus-operated"}},
		"addressType": "IPv4", "endpoints": list, "ports": []any{map[string]any{"name": "web", "port": 9090}},
	})
}

// pod writes a pod of two ports, that of its API and a sidecar's.
func (k *kube) pod(name, ip string, ready bool) {
	k.put("pods", "monitoring", name, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "prometheus"}},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "prometheus", "ports": []any{map[string]any{"name": "web", "containerPort": 9090}}},
			map[string]any{"name": "reloader", "ports": []any{map[string]any{"name": "reloader", "containerPort": 8080}}},
		}},
		"status": map[string]any{"podIP": ip, "phase": "Running", "conditions": []any{
			map[string]any{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[ready]},
		}},
	})
}
