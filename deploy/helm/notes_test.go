package helm

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/docstest"
)

// notesOf is what Helm prints when the chart is installed with the values.
func notesOf(t *testing.T, values map[string]any) string {
	t.Helper()
	return templateOf(t, values, "NOTES.txt")
}

// templateOf is what the values make of one template.
func templateOf(t *testing.T, values map[string]any, name string) string {
	t.Helper()
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring"}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return files["spillway/templates/"+name]
}

// TestWhoScrapesTheRemediator: its metrics are on the port of its webhook, so that nobody reaches
// them who is not named; where nobody is, the notes say so, since alerts about it are mute then.
func TestWhoScrapesTheRemediator(t *testing.T) {
	prometheus := app("prometheus", "monitoring", "prometheus")
	of := func(label string) []any {
		return []any{obj{"podSelector": obj{"matchLabels": obj{"app.kubernetes.io/name": label}}}}
	}
	for _, c := range []struct {
		what                 string
		clients, metricsFrom []any
		scraped, warned      bool
	}{
		{"both", of("alertmanager"), of("prometheus"), true, false},
		{"clients alone", of("alertmanager"), []any{}, false, true},
		{"who scrapes alone", []any{}, of("prometheus"), true, false},
		{"neither", []any{}, []any{}, true, true}, // within the namespace
	} {
		values := valuesOf(t, ciFiles(t)["remediator"])
		values["remediator"].(obj)["clients"] = c.clients
		values["networkPolicy"].(obj)["metricsFrom"] = c.metricsFrom
		if got := clusterOf(t, values).reaches(prometheus, janitor, 8080); got != c.scraped {
			t.Errorf("%s: Prometheus reaches the remediator: %v", c.what, got)
		}
		if got := clusterOf(t, values).reaches(stranger, janitor, 8080); got {
			t.Errorf("%s: everybody reaches the webhook", c.what)
		}
		notes := notesOf(t, values)
		if got := strings.Contains(notes, "Prometheus in networkPolicy.metricsFrom"); got != c.warned {
			t.Errorf("%s: the notes tell of it: %v\n%s", c.what, got, notes)
		}
		values["networkPolicy"].(obj)["enabled"] = false
		if strings.Contains(notesOf(t, values), "metricsFrom") {
			t.Errorf("%s: the notes tell of policies that are not there", c.what)
		}
	}
	b, err := os.ReadFile("../../docs/install.md")
	if err != nil || !strings.Contains(string(b), "| Prometheus | remediator | 8080 | scrapes; nobody where none is named") {
		t.Error("docs/install.md does not say that nobody scrapes the remediator unless named", err)
	}
}

// TestWhoComesThroughGateways: an empty `clients` is every pod of the cluster, and nobody else.
// What comes through a gateway may be no pod, for the network: the notes and the page name the
// three that are none, and what lets them in.
func TestWhoComesThroughGateways(t *testing.T) {
	named := []string{"hostNetwork", "outside the cluster", "ipBlock", "Cilium", "CiliumNetworkPolicy", "fromEntities: [ingress"}
	hosts := obj{"enabled": true, "hosts": []any{obj{"host": "q.example", "paths": []any{obj{"path": "/"}}}}}
	for _, c := range []struct {
		what    string
		values  obj
		clients []any
		through string // "" is no warning
	}{
		{"nothing", obj{}, nil, ""},
		{"an Ingress", obj{"ingress": hosts}, nil, "the Ingress"},
		{"an Ingress with clients", obj{"ingress": hosts}, []any{obj{"ipBlock": obj{"cidr": "10.0.0.0/16"}}}, ""},
		{"a route", obj{"httpRoute": obj{"enabled": true, "parentRefs": []any{obj{"name": "g"}}}}, nil, "the HTTPRoute"},
		{"a balancer", obj{"service": obj{"type": "LoadBalancer"}}, nil, "the Service of type LoadBalancer"},
		{"a port of nodes", obj{"service": obj{"type": "NodePort"}, "ingress": hosts}, nil, "the Ingress and the Service of type NodePort"},
	} {
		for _, on := range []bool{true, false} {
			values := valuesOf(t, ciFiles(t)["minimal"])
			for k, v := range c.values {
				values[k] = v
			}
			values["networkPolicy"] = obj{"enabled": on, "clients": c.clients}
			notes := notesOf(t, values)
			_, warning, warned := strings.Cut(notes, "networkPolicy.clients is empty")
			if warned != (on && c.through != "") {
				t.Errorf("%s, policies %v: the notes warn: %v\n%s", c.what, on, warned, notes)
			}
			for _, want := range append(named, c.through) {
				if warned && !strings.Contains(warning, want) {
					t.Errorf("%s: the notes do not name %s:\n%s", c.what, want, notes)
				}
			}
		}
	}
	text := docstest.Section(t, "install.md", "## Close the road around it")
	for _, want := range append(named, "`namespaceSelector: {}`") {
		if !strings.Contains(text, want) {
			t.Errorf("docs/install.md does not name %s", want)
		}
	}
}

