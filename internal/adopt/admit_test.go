package adopt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// policy is one of those that the plan makes; nil where it makes none of that name.
func policy(t *testing.T, p *Plan, s Settings, name string) object {
	t.Helper()
	all, err := p.objects(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.text("kind") == "NetworkPolicy" && o.text("metadata", "name") == name {
			return o
		}
	}
	return nil
}

// wall has a policy in a namespace.
func (c *cluster) wall(ns, name, spec string) {
	o := object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
	o.set(name, "metadata", "name")
	o.set(ns, "metadata", "namespace")
	var v any
	if err := json.Unmarshal([]byte(spec), &v); err != nil {
		c.t.Fatal(err)
	}
	o.set(v, "spec")
	c.put(o)
}

// TestOnlyReadersAreLetIn: the policy by which Grafana reaches Spillway is about the pods of those
// that read what asks it, and about no namespace as a whole.
func TestOnlyReadersAreLetIn(t *testing.T) {
	c := newCluster(t)
	c.populate(&fleets[2])
	c.wall("metrics", "deny", `{"podSelector":{}}`)
	for _, ns := range []string{"research", "metrics"} { // one that reads nothing of it
		o := object{"apiVersion": "apps/v1", "kind": "Deployment"}
		o.set("theirs", "metadata", "name")
		o.set(ns, "metadata", "namespace")
		o.set("theirs", "spec", "selector", "matchLabels", "app")
		o.set([]any{map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0"}}, "spec", "template", "spec", "containers")
		c.put(o)
	}
	s := Settings{Namespace: "metrics", Grafana: true}
	p := c.plan(Scope{Home: "metrics"})
	rules, _ := policy(t, p, s, fromGrafana).at("spec", "ingress").([]any)
	const want = `[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"metrics"}},"podSelector":{"matchLabels":{"app":"grafana"}}}],` +
		`"ports":[{"port":9090,"protocol":"TCP"}]}]`
	if b, err := json.Marshal(rules); err != nil || string(b) != want {
		t.Errorf("it lets in %s, %v", b, err)
	}
	if said := fmt.Sprint(p.Admitted(s)); !strings.Contains(said, "Deployment metrics/grafana, which reads these data sources, is let in") {
		t.Errorf("it says %s", said)
	}
	delete(c.objects, "/apis/apps/v1/namespaces/metrics/deployments/grafana")
	p = c.plan(Scope{Home: "metrics"})
	if o := policy(t, p, s, fromGrafana); o != nil {
		t.Errorf("nobody reads it, and it lets in %v", o)
	}
	if said := fmt.Sprint(p.Admitted(s)); !strings.Contains(said, "which Grafana reads ConfigMap metrics/datasources is not seen") {
		t.Errorf("it says %s", said)
	}
}
