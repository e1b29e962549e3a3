package helm

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/proxy/config"
)

const plain = "../kubernetes"

const generated = "# Generated from deploy/helm/spillway (go test ./deploy/helm -run Kubernetes -update); change the chart or use an overlay, not this file.\n"

// helms are labels that say that Helm looks after an object.
var helms = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// components are the kinds of objects that not every cluster takes, by the folder in which they
// are.
var components = map[string]string{"ServiceMonitor": "servicemonitor", "NetworkPolicy": "networkpolicy"}

// optional are folders of what the chart has off by default, by the label component of its
// objects.
var optional = map[string]string{"remediator": "remediator"}

// folder is the component in which an object is; empty is none. A ServiceMonitor is where all are:
// one that finds nothing harms nobody.
func folder(o object) string {
	if part := optional[o.meta.GetLabels()["app.kubernetes.io/component"]]; part != "" && o.kind() != "ServiceMonitor" {
		return part
	}
	return components[o.kind()]
}

// kustomization is what is used of kustomize's file.
type kustomization struct {
	APIVersion       string      `json:"apiVersion"`
	Kind             string      `json:"kind"`
	Resources        []string    `json:"resources,omitempty"`
	SecretGenerator  []generator `json:"secretGenerator,omitempty"`
	GeneratorOptions *genOptions `json:"generatorOptions,omitempty"`
	Images           []image     `json:"images,omitempty"`
	Patches          []patch     `json:"patches,omitempty"`
}

type patch struct {
	Path   string      `json:"path"`
	Target patchTarget `json:"target"`
}

type patchTarget struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

type generator struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Files     []string `json:"files"`
}

type genOptions struct {
	DisableNameSuffixHash bool `json:"disableNameSuffixHash"`
}

type image struct {
	Name   string `json:"name"`
	NewTag string `json:"newTag"`
}

// plainFiles are the files of deploy/kubernetes, made of what the chart renders for the operator's
// pods. The mixin's objects are not among them: `spillway mixin render --format k8s` writes these.
func plainFiles(t *testing.T) map[string][]byte {
	t.Helper()
	values := valuesOf(t, ciFiles(t)["operator"])
	values["remediator"] = obj{
		"enabled": true, "cluster": "main", "alertmanager": "http://alertmanager-operated.monitoring.svc:9093",
		"existingSecret": "remediator",
	}
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ours()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	base := kustomization{
		APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization",
		// With the hash of the file in its name, each change of it would start all pods anew.
		SecretGenerator:  []generator{{"spillway", "monitoring", []string{"spillway.yaml"}}},
		GeneratorOptions: &genOptions{true},
		Images:           []image{{"spillwayproject/spillway", c.Metadata.AppVersion}},
	}
	parts := map[string]*kustomization{}
	for _, o := range all {
		switch kind := o.kind(); kind {
		case "Secret":
			text, _ := configOf(all)
			_, text, _ = strings.Cut(text, "\n") // the chart's remark
			out["spillway.yaml"] = []byte("# Which servers are asked: write yours. docs/configuration.md has all keys; a change needs no restart.\n" + text)
		case "PrometheusRule", "ConfigMap":
		default:
			file, k := strings.ToLower(kind)+".yaml", &base
			if part := folder(o); part != "" {
				if parts[part] == nil {
					parts[part] = &kustomization{APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component"}
				}
				k = parts[part]
				file = part + "/" + file
			}
			if out[file] == nil {
				k.Resources = append(k.Resources, filepath.Base(file))
				out[file] = []byte(generated)
			}
			out[file] = fmt.Appendf(out[file], "---\n%s", helms.ReplaceAllString(o.text, ""))
		}
	}
	parts["."] = &base
	grafana, k := grafanaPatch(t, c.Metadata.AppVersion)
	parts[pluginFolder], out[pluginFolder+"/grafana.yaml"] = k, append([]byte(generated), grafana...)
	for folder, k := range parts {
		slices.Sort(k.Resources)
		b, err := yaml.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Join(folder, "kustomization.yaml")] = append([]byte(generated), b...)
	}
	return out
}

// TestKubernetes writes deploy/kubernetes, and holds what is there to be what the chart renders.
func TestKubernetes(t *testing.T) {
	files := plainFiles(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		golden(t, filepath.Join(plain, name), files[name])
	}
	err := filepath.WalkDir(plain, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(plain, path) // below it
		if err == nil && !d.IsDir() && files[rel] == nil && rel != "cost-cronjob.yaml" && rel != "embed.go" {
			t.Errorf("%s is not generated from the chart", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKustomization builds by hand what kustomize would: all files that are named are there and
// are objects, spillway.yaml is the program's, and the Secret that is made of it is the one that
// the pods mount.
func TestKustomization(t *testing.T) {
	var objects []object
	for _, folder := range []string{".", "servicemonitor", "networkpolicy", "remediator"} {
		var k kustomization
		b, err := os.ReadFile(filepath.Join(plain, folder, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(b, &k); err != nil {
			t.Fatal(err)
		}
		for _, name := range k.Resources {
			text, err := os.ReadFile(filepath.Join(plain, folder, name))
			if err != nil {
				t.Fatal(err)
			}
			some, err := decode(string(text))
			if err != nil || len(some) == 0 {
				t.Fatalf("%s: %d objects (%v)", name, len(some), err)
			}
			objects = append(objects, some...)
		}
		for _, g := range k.SecretGenerator {
			text, err := os.ReadFile(filepath.Join(plain, g.Files[0]))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := config.Parse(text, plain); err != nil {
				t.Error(err)
			}
			if d := deployment(objects); d.Spec.Template.Spec.Volumes[0].Secret.SecretName != g.Name || d.Namespace != g.Namespace ||
				!k.GeneratorOptions.DisableNameSuffixHash {
				t.Errorf("the pods do not mount the Secret %s/%s", g.Namespace, g.Name)
			}
		}
		for _, i := range k.Images {
			if got := deployment(objects).Spec.Template.Spec.Containers[0].Image; got != i.Name+":"+i.NewTag {
				t.Errorf("the image is %s, kustomize sets the tag of %s", got, i.Name)
			}
		}
	}
	check(t, objects)
	if b := join(objects); bytes.Contains(b, []byte("Helm")) || bytes.Contains(b, []byte("helm.sh")) {
		t.Error("an object says that Helm looks after it")
	}
}
