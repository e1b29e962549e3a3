package adopt

import (
	"strings"
	"testing"
)

// pointed is the data source of the fleet of StatefulSets, as it is after the plan's change, with
// another URL before; and what is said of it where it stays.
func pointed(t *testing.T, s Scope, address string, with func(c *cluster)) (after, said string) {
	t.Helper()
	c := newCluster(t)
	c.populate(&fleets[2])
	c.change("/api/v1/namespaces/metrics/configmaps/datasources", func(o object) {
		o.set("datasources: [{name: a, type: prometheus, url: \""+address+"\"}]\n", "data", "all.yaml")
	})
	if with != nil {
		with(c)
	}
	changes, remarks := c.plan(s).Grafana("http://spillway.metrics.svc:9090")
	if len(changes) > 0 {
		after = changes[0].After
	}
	return after, strings.Join(remarks, "\n")
}

// TestOnePod: a host that is a pod's is one server, also where several workloads have one Service.
func TestOnePod(t *testing.T) {
	alone := func(pods int) func(c *cluster) {
		return func(c *cluster) {
			delete(c.objects, "/apis/apps/v1/namespaces/metrics/statefulsets/prom-b")
			c.change("/apis/apps/v1/namespaces/metrics/statefulsets/prom-a", func(o object) { o.set(pods, "spec", "replicas") })
			for _, s := range fleets[2].servers[pods:] {
				delete(c.objects, "/api/v1/namespaces/metrics/pods/"+s.name)
				delete(c.objects, "/apis/discovery.k8s.io/v1/namespaces/metrics/endpointslices/prom-"+s.name)
			}
		}
	}
	for name, one := range map[string]struct {
		address string
		with    func(c *cluster)
		changes bool
	}{
		"all of two workloads": {"http://prom.metrics.svc:9090", nil, true},
		"one of two workloads": {"http://prom-a-0.prom.metrics.svc:9090", nil, false},
		"one of a pair":        {"http://prom-a-0.prom.metrics.svc:9090", alone(2), false},
		"the only one":         {"http://prom-a-0.prom.metrics.svc:9090", alone(1), true},
		"none of them":         {"http://prom-b-0.prom.metrics.svc:9090", alone(1), false},
	} {
		after, said := pointed(t, Scope{}, one.address, one.with)
		if changed := after != ""; changed != one.changes || !changed && !strings.Contains(said, "which is not all of these servers and nothing else, and stays") {
			t.Errorf("%s: it becomes %q: %s", name, after, said)
		}
	}
}

// TestPartOfAService: a Service is that of the plan's servers only where it selects no pod of those
// that --only leaves alone; one of their own is, whatever else is beside them.
func TestPartOfAService(t *testing.T) {
	some := Scope{Only: []string{"metrics/prom-a"}}
	gone := func(c *cluster) { // no pod of theirs runs now
		for _, s := range fleets[2].servers[2:] {
			delete(c.objects, "/api/v1/namespaces/metrics/pods/"+s.name)
			delete(c.objects, "/apis/discovery.k8s.io/v1/namespaces/metrics/endpointslices/prom-"+s.name)
		}
	}
	for name, with := range map[string]func(c *cluster){"": nil, "without pods": gone} {
		after, said := pointed(t, some, "http://prom:9090", with)
		if after != "" || !strings.Contains(said, "which is not all of these servers") {
			t.Errorf("%s: part of it becomes %q: %s", name, after, said)
		}
	}
	c := newCluster(t)
	c.populate(&fleets[1])
	other := replicas("cpu", 1, 1, nil, func(int, string) map[string]string { return nil })
	for i, s := range other {
		for _, o := range fleets[1].placed(s, "10.3.0.1", 9090+i)[:1] {
			c.put(o)
		}
	}
	o := object{"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "spec": map[string]any{"replicas": 1}}
	o.set("cpu", "metadata", "name")
	o.set("observe", "metadata", "namespace")
	c.put(o)
	o = object{"apiVersion": "grafana.integreatly.org/v1beta1", "kind": "GrafanaDatasource"}
	o.set("both", "metadata", "name")
	o.set("observe", "metadata", "namespace")
	o.set(map[string]any{"name": "both", "type": "prometheus", "url": "http://prometheus-operated.observe.svc:9090"}, "spec", "datasource")
	c.put(o)
	changes, remarks := c.plan(Scope{Only: []string{"observe/gpu"}}).Grafana("http://spillway.observe.svc:9090")
	if len(changes) != 1 || changes[0].Source.Name != "metrics" {
		t.Errorf("the one of its own is not changed: %q", remarks)
	}
	if said := strings.Join(remarks, "\n"); !strings.Contains(said, "asks prometheus-operated.observe.svc:9090, which is not all of these servers and nothing else") {
		t.Errorf("of that of both it says %s", said)
	}
}
