package verify_test

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/verify"
)

// A rule on the values of a label takes them of whatever metric has them. Without stored series it
// is a warning for who asks for the label or by it, and one for all who say nothing of it.
func TestRulesOnValues(t *testing.T) {
	const restarts = "sum by (namespace, pod) (increase(restarts_total[10m]))"
	for name, c := range map[string]struct {
		rule, query, text string
	}{
		"a namespace": {
			"{source_labels: [namespace], regex: kube-system, action: drop}",
			restarts, `may lose namespace="kube-system" of restarts_total`,
		},
		"of several": {
			"{source_labels: [namespace], regex: 'default|kube-.*', action: drop}",
			restarts, `namespace="default", namespace="kube-x" of`,
		},
		"with pods": {"{source_labels: [namespace, pod], regex: 'kube-system;.*', action: drop}", restarts, `may lose `},
		"with a pod": {
			"{source_labels: [namespace, pod], regex: 'kube-system;.*', action: drop}",
			`restarts_total{pod="a"} > 1`, `of what one query selects`,
		},
		"of metrics": {
			"{source_labels: [__name__, namespace], regex: 're.*;kube-system', action: drop}",
			restarts, `namespace="kube-system" of restarts_total`,
		},
		"of other metrics": {"{source_labels: [__name__, namespace], regex: 'kube_.*;kube-system', action: drop}", restarts, ""},
		"of another":       {"{source_labels: [__name__, namespace], regex: 'other;kube-system', action: drop}", restarts, ""},
		"by a regex": {
			"{source_labels: [namespace], regex: kube-system, action: drop}",
			`restarts_total{namespace=~"kube-.*|monitoring"}`, "may lose ",
		},
		"not another": {
			"{source_labels: [namespace], regex: kube-system, action: drop}",
			`restarts_total{namespace!="dev"}`, "may lose ",
		},
		"not this one": {
			"{source_labels: [namespace], regex: kube-system, action: drop}",
			`restarts_total{namespace!~"kube-.*"}`, "",
		},
		"another one": {"{source_labels: [namespace], regex: kube-system, action: drop}", `restarts_total{namespace="dev"}`, ""},
		"that nobody speaks of": {
			"{source_labels: [instance], regex: 'a:1|b:1', action: drop}",
			"restarts_total > 1", `may lose instance="a:1", instance="b:1" of what one query selects without a word of that label: the first is restarts_total of q.promql:1`,
		},
	} {
		r := check(t, verify.Options{Prometheus: []string{withRules(t, "- "+c.rule)}, Uses: queries(t, c.query)})
		text := textOf(t, r)
		want := min(1, len(c.text))
		if len(r.Findings) != want || !strings.Contains(text, c.text) || r.State != verify.OK {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
