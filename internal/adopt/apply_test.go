package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// available has Spillway's Deployment say that it is, with a pod that reaches the plan's servers.
func (c *cluster) available(p *Plan, ns string) {
	c.put(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "spillway-x", "namespace": ns, "labels": map[string]any{
			"app.kubernetes.io/name": "spillway", "app.kubernetes.io/instance": "spillway",
		}},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "spillway", "ports": []any{map[string]any{"name": "metrics", "containerPort": 9092}}},
		}},
		"status": map[string]any{"podIP": "10.9.9.9", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	})
	c.sees(p, ns, nil)
	c.refuse = func(r *http.Request) (int, string) {
		if o, ok := c.objects[r.URL.Path]; ok && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/spillway") {
			o.set(map[string]any{"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, "status")
		}
		return 0, ""
	}
}

// sees has Spillway's pod say that it reaches the plan's servers, but for those that lost names.
func (c *cluster) sees(p *Plan, ns string, lost func(*Server) bool) {
	var b strings.Builder
	b.WriteString("# TYPE spillway_shard_replica_state gauge\n")
	for _, g := range p.Groups {
		for _, s := range g.Servers {
			up := 1
			if lost != nil && lost(s) {
				up = 0
			}
			for state, v := range map[string]int{"up": up, "down": 1 - up} {
				fmt.Fprintf(&b, "spillway_shard_replica_state{group=%q,shard=\"0\",replica=\"%s:%d\",state=%q} %d\n", g.Name, s.IP, s.Port, state, v)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[ns+"/spillway-x"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, b.String())
	})
}

func quiet(string, ...any) {}

// onceSaid does f a while after the words were said.
func onceSaid(words string, after time.Duration, f func()) func(string, ...any) {
	return func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), words) {
			time.AfterFunc(after, f)
		}
	}
}

