package uses

import (
	"fmt"
	"strings"
	"testing"
)

// TestWaysToCall: an address whose path stands apart from its base, and parameters in the spelling
// of a client, are calls too.
func TestWaysToCall(t *testing.T) {
	for text, want := range map[string]string{
		"API=http://prom:9090/api/v1\ncurl -sG \"$API/query\" --data-urlencode \"query=sum(rate(used_a[5m]))\"": "[sum(rate(used_a[5m]))] false",
		"API=http://prom:9090/api/v1/\ncurl -sG \"${API}query_range\" -d @f":                                    "[] false",
		"requests.get(urljoin(P, \"api/v1/query\"), params=dict(query=q))":                                      "[q] false",
		"requests.get(urljoin(P, \"federate\"), params=p)":                                                      "[] false",
		"curl \"${PROM_URL}api/v1/query?query=used_a\"":                                                         "[used_a] true",
		"requests.get(f\"{P}/api/v1/query?query=rate({m}_total[5m])\")":                                         "[] false",
		"curl https://kubernetes/api/v1/namespaces":                                                             "[] true",
		"axios.get(P + '/api/v1/query', {params: {query: 'used_a'}})":                                           "[] false",
		"ky.get(P + '/api/v1/query', {searchParams: {query: 'used_a'}})":                                        "[] false",
		"$.get(P + '/api/v1/query', {query : 'used_a'})":                                                        "[] false",
		"Invoke-RestMethod $P/api/v1/query -Body @{ query = 'used_a' }":                                         "[] false",
		"client.get(P + '/api/v1/query', 'query' => 'used_a')":                                                  "[] false",
		"http_get($p . '/api/v1/series', ['match[]' => 'used_a'])":                                              "[] false",
		"curl -G $P/api/v1/query --data-urlencode query@f":                                                      "[] false",
		"curl $P/api/v1/series?match\\[\\]=used_a":                                                              "[] false",
		"a $P/api/v1/query?query=used_b\nb P/api/v1/query {query: 'used_a'}":                                    "[used_b] false",
	} {
		queries, all := calls(text)
		if got := fmt.Sprint(queries, all); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for name, script := range map[string]string{
		"a base in a variable": "API=http://prom:9090/api/v1\ncurl -sG \"$API/query\" --data-urlencode \"query=sum(rate(used_a[5m]))\"",
		"a client":             "axios.get(P + '/api/v1/query', {params: {query: 'used_a'}})",
		"a client by any name": "ask(P + '/api/v1/query', {query: 'used_a'})",
	} {
		holds(t, name, "f.yaml", inScript(script), "used_a")
	}
	if _, all := calls("see http://p:9090/api/v1 and /query"); !all {
		t.Error("prose asks nothing")
	}
}

// TestClients: clients that add the path themselves are calls too; all names in their texts stay.
func TestClients(t *testing.T) {
	for script, want := range map[string]string{
		"p = PrometheusConnect(url='http://x')\np.custom_query('sum(used_a)')":            "used_a",
		"p.custom_query(query='sum(used_a)')":                                             "used_a",
		"p.custom_query_range (query='sum(used_a)', step=5)":                              "used_a",
		"QUERY = 'sum(used_a)'\nprom.custom_query(QUERY)":                                 "used_a",
		"p.get_current_metric_value(metric_name='used_a')":                                "used_a",
		"p.get_metric_range_data('used_a')":                                               "used_a",
		"Q = {'gpu': 'sum(used_a)'}\nrequests.get(url, params={'query': Q['gpu']})":       "used_a",
		"requests.get(url, params=dict(time=t, query=q))\nq = 'used_a'":                   "used_a",
		"requests.get(url, params={\n  'time': t,\n  \"query\": \"used_a\"})":             "used_a",
		"axios.get(u, {params: {query: `used_a`}})":                                       "used_a",
		"v1api.Query(ctx, \"sum(used_a)\", time.Now())":                                   "used_a",
		"res, warnings, err := v1.NewAPI(c).QueryRange(ctx, q, r)\nq := \"used_a\"":       "",
		"a := promv1.NewAPI(c)\nv, _, err := c.promAPI.QueryRange(ctx, `sum(used_a)`, r)": "used_a",
		"db.Query(ctx, \"select unused\")":                                                "",
		"requests.get(url, params={'q': 'unused'})":                                       "",
		"db.custom_queries('unused')\nparams = {'a': b}\nquery = 'unused'":                "",
		"the function custom_query asks unused":                                           "",
	} {
		holds(t, script, "f.yaml", inScript(script), want)
	}
}

// TestArgumentsOfCalls: a bare word that a program gives by name is a variable, and a query may go
// on in the next line.
func TestArgumentsOfCalls(t *testing.T) {
	const prom = "# asks /api/v1/query\nprom.custom_query("
	for text, want := range map[string]string{
		prom + "query=q or r)":                                  "[q or r] false",
		prom + "query=q, time=t)":                               "[] false",
		prom + "time=t, query=q\n)":                             "[q] false",
		prom + "\n    query=q,\n)":                              "[] false",
		prom + "query=used_a":                                   "[used_a] false",
		"curl $P/api/v1/query -d query=used_a -s":               "[used_a -s] false",
		prom + "query=\"used_a\"\n    if fast\n    else \"b\")": "[used_a] false",
		prom + "query=\"used_a\"\n    f\" > {n}\")":             "[used_a] false",
		prom + "query=\"used_a\"\n    rb\" > {n}\")":            "[used_a] false",
		prom + "query=\"used_a\"\n    ? a : b)":                 "[used_a] false",
		prom + "query=\"used_a\"\n    or b)":                    "[used_a] false",
		prom + "query=\"used_a\"\n)":                            "[used_a] true",
		"curl $P/api/v1/query -d 'query=used_a'\nif true":       "[used_a] false",
		"curl $P/api/v1/query -d 'query=used_a'\nfor x":         "[used_a] true",
	} {
		queries, all := calls(text)
		if got := fmt.Sprint(queries, all); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestArgumentsOfCommands: lists of arguments, and bodies beside an address, have the query in a
// text without the call.
func TestArgumentsOfCommands(t *testing.T) {
	for text, want := range map[string]string{
		"query=sum(rate(used_a[5m]))":             "[sum(rate(used_a[5m]))] true",
		"query=sum%28used_a%29&time=1":            "[sum(used_a)] true",
		"match[]={job!=\"\"}":                     `[{job!=""}] true`,
		"match%5B%5D=used_a":                      "[used_a] true",
		"--data-urlencode=query=sum(used_a) > 1":  "[sum(used_a) > 1] true",
		"--data-urlencode query=rate(used_a[5m])": "[rate(used_a[5m])] true",
		"-dquery=rate(used_a[5m])":                "[rate(used_a[5m])] true",
		"-d query=rate(used_a[5m])":               "[rate(used_a[5m])] true",
		"query=used_a < rate(used_b)":             "[used_a] false",
		"query=$Q":                                "[] false",
		"--query=dnssrv+_grpc._tcp.used":          "[] true",
		"a query=used_a":                          "[] true",
		"query = used_a":                          "[] true",
	} {
		queries, all := calls(text)
		if got := fmt.Sprint(queries, all); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	holds(t, "arguments", "f.yaml", object("X", `spec:
  args: [-G, "http://p:9090/api/v1/query", --data-urlencode, "query=sum(rate(used_a[5m]))", -d, "query=used_b < rate(used_c)"]
  web: {url: "http://p:9090/api/v1/query", body: "query=sum(used_d)"}
`), "used_a used_b used_c used_d")
	holds(t, "an argument of a template", "f.yaml", object("AnalysisTemplate", "spec:\n  args: [{name: q, value: used_a}]\n  job: {args: ['query={{args.q}}']}\n"), "used_a")
}

// TestFlags: a query stands behind a flag in one argument, or in the next one.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		`["--query=sum(used_a)"]`:                                       "used_a",
		`["--query=used_a"]`:                                            "used_a",
		`["--query", used_a]`:                                           "used_a",
		`["--query", "sum(used_a)", used_b]`:                            "used_a",
		`["--prometheus-query=sum(used_a)", "-expr=sum(used_b) > 1"]`:   "used_a used_b",
		`["--promql=sum by (a) (used_a)"]`:                              "used_a",
		`["--match={__name__=\"used_a\"}", "--match[]=used_b"]`:         "used_a used_b",
		`["--match", "{__name__=~\"used_.*\"}"]`:                        "used_a used_b",
		`["--threshold=sum(used_a) > 1"]`:                               "used_a",
		`["-c", "tool --query 'sum(used_a) / 2' --expr=used_b; other"]`: "used_a used_b",
		`["--query=sum(rate(used_a[$(RANGE)])) > $(X)"]`:                "used_a",
		`["--query=sum(used_a{a=\"$A\"}) > {{x}}"]`:                     "used_a",
	} {
		holds(t, args, "f.yaml", object("Deployment", "spec: {containers: [{command: [x], args: "+args+"}]}\n"), want)
	}
	set := new(Set)
	if err := Rules(set, folder(t, "f.yaml", object("Deployment", `spec:
  args: ["--query=dnssrv+_grpc._tcp.thanos.svc", "--query=http://p:9090", "--query", "--match=", "--log.match=info", "--query-url=x_y", "--query=$(Q)",
    "--query={{ .q }}", "--set=a_b", "--match={}", "--expr={.items[0].a_b}"]
`))); err != nil || set.keeps("a_b") || len(set.Everything()) > 0 {
		t.Errorf("%v %s", err, strings.Join(set.lines(""), "\n"))
	}
	set = new(Set)
	dir := folder(t, "f.yaml", object("Deployment", `spec: {args: ['--match={job="kubelet"}']}`+"\n"))
	if err := Rules(set, dir); err != nil || len(set.Everything()) != 1 {
		t.Errorf("a selector without a name: %v %s", err, strings.Join(set.lines(""), "\n"))
	}
}
