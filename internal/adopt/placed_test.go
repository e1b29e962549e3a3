package adopt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// ordinals are the servers of one StatefulSet, of which each holds the part that is given.
func ordinals(rules string, parts int, held ...int) *fleet {
	f := &fleet{file: "ordinals", namespace: "metrics", services: []string{"prom"}, port: "http", parts: parts, rules: rules}
	for i, part := range held {
		marks, external := map[string]string{"app": "prom"}, map[string]string{"region": "eu"}
		f.servers = append(f.servers, pod{fmt.Sprint("prom-", i), marks, external, part})
	}
	return f
}

// TestScaled: a pod that a StatefulSet of several shards has later is a shard of its own where each
// of its pods is one and no hash is written; elsewhere it is found and has no place, which
// discovery refuses. What was left out goes on being left out.
func TestScaled(t *testing.T) {
	const alone, anew = "a pod that it has later is a shard of its own", "run adopt again when it is scaled"
	for name, one := range map[string]struct {
		fleet *fleet
		with  func(c *cluster)
		// places are pod -> shard, replica and hash; "" is without a place, - is not taken.
		places map[string]string
		says   string
	}{
		"by hash": {ordinals(handRules, 2, 0, 1), nil, map[string]string{
			"prom-0": "prom-0 prom-0 0", "prom-1": "prom-1 prom-1 1", "prom-2": "", "prom-10": "", "prom-x": "-", "xprom-2": "-",
		}, anew},
		"each a shard": {ordinals("", 2, 0, 1), nil, map[string]string{
			"prom-0": "prom-0 prom-0 ", "prom-1": "prom-1 prom-1 ", "prom-2": "prom-2 prom-2 ", "prom-x": "-",
		}, alone},
		"pairs": {ordinals("", 2, 0, 0, 1, 1), nil, map[string]string{
			"prom-0": "prom-0 prom-0 ", "prom-1": "prom-0 prom-1 ", "prom-3": "prom-2 prom-3 ", "prom-4": "",
		}, anew},
		"all replicas": {ordinals("", 2, 0, 0), nil, map[string]string{
			"prom-0": "prom prom-0 ", "prom-2": "prom prom-2 ",
		}, ""},
		"one is left out": {ordinals("", 2, 0, 0, 1), func(c *cluster) {
			c.servers["metrics/prom-2"] = prometheus("", map[string]string{"region": "eu"})
		}, map[string]string{"prom-0": "prom-0 prom-0 ", "prom-1": "prom-0 prom-1 ", "prom-2": "-", "prom-3": ""}, anew},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(one.fleet)
			c.change(collection("apps/v1", "StatefulSet", "metrics")+"/prom", func(o object) {
				o.set(len(one.fleet.servers), "spec", "replicas")
			})
			if one.with != nil {
				one.with(c)
			}
			p := c.plan(Scope{})
			text, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range []string{alone, anew} {
				if strings.Contains(string(text), says) != (says == one.says) {
					t.Errorf("that it says %q is wrong:\n%s", says, text)
				}
			}
			place := placer(t, p)
			for pod, want := range one.places {
				if got := place(pod); got != want {
					t.Errorf("%s is placed at %q, want %q", pod, got, want)
				}
			}
		})
	}
}

// placer says where the file puts a pod: "-" where it is not taken, and nothing where it has no
// place.
func placer(t *testing.T, p *Plan) func(pod string) string {
	cfg, err := p.Config()
	if err != nil {
		t.Fatal(err)
	}
	var rules []*relabel.Config
	for _, r := range cfg.Groups[0].ShardsFrom.Relabel {
		rule, err := r.Rule()
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	return func(pod string) string {
		b := labels.NewBuilder(labels.FromStrings(
			model.AddressLabel, "10.1.0.1:9090", namespace, "metrics", targetName, pod,
			"__meta_kubernetes_endpointslice_port_name", "http", "__meta_kubernetes_endpointslice_port", "9090"))
		switch keep := relabel.ProcessBuilder(b, rules...); {
		case !keep:
			return "-"
		case b.Get("__spillway_shard__") == "":
			return ""
		}
		return b.Get("__spillway_shard__") + " " + b.Get("__spillway_replica__") + " " + b.Get("__spillway_hash__")
	}
}

// TestDualStack: a pod that slices of two families have is the server at its address of IPv4,
// whichever slice comes first, since discovery takes that one.
func TestDualStack(t *testing.T) {
	for _, service := range []string{"a", "z"} { // before and after that of IPv4, by name
		f := &fleets[2]
		c := newCluster(t)
		c.populate(f)
		for i, s := range f.servers {
			for _, o := range f.placed(s, fmt.Sprintf("fd00::%d", i+1), 9090)[1:] {
				o["addressType"] = "IPv6"
				object(o).set(service+"-"+s.name, "metadata", "name")
				c.put(o)
			}
		}
		p := c.plan(Scope{})
		if len(p.Open) > 0 || len(p.Groups) != 1 || len(p.Groups[0].Servers) != len(f.servers) {
			t.Fatalf("left open: %q; the groups are %+v", p.Open, p.Groups)
		}
		for i, s := range p.Groups[0].Servers {
			if want := fmt.Sprintf("10.1.0.%d", i); s.IP != want {
				t.Errorf("slices of IPv6 called %s: %s is at %s, want %s", service, s.Pod, s.IP, want)
			}
		}
	}
}