// TestApplyAndUndo: what is done is taken back, also from halfway, and nothing that somebody else
// has made or changed meanwhile.
func TestApplyAndUndo(t *testing.T) {
	f := &fleets[2]
	source := collection("v1", "ConfigMap", "metrics") + "/datasources"
	settings := Settings{Namespace: "metrics", Image: "x:1", Grafana: true}
	start := func(t *testing.T) (*cluster, *Plan, map[string]string) {
		c := newCluster(t)
		c.populate(f)
		p := c.plan(Scope{})
		c.available(p, "metrics")
		return c, p, c.dump()
	}
	t.Run("whole", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		if text := c.objects[source].text("data", "all.yaml"); !strings.Contains(text, "url: http://spillway.metrics.svc:9090   # the pair\n") {
			t.Errorf("the data source is %s", text)
		}
		if err := c.Apply(t.Context(), c.plan(Scope{}), c.reach(), settings, quiet); err != nil {
			t.Fatalf("a second time: %v", err)
		}
		left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
		if err != nil || len(left) > 0 {
			t.Fatalf("left %q, %v", left, err)
		}
		equal(t, before, c.dump())
	})
	t.Run("several files of one object, one of them later", func(t *testing.T) {
		c, _, _ := start(t)
		const file = "datasources: [{name: %s, type: prometheus, url: http://prom:9090}]\n"
		add := func(key string) {
			c.change(source, func(o object) { o.set(fmt.Sprintf(file, key), "data", key) })
		}
		add("b")
		before := c.dump()
		if err := c.Apply(t.Context(), c.plan(Scope{}), c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		add("c")
		if err := c.Apply(t.Context(), c.plan(Scope{}), c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"all.yaml", "b", "c"} {
			if text := c.objects[source].text("data", key); !strings.Contains(text, "http://spillway.metrics.svc:9090") {
				t.Errorf("%s is %q", key, text)
			}
		}
		if left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err != nil || len(left) > 0 {
			t.Fatalf("left %q, %v", left, err)
		}
		if text := c.objects[source].text("data", "c"); text != fmt.Sprintf(file, "c") {
			t.Errorf("c is %q", text)
		}
		c.change(source, func(o object) { delete(o["data"].(map[string]any), "c") })
		equal(t, before, c.dump())
	})
	t.Run("from another namespace", func(t *testing.T) {
		c, p, _ := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		before := c.dump()
		err := c.Apply(t.Context(), p, c.reach(), Settings{Namespace: "other", Image: "x:1"}, quiet)
		if err == nil || !strings.Contains(err.Error(), "Role metrics/spillway is there already") {
			t.Fatalf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("from halfway", func(t *testing.T) {
		c, p, before := start(t)
		c.refuse = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/spillway") && r.URL.Query().Get("dryRun") == "" {
				return http.StatusInternalServerError, "etcd has gone away"
			}
			return 0, ""
		}
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err == nil || !strings.Contains(err.Error(), "etcd has gone away") {
			t.Fatalf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at a Spillway that is not there")
		}
		c.refuse = nil
		if left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err != nil || len(left) > 0 {
			t.Fatalf("left %q, %v", left, err)
		}
		equal(t, before, c.dump())
	})
	t.Run("a Role that is not known at once", func(t *testing.T) {
		c, p, _ := start(t)
		known, asked := c.refuse, 0
		c.refuse = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/rolebindings/spillway") {
				if asked++; asked < 3 { // once when it is tried, once when it is done
					return http.StatusNotFound, "roles.rbac.authorization.k8s.io \"spillway\" not found"
				}
			}
			return known(r)
		}
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil || asked != 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
	t.Run("never available", func(t *testing.T) {
		c, p, before := start(t)
		c.refuse = nil
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := c.Apply(ctx, p, c.reach(), settings, onceSaid("applied Deployment", time.Second, cancel))
		if err == nil || !strings.Contains(err.Error(), "is not available yet, and Grafana was not touched") {
			t.Fatalf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at a Spillway that is not available")
		}
	})
	t.Run("pods that cannot be made", func(t *testing.T) {
		c, p, _ := start(t)
		const message = `pods "spillway-x" is forbidden: unable to validate against any security context constraint: runAsUser: Invalid value: 65532`
		c.refuse = func(r *http.Request) (int, string) {
			if o, ok := c.objects[r.URL.Path]; ok && strings.HasSuffix(r.URL.Path, "/deployments/spillway") {
				o.set([]any{map[string]any{"type": "ReplicaFailure", "status": "True", "message": message}}, "status", "conditions")
			}
			return 0, ""
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []string
		leave := onceSaid("no pod of it can be made", 2*poll+time.Second, cancel)
		err := c.Apply(ctx, p, c.reach(), settings, func(format string, args ...any) {
			told = append(told, fmt.Sprintf(format, args...))
			leave(format, args...)
		})
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("applied: %v", err)
		}
		n := slices.IndexFunc(told, func(s string) bool { return strings.Contains(s, "no pod of it can be made") })
		if n < 0 || n != len(told)-1 || !strings.Contains(told[n], message) {
			t.Errorf("it is not told, or several times: %q", told)
		}
	})
	t.Run("containers that wait", func(t *testing.T) {
		c, p, _ := start(t)
		c.refuse = nil
		const message = `Back-off pulling image "x:1": ErrImagePull: 401 Unauthorized`
		waits := func(reason, message string) map[string]any {
			return map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": reason, "message": message}}}
		}
		c.change(collection("v1", "Pod", "metrics")+"/spillway-x", func(o object) {
			o.set([]any{waits("ContainerCreating", ""), waits("ImagePullBackOff", message)}, "status", "containerStatuses")
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		told := ""
		leave := onceSaid("ImagePullBackOff", 2*poll+time.Second, cancel)
		err := c.Apply(ctx, p, c.reach(), settings, func(format string, args ...any) {
			told += fmt.Sprintf(format, args...) + "\n"
			leave(format, args...)
		})
		if want := "(Pod metrics/spillway-x waits, ImagePullBackOff: " + message + ")"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("applied: %v", err)
		}
		if strings.Count(told, "waits, ImagePullBackOff: "+message) != 1 || strings.Contains(told, "ContainerCreating") {
			t.Errorf("it is told otherwise than once:\n%s", told)
		}
	})
	t.Run("a server that its pod does not reach", func(t *testing.T) {
		c, p, before := start(t)
		lost := p.Groups[0].Servers[1]
		c.sees(p, "metrics", func(s *Server) bool { return s == lost })
		err := c.Apply(t.Context(), p, c.reach(), settings, quiet)
		if want := "Spillway's pod metrics/spillway-x does not reach metrics/" + lost.Pod + " at " + lost.IP + ":9090; Grafana was not touched"; err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("applied: %v, want %s", err, want)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at a Spillway that does not reach its servers")
		}
		c.sees(p, "metrics", nil)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Errorf("when it does: %v", err)
		}
	})
	t.Run("a pod that cannot be asked, and none", func(t *testing.T) {
		c, p, _ := start(t)
		delete(c.servers, "metrics/spillway-x")
		err := c.Apply(t.Context(), p, c.reach(), settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "cannot be asked, by its port 9092: it answers 503") {
			t.Errorf("applied: %v", err)
		}
		leaves := func(o object) { o.set("2026-11-26T01:00:00Z", "metadata", "deletionTimestamp") }
		c.change(collection("v1", "Pod", "metrics")+"/spillway-x", leaves)
		err = c.Apply(t.Context(), p, c.reach(), settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "no pod in namespace metrics with the labels app.kubernetes.io/instance=spillway,app.kubernetes.io/name=spillway is ready") {
			t.Errorf("applied: %v", err)
		}
	})
	t.Run("fewer servers than before", func(t *testing.T) {
		c, p, _ := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		before := c.dump()
		err := c.Apply(t.Context(), c.plan(Scope{Only: []string{"metrics/prom-a"}}), c.reach(), settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "StatefulSet metrics/prom-b was adopted before and is not among the servers now") {
			t.Fatalf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("two people at once", func(t *testing.T) {
		for _, again := range []bool{false, true} {
			c, p, _ := start(t)
			if again {
				if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
					t.Fatal(err)
				}
				p = c.plan(Scope{})
			}
			known, record := c.refuse, collection("v1", "Secret", "metrics")+"/spillway-adopt"
			c.refuse = func(r *http.Request) (int, string) {
				// It is tried after the record was read.
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/deployments/spillway") {
					other := object{"apiVersion": "v1", "kind": "Secret"}
					other.set("spillway-adopt", "metadata", "name")
					other.set("metrics", "metadata", "namespace")
					if there, ok := c.objects[record]; ok {
						other = there.copy()
					}
					c.store(record, other)
				}
				return known(r)
			}
			if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err == nil || !strings.Contains(err.Error(), "somebody else runs adopt at this moment, and nothing was changed") {
				t.Errorf("again %t: applied: %v", again, err)
			}
			if _, made := c.objects[collection("apps/v1", "Deployment", "metrics")+"/spillway"]; made != again {
				t.Errorf("again %t: the Deployment is there: %t", again, made)
			}
		}
	})
	t.Run("pods of the version before alone", func(t *testing.T) {
		c, p, before := start(t)
		known := c.refuse
		c.refuse = func(r *http.Request) (int, string) {
			code, message := known(r)
			if o, ok := c.objects[r.URL.Path]; ok && strings.HasSuffix(r.URL.Path, "/deployments/spillway") {
				o.set(map[string]any{"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}, "status")
			}
			return code, message
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		said := onceSaid("applied Deployment", time.Second, cancel)
		if err := c.Apply(ctx, p, c.reach(), settings, said); err == nil || !strings.Contains(err.Error(), "is not available yet") {
			t.Errorf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at an older Spillway")
		}
	})
	t.Run("somebody else's turn meanwhile", func(t *testing.T) {
		c, p, before := start(t)
		known, record := c.refuse, collection("v1", "Secret", "metrics")+"/spillway-adopt"
		c.refuse = func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/spillway") && c.objects[record] != nil {
				c.store(record, c.objects[record].copy())
			}
			return known(r)
		}
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err == nil || !strings.Contains(err.Error(), "somebody else has run adopt meanwhile, and Grafana was not touched") {
			t.Errorf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at what somebody else has put there")
		}
	})
	t.Run("a namespace of Spillway that may not be looked at", func(t *testing.T) {
		c, _, before := start(t)
		known := c.refuse
		c.refuse = func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "/namespaces/spill/networkpolicies") {
				return http.StatusForbidden, "no"
			}
			return known(r)
		}
		p := c.plan(Scope{Home: "spill"})
		err := c.Apply(t.Context(), p, c.reach(), Settings{Namespace: "spill", Image: "x:1", Grafana: true}, quiet)
		if err == nil || !strings.Contains(err.Error(), "cannot be seen, and nothing was changed") {
			t.Errorf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("a data source that would not be taken", func(t *testing.T) {
		c, p, before := start(t)
		known := c.refuse
		c.refuse = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPatch && r.URL.Path == source {
				return http.StatusForbidden, "an admission webhook says no"
			}
			return known(r)
		}
		err := c.Apply(t.Context(), p, c.reach(), settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "says no") {
			t.Errorf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("a policy that is wanted no more", func(t *testing.T) {
		c, _, _ := start(t)
		wall := object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
		wall.set("deny", "metadata", "name")
		wall.set("metrics", "metadata", "namespace")
		wall.set([]any{map[string]any{"key": "open", "operator": "DoesNotExist"}}, "spec", "podSelector", "matchExpressions")
		c.put(wall)
		if err := c.Apply(t.Context(), c.plan(Scope{Home: "metrics"}), c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		policies := collection("networking.k8s.io/v1", "NetworkPolicy", "metrics")
		for _, name := range []string{"spillway-to-statefulset-prom-a", "spillway-to-statefulset-prom-b", "spillway-from-grafana"} {
			o, ok := c.objects[policies+"/"+name]
			if !ok {
				t.Fatalf("no policy %s", name)
			}
			// What it selects is closed already: it has the wall's condition besides its own.
			if rest, _ := o.at("spec", "podSelector", "matchExpressions").([]any); len(rest) != 1 {
				t.Errorf("%s selects %v", name, o.at("spec", "podSelector"))
			}
			if marks, _ := o.at("spec", "podSelector", "matchLabels").(map[string]any); len(marks) == 0 {
				t.Errorf("%s selects %v", name, o.at("spec", "podSelector"))
			}
		}
		err := c.Apply(t.Context(), c.plan(Scope{Home: "metrics"}), c.reach(), settings, quiet)
		if err != nil || c.objects[policies+"/spillway-from-grafana"] == nil {
			t.Fatalf("a second time: %v", err)
		}
		// What asks Spillway already goes on, whatever else is looked at or changed.
		for name, how := range map[string]struct {
			scope   Scope
			grafana bool
		}{
			"without Grafana":     {Scope{Home: "metrics"}, false},
			"in other namespaces": {Scope{Home: "metrics", Namespaces: []string{"metrics"}}, true},
		} {
			p := c.plan(how.scope)
			if how.grafana {
				p.Found.Sources = nil
			}
			err := c.Apply(t.Context(), p, c.reach(), Settings{Namespace: "metrics", Image: "x:1", Grafana: how.grafana}, quiet)
			if err != nil || c.objects[policies+"/spillway-from-grafana"] == nil {
				t.Errorf("%s: Grafana is kept out: %v", name, err)
			}
		}
		delete(c.objects, policies+"/deny")
		if err := c.Apply(t.Context(), c.plan(Scope{Home: "metrics"}), c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		for at := range c.objects {
			if strings.HasPrefix(at, policies) {
				t.Errorf("%s is still there, and closes what nobody else does", at)
			}
		}
	})
	t.Run("a record that is lost", func(t *testing.T) {
		c, p, _ := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		delete(c.objects, collection("v1", "Secret", "metrics")+"/spillway-adopt")
		before := c.dump()
		if _, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err == nil || !strings.Contains(err.Error(), "Secret metrics/spillway-adopt, by which adopt knows what it did, is gone: nothing was changed. Put the URLs") {
			t.Errorf("undone: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("somebody else's object", func(t *testing.T) {
		c, p, _ := start(t)
		c.put(object{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "spillway", "namespace": "metrics"}})
		before := c.dump()
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err == nil || !strings.Contains(err.Error(), "Service metrics/spillway is there already, and was not made by adopt in this namespace: nothing was changed") {
			t.Fatalf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("changed before", func(t *testing.T) {
		c, p, _ := start(t)
		c.change(source, func(o object) { o.set("x", "data", "other") })
		err := c.Apply(t.Context(), p, c.reach(), settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "it has changed since it was read") {
			t.Fatalf("applied: %v", err)
		}
	})
	t.Run("changed since, and still asking Spillway", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		all := c.objects[source].text("data", "all.yaml")
		all = strings.ReplaceAll(all, "name: Prometheus", "name: Other") // nobody knows any more what it asked
		all += "  - {name: new, type: loki, url: \"http://loki\"}\n"
		c.change(source, func(o object) { o.set(all, "data", "all.yaml") })
		with := c.dump()
		left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
		if err == nil || !strings.Contains(err.Error(), "still asks Spillway, which therefore stays") || len(left) != 1 {
			t.Errorf("left %q, %v", left, err)
		}
		equal(t, with, c.dump())
		c.change(source, func(o object) { o.set("by hand", "data", "all.yaml") })
		if _, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err != nil {
			t.Error(err)
		}
		if len(c.dump()) != len(before) {
			t.Error("Spillway is still there")
		}
	})
	t.Run("a record that somebody else has written", func(t *testing.T) {
		c, _, _ := start(t)
		ch := changed{Ref: Ref{"rbac.authorization.k8s.io/v1", "ClusterRole", "", "admin"}, Path: []string{"rules"}}
		_, _, err := c.restore(t.Context(), "metrics", ch, quiet)
		if err == nil || !strings.Contains(err.Error(), "is no field of a data source") {
			t.Error(err)
		}
	})
	t.Run("changed since", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		c.change(source, func(o object) { o.set("somebody else's", "data", "all.yaml") })
		c.change(collection("v1", "Service", "metrics")+"/spillway", func(o object) { o.set("Helm", "metadata", "labels", managedBy) })
		left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
		if err != nil || len(left) != 2 || !strings.Contains(left[0], "has been changed by somebody else since (data.all.yaml), and stays") ||
			!strings.Contains(left[1], "Service metrics/spillway is not adopt's any more") {
			t.Errorf("left %q, %v", left, err)
		}
		after := c.dump()
		if !strings.Contains(after[source], "somebody else's") || after[collection("v1", "Service", "metrics")+"/spillway"] == "" {
			t.Error("what somebody else has changed is gone")
		}
		if len(after) != len(before)+1 {
			t.Errorf("%d objects, before there were %d", len(after), len(before))
		}
	})
	t.Run("another file of it changed since", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		c.change(source, func(o object) { o.set("x", "data", "other") })
		if left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err != nil || len(left) > 0 {
			t.Errorf("left %q, %v", left, err)
		}
		var was, is object
		if err := errors.Join(json.Unmarshal([]byte(before[source]), &was), json.Unmarshal([]byte(c.dump()[source]), &is)); err != nil {
			t.Fatal(err)
		}
		if is.text("data", "other") != "x" || is.text("data", "all.yaml") != was.text("data", "all.yaml") {
			t.Errorf("it is %v", is["data"])
		}
	})
}
