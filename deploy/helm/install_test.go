package helm

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/proxy/config"
)

var block = regexp.MustCompile("(?ms)^```yaml\n# ([a-z-]+\\.yaml)\n(.*?)^```")

// TestPages holds each YAML text of the pages about installing to what reads it. Its first line
// says which file it is.
func TestPages(t *testing.T) {
	seen := map[string]int{}
	for _, page := range []string{"../../docs/install.md", "../../docs/first-hour.md", "../../docs/uninstall.md", dir + "/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all := block.FindAllStringSubmatch(string(text), -1)
		if n := strings.Count(string(text), "```yaml"); n != len(all) {
			t.Errorf("%s: %d of %d texts say which file they are", page, len(all), n)
		}
		for _, m := range all {
			file, text := m[1], m[2]
			seen[file]++
			var v map[string]any
			if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
				t.Errorf("%s: %s: %v", page, file, err)
				continue
			}
			switch file {
			case "values.yaml":
				all, err := render(v)
				if err != nil {
					t.Errorf("%s: %v\n%s", page, err, text)
					continue
				}
				check(t, all)
			case "spillway.yaml":
				if _, err := config.Parse([]byte(text), "."); err != nil {
					t.Errorf("%s: %v\n%s", page, err, text)
				}
			case "kustomization.yaml":
				overlay(t, text)
			case "datasource.yaml":
				likeOurs(t, v)
			case "networkpolicy.yaml":
				opens(t, text)
			case "cilium.yaml": // values, with an object of a kind that is not here
				letsIn(t, text)
			case "kube-prometheus-stack.yaml": // values of a chart that is not here
			default:
				t.Errorf("%s: nobody knows what %s is", page, file)
			}
		}
	}
	want := map[string]int{
		"values.yaml": 6, "spillway.yaml": 2, "kustomization.yaml": 1, "datasource.yaml": 2, "networkpolicy.yaml": 1, "cilium.yaml": 1,
	}
	for file, n := range want {
		if seen[file] != n {
			t.Errorf("%d texts of %s were read, want %d", seen[file], file, n)
		}
	}
}

// opens holds the policy of the way back to what it is for: Grafana and rulers reach the servers
// while Spillway's own policies stand, and when it stands alone.
func opens(t *testing.T, text string) {
	t.Helper()
	all, err := decode(text)
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	policy, ok := all[0].in.(*networkingv1.NetworkPolicy)
	if !ok {
		t.Fatalf("it is %s", all[0].kind())
	}
	beside := policiesOf(t, "operator")
	alone := cluster{policies: []*networkingv1.NetworkPolicy{policy}, namespaces: beside.namespaces}
	beside.policies = append(beside.policies, policy)
	ways := []way{
		{grafana, shardPod, 9090, true},
		{rulerPod, shardPod, 9090, true},
		{otherShard, shardPod, 8080, true},
		{thief, shardPod, 9090, false},
		{stranger, shardPod, 9090, false},
	}
	for _, c := range []cluster{beside, alone} {
		if wrong := c.wrong(ways); len(wrong) > 0 {
			t.Errorf("with %d policies:\n%s", len(c.policies), strings.Join(wrong, "\n"))
		}
	}
}

