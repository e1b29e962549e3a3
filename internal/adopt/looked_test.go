package adopt

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestSidecarLabel: a ConfigMap with a label of its own is found where a sidecar of Grafana says
// so, by its name and its value; where nothing says so it is told what was looked at.
func TestSidecarLabel(t *testing.T) {
	const target = "http://spillway.metrics.svc:9090"
	source := collection("v1", "ConfigMap", "metrics") + "/datasources"
	my := map[string]any{"my_ds": "1"}
	const usual = "label grafana_datasource, what"
	for name, c := range map[string]struct {
		labels map[string]any // of the ConfigMap
		env    map[string]string
		found  bool
		looked string
	}{
		"the usual one":         {map[string]any{"grafana_datasource": "1"}, nil, true, ""},
		"nobody says":           {my, nil, false, usual},
		"the sidecar says":      {my, map[string]string{"LABEL": "my_ds"}, true, ""},
		"with its value":        {my, map[string]string{"LABEL": "my_ds", "LABEL_VALUE": "1"}, true, ""},
		"with another value":    {my, map[string]string{"LABEL": "my_ds", "LABEL_VALUE": "2"}, false, "or my_ds=2, what"},
		"both labels":           {map[string]any{"my_ds": "1", "grafana_datasource": "1"}, map[string]string{"LABEL": "my_ds"}, true, ""},
		"one of dashboards":     {my, map[string]string{"LABEL": "my_ds", "FOLDER": "/tmp/dashboards"}, false, usual},
		"what is no label":      {my, map[string]string{"LABEL": "my ds"}, false, usual},
		"the usual one, by env": {map[string]any{"grafana_datasource": "1"}, map[string]string{"LABEL": "grafana_datasource"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCluster(t)
			k.populate(&fleets[2])
			k.change(source, func(o object) { o.set(c.labels, "metadata", "labels") })
			if c.env != nil {
				env := []any{}
				if c.env["FOLDER"] == "" {
					env = append(env, map[string]any{"name": "FOLDER", "value": "/etc/grafana/provisioning/datasources"})
				}
				env = append(env, map[string]any{"name": "REQ_URL", "value": "http://localhost:3000/api/admin/provisioning/datasources/reload"})
				for n, v := range c.env {
					env = append(env, map[string]any{"name": n, "value": v})
				}
				o := object{"apiVersion": "apps/v1", "kind": "Deployment"}
				o.set("grafana", "metadata", "name")
				o.set("metrics", "metadata", "namespace")
				o.set([]any{
					map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0"},
					map[string]any{"name": "grafana-sc-datasources", "image": "quay.io/kiwigrid/k8s-sidecar:1.30", "env": env},
				}, "spec", "template", "spec", "containers")
				k.put(o)
			}
			p := k.plan(Scope{})
			changes, _ := p.Grafana(target)
			if found := len(changes) == 1 && changes[0].Source.Sidecar; found != c.found {
				t.Errorf("found: %v", found)
			}
			if looked := p.Unasked(target); !strings.Contains(looked, c.looked) || c.looked == "" && looked != "" {
				t.Errorf("looked at %q", looked)
			}
			said := slices.ContainsFunc(p.Found.Remarks, func(r string) bool { return strings.Contains(r, "which is no label") })
			if want := c.env["LABEL"] == "my ds"; said != want {
				t.Errorf("%q", p.Found.Remarks)
			}
		})
	}
}