// letsIn holds the page's policy of Cilium to the pods that it is for, and to their port.
func letsIn(t *testing.T, text string) {
	t.Helper()
	var p struct {
		metav1.TypeMeta
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			EndpointSelector metav1.LabelSelector `json:"endpointSelector"`
			Ingress          []struct {
				FromEntities []string `json:"fromEntities"`
				ToPorts      []struct {
					Ports []struct{ Port, Protocol string } `json:"ports"`
				} `json:"toPorts"`
			} `json:"ingress"`
		} `json:"spec"`
	}
	var v struct {
		ExtraObjects []json.RawMessage `json:"extraObjects"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil || len(v.ExtraObjects) != 1 {
		t.Fatal(len(v.ExtraObjects), err)
	}
	if err := yaml.UnmarshalStrict(v.ExtraObjects[0], &p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != "cilium.io/v2" || p.Kind != "CiliumNetworkPolicy" || p.Metadata.Namespace != proxyPod.namespace {
		t.Errorf("it is %s %s in %s", p.APIVersion, p.Kind, p.Metadata.Namespace)
	}
	if !selects(&p.Spec.EndpointSelector, proxyPod.labels) || selects(&p.Spec.EndpointSelector, shardPod.labels) ||
		selects(&p.Spec.EndpointSelector, rulesProxy.labels) {
		t.Errorf("it is for pods with %+v", p.Spec.EndpointSelector)
	}
	in := p.Spec.Ingress
	if len(in) != 1 || !slices.Contains(in[0].FromEntities, "ingress") || len(in[0].ToPorts) != 1 || len(in[0].ToPorts[0].Ports) != 1 ||
		in[0].ToPorts[0].Ports[0].Port != "9090" || in[0].ToPorts[0].Ports[0].Protocol != "TCP" {
		t.Errorf("it lets in %+v", in)
	}
}

// TestWhatTheChartSets: with a Secret of somebody's own the chart writes no configuration, so what
// it would have set is printed, as the lines that belong there; and it reckons no target of the
// autoscaler from a budget that it does not know.
func TestWhatTheChartSets(t *testing.T) {
	const says = "belongs into its spillway.yaml"
	values := obj{"existingSecret": "mine", "replicaCount": 2}
	notes := notesOf(t, values)
	for _, want := range []string{says, "memory:\n    budget: ", "limits:\n    read_slots: 4", "state_dir: /var/lib/spillway-state"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if notes := notesOf(t, valuesOf(t, ciFiles(t)["minimal"])); strings.Contains(notes, says) {
		t.Errorf("with config the notes say\n%s", notes)
	}
	values = obj{"existingSecret": "mine", "replicaCount": 1, "state": obj{"enabled": false}, "resources": obj{"limits": nil}}
	if notes := notesOf(t, values); strings.Contains(notes, says) {
		t.Errorf("where it sets nothing the notes say\n%s", notes)
	}
	values = obj{"existingSecret": "mine", "autoscaling": obj{"enabled": true, "targetBudgetUtilizationPercentage": 50}}
	const want = "autoscaling.targetBudgetUtilizationPercentage is a share of memory.budget, which existingSecret has"
	if _, err := render(values); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a share of what is not known: %v", err)
	}
	values["autoscaling"].(obj)["targetBudgetUtilizationPercentage"] = 0
	if _, err := render(values); err != nil {
		t.Error(err)
	}
	values["autoscaling"] = obj{"enabled": false, "targetBudgetUtilizationPercentage": 50}
	if _, err := render(values); err != nil {
		t.Error(err)
	}
}
