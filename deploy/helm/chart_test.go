package helm

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.uber.org/goleak"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	kubeyaml "k8s.io/apimachinery/pkg/util/yaml"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/docstest"
)

var update = flag.Bool("update", false, "write the golden files, the schema, the README and deploy/kubernetes anew")

const dir = "spillway"

// TestMain keeps Helm from saying for each link of the mixin that it follows it.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// ours is the chart, read once.
var ours = sync.OnceValues(func() (*chart.Chart, error) { return loader.LoadDir(dir) })

// types are those that objects are decoded into; what is none of them is an error.
var types = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, autoscalingv2.AddToScheme, networkingv1.AddToScheme,
		rbacv1.AddToScheme, monitoringv1.AddToScheme, gatewayv1.Install,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

// object is one of what the chart rendered: its text, and what that is in the types of Kubernetes.
type object struct {
	text string
	in   runtime.Object
	meta metav1.Object
}

func (o object) kind() string { return o.in.GetObjectKind().GroupVersionKind().Kind }

// render gives the objects that `helm template` would print, decoded strictly, in the order of
// their files.
func render(values map[string]any) ([]object, error) {
	return renderIn("monitoring", "spillway", values)
}

// renderIn is render for a release in a namespace.
func renderIn(namespace, name string, values map[string]any) ([]object, error) {
	c, err := ours()
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	return objectsOf(files)
}

// objectsOf decodes what the engine rendered, without the notes.
func objectsOf(files map[string]string) ([]object, error) {
	var names []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []object
	for _, name := range names {
		some, err := decode(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, files[name])
		}
		out = append(out, some...)
	}
	return out, nil
}

// decode reads documents strictly: a field that the type does not have, or has twice, is an error.
func decode(text string) ([]object, error) {
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, types(), types(), json.SerializerOptions{Yaml: true, Strict: true})
	var out []object
	for r := kubeyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		var any map[string]any
		if err := yaml.Unmarshal(doc, &any); err != nil {
			return nil, err
		} else if len(any) == 0 {
			continue
		}
		in, _, err := strict.Decode(doc, nil, nil)
		if err != nil {
			return nil, err
		}
		meta, ok := in.(metav1.Object)
		if !ok || meta.GetName() == "" {
			return nil, fmt.Errorf("a %T without a name", in)
		}
		out = append(out, object{strings.Trim(string(doc), "\n-") + "\n", in, meta})
	}
}

// valuesOf reads a file of values as Helm does.
func valuesOf(t testing.TB, file string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValuesFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ciFiles are the files of values in spillway/ci, by name without the ending.
func ciFiles(t testing.TB) map[string]string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "ci", "*-values.yaml"))
	if err != nil || len(all) < 6 {
		t.Fatalf("%d files of values (%v)", len(all), err)
	}
	out := map[string]string{}
	for _, f := range all {
		out[strings.TrimSuffix(filepath.Base(f), "-values.yaml")] = f
	}
	return out
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func find[T runtime.Object](t testing.TB, all []object, name string) T {
	t.Helper()
	for _, o := range all {
		if in, ok := o.in.(T); ok && (name == "" || o.meta.GetName() == name) {
			return in
		}
	}
	var none T
	t.Fatalf("no %T %s among %d objects", none, name, len(all))
	return none
}

// golden compares a text with a file, or writes it with -update.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is rendered now: go test ./deploy/helm -update, and review it\n%s", file, firstDifference(string(want), string(got)))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n- %s\n+ %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, now %d", len(w), len(g))
}

// join writes objects as one file. What comes from alerts/ and dashboards/ as it is stands there
// by its name only.
func join(all []object) []byte {
	var b bytes.Buffer
	for _, o := range all {
		text := o.text
		if o.kind() == "PrometheusRule" || o.kind() == "ConfigMap" && strings.Contains(o.meta.GetName(), "-dashboard-") {
			head, _, _ := strings.Cut(text, "\nspec:")
			text, _, _ = strings.Cut(head, "\ndata:")
			text += "\n"
		}
		fmt.Fprintf(&b, "---\n%s", text)
	}
	return b.Bytes()
}

