package helm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/proxy/config"
)

// TestNamespaceAsText: one namespace as a text, as spillway.yaml may have it, is a list of one.
func TestNamespaceAsText(t *testing.T) {
	for _, names := range []any{"shards-a", []any{"shards-a"}} {
		values := valuesOf(t, ciFiles(t)["operator"])
		group := values["config"].(obj)["groups"].([]any)[0].(obj)
		sd := group["shards_from"].(obj)["kubernetes_sd_configs"].([]any)[0].(obj)
		sd["namespaces"] = obj{"names": names}
		all, err := render(values)
		if err != nil {
			t.Errorf("%v: %v", names, err)
			continue
		}
		check(t, all)
		if r := find[*rbacv1.Role](t, all, "monitoring-spillway"); r.Namespace != "shards-a" {
			t.Errorf("%v: the Role is in %s", names, r.Namespace)
		}
	}
}

// TestAutoscalingNeedsARequest: use of cpu is a share of what a pod requests, without which the
// autoscaler never has a number; a limit is a request where none is said.
func TestAutoscalingNeedsARequest(t *testing.T) {
	for _, c := range []struct {
		requests, limits, target any // nil takes the chart's default away
		budget                   int // which needs no request
		refused                  bool
	}{
		{"1", nil, 80, 0, false},
		{nil, "1", 80, 0, false},
		{nil, nil, 0, 50, false},
		{nil, nil, 80, 0, true},
		{0, nil, 80, 0, true},
		{nil, nil, 80, 50, false},
	} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		limits := obj{}
		if c.limits != nil {
			limits["cpu"] = c.limits
		}
		values["resources"] = obj{"requests": obj{"cpu": c.requests}, "limits": limits}
		values["autoscaling"] = obj{
			"enabled": true, "targetCPUUtilizationPercentage": c.target, "targetBudgetUtilizationPercentage": c.budget,
		}
		_, err := render(values)
		const want = "autoscaling.targetCPUUtilizationPercentage is a share of resources.requests.cpu, which is not set"
		if (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestRouteSaysDefaults: what the API server adds to references of a route is there already, else
// Argo CD sees a difference for ever. What somebody says of a parent stays.
func TestRouteSaysDefaults(t *testing.T) {
	values := valuesOf(t, ciFiles(t)["gateway"])
	values["httpRoute"] = obj{"enabled": true, "parentRefs": []any{obj{"name": "g"}, obj{"name": "s", "group": "", "kind": "Service"}}}
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	spec := find[*gatewayv1.HTTPRoute](t, all, "spillway").Spec
	var said []string
	for _, p := range spec.ParentRefs {
		if p.Group == nil || p.Kind == nil {
			t.Fatalf("the parent %s lacks what is added to it", p.Name)
		}
		said = append(said, string(*p.Group)+"/"+string(*p.Kind))
	}
	if got := strings.Join(said, " "); got != "gateway.networking.k8s.io/Gateway /Service" {
		t.Errorf("the parents are %s", got)
	}
	b := spec.Rules[0].BackendRefs[0]
	if b.Group == nil || *b.Group != "" || b.Kind == nil || *b.Kind != "Service" || b.Weight == nil || *b.Weight != 1 {
		t.Errorf("the backend lacks what is added to it: %+v", b)
	}
}

// TestMostPodsTogether: as many pods as an autoscaler may start make a server hold no more, and
// call it no more, than two with the program's defaults do, as far as one pod is of use: it may
// hold one of the largest queries, and has twelve calls. What config says stays.
func TestMostPodsTogether(t *testing.T) {
	for _, c := range []struct {
		most     int
		off      bool // without the autoscaler
		limits   obj
		budget   string // "" is the program's own
		calls    int
		together int64 // MiB of all pods
	}{
		{6, false, nil, "512MiB", 12, 3072},
		{3, false, nil, "682MiB", 16, 2048},
		{2, false, nil, "", 0, 2048},
		{1, false, nil, "", 0, 1024},
		{6, true, nil, "", 0, 0},
		{6, false, obj{"max_shard_bytes": "256MiB"}, "341MiB", 12, 2048},
		{6, false, obj{"max_shard_bytes": 1 << 20}, "341MiB", 12, 2048},
		{4, false, obj{"max_shard_bytes": "600MiB"}, "600MiB", 12, 2400},
		{6, false, obj{"shard_budget": "1GiB"}, "1GiB", 12, 0},
		{6, false, obj{"replica_calls": 20}, "512MiB", 20, 0},
		{6, false, obj{"read_slots": 16}, "512MiB", 16, 0}, // fewer calls than slots are refused
	} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		if c.limits != nil {
			values["config"].(obj)["limits"] = c.limits
		}
		values["autoscaling"] = obj{"enabled": !c.off, "minReplicas": 1, "maxReplicas": c.most}
		all, err := render(values)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		text := find[*corev1.Secret](t, all, "spillway").StringData["spillway.yaml"]
		cfg, err := config.Parse([]byte(text), "/")
		if err != nil {
			t.Errorf("%+v: %v\n%s", c, err, text)
			continue
		}
		var written struct {
			Limits struct {
				Budget string `json:"shard_budget"`
				Calls  int    `json:"replica_calls"`
			}
		}
		if err := yaml.Unmarshal([]byte(text), &written); err != nil {
			t.Fatal(err)
		}
		if w := written.Limits; w.Budget != c.budget || w.Calls != c.calls {
			t.Errorf("%+v: it writes %+v", c, w)
		}
		got := int64(c.most) * max(cfg.Limits.ShardBudget, cfg.Limits.MaxShardBytes) >> 20
		if c.together > 0 && (got > c.together || got < c.together-int64(c.most)) {
			t.Errorf("%+v: together they may make a server hold %d MiB", c, got)
		}
	}
}
