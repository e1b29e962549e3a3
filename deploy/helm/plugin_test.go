package helm

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psa "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/docstest"
)

// pluginFolder is the component that puts the plugin into Grafana's pod.
const pluginFolder = "grafana-plugin"

// grafanaValues are values of Grafana's chart, as far as ours says them.
type grafanaValues struct {
	ExtraInitContainers []corev1.Container `json:"extraInitContainers"`
	ExtraEmptyDirMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
	} `json:"extraEmptyDirMounts"`
	Ini struct {
		Plugins struct {
			Unsigned string `json:"allow_loading_unsigned_plugins"`
		} `json:"plugins"`
	} `json:"grafana.ini"`
}

// noted are the values of Grafana's chart that the notes of a release have: the text that stands
// there indented, read strictly.
func noted(t *testing.T, values map[string]any) (grafanaValues, string) {
	t.Helper()
	notes := notesOf(t, values)
	_, text, ok := strings.Cut(notes, "kube-prometheus-stack):\n\n")
	if !ok {
		t.Fatalf("the notes do not have the values:\n%s", notes)
	}
	text, more, _ := strings.Cut(text, "\n\n")
	if variable := "env.GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS"; !strings.Contains(more, variable) {
		t.Errorf("the notes do not say that %s stands above grafana.ini: %s", variable, more)
	}
	text = strings.ReplaceAll("\n"+text, "\n  ", "\n")
	var v grafanaValues
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(v.ExtraInitContainers) != 1 || len(v.ExtraEmptyDirMounts) != 1 {
		t.Fatalf("the notes say %+v", v)
	}
	return v, text
}

