package emit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/config"
)

// patchObject applies a JSON patch of tests and adds, as the API server does (a test of null passes
// where nothing is).
func patchObject(t testing.TB, object any, body []byte) (any, error) {
	t.Helper()
	var ops []struct {
		Op, Path string
		Value    any
	}
	if err := yaml.Unmarshal(body, &ops); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	object = viaJSON(t, object)
	for _, op := range ops {
		parts := strings.Split(strings.TrimPrefix(op.Path, "/"), "/")
		at := object
		for _, p := range parts[:len(parts)-1] {
			if list, ok := at.([]any); ok {
				var i int
				if _, err := fmt.Sscan(p, &i); err != nil || i >= len(list) {
					return nil, fmt.Errorf("%s: no such path", op.Path)
				}
				at = list[i]
				continue
			}
			m, ok := at.(map[string]any)
			if !ok || m[p] == nil {
				return nil, fmt.Errorf("%s: no such path", op.Path)
			}
			at = m[p]
		}
		m, last := at.(map[string]any), parts[len(parts)-1]
		value := viaJSON(t, op.Value)
		switch op.Op {
		case "test":
			if !reflect.DeepEqual(m[last], value) {
				return nil, fmt.Errorf("%s: the test failed", op.Path)
			}
		case "add":
			m[last] = value
		default:
			t.Fatalf("operation %q", op.Op)
		}
	}
	return object, nil
}