// TestLabelledSecret: a Secret with the label is one with data sources: it is pointed at Spillway,
// read by whom looks for Secrets, and while it asks Spillway that stays. Who may not list Secrets
// is told.
func TestLabelledSecret(t *testing.T) {
	const text = "datasources:\n- {name: mine, type: prometheus, url: 'http://prom.metrics:9090'}\n"
	const source, where = "/api/v1/namespaces/metrics/secrets/sources", "/api/v1/secrets"
	both := func(c *cluster, o object) {
		const deployment = "/apis/apps/v1/namespaces/metrics/deployments/grafana"
		c.change(deployment, func(o object) {
			sidecar := o.at("spec", "template", "spec", "containers").([]any)[1].(map[string]any)
			sidecar["env"] = append(sidecar["env"].([]any), map[string]any{"name": "RESOURCE", "value": "both"})
		})
		o.set("sources", "metadata", "name")
		o.set("metrics", "metadata", "namespace")
		o.set("1", "metadata", "labels", "grafana_datasource")
		c.put(o)
	}
	secret := func(c *cluster) {
		both(c, object{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"a.yaml": text}})
	}
	c := applied(t, Settings{Namespace: "metrics", Image: "x:1", Grafana: true}, secret)
	field := func() string {
		return (&changed{Ref: Ref{Kind: "Secret"}}).decode(c.objects[source].text("data", "a.yaml"))
	}
	if !strings.Contains(field(), "http://spillway.metrics.svc:9090") {
		t.Errorf("applied, it is\n%s", field())
	}
	g := c.plan(Scope{}).Found.grafanas[0]
	for kind, want := range map[string]bool{"Secret": true, "ConfigMap": true} {
		one := &Source{Ref: Ref{"v1", kind, "metrics", "sources"}, object: c.objects[source]}
		if got := g.reads(one); got != want {
			t.Errorf("Grafana reads a %s: %t", kind, got)
		}
	}
	g.sidecars[0].secrets = false
	if g.reads(&Source{Ref: Ref{"v1", "Secret", "metrics", "sources"}, object: c.objects[source]}) {
		t.Error("a sidecar reads Secrets that looks for ConfigMaps")
	}
	known := c.refuse
	c.refuse = func(r *http.Request) (int, string) {
		if r.URL.Path == where {
			return http.StatusForbidden, "no"
		}
		return known(r)
	}
	said := strings.Join(c.plan(Scope{}).Found.Remarks, "\n")
	if !strings.Contains(said, "Secrets with the label grafana_datasource cannot be listed") {
		t.Errorf("without the right it remarks\n%s", said)
	}
	_, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
	if err == nil || !strings.Contains(err.Error(), "Secrets with the label grafana_datasource cannot be listed") || c.objects[deployed] == nil {
		t.Errorf("undone without the right: %v", err)
	}
	c.refuse = known
	if _, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet); err != nil || field() != text || c.objects[deployed] != nil {
		t.Errorf("undone: %v\n%s", err, field())
	}

	asks := applied(t, Settings{Namespace: "metrics", Image: "x:1"}, func(c *cluster) {
		theirs := map[string]any{"a.yaml": strings.ReplaceAll(text, "prom.", "spillway.")}
		both(c, object{"apiVersion": "v1", "kind": "Secret", "stringData": theirs})
	})
	_, err = asks.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
	if err == nil || !strings.Contains(err.Error(), `data source "mine" of Secret metrics/sources still asks Spillway`) {
		t.Errorf("undone while it is asked: %v", err)
	}
}

// TestUnasked: one that asks Spillway already, or a part of the servers, is one that was found.
func TestUnasked(t *testing.T) {
	w := &Workload{Namespace: "metrics", Name: "p", Service: "prom"}
	p := &Plan{Found: &Found{}, Groups: []*Group{{Workloads: []*Workload{w}}}}
	for at, unasked := range map[string]bool{
		"http://prom:9090": false, "http://spillway": false, "https://prom.metrics.svc": false, "http://p-0.prom.metrics.svc": false,
		"http://elsewhere": true, ":": true, "/": true, "": true,
	} {
		one := Source{Ref: Ref{"v1", "ConfigMap", "metrics", "g"}, Key: "a.yaml", Entries: []Entry{{Name: "a", URL: at}}, object: object{}}
		p.Found.Sources = []Source{one}
		if got := p.Unasked("http://spillway") != ""; got != unasked {
			t.Errorf("%q: %v", at, got)
		}
	}
}

// TestAppliers: who has a field by server-side apply is told apart from who has updated it.
func TestAppliers(t *testing.T) {
	entry := func(manager, operation, field string) any {
		o := object{"manager": manager, "operation": operation}
		o.set(map[string]any{}, "fieldsV1", "f:data", field)
		return map[string]any(o)
	}
	s := Source{Key: "a.yaml", object: object{}}
	s.object.set([]any{
		entry("kubectl", "Update", "f:a.yaml"), entry("helm", "Apply", "f:a.yaml"), entry("flux", "Apply", "f:b.yaml"),
		entry(Manager, "Apply", "f:a.yaml"),
	}, "metadata", "managedFields")
	all, appliers := s.owners()
	if !slices.Equal(all, []string{"helm", "kubectl"}) || !slices.Equal(appliers, []string{"helm"}) {
		t.Errorf("%q, of whom %q apply", all, appliers)
	}
}
