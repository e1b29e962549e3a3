package uses

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsThatOthersGive: a template in the place of a metric's name is what the documents that
// fill it in give for it, where all that they give is known; else it is any metric.
func TestMetricsThatOthersGive(t *testing.T) {
	template := func(args string) string {
		return object("AnalysisTemplate", "spec:\n  args: ["+args+"]\n  metrics:\n  - provider: {prometheus: {query: 'sum({{args.metric}}{a=\"{{args.service-name}}\"})'}}\n")
	}
	const rollout = "spec:\n  strategy:\n    canary:\n      analysis:\n        templates: [{templateName: n}]\n        args: [%]\n"
	given := func(args string) string {
		return "---\n" + object("Rollout", strings.Replace(rollout, "%", args, 1))
	}
	for name, c := range map[string]struct {
		text, keeps string
		any         bool
	}{
		"its own":      {template("{name: metric, value: used_a}, {name: service-name}"), "used_a", false},
		"of a Rollout": {template("{name: metric}") + given("{name: metric, value: used_a}"), "used_a", false},
		"of several": {
			template("{name: metric, value: used_b}") + given("{name: metric, value: used_a}") + given("{name: x, value: y}"),
			"used_a used_b", false,
		},
		"besides others": {
			template("{name: metric}") + given("{name: metric, value: used_a}") + "---\n" +
				object("Deployment", "spec: {template: {spec: {containers: [{name: x, args: [--metric=x]}]}}}\n") +
				"---\nkind: Kustomization\npatches:\n- patch: |-\n    - {op: add, path: /spec/template/spec/containers/0/args/-, value: -v}\n",
			"used_a", false,
		},
		"of an experiment": {
			template("{name: metric}") + "---\n" +
				object("Experiment", "spec: {analyses: [{name: x, templateName: n, args: [{name: metric, value: used_a}]}]}\n"),
			"used_a", false,
		},
		"from elsewhere":  {template("{name: metric, value: used_a}") + given("{name: metric, valueFrom: {fieldRef: {fieldPath: a}}}"), "", true},
		"by a template":   {template("{name: metric, value: used_a}") + given("{name: metric, value: '{{inputs.x}}'}"), "", true},
		"of another name": {template("{name: metric}") + given("{name: metrics, value: used_a}"), "", true},
		"of Flagger": {
			object("MetricTemplate", "spec:\n  query: rate({{ variables.metric }}[{{ interval }}])\n") + "---\n" +
				object("Canary", "spec:\n  analysis:\n    metrics:\n    - {name: x, templateRef: {name: n}, templateVariables: {metric: used_a}}\n"),
			"used_a", false,
		},
	} {
		for flag, read := range flags {
			set := new(Set)
			if err := read(set, folder(t, "f.yaml", c.text)); err != nil {
				t.Fatalf("%s behind --%s: %v", name, flag, err)
			}
			if len(set.Everything()) == 0 {
				t.Errorf("%s behind --%s: narrow before all was read", name, flag)
			}
			if err := set.Unmade(); err != nil {
				t.Error(err)
			}
			said := strings.Join(set.Warnings, "\n")
			if c.any != (len(set.Everything()) > 0) || c.any != strings.Contains(said, "every metric that it could name") ||
				c.any == strings.Contains(said, "kept is what those that were read give") {
				t.Errorf("%s behind --%s:\n%s\n%s", name, flag, strings.Join(set.lines(""), "\n"), said)
			}
			for _, metric := range strings.Fields(c.keeps) {
				if !set.keeps(metric) || set.keeps("unused") {
					t.Errorf("%s behind --%s, %s:\n%s", name, flag, metric, strings.Join(set.lines(""), "\n"))
				}
			}
		}
	}
}

