package uses

import "testing"

// A text anywhere in a document is a query where it parses, names a metric, and is more than a
// word: names with dashes, paths and sentences parse too.
func TestTextsThatAreQueries(t *testing.T) {
	for text, want := range map[string]bool{
		`sum(rate(http_requests_total[5m]))`:           true,
		`http_requests_total{job="x"}`:                 true,
		`http_requests_total[5m]`:                      true,
		`errors_total > 5`:                             true,
		`0.5 <= ratio`:                                 true,
		`sum by ({{label}}) (m)`:                       true,
		`rate(m{app="{{ args.app }}"}[{{.window}}])`:   true,
		`rate(m[{{.minutes}}m]) > {{ threshold }}`:     true,
		`sum({__name__="m", job="x"})`:                 true,
		`up`:                                           false,
		`kube-prometheus`:                              false,
		`monitoring/k8s`:                               false,
		`ready or not`:                                 false,
		`(optional)`:                                   false,
		`app in (web)`:                                 false,
		`{app="web"} |= "error"`:                       false,
		`rate({app="web"}[5m])`:                        false,
		`>=1.20`:                                       false,
		`avg:system.cpu{*} by {host}`:                  false,
		`{"a": "b"}`:                                   false,
		`vector(1)`:                                    false,
		`time() > 5`:                                   false,
		`{{ if .Values.x }}true{{ end }}`:              false,
		`self.replicas <= self.max`:                    false,
		`https://example.com/a?b=c`:                    false,
		`--collector.filesystem.mount-points=^/(dev)$`: false,
	} {
		if got := isQuery(templated(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestTemplatesAreVariables(t *testing.T) {
	for text, want := range map[string]string{
		`m{a="{{args.service-name}}"}[{{ interval }}]`: `m{a="${args_service_name}"}[${interval}]`,
		`m[{{- .window -}}]`:                           `m[${window}]`,
		"a{{ index .x\n 1 }}b":                         `a${index__x__1}b`,
		`{{ 1 }}`:                                      `${x1}`,
		`m{a="b"}`:                                     `m{a="b"}`,
	} {
		if got := templated(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if asked, ok := inAddress("http://p:9090/prefix/api/v1/query_range?start=1&query=sum%28m%29&step=5"); !ok || asked != "sum(m)" {
		t.Errorf("the query of an address is %q", asked)
	}
	if _, ok := inAddress("http://p:9090/api/v1/labels?match[]=m"); ok {
		t.Error("an address without a query has one")
	}
}
