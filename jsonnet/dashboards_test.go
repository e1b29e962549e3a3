package mixin

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/dashboards"
)

// The facts about panels are those of the panels that there are.
func TestPanels(t *testing.T) {
	facts, err := Panels()
	if err != nil {
		t.Fatal(err)
	}
	if len(facts) != len(dashboards.Names()) {
		t.Errorf("facts about %d dashboards, and there are %v", len(facts), dashboards.Names())
	}
	for _, name := range dashboards.Names() {
		d, err := dashboards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		panels := 0
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			panels++
			f, ok := facts[name][p.Title]
			if !ok {
				t.Errorf("%s: nothing is known about panel %q", name, p.Title)
			}
			if f.Quiet != "" && p.Quiet() != strings.TrimSuffix(f.Quiet, ".") {
				t.Errorf("%s: panel %q is quiet for %q, and its description says %q", name, p.Title, f.Quiet, p.Quiet())
			}
		}
		if panels != len(facts[name]) {
			t.Errorf("%s has %d panels, and there are facts about %d", name, panels, len(facts[name]))
		}
	}
}

// In Kubernetes each dashboard is a ConfigMap for Grafana's sidecar and an object of
// grafana-operator that names it.
func TestDashboardObjects(t *testing.T) {
	objects, err := Render(Options{Format: FormatK8s})
	if err != nil {
		t.Fatal(err)
	}
	plain := rendering(t, "")
	for _, name := range dashboards.Names() {
		var cm struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct {
				Name, Namespace     string
				Labels, Annotations map[string]string
			}
			Data map[string]string
		}
		if err := yaml.Unmarshal(objects["dashboards/"+name+".yaml"], &cm); err != nil {
			t.Fatal(err)
		}
		if cm.APIVersion != "v1" || cm.Kind != "ConfigMap" || cm.Metadata.Labels["grafana_dashboard"] != "1" ||
			cm.Metadata.Annotations["grafana_folder"] != "Spillway" {
			t.Errorf("%s: %s %s %+v", name, cm.APIVersion, cm.Kind, cm.Metadata)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(cm.Data[name+".json"]), &a),
			json.Unmarshal(plain["dashboards/"+name+".json"], &b)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the ConfigMap's dashboard is not the file's", name)
		}
		// All annotations of an object have 256 KiB, and kubectl apply keeps the whole object in
		// one of them, as JSON with the dashboard's own quotation marks escaped.
		var whole any
		if err := yaml.Unmarshal([]byte(objects["dashboards/"+name+".yaml"]), &whole); err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(kept); n > 252<<10 {
			t.Errorf("%s: of the ConfigMap kubectl apply would keep %d bytes, too much for an annotation beside others", name, n)
		}
		var gd struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Namespace string }
			Spec       struct {
				Folder           string
				InstanceSelector struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				} `yaml:"instanceSelector"`
				ConfigMapRef struct{ Name, Key string } `yaml:"configMapRef"`
			}
		}
		if err := yaml.Unmarshal(objects["grafanadashboards/"+name+".yaml"], &gd); err != nil {
			t.Fatal(err)
		}
		if gd.APIVersion != "grafana.integreatly.org/v1beta1" || gd.Kind != "GrafanaDashboard" || gd.Spec.Folder != "Spillway" ||
			len(gd.Spec.InstanceSelector.MatchLabels) == 0 {
			t.Errorf("%s: %+v", name, gd)
		}
		if ref := gd.Spec.ConfigMapRef; ref.Name != cm.Metadata.Name || ref.Key != name+".json" ||
			gd.Metadata.Namespace != cm.Metadata.Namespace {
			t.Errorf("%s: the object names %+v, the ConfigMap is %s in %s", name, ref, cm.Metadata.Name, cm.Metadata.Namespace)
		}
	}
}
