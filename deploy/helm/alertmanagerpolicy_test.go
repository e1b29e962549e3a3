package helm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// alertmanagerPod is one of deploy/alertmanager.
var alertmanagerPod = app("alertmanager-0", "monitoring", "alertmanager")

// toAlertmanager is who may reach it: an alert of severity auto that anybody posts there is a node
// that is drained.
var toAlertmanager = []way{
	{rulerPod, alertmanagerPod, 9093, true},
	{app("ruler", "monitoring", "thanos-ruler"), alertmanagerPod, 9093, true},
	{app("ruler", "monitoring", "vmalert"), alertmanagerPod, 9093, true},
	{app("ruler", "monitoring", "victoria-metrics-alert"), alertmanagerPod, 9093, true},
	{app("ruler", "default", "thanos-ruler"), alertmanagerPod, 9093, false},
	{app("ruler", "default", "vmalert"), alertmanagerPod, 9093, false},
	{app("ruler", "default", "victoria-metrics-alert"), alertmanagerPod, 9093, false},
	{shardPod, alertmanagerPod, 9093, true},
	{janitor, alertmanagerPod, 9093, true},
	{grafana, alertmanagerPod, 9093, true},
	{alertmanagerPod, alertmanagerPod, 9094, true},
	{proxyPod, alertmanagerPod, 9093, false},
	{neighbour, alertmanagerPod, 9093, false},
	{notebook, alertmanagerPod, 9093, false},
	{stranger, alertmanagerPod, 9093, false},
	{thief, alertmanagerPod, 9093, false},
	{bills, alertmanagerPod, 9093, false},
	{app("prometheus", "research", "prometheus"), alertmanagerPod, 9093, false},
	{app("ruler", "default", "ruler"), alertmanagerPod, 9093, false},
	{app("spillway", "default", "remediator"), alertmanagerPod, 9093, false},
	{alertmanagerPod, alertmanagerPod, 9093, false},
	{rulerPod, alertmanagerPod, 9094, false},
	{shardPod, alertmanagerPod, 9094, false},
	{grafana, alertmanagerPod, 9094, false},
	{neighbour, alertmanagerPod, 9094, false},
	{app("alertmanager", "default", "alertmanager"), alertmanagerPod, 9094, false},
	{janitor, alertmanagerPod, 22, false},
}

// alertmanagerPolicy is the policy of deploy/alertmanager, whose pods are those of the StatefulSet
// beside it.
func alertmanagerPolicy(t *testing.T) cluster {
	t.Helper()
	text, err := os.ReadFile("../alertmanager/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{namespaces: map[string]map[string]string{}}
	for _, ns := range []string{"monitoring", "research", "default"} {
		c.namespaces[ns] = map[string]string{"kubernetes.io/metadata.name": ns}
	}
	var pods map[string]string
	for _, doc := range strings.Split(string(text), "\n---\n") {
		switch {
		case strings.Contains(doc, "\nkind: NetworkPolicy\n"):
			p := &networkingv1.NetworkPolicy{}
			if err := yaml.UnmarshalStrict([]byte(doc), p); err != nil {
				t.Fatal(err)
			}
			c.policies = append(c.policies, p)
		case strings.Contains(doc, "\nkind: StatefulSet\n"):
			var s appsv1.StatefulSet
			if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
				t.Fatal(err)
			}
			pods = s.Spec.Template.Labels
		}
	}
	if len(c.policies) != 1 || !selects(&c.policies[0].Spec.PodSelector, pods) {
		t.Fatalf("%d policies for pods with %v", len(c.policies), pods)
	}
	return c
}

// TestWhoReachesAlertmanager: who sends alerts, who asks for them, and nobody else; each other they
// reach over TCP and UDP. Whatever is taken from the policy, or added, somebody reaches too little
// or too much.
func TestWhoReachesAlertmanager(t *testing.T) {
	c := alertmanagerPolicy(t)
	if wrong := c.wrong(toAlertmanager); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
	var mesh []string
	for _, r := range c.policies[0].Spec.Ingress {
		for _, p := range r.Ports {
			if p.Protocol == nil || p.Port == nil {
				t.Errorf("%+v", p)
			} else if p.Port.IntValue() == 9094 {
				mesh = append(mesh, fmt.Sprint(*p.Protocol))
			}
		}
	}
	if !slices.Equal(mesh, []string{"TCP", "UDP"}) {
		t.Errorf("they reach each other by %q", mesh)
	}
	n := 0
	for ; ; n++ {
		c := alertmanagerPolicy(t)
		what := mutate(c, n)
		if what == "" {
			break
		}
		if len(c.wrong(toAlertmanager)) == 0 {
			t.Errorf("%s changes nothing that is looked at", what)
		}
	}
	if n < 10 {
		t.Errorf("only %d mutations", n)
	}
}