// TestMetricsThatOthersDoNotGive: what is given to another template, or by what is not understood,
// fills in none, and one whose arguments come from elsewhere keeps every metric.
func TestMetricsThatOthersDoNotGive(t *testing.T) {
	template := func(name, args, rest string) string {
		return "apiVersion: argoproj.io/v1alpha1\nkind: AnalysisTemplate\nmetadata: {name: " + name + "}\nspec:\n  args: [" + args + "]\n" + rest +
			"  metrics:\n  - provider: {prometheus: {query: 'sum({{args.metric}}{a=\"b\"})'}}\n---\n"
	}
	const (
		required = "{name: metric}"
		filled   = "{name: metric, value: used_a}"
		mine     = "{templates: [{templateName: t}], args: [" + filled + "]}"
		flagger  = "apiVersion: flagger.app/v1beta1\nkind: MetricTemplate\nmetadata: {name: t, namespace: a}\nspec:\n  query: rate({{ variables.metric }}[1m])\n---\n"
	)
	rollout := func(analysis string) string {
		return object("Rollout", "spec: {strategy: {canary: {analysis: "+analysis+"}}}\n") + "---\n"
	}
	canary := func(metric string) string {
		return object("Canary", "spec: {analysis: {metrics: ["+metric+"]}}\n") + "---\n"
	}
	kustomize := func(patch string) string {
		return "kind: Kustomization\n" + under("patch", patch, 2)
	}
	for name, text := range map[string]string{
		"another template":            template("a", filled, "") + template("t", required, ""),
		"to another template":         template("t", required, "") + rollout("{templates: [{templateName: a}], args: ["+filled+"]}"),
		"to one of the cluster":       template("t", required, "") + rollout("{templates: [{templateName: t, clusterScope: true}], args: ["+filled+"]}"),
		"of something else":           template("t", required, "") + object("Whatever", "spec: {args: [{name: metric, value: cpu}]}\n"),
		"and of something else":       template("t", filled, "") + object("Whatever", "spec: {args: [{name: metric, value: cpu}]}\n"),
		"and to one not known":        template("t", filled, "") + rollout("{templates: [{templateName: '{{x}}'}], args: [{name: metric, value: cpu}]}"),
		"and from elsewhere":          template("t", required, "") + rollout(mine) + rollout("{templates: [{templateName: t}]}"),
		"of a template that names it": template("t", filled, "") + template("a", filled, "  templates: [{templateName: t}]\n"),
		"of one name twice":           template("t", required, "") + rollout(mine) + template("t", "{name: metric}, {name: x}", ""),
		"a patch of a file":           template("t", filled, "") + "- {op: replace, path: /spec/strategy/canary/analysis/args/0/value, value: used_b}\n",
		"a patch": template("t", filled, "") + rollout(mine) +
			"kind: Kustomization\npatches:\n- target: {kind: Rollout}\n  patch: |-\n    - op: replace\n      path: /spec/strategy/canary/analysis/args/0/value\n      value: used_b\n",
		"a patch in JSON": template("t", filled, "") + rollout(mine) +
			"kind: Kustomization\npatches:\n- patch: '[{\"op\": \"replace\", \"path\": \"/spec/args/0/value\", \"value\": \"used_b\"}]'\n",
		"a merged patch": template("t", filled, "") + rollout(mine) +
			kustomize("kind: Rollout\nmetadata: {name: n}\nspec: {strategy: {canary: {analysis: {args: [{name: metric, value: used_b}]}}}}\n"),
		"a replacement": template("t", filled, "") + rollout(mine) +
			"kind: Kustomization\nreplacements:\n- targets:\n  - fieldPaths: ['spec.strategy.canary.analysis.args.[name=metric].value']\n",
		"a prefix for names": template("t", filled, "") + "kind: Kustomization\nnamePrefix: x-\n",
		"another namespace": strings.Replace(template("t", filled, ""), "{name: t}", "{name: t, namespace: a}", 1) +
			"kind: Kustomization\nnamespace: b\n---\n" +
			strings.Replace(rollout("{templates: [{templateName: t}], args: [{name: metric, valueFrom: {x: y}}]}"),
				"{name: n}", "{name: n, namespace: b}", 1),
		"and of no name":       template("t", filled, "") + rollout("{templates: [{templateName: t}], args: [{name: '{{x}}', value: cpu}]}"),
		"and of no list":       template("t", filled, "") + rollout("{templates: [{templateName: t}], args: '${args}'}"),
		"of another Canary":    flagger + canary("{templateRef: {name: a, namespace: a}, templateVariables: {metric: used_a}}"),
		"of another namespace": flagger + canary("{templateRef: {name: t, namespace: b}, templateVariables: {metric: used_a}}"),
		"of no Canary":         flagger + canary("{templateVariables: {metric: used_a}}"),
		"a patch of a Canary": flagger + canary("{templateRef: {name: t, namespace: a}, templateVariables: {metric: used_a}}") +
			kustomize("- {op: replace, path: /spec/analysis/metrics/0/templateVariables/metric, value: used_b}\n"),
	} {
		for flag, read := range flags {
			if name == "a replacement" && flag == "dashboards" {
				continue // its targets are refused there as a panel's
			}
			set := new(Set)
			if err := errors.Join(read(set, folder(t, "f.yaml", text)), set.Unmade()); err != nil {
				t.Fatalf("%s behind --%s: %v", name, flag, err)
			}
			if len(set.Everything()) == 0 {
				t.Errorf("%s behind --%s is narrowed:\n%s", name, flag, strings.Join(append(set.lines(""), set.Warnings...), "\n"))
			}
		}
	}
}

// TestMetricsThatChartsGive: what a chart's template gives that is not rendered is not known.
func TestMetricsThatChartsGive(t *testing.T) {
	dir := folder(t, "f.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: AnalysisTemplate\nmetadata: {name: t}\nspec:\n"+
		"  args: [{name: series, value: used_a}]\n  metrics:\n  - provider: {prometheus: {query: 'sum({{args.series}})'}}\n")
	chart := "kind: Rollout\nspec:\n{{- if .Values.x }}\n  templates: [{templateName: t}]\n" +
		"  args: [{name: series, value: {{ .Values.x }}}]\n{{- end }}\n"
	if err := os.WriteFile(filepath.Join(dir, "g.yaml"), []byte(chart), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, read := range flags {
		set := new(Set)
		if err := errors.Join(read(set, dir), set.Unmade()); err != nil {
			t.Fatalf("behind --%s: %v", flag, err)
		}
		if len(set.Everything()) == 0 {
			t.Errorf("behind --%s:\n%s", flag, strings.Join(set.lines(""), "\n"))
		}
	}
}

// TestCorrelations: a file that provisions data sources asks what its correlations lead to.
func TestCorrelations(t *testing.T) {
	const file = `apiVersion: 1
datasources:
- {name: p, uid: p, type: prometheus}
- name: l
  uid: l
  type: loki
  correlations:
  - {targetUID: p, config: {type: query, field: x, target: {expr: used_a}}}
  - {targetUID: elsewhere, config: {type: query, field: x, target: {expr: 'sum(used_b{x="$x"})'}}}
  - {targetUID: l, config: {type: query, field: x, target: {expr: 'unused'}}}
`
	holds(t, "correlations", "f.yaml", file, "used_a used_b")
}