// TestGolden renders each file of values in spillway/ci.
func TestGolden(t *testing.T) {
	for name, file := range ciFiles(t) {
		t.Run(name, func(t *testing.T) {
			all, err := render(valuesOf(t, file))
			if err != nil {
				t.Fatal(err)
			}
			check(t, all)
			golden(t, filepath.Join("testdata", "golden", name+".yaml"), join(all))
		})
	}
}

// TestLint: Helm's own lint has nothing to say, not even a remark.
func TestLint(t *testing.T) {
	for name, file := range ciFiles(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.All(dir, valuesOf(t, file), "monitoring", true).Messages {
				if m.Severity > support.UnknownSev {
					t.Errorf("%s", m)
				}
			}
		})
	}
}

// TestNothingSet: who sets nothing, or two things that exclude each other, is told which value.
func TestNothingSet(t *testing.T) {
	group := map[string]any{"groups": []any{map[string]any{
		"name": "a", "labels": map[string]any{}, "shards": []any{map[string]any{"replicas": []any{map[string]any{"url": "http://a:1"}}}},
	}}}
	for _, c := range []struct {
		values map[string]any
		want   string
	}{
		{nil, "set config.groups: the servers that Spillway asks, or existingSecret"},
		{map[string]any{"config": group, "existingSecret": "a"}, "existingSecret and config are both set"},
		{map[string]any{"config": group, "admin": map[string]any{"exposed": true}}, "admin.exposed needs web.existingSecret"},
		{map[string]any{"config": group, "web": map[string]any{"tls": true}}, "web.tls and web.clientCertificates say what web.existingSecret holds"},
		{
			map[string]any{"config": group, "resources": map[string]any{"limits": map[string]any{"memory": "256Mi"}}},
			"resources.limits.memory is 256Mi",
		},
		{
			map[string]any{"config": map[string]any{"groups": group["groups"], "memory": map[string]any{"budget": "3GB"}}},
			"config.memory.budget is more than resources.limits.memory (2Gi)",
		},
		{
			map[string]any{"config": group, "resources": map[string]any{"requests": map[string]any{"memory": "3Gi"}}},
			"resources.requests.memory (3Gi) is above resources.limits.memory (2Gi)",
		},
		{
			map[string]any{"config": group, "resources": map[string]any{"limits": map[string]any{"cpu": "0.4"}}},
			"resources.requests.cpu (500m) is above resources.limits.cpu (0.4)",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1", "act": true,
			}},
			"remediator.act needs remediator.existingSecret",
		},
		{
			map[string]any{"config": group, "nameOverride": "remediator", "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1",
			}},
			"the Service of the proxy would find the remediator's pod",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1", "serviceAccount": map[string]any{"name": "spillway"},
			}},
			"remediator.serviceAccount.name is the account of the proxy",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1", "serviceAccount": map[string]any{"create": false},
			}},
			"remediator.serviceAccount.name must be set where create is false",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1",
				"resources": map[string]any{"requests": map[string]any{"memory": "512Mi"}},
			}},
			"remediator.resources.requests.memory (512Mi) is above remediator.resources.limits.memory (256Mi)",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1", "fleetAlerts": nil,
			}},
			"fleetAlerts",
		},
		{
			map[string]any{"config": group, "remediator": map[string]any{
				"enabled": true, "cluster": "a", "alertmanager": "http://a:1", "fleetAlerts": "Fleet(.+",
			}},
			"remediator.fleetAlerts: Fleet(.+ is no regular expression",
		},
		{
			map[string]any{"config": group, "autoscaling": map[string]any{"enabled": true, "minReplicas": 9}},
			"autoscaling.minReplicas (9) is above",
		},
		{
			map[string]any{"config": group, "autoscaling": map[string]any{"enabled": true, "targetCPUUtilizationPercentage": 0}},
			"autoscaling.enabled needs one of",
		},
		{
			map[string]any{"config": group, "mixin": map[string]any{"rules": map[string]any{
				"enabled": true, "files": []any{"shard/none.yaml"},
			}}},
			"mixin.rules.files: there is no shard/none.yaml",
		},
	} {
		if _, err := render(c.values); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.values, err, c.want)
		}
	}
}

