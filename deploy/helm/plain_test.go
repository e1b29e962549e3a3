package helm

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
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
