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