func viaJSON(t testing.TB, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func objects(t testing.TB, text string) []*config.Object {
	t.Helper()
	out, err := config.Monitors("monitors.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const monitor = `kind: ServiceMonitor
metadata: {name: kube-apiserver, namespace: monitoring}
spec:
  endpoints:
    - port: https
      metricRelabelings:
        # mine
        - sourceLabels: [__name__]
          regex: "yes" # a string
          action: drop
        - {action: labeldrop, regex: pod}
    - port: other
`

// The second patch replaces what the first one wrote, and leaves the rest; with an empty one before
// it nothing else changed.
func TestMonitorPatches(t *testing.T) {
	o := MonitorOptions{Monitors: map[string]Monitor{"apiserver": {config.ServiceMonitor, "monitoring", "kube-apiserver"}}}
	object := func(text string) any {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	o.Existing = objects(t, monitor)
	p := planOf(dropNames("apiserver", "a_total", "b.c"), dropBuckets("apiserver", "h_bucket", "30.0"), takeLabel("apiserver", "c", "pod"))
	patches, err := Patches(p, o)
	if err != nil || len(patches) != 1 {
		t.Fatal(patches, err)
	}
	once, err := patchObject(t, object(monitor), patches[0].Body)
	if err != nil {
		t.Fatalf("%v\n%s", err, patches[0].Body)
	}
	if _, err := patchObject(t, once, patches[0].Body); err == nil {
		t.Error("a monitor that has changed takes the patch")
	}
	check := func(patched any, own, ours []*promrelabel.Config) []*config.Object {
		t.Helper()
		text, err := yaml.Marshal(patched)
		if err != nil {
			t.Fatal(err)
		}
		got := objects(t, string(text))
		for i, e := range got[0].Endpoints {
			var plain []*promrelabel.Config
			marks := 0
			for _, r := range e.Rules {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				c, _, ok, err := unmark(r.Config)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					marks++
				} else {
					c = r.Config
				}
				plain = append(plain, c)
			}
			want := ours
			if i == 0 {
				want = append(own[:len(own):len(own)], ours...)
			}
			if marks != len(ours) || !equalConfigs(plain, want) {
				t.Errorf("endpoint %d reads %v, want %v", i, plain, want)
			}
		}
		return got
	}
	own := []*promrelabel.Config{cfg(promrelabel.Drop, "yes", "__name__"), cfg(promrelabel.LabelDrop, "pod")}
	var ours []*promrelabel.Config
	for i := range p.Rules {
		ours = append(ours, asked(t, &p.Rules[i])...)
	}
	o.Existing = check(once, own, ours)
	second := planOf(dropNames("apiserver", "other"))
	patches, err = Patches(second, o)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := patchObject(t, once, patches[0].Body)
	if err != nil {
		t.Fatal(err)
	}
	check(twice, own, asked(t, &second.Rules[0]))

	changed := strings.Replace(string(mustYAML(t, twice)), ";other)", ";others)", 1)
	o.Existing = objects(t, changed)
	if _, err := Patches(second, o); err == nil || !strings.Contains(err.Error(), "changed by hand") {
		t.Errorf("a rule of ours that was changed: %v", err)
	}
}

// As TestMergeBehindRulesWrittenLater, for a monitor.
func TestMonitorBehindRulesWrittenLater(t *testing.T) {
	const empty = "kind: ServiceMonitor\nmetadata: {name: m, namespace: n}\nspec: {endpoints: [{port: http}]}\n"
	o := MonitorOptions{Monitors: map[string]Monitor{"a": {config.ServiceMonitor, "n", "m"}}, Existing: objects(t, empty)}
	var object, rename any
	for text, v := range map[string]*any{empty: &object, fmt.Sprintf(renames, "sourceLabels", "targetLabel"): &rename} {
		if err := yaml.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(p *relabel.Plan) (rules []*promrelabel.Config, endpoint map[string]any) {
		t.Helper()
		patches, err := Patches(p, o)
		if err != nil {
			t.Fatal(err)
		}
		if object, err = patchObject(t, object, patches[0].Body); err != nil {
			t.Fatal(err)
		}
		o.Existing = objects(t, string(mustYAML(t, object)))
		for _, r := range o.Existing[0].Endpoints[0].Rules {
			rules = append(rules, r.Config)
		}
		return rules, object.(map[string]any)["spec"].(map[string]any)["endpoints"].([]any)[0].(map[string]any)
	}
	_, endpoint := patch(planOf(dropNames("a", "a_old")))
	endpoint["metricRelabelings"] = append(endpoint["metricRelabelings"].([]any), rename)
	o.Existing = objects(t, string(mustYAML(t, object)))
	rules, _ := patch(planOf(dropNames("a", "a_raw")))
	if len(rules) != 2 || !takes(rules, "a", "a_raw", "kind", "2") {
		t.Errorf("a_raw stays: %v", rules)
	}
	if takes(rules, "a", "a_raw", "kind", "1") {
		t.Errorf("a_used is lost: %v", rules)
	}
}

func mustYAML(t testing.TB, v any) []byte {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A patch fails on any other monitor than its own: kubectl takes the first document of a file for
// each command that names it.
func TestMonitorOfAnotherName(t *testing.T) {
	patches, err := Patches(planOf(dropNames("serviceMonitor/ns/a/0", "x")), MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		endpoints := []any{map[string]any{"port": "p"}}
		monitor := map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"endpoints": endpoints}}
		if _, err := patchObject(t, monitor, patches[0].Body); (err == nil) != (name == "a") {
			t.Errorf("a patch of a, on %s: %v", name, err)
		}
	}
}

// Without a look at the monitor, the patch is for one that has no rules.
func TestMonitorUnseen(t *testing.T) {
	p := planOf(dropNames("serviceMonitor/ns/a/0", "x"), dropNames("ns/pods", "x"), dropNames("scrapeConfig/ns/s", "x"))
	var out bytes.Buffer
	if err := ServiceMonitors(p, &out, MonitorOptions{Endpoints: 2}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# PodMonitor/ns/pods of job ns/pods.\n# kubectl -n ns patch podmonitor pods --type json --patch-file FILE\n- op: test\n  path: /metadata/name\n  value: pods\n" +
			"- op: test\n  path: '/spec/podMetricsEndpoints/0/metricRelabelings'\n  value: null\n- op: add\n",
		"path: '/spec/endpoints/1/metricRelabelings'", "path: '/spec/metricRelabelings'", "    - sourceLabels: [job, __name__]\n      regex: '(?:ns/pods;x)(?P<spillway_",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	patches, err := Patches(planOf(dropNames("scrapeConfig/ns/s", "x")), MonitorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]any{"name": "s"}
	if _, err := patchObject(t, map[string]any{"metadata": named, "spec": map[string]any{}}, patches[0].Body); err != nil {
		t.Error(err)
	}
	has := map[string]any{"metadata": named, "spec": map[string]any{"metricRelabelings": []any{map[string]any{"action": "drop"}}}}
	if _, err := patchObject(t, has, patches[0].Body); err == nil {
		t.Error("the rules of somebody else were replaced")
	}
}

func TestMonitorRefuses(t *testing.T) {
	existing := objects(t, monitor)
	for want, c := range map[string]struct {
		job string
		o   MonitorOptions
	}{
		"--monitor apiserver=NAMESPACE/NAME": {"apiserver", MonitorOptions{}},
		"not among the monitors":             {"ns/x", MonitorOptions{Existing: existing}},
		"is none of ServiceMonitor":          {"x", MonitorOptions{Monitors: map[string]Monitor{"x": {"Probe", "a", "b"}}}},
	} {
		if _, err := Patches(planOf(dropNames(c.job, "x")), c.o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	same := MonitorOptions{Monitors: map[string]Monitor{"a": {config.PodMonitor, "n", "p"}, "b": {config.PodMonitor, "n", "p"}}}
	if patches, err := Patches(planOf(dropNames("a", "x"), dropNames("b", "x")), same); err != nil || len(patches) != 1 ||
		!strings.Contains(string(patches[0].Body), "b;x") || !strings.Contains(string(patches[0].Body), "a;x") {
		t.Errorf("two jobs of one monitor: %v %s", err, patches)
	}
	bad := objects(t, strings.Replace(monitor, "sourceLabels", "source_labels", 1))
	if _, err := Patches(planOf(dropNames("monitoring/x", "x")),
		MonitorOptions{
			Monitors: map[string]Monitor{"monitoring/x": {config.ServiceMonitor, "monitoring", "kube-apiserver"}},
			Existing: bad,
		}); err == nil ||
		!strings.Contains(err.Error(), "monitors.yaml:8") {
		t.Error(err)
	}
}

func TestParseMonitor(t *testing.T) {
	for arg, want := range map[string]string{
		"a=n/x": "a ServiceMonitor/n/x", "a=b=n/x": "a=b ServiceMonitor/n/x", "a=podmonitor/n/x": "a PodMonitor/n/x",
		"a=ScrapeConfig/n/x": "a ScrapeConfig/n/x",
		"a":                  "", "=n/x": "", "a=x": "", "a=n/": "", "a=Probe/n/x": "", "a=PodMonitor/n/x/y": "",
	} {
		job, m, err := ParseMonitor(arg)
		if got := job + " " + m.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%s: %q %v", arg, got, err)
		}
	}
}

// The mark changes nothing: marked rules do what plain ones do, for names around those that they
// were made for.
func TestMarkMeansNothing(t *testing.T) {
	plain := []*promrelabel.Config{
		cfg(promrelabel.Drop, "a|b.*|", "__name__"), cfg(promrelabel.Drop, "a;(x|30(\\.0)?)", "__name__", "le"),
		cfg(promrelabel.Keep, "(?i)A|b", "__name__"), cfg(promrelabel.LabelDrop, "le|po.+"),
		takeLabel("j", "a", "le").Relabel[0],
	}
	swap := cfg(promrelabel.Replace, "(a)(b)?", "__name__")
	swap.TargetLabel, swap.Replacement = "le", "$2${1}x"
	for _, c := range append(plain, swap) {
		m, err := marked(c)
		if err != nil {
			t.Fatal(err)
		}
		back, _, ok, err := unmark(m)
		if err != nil || !ok || !equalConfig(back, c) {
			t.Errorf("%v back is %v (%v)", c, back, err)
		}
		m.NameValidationScheme, c.NameValidationScheme = 2, 2
		for _, name := range []string{"a", "b", "ab", "ba", "A", "bb", "c", "a\n"} {
			for _, le := range []string{"", "x", "30", "30.0", "3030", "y"} {
				ls := labels.FromStrings("__name__", name, "le", le, "pod", "p")
				one, two := labels.NewBuilder(ls), labels.NewBuilder(ls)
				if k1, k2 := promrelabel.ProcessBuilder(one, c), promrelabel.ProcessBuilder(two, m); k1 != k2 ||
					k1 && !labels.Equal(one.Labels(), two.Labels()) {
					t.Errorf("%v: %s gives %v %s, marked %v %s", c, ls, k1, one.Labels(), k2, two.Labels())
				}
			}
		}
	}
}

func FuzzMonitors(f *testing.F) {
	f.Add(monitor, "a_total")
	f.Add(strings.Replace(monitor, "yes", "(?:a)(?P<spillway_0123456789abcdef>)", 1), "x'\n")
	f.Fuzz(func(t *testing.T, text, name string) {
		existing, err := config.Monitors("m", []byte(text))
		if err != nil {
			return
		}
		for _, e := range existing {
			o := MonitorOptions{Existing: existing, Monitors: map[string]Monitor{"j": {e.Kind, e.Namespace, e.Name}}}
			r := dropNames("j", "x")
			r.Metrics = []string{name}
			patches, err := Patches(planOf(r), o)
			if err != nil {
				continue
			}
			var ops []any
			if len(e.Endpoints) > 0 && len(patches[0].Jobs) == 0 {
				t.Fatalf("no job\n%s", patches[0].Body)
			}
			most := 1 + 2*len(e.Endpoints) // the name, and two for each endpoint
			if err := yaml.Unmarshal(patches[0].Body, &ops); err != nil || len(ops) > most || len(ops)%2 != 1 {
				t.Fatalf("%v: %d operations for %d endpoints\n%s", err, len(ops), len(e.Endpoints), patches[0].Body)
			}
		}
	})
}
