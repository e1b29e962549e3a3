package uses

import (
	"strings"
	"testing"
)

// TestMetricsThatOthersGive: a template in the place of a metric's name is what the documents that
// fill it in give for it, where all that they give is known; else it is any metric.
func TestMetricsThatOthersGive(t *testing.T) {
	template := func(args string) string {
		return object("AnalysisTemplate", "spec:\n  args: ["+args+"]\n  metrics:\n  - provider: {prometheus: {query: 'sum({{args.metric}}{a=\"{{args.service-name}}\"})'}}\n")
	}
	const rollout = "spec:\n  strategy:\n    canary:\n      analysis:\n        args: [%]\n"
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
