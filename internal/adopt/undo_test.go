package adopt

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestUndoReadAtStart: a Grafana that reads its file at its start asks Spillway until it is
// restarted: the first Undo puts the file back, and the one after the restart deletes Spillway.
func TestUndoReadAtStart(t *testing.T) {
	const deployed = "/apis/apps/v1/namespaces/monitoring/deployments/spillway"
	const source, record = "/api/v1/namespaces/monitoring/secrets/grafana-datasources", "/api/v1/namespaces/monitoring/secrets/spillway-adopt"
	settings := Settings{Namespace: "monitoring", Image: "x:1", Grafana: true}
	start := func(t *testing.T) (*cluster, map[string]string) {
		c := newCluster(t)
		c.populate(&fleets[0])
		c.put(grafanaPod("a"))
		p := c.plan(Scope{})
		c.available(p, "monitoring")
		before := c.dump()
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		return c, before
	}
	undo := func(c *cluster, evenIfAsked bool) error {
		_, err := c.Undo(t.Context(), Scope{Home: "monitoring"}, evenIfAsked, quiet)
		return err
	}
	// of changes what the record says of how a source is read.
	of := func(says string) func(c *cluster) {
		return func(c *cluster) {
			c.change(record, func(o object) {
				text, err := base64.StdEncoding.DecodeString(o.text("data", "record.json"))
				if err != nil {
					t.Fatal(err)
				}
				text = bytes.ReplaceAll(text, []byte(`"at_start":true,`), []byte(says))
				o.set(base64.StdEncoding.EncodeToString(text), "data", "record.json")
			})
		}
	}
	for name, before := range map[string]func(c *cluster){
		"":              func(*cluster) {},
		"an old record": of(""), // of a version that did not say so
		"it was told when Spillway was put in between": of(`"at_start":false,`),
	} {
		t.Run("two steps, "+name, func(t *testing.T) {
			c, was := start(t)
			before(c)
			err := undo(c, false)
			const want = "restart it (kubectl -n monitoring rollout restart deployment/grafana), then run --undo again"
			if err == nil || !strings.Contains(err.Error(), want) || c.objects[deployed] == nil {
				t.Fatalf("undone: %v", err)
			}
			if now := c.dump()[source]; now != was[source] {
				t.Errorf("the source is\n%s\nnot\n%s", now, was[source])
			}
			err = undo(c, false)
			if err == nil || !strings.Contains(err.Error(), "grafana-a has not been restarted") || c.objects[deployed] == nil {
				t.Errorf("without a restart: %v", err)
			}
			delete(c.objects, "/api/v1/namespaces/monitoring/pods/grafana-a")
			c.put(grafanaPod("b"))
			if err := undo(c, false); err != nil || c.objects[deployed] != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
	t.Run("a container that is restarted", func(t *testing.T) {
		c, _ := start(t)
		if err := undo(c, false); err == nil {
			t.Fatal("undone")
		}
		c.change("/api/v1/namespaces/monitoring/pods/grafana-a", func(o object) { o.set(grafanaPod("b")["status"], "status") })
		if err := undo(c, false); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
	t.Run("even if asked", func(t *testing.T) {
		c, _ := start(t)
		if err := undo(c, true); err != nil || c.objects[deployed] != nil {
			t.Error(err)
		}
	})
	t.Run("applied again in between", func(t *testing.T) {
		c, _ := start(t)
		if err := undo(c, false); err == nil {
			t.Fatal("undone")
		}
		if err := c.Apply(t.Context(), c.plan(Scope{}), c.reach(), settings, quiet); err != nil {
			t.Fatal(err)
		}
		delete(c.objects, "/api/v1/namespaces/monitoring/pods/grafana-a")
		if err := undo(c, false); err == nil || c.objects[deployed] == nil {
			t.Errorf("it is taken for restarted: %v", err)
		}
	})
	// What a run does not live to write down, the next one would not know: it is written first.
	for name, fails := range map[string]func(r *http.Request) bool{
		"no right on pods":       func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/namespaces/monitoring/pods") },
		"a record that is not":   func(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Path == record },
		"a source that is not":   func(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Path == source },
		"what Grafana mounts is": func(r *http.Request) bool { return r.URL.Path == "/apis/apps/v1/deployments" },
	} {
		t.Run("cut short, "+name, func(t *testing.T) {
			c, was := start(t)
			known := c.refuse
			c.refuse = func(r *http.Request) (int, string) {
				if fails(r) {
					return http.StatusInternalServerError, "gone away"
				}
				if known == nil {
					return 0, ""
				}
				return known(r)
			}
			if err := undo(c, false); err == nil || c.objects[deployed] == nil {
				t.Fatalf("undone: %v", err)
			}
			c.refuse = known
			for range 2 {
				err := undo(c, false)
				if err == nil || !strings.Contains(err.Error(), "then run --undo again") || c.objects[deployed] == nil {
					t.Errorf("once it is possible: %v", err)
				}
			}
			if now := c.dump()[source]; now != was[source] {
				t.Errorf("the source is\n%s\nnot\n%s", now, was[source])
			}
			delete(c.objects, "/api/v1/namespaces/monitoring/pods/grafana-a")
			c.put(grafanaPod("b"))
			if err := undo(c, false); err != nil || c.objects[deployed] != nil {
				t.Errorf("after the restart: %v", err)
			}
		})
	}
	t.Run("never pointed elsewhere", func(t *testing.T) {
		c := newCluster(t)
		c.populate(&fleets[0])
		p := c.plan(Scope{})
		c.refuse = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPatch && r.URL.Path == deployed && r.URL.Query().Get("dryRun") == "" {
				return http.StatusInternalServerError, "etcd has gone away"
			}
			return 0, ""
		}
		if err := c.Apply(t.Context(), p, c.reach(), settings, quiet); err == nil {
			t.Fatal("applied")
		}
		if err := undo(c, false); err != nil {
			t.Error(err)
		}
	})
}

// grafanaPod is a pod of the fixture's Grafana.
func grafanaPod(id string) object {
	o := object{"apiVersion": "v1", "kind": "Pod"}
	o.set("grafana-"+id, "metadata", "name")
	o.set("monitoring", "metadata", "namespace")
	o.set("grafana", "metadata", "labels", "app.kubernetes.io/name")
	o.set([]any{map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0"}}, "spec", "containers")
	o.set([]any{map[string]any{"name": "grafana", "containerID": "containerd://" + id}}, "status", "containerStatuses")
	return o
}

// TestUndoUntoldSidecar: a sidecar that finds data sources and has nobody read them is none that
// tells Grafana of a change: Spillway stays until that was restarted.
func TestUndoUntoldSidecar(t *testing.T) {
	const deployment, pod = "/apis/apps/v1/namespaces/metrics/deployments/grafana", "/api/v1/namespaces/metrics/pods/grafana-a"
	grafana := map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0"}
	sidecar := func(more ...string) map[string]any {
		env := []any{}
		for _, v := range append([]string{"LABEL=grafana_datasource", "FOLDER=" + provisioning}, more...) {
			name, value, _ := strings.Cut(v, "=")
			env = append(env, map[string]any{"name": name, "value": value})
		}
		return map[string]any{"name": "sc", "image": "quay.io/kiwigrid/k8s-sidecar:1.30.0", "env": env}
	}
	always := func(k map[string]any) map[string]any { k["restartPolicy"] = "Always"; return k }
	mounting := map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0", "volumeMounts": []any{
		map[string]any{"name": "d", "mountPath": provisioning},
	}}
	volumes := []any{map[string]any{"name": "d", "configMap": map[string]any{"name": "datasources"}}}
	const url = "REQ_URL=http://localhost:3000/api/admin/provisioning/datasources/reload"
	for name, one := range map[string]struct {
		inits, containers []any
		twice             bool // --undo is two steps
		again             bool // one that is started again in its pod has read the file
	}{
		"one that tells":               {nil, []any{grafana, sidecar(url)}, false, false},
		"one that looks now and then":  {nil, []any{grafana, sidecar(url, "METHOD=SLEEP", "SLEEP_TIME=0")}, false, false},
		"skipReload":                   {nil, []any{grafana, sidecar()}, true, true},
		"an empty URL":                 {nil, []any{grafana, sidecar("REQ_URL=")}, true, true},
		"one that lists once":          {nil, []any{grafana, sidecar(url, "METHOD=LIST")}, true, true},
		"an init container":            {[]any{sidecar(url)}, []any{grafana}, true, false},
		"an init container, native":    {[]any{always(sidecar(url))}, []any{grafana}, false, false},
		"an init container, and one":   {[]any{sidecar("METHOD=LIST")}, []any{grafana, sidecar(url)}, false, false},
		"one of other objects":         {nil, []any{grafana, sidecar(), sidecar(url, "NAMESPACE=other")}, true, true},
		"one that tells, and a volume": {nil, []any{mounting, sidecar(url)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := applied(t, Settings{Namespace: "metrics", Image: "x:1", Grafana: true}, func(c *cluster) {
				c.change(deployment, func(o object) {
					o.set(one.inits, "spec", "template", "spec", "initContainers")
					o.set(one.containers, "spec", "template", "spec", "containers")
					o.set(volumes, "spec", "template", "spec", "volumes")
				})
				p := grafanaPod("a")
				p.set("metrics", "metadata", "namespace")
				p.set(map[string]any{"app": "grafana"}, "metadata", "labels")
				c.put(p)
			})
			for _, s := range c.plan(Scope{}).Found.Sources {
				if s.Sidecar == one.twice {
					t.Errorf("%s file %s: told of a change: %t", s.Ref, s.Key, s.Sidecar)
				}
			}
			c.letGo = 0
			undo := func() error {
				_, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
				return err
			}
			err := undo()
			const want = "restart it (kubectl -n metrics rollout restart deployment/grafana), then run --undo again"
			if !one.twice {
				if err != nil || c.objects[deployed] != nil {
					t.Errorf("not undone: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), want) || c.objects[deployed] == nil {
				t.Fatalf("undone: %v", err)
			}
			c.change(pod, func(o object) { o.set(grafanaPod("b")["status"], "status") })
			if err := undo(); (err == nil) != one.again {
				t.Errorf("started again in its pod: %v", err)
			}
			delete(c.objects, pod)
			if err := undo(); !one.again && err != nil || c.objects[deployed] != nil {
				t.Errorf("after a restart: %v", err)
			}
		})
	}
}

// TestUndoLetsGo: what has Grafana read a change has a while for it before Spillway is deleted.
func TestUndoLetsGo(t *testing.T) {
	c := applied(t, Settings{Namespace: "metrics", Image: "x:1", Grafana: true}, nil)
	c.letGo = 50 * time.Millisecond
	var told time.Time
	_, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, func(format string, args ...any) {
		switch said := fmt.Sprintf(format, args...); {
		case strings.Contains(said, "for Grafana to be told"):
			told = time.Now()
		case strings.HasPrefix(said, "deleted") && (told.IsZero() || time.Since(told) < c.letGo):
			t.Errorf("%s, and nobody was waited for", said)
		}
	})
	if err != nil || told.IsZero() {
		t.Error(err)
	}
}

// TestUndoAfterHandEdits: the URLs of before are found again whatever somebody writes into the file
// between two Applies, and after them.
func TestUndoAfterHandEdits(t *testing.T) {
	const source = "/api/v1/namespaces/metrics/configmaps/datasources"
	settings := Settings{Namespace: "metrics", Image: "x:1", Grafana: true}
	edit := func(c *cluster, old, with string) {
		c.change(source, func(o object) {
			o.set(strings.ReplaceAll(o.text("data", "all.yaml"), old, with), "data", "all.yaml")
			all, _ := o.at("metadata", "managedFields").([]any) // the field is theirs from now on
			var others []any
			for _, f := range all {
				if f.(map[string]any)["manager"] != Manager {
					others = append(others, f)
				}
			}
			theirs := map[string]any{"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-26T02:00:00Z"}
			o.set(append(others, theirs), "metadata", "managedFields")
		})
	}
	const more = "  - {name: more, type: prometheus, url: \"http://prom:9090\"}\n"
	const pair, second, loki = "http://prom:9090   # the pair", "name: more, type: prometheus, url: \"http://prom:9090\"", "  - {name: Loki"
	for name, one := range map[string]struct {
		between, after func(c *cluster)
		want           []string // stands in the file in the end
		left           int
		asked          bool // one still asks Spillway
	}{
		"another data source": {func(c *cluster) { edit(c, loki, more+loki) }, nil, []string{pair, second}, 0, false},
		"something else":      {func(c *cluster) { edit(c, "15s", "30s") }, nil, []string{pair, "30s"}, 1, false},
		"afterwards":          {nil, func(c *cluster) { edit(c, "15s", "30s") }, []string{pair, "30s"}, 1, false},
		"both, and another spelling": {
			func(c *cluster) { edit(c, loki, more+loki) },
			func(c *cluster) { edit(c, "spillway.metrics.svc:", "spillway.metrics:") },
			[]string{pair, second},
			1, false,
		},
		"another name": {
			nil, func(c *cluster) { edit(c, "name: Prometheus", "name: Other") },
			[]string{"http://spillway.metrics.svc:9090"},
			1, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := applied(t, settings, nil)
			if one.between != nil {
				one.between(c)
				if err := c.Apply(t.Context(), c.plan(Scope{Home: "metrics"}), c.reach(), settings, quiet); err != nil {
					t.Fatal(err)
				}
			}
			if one.after != nil {
				one.after(c)
			}
			left, err := c.Undo(t.Context(), Scope{Home: "metrics"}, false, quiet)
			text := c.objects[source].text("data", "all.yaml")
			for _, want := range one.want {
				if !strings.Contains(text, want) {
					t.Errorf("nothing says %q in\n%s", want, text)
				}
			}
			if len(left) != one.left || (err != nil) != one.asked || (c.objects[deployed] != nil) != one.asked {
				t.Errorf("left %q, %v; Spillway is there: %t", left, err, c.objects[deployed] != nil)
			}
		})
	}
}

// TestUndoBesideAnOperator: an operator that writes the object's status meanwhile keeps nobody from
// getting its fields back; where somebody has written the object itself, that is said.
func TestUndoBesideAnOperator(t *testing.T) {
	const source = "/apis/grafana.integreatly.org/v1beta1/namespaces/observe/grafanadatasources/metrics"
	for subresource, back := range map[string]bool{"status": true, "": false} {
		c := newCluster(t)
		c.populate(&fleets[1])
		written := func(at string) {
			c.change(source, func(o object) {
				all, _ := o.at("metadata", "managedFields").([]any)
				all = slices.DeleteFunc(slices.Clone(all), func(f any) bool { return f.(map[string]any)["manager"] == "operator" })
				theirs := map[string]any{"manager": "operator", "operation": "Update", "time": at}
				if subresource != "" {
					theirs["subresource"] = subresource
				}
				o.set(append(all, theirs), "metadata", "managedFields")
			})
		}
		written("2026-11-26T00:30:00Z")
		p := c.plan(Scope{})
		c.available(p, "observe")
		if err := c.Apply(t.Context(), p, c.reach(), Settings{Namespace: "observe", Image: "x:1", Grafana: true}, quiet); err != nil {
			t.Fatal(err)
		}
		written("2026-11-26T02:00:00Z")
		said := ""
		say := func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" }
		left, err := c.Undo(t.Context(), Scope{Home: "observe"}, false, say)
		if err != nil || len(left) > 0 {
			t.Fatalf("left %q, %v", left, err)
		}
		o := c.objects[source]
		names := ""
		for _, f := range o.at("metadata", "managedFields").([]any) {
			names += object(f.(map[string]any)).text("manager") + " " + object(f.(map[string]any)).text("time") + "\n"
		}
		if want := "helm 2026-11-26T00:00:00Z\noperator 2026-11-26T02:00:00Z\n"; back != (names == want) {
			t.Errorf("%q: its owners are\n%s", subresource, names)
		}
		if told := strings.Contains(said, "who owned its fields before is not given back"); told == back {
			t.Errorf("%q: it says\n%s", subresource, said)
		}
	}
}
