package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// available has Spillway's Deployment say that it is.
func (c *cluster) available() {
	c.refuse = func(r *http.Request) (int, string) {
		if o, ok := c.objects[r.URL.Path]; ok && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/deployments/spillway") {
			o.set(1, "status", "availableReplicas")
		}
		return 0, ""
	}
}

func quiet(string, ...any) {}

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
		c.available()
		return c, p, c.dump()
	}
	t.Run("whole", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil {
			t.Fatal(err)
		}
		if text := c.objects[source].text("data", "all.yaml"); !strings.Contains(text, "url: http://spillway.metrics.svc:9090   # the pair\n") {
			t.Errorf("the data source is %s", text)
		}
		if err := c.Apply(t.Context(), c.plan(Scope{}), settings, quiet); err != nil {
			t.Fatalf("a second time: %v", err)
		}
		left, err := c.Undo(t.Context(), "metrics", quiet)
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
		if err := c.Apply(t.Context(), c.plan(Scope{}), settings, quiet); err != nil {
			t.Fatal(err)
		}
		add("c")
		if err := c.Apply(t.Context(), c.plan(Scope{}), settings, quiet); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"all.yaml", "b", "c"} {
			if text := c.objects[source].text("data", key); !strings.Contains(text, "http://spillway.metrics.svc:9090") {
				t.Errorf("%s is %q", key, text)
			}
		}
		if left, err := c.Undo(t.Context(), "metrics", quiet); err != nil || len(left) > 0 {
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
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil {
			t.Fatal(err)
		}
		before := c.dump()
		err := c.Apply(t.Context(), p, Settings{Namespace: "other", Image: "x:1"}, quiet)
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
		if err := c.Apply(t.Context(), p, settings, quiet); err == nil || !strings.Contains(err.Error(), "etcd has gone away") {
			t.Fatalf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at a Spillway that is not there")
		}
		c.refuse = nil
		if left, err := c.Undo(t.Context(), "metrics", quiet); err != nil || len(left) > 0 {
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
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil || asked != 3 {
			t.Errorf("asked %d times: %v", asked, err)
		}
	})
	t.Run("never available", func(t *testing.T) {
		c, p, before := start(t)
		c.refuse = nil
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("a second has passed"))
		defer cancel()
		err := c.Apply(ctx, p, settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "is not available yet, and Grafana was not touched") {
			t.Fatalf("applied: %v", err)
		}
		if sum(before[source]) != sum(c.dump()[source]) {
			t.Error("Grafana was pointed at a Spillway that is not available")
		}
	})
	t.Run("somebody else's object", func(t *testing.T) {
		c, p, _ := start(t)
		c.put(object{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "spillway", "namespace": "metrics"}})
		before := c.dump()
		if err := c.Apply(t.Context(), p, settings, quiet); err == nil || !strings.Contains(err.Error(), "Service metrics/spillway is there already, and was not made by adopt in this namespace: nothing was changed") {
			t.Fatalf("applied: %v", err)
		}
		equal(t, before, c.dump())
	})
	t.Run("changed before", func(t *testing.T) {
		c, p, _ := start(t)
		c.change(source, func(o object) { o.set("x", "data", "other") })
		err := c.Apply(t.Context(), p, settings, quiet)
		if err == nil || !strings.Contains(err.Error(), "it has changed since it was read") {
			t.Fatalf("applied: %v", err)
		}
	})
	t.Run("changed since, and still asking Spillway", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil {
			t.Fatal(err)
		}
		all := c.objects[source].text("data", "all.yaml")
		c.change(source, func(o object) { o.set(all+"  - {name: new, type: loki, url: \"http://loki\"}\n", "data", "all.yaml") })
		with := c.dump()
		left, err := c.Undo(t.Context(), "metrics", quiet)
		if err == nil || !strings.Contains(err.Error(), "still asks Spillway, which therefore stays") || len(left) != 1 {
			t.Errorf("left %q, %v", left, err)
		}
		equal(t, with, c.dump())
		c.change(source, func(o object) { o.set("by hand", "data", "all.yaml") })
		if _, err := c.Undo(t.Context(), "metrics", quiet); err != nil {
			t.Error(err)
		}
		if len(c.dump()) != len(before) {
			t.Error("Spillway is still there")
		}
	})
	t.Run("a record that somebody else has written", func(t *testing.T) {
		c, _, _ := start(t)
		ch := changed{Ref: Ref{"rbac.authorization.k8s.io/v1", "ClusterRole", "", "admin"}, Path: []string{"rules"}}
		if _, err := c.restore(t.Context(), ch); err == nil || !strings.Contains(err.Error(), "is no field of a data source") {
			t.Error(err)
		}
	})
	t.Run("changed since", func(t *testing.T) {
		c, p, before := start(t)
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil {
			t.Fatal(err)
		}
		c.change(source, func(o object) { o.set("somebody else's", "data", "all.yaml") })
		c.change(collection("v1", "Service", "metrics")+"/spillway", func(o object) { o.set("Helm", "metadata", "labels", managedBy) })
		left, err := c.Undo(t.Context(), "metrics", quiet)
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
		if err := c.Apply(t.Context(), p, settings, quiet); err != nil {
			t.Fatal(err)
		}
		c.change(source, func(o object) { o.set("x", "data", "other") })
		if left, err := c.Undo(t.Context(), "metrics", quiet); err != nil || len(left) > 0 {
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

// TestRights: adopt asks for nothing but what Reads and Writes list, and for all of it; and the
// page lists the same.
func TestRights(t *testing.T) {
	var asked []Rule
	for i := range fleets {
		c := newCluster(t)
		c.populate(&fleets[i])
		p := c.plan(Scope{})
		for _, r := range c.asked {
			if !granted(Reads, r) {
				t.Errorf("to look, %s %s in %q is asked for and not listed", r.Verbs[0], r.Resource, r.Group)
			}
		}
		c.available()
		s := Settings{Namespace: fleets[i].namespace, Grafana: true}
		if err := c.Apply(t.Context(), p, s, quiet); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Undo(t.Context(), fleets[i].namespace, quiet); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, c.asked...)
	}
	all := append(slices.Clone(Reads), Writes...)
	for _, r := range asked {
		if !granted(all, r) {
			t.Errorf("%s %s in %q is asked for and not listed", r.Verbs[0], r.Resource, r.Group)
		}
	}
	for _, r := range all {
		if r.Why == roleGrants {
			continue // Kubernetes asks for it itself
		}
		for _, verb := range r.Verbs {
			// The API server asks for create where what is applied is not there.
			if !slices.ContainsFunc(asked, func(a Rule) bool {
				return a.Group == r.Group && a.Resource == r.Resource && (a.Verbs[0] == verb || verb == "create")
			}) {
				t.Errorf("%s %s in %q is listed and never asked for", verb, r.Resource, r.Group)
			}
		}
	}
	const page, begin, end = "../../docs/adopt.md", "<!-- rights: begin -->\n", "<!-- rights: end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %s", page, begin)
	}
	want := head + begin + rightsTable() + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s has another table (-update writes it):\n%s", page, rightsTable())
	}
}

func granted(all []Rule, r Rule) bool {
	return slices.ContainsFunc(all, func(g Rule) bool {
		return g.Group == r.Group && g.Resource == r.Resource && slices.Contains(g.Verbs, r.Verbs[0])
	})
}

func rightsTable() string {
	var b strings.Builder
	b.WriteString("| for | API group | resource | verbs | why |\n|---|---|---|---|---|\n")
	for _, part := range []struct {
		name  string
		rules []Rule
	}{{"looking", Reads}, {"`--apply`, `--undo`", Writes}} {
		for _, r := range part.rules {
			group := "core"
			if r.Group != "" {
				group = "`" + r.Group + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", part.name, group, r.Resource, strings.Join(r.Verbs, ", "), r.Why)
		}
	}
	return b.String()
}