// grafanaPatch is the same for a Deployment of Grafana: a patch, and the component that applies it.
func grafanaPatch(t *testing.T, version string) ([]byte, *kustomization) {
	t.Helper()
	values := valuesOf(t, ciFiles(t)["plugin"])
	v, _ := noted(t, values)
	first, mount := v.ExtraInitContainers[0], v.ExtraEmptyDirMounts[0]
	text := func(in any) (out any) {
		b, err := yaml.Marshal(in)
		if err = errors.Join(err, yaml.Unmarshal(b, &out)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	b, err := yaml.Marshal(obj{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{"name": "grafana"},
		"spec": obj{"template": obj{"spec": obj{
			"initContainers": []any{text(first)},
			"containers": []any{obj{
				"name":         "grafana",
				"env":          []any{obj{"name": "GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS", "value": v.Ini.Plugins.Unsigned}},
				"volumeMounts": []any{text(mount)},
			}},
			"volumes": []any{obj{"name": mount.Name, "emptyDir": obj{}}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(first.Image, ":")
	return b, &kustomization{
		APIVersion: "kustomize.config.k8s.io/v1alpha1", Kind: "Component",
		Patches: []patch{{"grafana.yaml", patchTarget{"Deployment", "grafana"}}},
		Images:  []image{{name, version}},
	}
}

// TestPluginPage: the values of Grafana's chart that docs/grafana-plugin.md has are those of the
// notes, for both charts, and their container meets the restricted standard in any pod, writes to
// nothing but the plugins' folder, and runs the image that make image-plugin makes.
func TestPluginPage(t *testing.T) {
	values := valuesOf(t, ciFiles(t)["plugin"])
	values["image"] = obj{"repository": "registry.example.org/spillway", "tag": "0.1.0"}
	v, text := noted(t, values)
	var want map[string]any
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../docs/grafana-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, m := range block.FindAllStringSubmatch(string(b), -1) {
		var v any
		if err := yaml.UnmarshalStrict([]byte(m[2]), &v); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
		found[m[1]] = v
	}
	if !reflect.DeepEqual(found["grafana.yaml"], any(want)) {
		t.Errorf("the page has for Grafana's chart\n%v\nthe notes\n%v", found["grafana.yaml"], want)
	}
	if !reflect.DeepEqual(found["kube-prometheus-stack.yaml"], any(map[string]any{"grafana": want})) {
		t.Errorf("the page has for kube-prometheus-stack\n%v", found["kube-prometheus-stack.yaml"])
	}
	c, mount := v.ExtraInitContainers[0], v.ExtraEmptyDirMounts[0]
	if c.Image != "registry.example.org/spillway-grafana-plugin:0.1.0" || v.Ini.Plugins.Unsigned != "spillway-experiments-datasource" {
		t.Errorf("the image is %s, Grafana may load %s", c.Image, v.Ini.Plugins.Unsigned)
	}
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != mount.Name || c.VolumeMounts[0].MountPath != mount.MountPath ||
		!slices.Equal(c.Args, []string{"--to=" + mount.MountPath}) {
		t.Errorf("%q of %v, Grafana has %v", c.Args, c.VolumeMounts, mount)
	}
	pod := corev1.PodSpec{InitContainers: []corev1.Container{c}}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, r := range standard.EvaluatePod(level, &metav1.ObjectMeta{}, &pod) {
		if !r.Allowed {
			t.Errorf("restricted: %s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
	if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.RunAsUser != nil ||
		c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%+v %+v", s, c.Resources)
	}
}

// foreign is a Deployment of Grafana that somebody else wrote.
const foreign = `apiVersion: apps/v1
kind: Deployment
metadata: {name: grafana, namespace: monitoring, labels: {app: grafana}}
spec:
  replicas: 2
  selector: {matchLabels: {app: grafana}}
  template:
    metadata: {labels: {app: grafana}}
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 472, fsGroup: 472, seccompProfile: {type: RuntimeDefault}}
      initContainers:
        - name: wait
          image: example.org/wait:1
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      containers:
        - name: proxy
          image: example.org/proxy:1
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        - name: grafana
          image: grafana/grafana:13.2.0
          env: [{name: GF_LOG_MODE, value: console}]
          ports: [{containerPort: 3000, name: http}]
          volumeMounts: [{name: storage, mountPath: /var/lib/grafana}]
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumes: [{name: storage, emptyDir: {}}]
`

// TestGenuineComponent: the real kustomize applies the component to Deployments that know nothing
// of it, one of them as kube-prometheus has it, by the page's overlay: the copier's container, its
// volume, Grafana's mount and permission are there, and all else is as it was.
func TestGenuineComponent(t *testing.T) {
	if !*genuine {
		t.Skip("kubectl, which takes minutes to build: make test-full runs it, by -genuine")
	}
	if out, err := exec.Command("../../tools/build.sh", "kubernetes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, manifest := range map[string]string{"by hand": foreign, "kube-prometheus": kubePrometheus(t)} {
		t.Run(name, func(t *testing.T) {
			before, err := decode(manifest)
			if err != nil || len(before) != 1 {
				t.Fatalf("%v: %d objects", err, len(before))
			}
			is, want := parts(kustomized(t, manifest)), parts(withPlugin(t, before[0].in.(*appsv1.Deployment)))
			for _, name := range slices.Sorted(maps.Keys(want)) {
				a, _ := yaml.Marshal(is[name])
				b, _ := yaml.Marshal(want[name]) // they came from YAML
				if string(a) != string(b) {
					t.Errorf("%s is\n%s\nwant\n%s", name, a, b)
				}
			}
			if len(is) != len(want) {
				t.Errorf("%q, want %q", slices.Sorted(maps.Keys(is)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// kubePrometheus is the Deployment of Grafana among the objects of kube-prometheus.
func kubePrometheus(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../internal/adopt/testdata/fleets/kube-prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(b), "\n---") {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &o); err == nil && o.Kind == "Deployment" && o.Name == "grafana" {
			return doc
		}
	}
	t.Fatal("kube-prometheus has no Grafana")
	return ""
}

// kustomized is what kubectl makes of a manifest by the overlay of the page.
func kustomized(t *testing.T, manifest string) *appsv1.Deployment {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	home, overlay := t.TempDir(), ""
	for _, m := range block.FindAllStringSubmatch(docstest.Section(t, "grafana-plugin.md", "## By plain YAML"), -1) {
		overlay = m[2]
	}
	err = errors.Join(os.Mkdir(filepath.Join(home, "spillway"), 0o755), os.Mkdir(filepath.Join(home, "overlay"), 0o755),
		os.Symlink(filepath.Join(root, "deploy"), filepath.Join(home, "spillway/deploy")),
		os.WriteFile(filepath.Join(home, "overlay/grafana.yaml"), []byte(manifest), 0o600),
		os.WriteFile(filepath.Join(home, "overlay/kustomization.yaml"), []byte(overlay), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../../tools/bin/kubectl", "kustomize", filepath.Join(home, "overlay")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	built, err := decode(string(out))
	if err != nil || len(built) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	return built[0].in.(*appsv1.Deployment)
}

// withPlugin is a Deployment with what the notes of a release say.
func withPlugin(t *testing.T, d *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	values := valuesOf(t, ciFiles(t)["plugin"])
	values["image"] = obj{"repository": "registry.example.org/spillway", "tag": "0.1.0"}
	v, _ := noted(t, values)
	spec, mount := &d.Spec.Template.Spec, v.ExtraEmptyDirMounts[0]
	spec.InitContainers = append(spec.InitContainers, v.ExtraInitContainers[0])
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: mount.Name, VolumeSource: empty})
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == "grafana" {
			c.Env = append(c.Env, corev1.EnvVar{Name: "GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS", Value: v.Ini.Plugins.Unsigned})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: mount.Name, MountPath: mount.MountPath})
		}
	}
	return d
}

// parts are a Deployment's, by name, since lists of these have no order that counts.
func parts(d *appsv1.Deployment) map[string]any {
	spec := d.Spec.Template.Spec
	out := map[string]any{}
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		slices.SortFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.MountPath, b.MountPath) })
		out["container "+c.Name] = c
	}
	for _, v := range spec.Volumes {
		out["volume "+v.Name] = v
	}
	spec.InitContainers, spec.Containers, spec.Volumes = nil, nil, nil
	rest := *d
	rest.Spec.Template.Spec = spec
	out["rest"] = rest
	return out
}