// overlay holds the page's kustomization to the one that it lies over.
func overlay(t *testing.T, text string) {
	t.Helper()
	var over struct {
		kustomization
		SecretGenerator []struct {
			generator
			Behavior string `json:"behavior"`
		} `json:"secretGenerator"`
		Images []struct {
			image
			NewName string `json:"newName"`
		} `json:"images"`
	}
	// The components are there as comments.
	for _, part := range append(slices.Collect(maps.Values(components)), slices.Collect(maps.Values(optional))...) {
		if !strings.Contains(text, "deploy/kubernetes/"+part) {
			t.Errorf("the page does not name the component %s", part)
		}
	}
	if err := yaml.UnmarshalStrict([]byte(text), &over); err != nil {
		t.Fatal(err)
	}
	var base kustomization
	b, err := os.ReadFile(filepath.Join(plain, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &base); err != nil {
		t.Fatal(err)
	}
	s := over.SecretGenerator[0]
	if s.Behavior != "replace" || s.Name != base.SecretGenerator[0].Name || s.Namespace != base.SecretGenerator[0].Namespace {
		t.Errorf("the overlay replaces %+v, the base makes %+v", s, base.SecretGenerator)
	}
	if !over.GeneratorOptions.DisableNameSuffixHash || over.Images[0].Name != base.Images[0].Name {
		t.Errorf("%+v over %+v", over, base)
	}
}

// likeOurs holds the page's data source to that of deploy/grafana, but for where it asks.
func likeOurs(t *testing.T, page map[string]any) {
	t.Helper()
	b, err := os.ReadFile("../grafana/provisioning/datasources/spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := yaml.Unmarshal(b, &whole); err != nil {
		t.Fatal(err)
	}
	first := func(v map[string]any) map[string]any { return v["datasources"].([]any)[0].(map[string]any) }
	settings := first(whole)["jsonData"].(map[string]any)
	for key, value := range first(page)["jsonData"].(map[string]any) {
		if settings[key] != value {
			t.Errorf("the page has %s: %v, deploy/grafana %v", key, value, settings[key])
		}
	}
}

// TestOperatorValuesArePages: the values beside kube-prometheus-stack and Thanos are those of ci/,
// whose objects and policies are looked at.
func TestOperatorValuesArePages(t *testing.T) {
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(m[2]), &v); err != nil {
			t.Fatal(err)
		}
		b, err := yaml.Marshal(v["config"])
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, string(b))
	}
	for _, ci := range []string{"operator", "thanos"} {
		b, err := yaml.Marshal(valuesOf(t, ciFiles(t)[ci])["config"])
		if err != nil {
			t.Fatal(err)
		}
		if !contains(pages, string(b)) {
			t.Errorf("docs/install.md has not the config of ci/%s-values.yaml:\n%s", ci, b)
		}
	}
}

// TestRulerValues: the ruler's own Spillway has the configuration of deploy/ruler, the address that
// deploy/ruler/kubernetes.yaml asks, and memory for its budget.
func TestRulerValues(t *testing.T) {
	b, err := os.ReadFile("../ruler/spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := yaml.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	values := valuesOf(t, ciFiles(t)["ruler"])
	if got := values["config"]; !reflect.DeepEqual(got, want) {
		t.Errorf("config is not deploy/ruler/spillway.yaml:\n%v\n%v", got, want)
	}
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	s := find[*corev1.Service](t, all, "spillway-rules")
	query, err := ruler.File("query.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := fmt.Sprintf("'%s.%s.svc:%d'", s.Name, s.Namespace, s.Spec.Ports[0].Port)
	if !strings.Contains(query, asked) {
		t.Errorf("the ruler does not ask %s", asked)
	}
	c, err := config.Parse(b, ".")
	if err != nil {
		t.Fatal(err)
	}
	limit := deployment(all).Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if need := 2*int64(c.Memory.Budget) + 256<<20; need > limit/10*9 {
		t.Errorf("the budget needs %d, nine tenths of the limit are %d", need, limit/10*9)
	}
}

// TestUnit: systemd takes the unit, and the program its arguments.
func TestUnit(t *testing.T) {
	b, err := os.ReadFile("../systemd/spillway.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(string(b))
	if m == nil {
		t.Fatal("it starts nothing")
	}
	if err := programTakes(strings.Fields(m[2])); err != nil {
		t.Error(err)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("what follows needs systemd-analyze, which this machine does not have")
	}
	// The program has to be there: here it is the one that asks.
	unit := filepath.Join(t.TempDir(), "spillway.service")
	if err := os.WriteFile(unit, []byte(strings.Replace(string(b), m[1], analyze, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "spillway") {
		t.Errorf("%v\n%s", err, out) // of other units of the machine it may say something too
	}
}