// TestRolesOfReleases: what is the cluster's, and not a namespace's, has a name of its own in each
// release, however long their names are, and one that stays what it was where it is short. Where
// the namespace and the name of two come to the same text, the chart's README says so.
func TestRolesOfReleases(t *testing.T) {
	values := valuesOf(t, ciFiles(t)["remediator"])
	long := strings.Repeat("a", 51)
	names, last := map[string]bool{}, ""
	releases := [][2]string{
		{"monitoring", "spillway"},
		{long + "-one", "spillway"},
		{long + "-two", "spillway"},
		{"b", long},
		{"b", long + "b"},
		{"team", "a-spillway"},
	}
	for _, r := range append(releases, [2]string{"team-a", "spillway"}) {
		all, err := renderIn(r[0], r[1], values)
		if err != nil {
			t.Fatal(err)
		}
		check(t, all)
		for _, o := range all {
			if o.kind() == "ClusterRole" {
				last = o.meta.GetName()
				names[last] = true
			}
		}
	}
	if len(names) != len(releases) || !names["monitoring-spillway-remediator"] {
		t.Errorf("the releases have the roles %v", names)
	}
	readme, err := os.ReadFile("spillway/README.md")
	if err != nil || last != "team-a-spillway-remediator" ||
		!strings.Contains(string(readme), "a release `a-spillway` in `team` and a release `spillway` in `team-a` have one name") {
		t.Errorf("%v: the README does not say of which two releases the role is %s", err, last)
	}
}

// TestOlderImage: what docs/upgrade.md says of a chart that is newer than its image: each flag that
// an image may not know is named, with the value that leaves it away where there is one.
func TestOlderImage(t *testing.T) {
	text := docstest.Section(t, "upgrade.md", "## In which order")
	for _, want := range []string{
		"`--web.ready-wait`", "`--web.shutdown-delay`", "`--watchdog`", "unknown long flag", "`readyWaitSeconds: 0`",
		"`shutdownDelaySeconds: 0`", "`image.digest`", "`--leaving-taints`", "`remediator.leavingTaints: null`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
	for delay, want := range map[int]bool{0: false, 10: true} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["shutdownDelaySeconds"], values["readyWaitSeconds"] = delay, delay
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		args := find[*appsv1.Deployment](t, all, "spillway").Spec.Template.Spec.Containers[0].Args
		for _, flag := range []string{"--web.shutdown-delay=10s", "--web.ready-wait=10s"} {
			name, _, _ := strings.Cut(flag, "=")
			got := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, name) })
			if got != want || slices.Contains(args, flag) != want {
				t.Errorf("%d seconds: the flags are %q", delay, args)
			}
		}
	}
	for without, want := range map[bool]bool{true: false, false: true} {
		values := valuesOf(t, ciFiles(t)["remediator"])
		if without {
			values["remediator"].(map[string]any)["leavingTaints"] = nil
		}
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		args := find[*appsv1.Deployment](t, all, "spillway-remediator").Spec.Template.Spec.Containers[0].Args
		if got := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--leaving-taints") }); got != want {
			t.Errorf("null %v: the flags are %q", without, args)
		}
	}
	if err := programTakes([]string{"proxy", "--config.file=a", "--web.of-tomorrow=1s"}); err == nil ||
		!strings.Contains(err.Error(), "unknown long flag '--web.of-tomorrow'") {
		t.Errorf("what the log of such a pod has: %v", err)
	}
}
