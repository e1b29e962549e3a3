package adopt

import (
	"net/http"
	"strings"
	"testing"
)

// deployed is where Spillway's Deployment is.
const deployed = "/apis/apps/v1/namespaces/metrics/deployments/spillway"

// applied is a fake with the fleet of StatefulSets, adopted in the namespace metrics.
func applied(t *testing.T, settings Settings, before func(c *cluster)) *cluster {
	t.Helper()
	c := newCluster(t)
	c.populate(&fleets[2])
	if before != nil {
		before(c)
	}
	p := c.plan(Scope{Home: settings.Namespace})
	c.available(p, settings.Namespace)
	if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestUndoStillAsked: Spillway is not deleted while a data source asks it, by whatever spelling,
// of whatever type, and whoever has written it.
func TestUndoStillAsked(t *testing.T) {
	const file = "datasources:\n- {name: mine, type: TYPE, url: 'URL'}\n"
	const source = "/api/v1/namespaces/metrics/configmaps/datasources"
	for name, one := range map[string]struct {
		grafana bool
		at      string // the object that somebody writes
		kind    string
		url     string
		asks    bool
	}{
		"by hand":                    {false, source, "prometheus", "http://spillway.metrics.svc:9090", true},
		"without svc":                {true, source, "prometheus", "http://spillway.metrics:9090", true},
		"with the cluster's name":    {true, source, "prometheus", "http://spillway.metrics.svc.cluster.local:9090/", true},
		"with another cluster's":     {true, source, "prometheus", "http://spillway.metrics.svc.example.org.:9090", true},
		"in capitals":                {true, source, "prometheus", "HTTP://SPILLWAY.metrics:9090", true},
		"by its name alone":          {true, source, "prometheus", "http://spillway:9090", true},
		"without http":               {true, source, "prometheus", "spillway.metrics:9090", true},
		"by its address":             {true, source, "prometheus", "http://10.2.0.9:9090", true},
		"of another type":            {false, source, "spillway-datasource", "http://spillway.metrics:9090", true},
		"another object":             {true, "", "prometheus", "http://spillway.metrics:9090", true},
		"another one of Grafana's":   {true, "GrafanaDatasource", "loki", "http://spillway.metrics:9090", true},
		"what cannot be read":        {true, source, "prometheus", "http://spillway.metrics'", true},
		"its name elsewhere":         {true, "other", "prometheus", "http://spillway:9090", false},
		"another namespace's":        {true, source, "prometheus", "http://spillway.metrics-2:9090", false},
		"the servers, by their name": {true, source, "prometheus", "http://prom.metrics:9090", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := applied(t, Settings{Namespace: "metrics", Image: "x:1", Grafana: one.grafana}, nil)
			c.change("/api/v1/namespaces/metrics/services/spillway", func(o object) { o.set("10.2.0.9", "spec", "clusterIP") })
			text := strings.NewReplacer("TYPE", one.kind, "URL", one.url).Replace(file)
			switch one.at {
			case source:
				c.change(source, func(o object) { o.set(text, "data", "all.yaml") })
			case "GrafanaDatasource":
				o := object{"apiVersion": "grafana.integreatly.org/v1beta1", "kind": one.at}
				o.set("mine", "metadata", "name")
				o.set("metrics", "metadata", "namespace")
				o.set(map[string]any{"name": "mine", "type": one.kind, "url": one.url}, "spec", "datasource")
				c.put(o)
			default:
				o := object{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a.yaml": text}}
				o.set("mine", "metadata", "name")
				o.set("dashboards"+one.at, "metadata", "namespace")
				o.set("1", "metadata", "labels", "grafana_datasource")
				c.put(o)
			}
			_, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
			there := c.objects[deployed] != nil
			if there != one.asks || one.asks != (err != nil) {
				t.Errorf("Spillway is there: %t; %v", there, err)
			}
			if one.asks && !strings.Contains(err.Error(), "Spillway, which therefore stays") {
				t.Errorf("it says %v", err)
			}
			if !one.asks {
				return
			}
			if _, err := c.Undo(t.Context(), Scope{Home: "metrics"}, true, quiet); err != nil || c.objects[deployed] != nil {
				t.Errorf("even if asked, Spillway is there: %v", err)
			}
		})
	}
}

// TestUndoBlind: where nobody can see whether a data source asks Spillway, it stays, unless that is
// not to be waited for.
func TestUndoBlind(t *testing.T) {
	c := applied(t, Settings{Namespace: "metrics", Image: "x:1", Grafana: true}, nil)
	known := c.refuse
	c.refuse = func(r *http.Request) (int, string) {
		if r.URL.Path == "/api/v1/configmaps" {
			return http.StatusForbidden, "no"
		}
		return known(r)
	}
	_, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
	if err == nil || !strings.Contains(err.Error(), "cannot be seen, and it stays") || c.objects[deployed] == nil {
		t.Errorf("undone: %v", err)
	}
	one := Scope{Home: "metrics", Namespaces: []string{"metrics"}}
	if _, err := c.Undo(t.Context(), one, false, quiet); err != nil || c.objects[deployed] != nil {
		t.Errorf("in one namespace: %v", err)
	}
}
