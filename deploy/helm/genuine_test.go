package helm

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/realkube"
)

var (
	genuine      = flag.Bool("genuine", false, "ask a genuine API server too (./tools/build.sh kubernetes helm)")
	genuineFiles = flag.Int("genuine.values", 1000, "how many files of random values it is asked about")
)

// judge is a genuine API server whose namespaces enforce the restricted Pod Security Standard.
type judge struct {
	*realkube.Cluster
	t   *testing.T
	ctx context.Context
	// objects and pods are how many it has taken.
	objects, pods int
}

// make creates what may be there already.
func (j *judge) make(apiVersion, object string) {
	j.t.Helper()
	var said *realkube.StatusError
	if err := j.Create(j.ctx, apiVersion, object); err != nil && (!errors.As(err, &said) || said.Code != http.StatusConflict) {
		j.t.Fatal(err)
	}
}

// structural is a type as the schema of a CustomResourceDefinition: what it has not is unknown
// there.
func structural(t reflect.Type) schema {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString]():
		return schema{"x-kubernetes-int-or-string": true}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.Duration]():
		return anyText
	}
	switch t.Kind() {
	case reflect.Pointer:
		return structural(t.Elem())
	case reflect.Slice:
		return schema{"type": "array", "items": structural(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": structural(t.Elem())}
	case reflect.Struct:
		keys := schema{}
		for i := range t.NumField() {
			f := t.Field(i)
			key, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && (key == "" || strings.Contains(opts, "inline")) {
				maps.Copy(keys, structural(f.Type)["properties"].(schema))
			} else if key != "" && key != "-" {
				keys[key] = structural(f.Type)
			}
		}
		return schema{"type": "object", "properties": keys}
	case reflect.String:
		return anyText
	case reflect.Bool:
		return yesOrNo
	}
	return schema{"type": "integer"}
}

// define makes the kinds that are no part of Kubernetes: the operator's by its Go types, the
// Gateway API's as its module has it.
func (j *judge) define() {
	j.t.Helper()
	for kind, of := range map[string]reflect.Type{
		"ServiceMonitor": reflect.TypeFor[monitoringv1.ServiceMonitorSpec](),
		"PrometheusRule": reflect.TypeFor[monitoringv1.PrometheusRuleSpec](),
	} {
		plural := strings.ToLower(kind) + "s"
		b, err := json.Marshal(schema{
			"kind": "CustomResourceDefinition", "metadata": schema{"name": plural + ".monitoring.coreos.com"},
			"spec": schema{
				"group": "monitoring.coreos.com", "scope": "Namespaced",
				"names": schema{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"},
				"versions": []any{schema{"name": "v1", "served": true, "storage": true, "schema": schema{"openAPIV3Schema": schema{
					"type": "object", "properties": schema{"spec": structural(of)},
				}}}},
			},
		})
		if err != nil {
			j.t.Fatal(err)
		}
		j.make("apiextensions.k8s.io/v1", string(b))
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		j.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"))
	if err != nil {
		j.t.Fatal(err)
	}
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		j.t.Fatal(err)
	}
	j.make("apiextensions.k8s.io/v1", string(b))
	for _, path := range []string{
		"/apis/monitoring.coreos.com/v1/servicemonitors", "/apis/monitoring.coreos.com/v1/prometheusrules",
		"/apis/gateway.networking.k8s.io/v1/httproutes",
	} {
		for served := false; !served; {
			_, err := j.Do(j.ctx, realkube.AdminToken, http.MethodGet, path, nil)
			if served = err == nil; !served && j.ctx.Err() != nil {
				j.t.Fatal(err)
			}
		}
	}
}

// takes asks whether the API server would take every object, and the pod that a Deployment would
// make: of a Deployment the standard only warns.
func (j *judge) takes(all []object) error {
	var errs []error
	ask := func(apiVersion string, o map[string]any) {
		meta := o["metadata"].(map[string]any)
		if kind := fmt.Sprint(o["kind"]); meta["namespace"] == nil && !strings.HasPrefix(kind, "Cluster") {
			meta["namespace"] = "monitoring" // as Helm does
		}
		b, err := json.Marshal(o)
		if err != nil {
			j.t.Fatal(err)
		}
		if err := j.DryRun(j.ctx, apiVersion, string(b)); err != nil {
			errs = append(errs, fmt.Errorf("%v %v: %w", o["kind"], meta["name"], err))
		}
	}
	for _, o := range all {
		var m map[string]any
		if err := yaml.Unmarshal([]byte(o.text), &m); err != nil {
			j.t.Fatal(err)
		}
		j.objects++
		ask(fmt.Sprint(m["apiVersion"]), m)
		d, ok := o.in.(*appsv1.Deployment)
		if !ok {
			continue
		}
		j.pods++
		j.account(d.Spec.Template.Spec.ServiceAccountName, func() { ask("v1", podOf(j.t, d)) })
	}
	return errors.Join(errs...)
}

// account has a service account there for a while: without it no pod is taken.
func (j *judge) account(name string, during func()) {
	j.t.Helper()
	j.make("v1", fmt.Sprintf(`{"kind":"ServiceAccount","metadata":{"name":%q,"namespace":"monitoring"}}`, name))
	during()
	if err := j.Delete(j.ctx, "/api/v1/namespaces/monitoring/serviceaccounts/"+name); err != nil {
		j.t.Fatal(err)
	}
}

// podOf is the pod that a Deployment would make.
func podOf(t *testing.T, d *appsv1.Deployment) map[string]any {
	t.Helper()
	pod := corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: d.Spec.Template.Spec}
	pod.Name, pod.Namespace, pod.Kind = "one", d.Namespace, "Pod"
	b, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	delete(m, "status")
	return m
}

// startJudge starts a genuine API server that ends with the test.
func startJudge(t *testing.T) *judge {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // t's own has ended before Cleanup
	t.Cleanup(cancel)
	cluster, err := realkube.Start(ctx, realkube.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &judge{Cluster: cluster, t: t, ctx: ctx}
}

// TestGenuine: a genuine API server, with Pod Security and field validation, would take every
// object of every file of values in spillway/ci, of deploy/kubernetes and of random ones.
func TestGenuine(t *testing.T) {
	if !*genuine {
		t.Skip("a real API server that takes minutes to build: make test-full runs it, by -genuine")
	}
	j := startJudge(t)
	for _, ns := range []string{"monitoring", "shards-a", "shards-b", "grafana"} {
		j.make("v1", fmt.Sprintf(`{"kind":"Namespace","metadata":{"name":%q,"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`, ns))
	}
	j.make("scheduling.k8s.io/v1", `{"kind":"PriorityClass","metadata":{"name":"monitoring"},"value":1000}`)
	j.define()
	j.sees()
	for name, file := range ciFiles(t) {
		all, err := render(valuesOf(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := j.takes(all); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var yamls []object
	for name, text := range plainFiles(t) {
		if filepath.Base(name) == "kustomization.yaml" || name == "spillway.yaml" || filepath.Dir(name) == pluginFolder {
			continue // the last is a patch of a Deployment that somebody else wrote; TestGenuineInstallPage applies it to one
		}
		some, err := decode(string(text))
		if err != nil {
			t.Fatal(err)
		}
		yamls = append(yamls, some...)
	}
	if err := j.takes(yamls); err != nil {
		t.Errorf("deploy/kubernetes: %v", err)
	}
	fixed := j.objects
	refused := j.random()
	t.Logf("%d objects of ci and deploy/kubernetes, %d of %d files of random values (%d refused by name); %d pods in a restricted namespace",
		fixed, j.objects-fixed, *genuineFiles, refused, j.pods)
}

// random asks about files of random values, every second one spoiled in one place. It gives how
// many of them the chart refused.
func (j *judge) random() (refused int) {
	t := j.t
	t.Helper()
	seed, m := randseed.Of(t, *fuzzSeed), newMaker(t)
	for i := range *genuineFiles {
		m.Rand = rand.New(rand.NewPCG(seed, uint64(i)))
		values, path := m.values(), ""
		if i%2 == 1 {
			if path, _ = m.spoil(values); strings.HasPrefix(path, "/extraObjects/") {
				continue
			}
		}
		all, err := renderFast(read(t, values))
		if err != nil && i%2 == 1 {
			refused++ // TestFuzzedValues looks at how
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := j.takes(all); err != nil {
			b, _ := yaml.Marshal(values) // it was written before
			t.Errorf("file %d, spoiled at %q: %v\n%s", i, path, err, b)
		}
	}
	return refused
}

// sees holds the judge itself to seeing what is wrong: a pod that may do too much, a field that no
// type has, a name that is none.
func (j *judge) sees() {
	j.t.Helper()
	for want, breaks := range map[string]func(o map[string]any){
		"violates PodSecurity": func(o map[string]any) {
			o["spec"].(map[string]any)["securityContext"].(map[string]any)["runAsNonRoot"] = false
		},
		"unknown field": func(o map[string]any) { o["spec"].(map[string]any)["restartPolitics"] = "Always" },
		"Invalid value": func(o map[string]any) { o["metadata"].(map[string]any)["name"] = "A_B" },
	} {
		all, err := render(valuesOf(j.t, ciFiles(j.t)["minimal"]))
		if err != nil {
			j.t.Fatal(err)
		}
		pod := podOf(j.t, deployment(all))
		breaks(pod)
		b, err := json.Marshal(pod)
		if err != nil {
			j.t.Fatal(err)
		}
		j.account("spillway", func() {
			if err := j.DryRun(j.ctx, "v1", string(b)); err == nil || !strings.Contains(err.Error(), want) {
				j.t.Errorf("%s: %v", want, err)
			}
		})
	}
	values := valuesOf(j.t, ciFiles(j.t)["gateway"])
	all, err := render(values)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, kind := range []string{"ServiceMonitor", "HTTPRoute"} {
		i := slices.IndexFunc(all, func(o object) bool { return o.kind() == kind })
		var m map[string]any
		if err := yaml.Unmarshal([]byte(all[i].text), &m); err != nil {
			j.t.Fatal(err)
		}
		m["spec"].(map[string]any)["unknownKey"] = "a"
		b, err := json.Marshal(m)
		if err != nil {
			j.t.Fatal(err)
		}
		if err := j.DryRun(j.ctx, fmt.Sprint(m["apiVersion"]), string(b)); err == nil || !strings.Contains(err.Error(), "unknownKey") {
			j.t.Errorf("%s with an unknown field: %v", kind, err)
		}
	}
}
