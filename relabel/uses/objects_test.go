package uses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/effort"
)

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
		`{__name__=~"m.*"}`:                            true,
		`errors_total / requests_total`:                true,
		`errors_total != job:requests`:                 true,
		`(a_total) and b_total`:                        true,
		`up`:                                           false,
		`cpu / memory`:                                 false,
		`a and b`:                                      false,
		`errors_total and more`:                        false,
		`node_exporter`:                                false,
		`errors_total/requests_total`:                  true,
		`system:serviceaccount:a-b:c_d`:                false,
		`gke_my-test_us-central1-f_remote`:             false,
		`registry:5000/a/b_c`:                          false,
		`{__name__="m"} |= "x"`:                        false,
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
}

// TestCalls: the queries in the calls of the API, in addresses and in scripts.
func TestCalls(t *testing.T) {
	for text, want := range map[string]string{
		"http://p:9090/prefix/api/v1/query_range?start=1&query=sum%28m%29&step=5":          "[sum(m)] true",
		"http://p:9090/api/v1/labels?match[]=m":                                            "[m] true",
		"http://p:9090/api/v1/query":                                                       "[] true",
		"http://p:9090/federate?match[]=a_b&match%5B%5D={x=\"1\"}":                         `[a_b {x="1"}] true`,
		"curl -sG $P/api/v1/query --data-urlencode 'query=sum(rate(m[5m]))' | jq .":        "[sum(rate(m[5m]))] true",
		`curl "$P/api/v1/query?query=a_b&time=1"; curl "$P/api/v1/query?query=c_d&time=1"`: "[a_b c_d] true",
		`curl "$P/api/v1/query?query=a_b"; curl "$P/api/v1/query?query=$Q"`:                "[a_b] false",
		`Q=c_d; curl "$P/api/v1/query?query=a_b"; curl "$P/api/v1/query?query=$Q"`:         "[a_b] false",
		"curl -g '$P/api/v1/query?query=a_b / sum(rate(c_d))'":                             "[] false",
		`curl -G $P/api/v1/query --data-urlencode "query=m{job=\"x\"} > 5"`:                `[m{job="x"} > 5] true`,
		"promtool query instant $P 'sum(rate(m[5m]))'":                                     "[] false",
		"requests.get(p + '/api/v1/query', params={'query': 'm > 1'})":                     "[] false",
		"curl https://example.com/?query=cats":                                             "[] true",
		"M=a_b; curl -sG $P/api/v1/query --data-urlencode \"query=$M > 5\"":                "[] false",
		"curl -sG $P/api/v1/query --data-urlencode \"query=sum(rate(${M}[5m]))\"":          "[sum(rate(${M}[5m]))] true",
		"curl -sG $P/api/v1/query --data-urlencode \"query=m_${M} > 5\"":                   "[m_${M} > 5] true",
		"axios.get(p + '/api/v1/query', {params: {query: 'm > 1'}})":                       "[] false",
		"Q = 'sum(rate(m[5m]))'; requests.post(p + '/api/v1/query', data=dict(query=Q))":   "[] false",
		"q == up; curl $P/api/v1/query?query=up":                                           "[up] true",
		"curl -g '$P/api/v1/series?match[]=m'":                                             "[m] true",
		"curl -g '$P/api/v1/series?match[]={le!=\"\"}'":                                    "[] true",
		"http { location /api/v1/query { proxy_pass http://up; } }":                        "[] true",
		"curl '$P/api/v1/query?query=a' '$P/api/v1/query?query=a'":                         "[a a] true",
	} {
		queries, all := calls(text)
		if got := fmt.Sprint(queries, all); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestLongScripts: the calls of a script of any length are read in a moment, and beyond a bound
// every metric that it names is kept.
func TestLongScripts(t *testing.T) {
	var differ strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&differ, "curl -s \"http://p/api/v1/query?query=sum(rate(foo%d{a='b'}[5m])) or x\" | jq . | (a b c) `d e`\n", i)
	}
	for name, c := range map[string]struct {
		text  string
		found int
		all   bool
	}{
		"equal ones": {"curl /api/v1/query " + strings.Repeat("query=a ", 8000), 8000, true},
		"many":       {differ.String(), maxCalls, false},
		"a long one": {"curl /api/v1/query query=" + strings.Repeat("a+", maxParameter), 0, false},
	} {
		var queries []string
		var all bool
		if took := effort.Of(func() { queries, all = calls(c.text) }); len(queries) != c.found || all != c.all || took > 2*time.Second {
			t.Errorf("%s: %d queries, %t, %s; want %d, %t", name, len(queries), all, took, c.found, c.all)
		}
	}
}
