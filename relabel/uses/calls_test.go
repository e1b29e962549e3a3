package uses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/effort"
)

// TestCallsThatGoOn: a call whose query goes on in a way that is not understood, or has a name that
// stands elsewhere, keeps all that it may mean.
func TestCallsThatGoOn(t *testing.T) {
	var terms []string
	for i := range 20 {
		terms = append(terms, fmt.Sprintf(`sum(rate(used_%d{job="a",code="5"}[5m]))`, i))
	}
	object := func(kind, rest string) string {
		return "apiVersion: example.com/v1\nkind: " + kind + "\nmetadata: {name: n}\n" + rest
	}
	for text, want := range map[string][]string{
		object("AnalysisTemplate", "spec:\n  metrics:\n  - provider: {web: {url: 'http://p:9090/api/v1/query?query=sum(rate({{args.metric}}[5m]))'}}\n"): {`{__name__=~".*"} all`},
		object("CronJob", "spec:\n  env: [{name: M, value: used_metric}]\n  args: ['curl http://p:9090/api/v1/query?query=sum($M)']\n"):                  {`{__name__=~".*"} all`},
		object("ConfigMap", "data:\n  a.sh: |\n    M=used_metric\n    curl -G p/api/v1/query --data-urlencode \"query=$M > 5\"\n"):                       {"used_metric all"},
		object("ConfigMap", "data:\n  a.sh: |\n    for m in used_a used_b; do curl -G p/api/v1/query -d \"query=$m > 5\"; done\n"):                       {"used_a all", "used_b all"},
		object("ConfigMap", "data:\n  a.sh: |\n    curl -g 'http://p:9090/api/v1/query?query="+strings.Join(terms, " + ")+"'\n"):                         {"used_7 ", "used_19 "},
		object("X", "spec:\n  url: 'http://vm/api/v1/query?query=used_a / sum(rate(used_b))'\n"):                                                         {"used_a all", "used_b all"},
		object("ConfigMap", "data:\n  a.sh: |\n    V=$(curl -s \"p/api/v1/query?query=sum(used_a)\" | jq .)\n"):                                          {"sum(used_a) | used_a none"},
	} {
		set := new(Set)
		if err := Rules(set, folder(t, "f.yaml", text)); err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		got := fmt.Sprint(set.lines(""))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: want %s in %s", text, w, got)
			}
		}
	}
	lines := object("ConfigMap", "data:\n  a.sh: |\n    ${A}_${B} > 5\n    echo\nx: {expression: '{{a}}_{{b}}', queries: {a: '{{a}}_{{b}}'}}\n")
	set := new(Set)
	if err := Rules(set, folder(t, "f.yaml", lines)); err != nil || len(set.Uses) > 0 {
		t.Errorf("names of nothing but variables: %v, %v", err, set.lines(""))
	}
}

// TestParametersOfCalls: what stands behind a parameter's name is a query in quotes, a query that
// goes on, or a variable, and none of it is lost.
func TestParametersOfCalls(t *testing.T) {
	for text, want := range map[string]string{
		"curl -G $P/api/v1/query --data-urlencode query='sum(rate(used_a[5m]))'":                                  "[sum(rate(used_a[5m]))] true",
		"curl -G --data-urlencode query='sum(rate(used_a[5m]))' \"$P/api/v1/query\"":                              "[sum(rate(used_a[5m]))] true",
		`sh -c "curl $P/api/v1/query -d query=\"used_a > 1\""`:                                                    "[used_a > 1] true",
		`sh -c "curl $P/api/v1/query -d query=\\\"used_a{a='b'} > 1\\\""`:                                         "[] false",
		"curl -G $P/api/v1/query -d query=\"used_a{a=\\\"b\\\"} > 1\" | jq .":                                     `[used_a{a="b"} > 1] true`,
		"curl -G $P/api/v1/series -d match[]='used_a'":                                                            "[used_a] true",
		"# asks /api/v1/query\nprom.custom_query(query=\"sum(rate(used_a[5m]))\")":                                "[sum(rate(used_a[5m]))] true",
		"# asks /api/v1/query\nprom.custom_query(query=\"used_a\" + suffix)":                                      "[used_a] false",
		"# asks /api/v1/query\nprom.custom_query(query=\"used_a > 1\"\n    \" and used_b\")":                      "[used_a > 1] false",
		"# asks /api/v1/query\nprom.custom_query(query=\"used_{}\".format(x))":                                    "[used_{}] false",
		"q='sum(used_a)'; curl $P/api/v1/query -d query=\"$q\"":                                                   "[] false",
		"curl $P/api/v1/query -d query='\"$q\"'":                                                                  "[] false",
		"curl -G $P/api/v1/series -d match[]=\"'used_a'\"":                                                        "[] false",
		"axios.get(p + '/api/v1/query?query='+q+'&time=1')":                                                       "[] false",
		"axios.get(p + '/api/v1/query?query=' + q + '&time=1')":                                                   "[] false",
		"axios.get(p + '/api/v1/query?query='+encodeURIComponent(q)+'&time=1')":                                   "[] false",
		"curl $P/api/v1/query -d query='used_a'_total":                                                            "[used_a] false",
		"curl $P/api/v1/query -d query='rate(used_a)'":                                                            "[] false",
		"http://p:9090/api/v1/query?query='used_a'&time=1":                                                        "[used_a] true",
		"http://p:9090/api/v1/query?query='rate(used_a)'":                                                         "[] false",
		"curl $P/api/v1/query -d query='unended":                                                                  "[] false",
		"curl -sg \"$P/federate?match[]=used_a&match[]=used_b\"\npromtool query instant $P 'sum(used_c)'":         "[used_a used_b] false",
		"curl -sg \"$P/federate?match[]=used_a&match[]=used_b\"\ncurl $P/api/v1/query -d @f":                      "[used_a used_b] false",
		"curl $P/api/v1/query -d @f\ncurl -sg \"$P/federate?match[]=used_a&match[]=used_b\"":                      "[used_a used_b] false",
		"promtool query instant $P/?query=used_a 'sum(used_c)'":                                                   "[used_a] false",
		"curl -d 'query=used_a' $P/api/v1/query\ncurl -d 'query=used_b' $P/api/v1/query":                          "[used_a used_b] true",
		"curl -d 'query=used_a' \\\n  $P/api/v1/query\ncurl $P/api/v1/query -d 'query=used_b'":                    "[used_a used_b] true",
		"curl -d 'query=used_a' $P/other; curl $P/api/v1/query -d @f":                                             "[used_a] false",
		"curl -d 'query=used_a' $P/other\ncurl $P/api/v1/query -d @f":                                             "[used_a] false",
		"requests.get(p + '/api/v1/query?query=used_a'), requests.get(p + '/api/v1/query', {'q': 'sum(used_b)'})": "[used_a] false",
		"http://vm/api/v1/query?query=used_a - sum(rate(used_b))":                                                 "[used_a] false",
		"http://vm/api/v1/query?query=used_a < sum(rate(used_b))":                                                 "[used_a] false",
		"http://vm/api/v1/query?query=used_a -sum(rate(used_b))":                                                  "[used_a] false",
		"get(p + \"/api/v1/query?query=used_a - \" + other)":                                                      "[used_a] false",
		"get(p + \"/api/v1/query?query=used_a\" + other)":                                                         "[used_a] false",
		"get(p + \"/api/v1/query?query=used_a\\n / sum(rate(used_b))\")":                                          "[used_a] false",
		"curl $P/api/v1/query -d 'query=used_a\n  / sum(rate(used_b))'":                                           "[] false",
		"curl $P/api/v1/query -d 'query=used_a > rate(used_b)' | jq .":                                            "[used_a] false",
		"curl $P/api/v1/query?query=used_a\n/ sum(rate(used_b))":                                                  "[used_a] false",
		"curl $P/api/v1/query -d 'query=used_a'\"$more\"":                                                         "[used_a] false",
		"curl -s $P/api/v1/query?query=used_a -o out":                                                             "[] false",
		"curl -s $P/api/v1/query?query=used_a | jq .":                                                             "[used_a] false",
		"curl -s $P/api/v1/query?query=used_a \\\n  -o out":                                                       "[used_a] true",
		"curl -s $P/api/v1/query?query=used_a\nrm x":                                                              "[used_a] true",
		"curl -s \"$P\"/api/v1/query?query=used_a\nrm x":                                                          "[used_a] true",
		"curl -s '$P/api/v1/query?query=used_a' -o out":                                                           "[used_a] true",
		"curl -s '$P/api/v1/query?query=used_a' > out":                                                            "[used_a] true",
		"curl -s -d 'query=used_a' \"$P/api/v1/query\"":                                                           "[used_a] true",
		"sh -c 'curl -s $P/api/v1/query?query=used_a'":                                                            "[used_a] true",
		`["curl", "$P/api/v1/query", "-d", "query=used_a", "-s"]`:                                                 "[used_a] true",
		`sh -c "curl -s \"$P/api/v1/query?query=used_a\""`:                                                        "[used_a] true",
		"curl \"$P/api/v1/query?query=${QUERY:-sum(rate(used_a[5m]))}\"":                                          "[] false",
		"axios.get(`${p}/api/v1/query?query=${q}`)":                                                               "[] false",
		"http://p:9090/api/v1/query?query=$Q":                                                                     "[] false",
		"curl -G $P/api/v1/series -d \"match[]=$m\"":                                                              "[] false",
		"curl -G $P/api/v1/series -d \"match[]={__name__='$m'}\"":                                                 "[] false",
		"def ask(q): requests.post(p + '/api/v1/query', data=dict(query=q))":                                      "[q] false",
		"http://p:9090/api/v1/query?query={{args.query}}":                                                         "[{{args.query}}] true",
		"curl -G $P/api/v1/label/pod/values -d 'match[]=used_a'":                                                  "[used_a] true",
		"curl -G $P/api/v1/label/$L/values -d 'match[]={le!=\"\"}'":                                               "[] true",
		"curl -G $P/api/v1/labels -d 'match[]={__name__=~\"used_.*\"}'":                                           `[{__name__=~"used_.*"}] true`,
		"curl -G $P/api/v1/labels -d @f":                                                                          "[] false",
		"curl -g 'http://vm/api/v1/export?match[]=used_a'":                                                        "[used_a] true",
		"curl -g 'http://vm/api/v1/export/csv?match[]={job!=\"\"}&f=x'":                                           `[{job!=""}] true`,
	} {
		queries, all := calls(text)
		if got := fmt.Sprint(queries, all); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestScriptsKeep: whatever a script asks is kept, and not anything else.
func TestScriptsKeep(t *testing.T) {
	for name, c := range map[string]struct{ script, metrics string }{
		"a quoted query":                 {"curl -G $P/api/v1/query --data-urlencode query='sum(rate(used_a[5m]))'", "used_a"},
		"a variable in quotes":           {"q='sum(rate(used_a[5m]))'\ncurl $P/api/v1/query -d query=\"$q\"", "used_a"},
		"a call of a library":            {"# asks /api/v1/query\nprom.custom_query(query=\"sum(rate(used_a[5m]))\")", "used_a"},
		"a quoted selector":              {"curl -G $P/api/v1/series -d match[]='used_a'", "used_a"},
		"a quoted MetricsQL query":       {"curl $P/api/v1/query -d query='rate(used_a)'", "used_a"},
		"promtool behind two of another": {"curl -sg \"$P/federate?match[]=used_a&match[]=used_b\"\npromtool query instant $P 'sum(used_c)'", "used_a used_b used_c"},
		"a difference in MetricsQL":      {"curl -g 'http://vm/api/v1/query?query=used_a - sum(rate(used_b))'", "used_a used_b"},
		"a comparison in MetricsQL":      {"curl $P/api/v1/query -d 'query=used_a > rate(used_b)' | jq .", "used_a used_b"},
		"a query that is put together":   {"other = \"used_b\"\nget(p + \"/api/v1/query?query=used_a - \" + other)", "used_a used_b"},
		"lines that are read":            {"while read -r line; do\n  curl -G $P/api/v1/query --data-urlencode \"query=$line\"\ndone <<EOF\nused_a\nused_b\nEOF", "used_a used_b"},
		"a template of JavaScript":       {"const f = (q) => fetch(`${p}/api/v1/query?query=${q}`)\nf('used_a')", "used_a"},
		"a value where there is none":    {"curl \"$P/api/v1/query?query=${QUERY:-sum(rate(used_a[5m]))}\"", "used_a"},
		"a name in a selector":           {"for m in used_a used_b; do curl -G $P/api/v1/series -d \"match[]={__name__='$m'}\"; done", "used_a used_b"},
		"a parameter of a function":      {"def ask(q): requests.post(p + '/api/v1/query', data=dict(query=q))\nask('used_a')", "used_a"},
		"lines behind a call":            {"curl -s \"$P/api/v1/query?query=sum(used_a)\"\nsum(rate(used_b[5m]))\nused_c > 3", "used_a used_b used_c"},
		"a template behind a call":       {"curl -s \"$P/api/v1/query?query=sum(used_a)\"\n{{ range query \"used_b > 1\" }}{{ . }}{{ end }}", "used_a used_b"},
		"values of a label":              {"curl -G $P/api/v1/label/pod/values -d 'match[]=used_a'", "used_a"},
		"names of labels":                {"requests.get(p + '/api/v1/labels', params={'match[]': 'used_a'})", "used_a"},
		"an export":                      {"curl -g 'http://vm/api/v1/export?match[]=used_a'", "used_a"},
		"names in quotes in quotes":      {"// don't ask twice\nconst q = \"used_a\"\nfetch(p + '/api/v1/query?query=' + q)", "used_a"},
		"names behind a hash":            {"[ $# -gt 0 ] && Q=used_a\ncurl -G $P/api/v1/query -d \"query=$Q\"", "used_a"},
		"names in escapes":               {"curl 'http://vm/api/v1/query?query=rate%28used_a%29%20%2F%20rate(used_b)'", "used_a used_b"},
		"names behind a backslash":       {"// don't\nconst q = 'sum(\\nused_a)'\nfetch(p + '/api/v1/query?query=' + q)", "used_a"},
		"names behind a colon":           {"const q = {a:used_a}\nfetch(p + '/api/v1/query?query=' + q.a)", "used_a"},
		"a recorded name":                {"# job:used_a:sum\nQ=job:used_a:sum\ncurl -G $P/api/v1/query -d \"query=$Q\"", "job:used_a:sum"},
	} {
		holds(t, name, "f.yaml", object("ConfigMap", "data:\n  a.sh: |\n    "+strings.ReplaceAll(c.script, "\n", "\n    ")+"\n"), c.metrics)
	}
}

// TestTemplatesInCalls: a query of an address that is nothing but a template is what the document
// gives for it, and else an error, as under a key for queries. In a script it is told, and each of
// its words could be a metric.
func TestTemplatesInCalls(t *testing.T) {
	const web = "spec:\n  args: [%s]\n  metrics:\n  - provider: {web: {url: 'http://p:9090/api/v1/query?query={{args.query}}'}}\n"
	holds(t, "an argument", "f.yaml", object("AnalysisTemplate", fmt.Sprintf(web, "{name: query, value: used_a}")), "used_a")
	for _, text := range []string{
		object("AnalysisTemplate", fmt.Sprintf(web, "{name: query}")),
		object("X", "spec: {url: '{{ prom }}/api/v1/query?query={{ query | urlencode }}'}\n"),
	} {
		for flag, read := range flags {
			err := read(new(Set), folder(t, "f.yaml", text))
			if err == nil || !strings.Contains(err.Error(), "the whole query is the template {{") {
				t.Errorf("behind --%s: %v\n%s", flag, err, text)
			}
		}
	}
	for _, script := range []string{
		"Q=used_a\ncurl -G $P/api/v1/query --data-urlencode 'query={{ .Values.query }}'",
		"for q in used_a used_b; do\n  curl \"{{ prom }}/api/v1/query?query={{ query | urlencode }}\"\ndone",
	} {
		holds(t, "a script", "f.yaml", inScript(script), "used_a")
		set := new(Set)
		err := Rules(set, folder(t, "f.yaml", inScript(script)))
		if err != nil || !strings.Contains(fmt.Sprint(set.Warnings), "cannot be read in it") {
			t.Errorf("%v, warnings %q", err, set.Warnings)
		}
	}
}

// TestObjectsOfOneKindInOneAnother: nested as deep as it may be, a document is read once.
func TestObjectsOfOneKindInOneAnother(t *testing.T) {
	deep := `{"x":1}`
	for range 450 {
		deep = `{"apiVersion":"x/v1","kind":"Dashboard","spec":{"x":1},"foo":` + deep + `}`
	}
	took := effort.Of(func() { _ = Rules(new(Set), folder(t, "f.json", deep)) }) // whatever it is
	if took > 10*time.Second {
		t.Errorf("36 KB took %s", took)
	}
}

// TestBracesOfPrograms: braces that hold nothing are no selector, and a selector without a name in
// a script is told.
func TestBracesOfPrograms(t *testing.T) {
	const ask = "\nrequests.get(P + '/api/v1/query', params={'query': q})"
	for name, script := range map[string]string{
		"a dictionary": "out = {}\nq = 'used_a'" + ask,
		"a function":   "const f = () => {}\nconst q = 'used_a'\nfetch(`${p}/api/v1/query?query=${q}`)",
		"xargs":        "echo used_a | xargs -I{} curl -s http://p/api/v1/query?query={}",
		"no value":     "x = {a=\"\"}\nq = 'used_a'" + ask,
	} {
		holds(t, name, "f.yaml", inScript(script), "used_a")
		set := new(Set)
		if err := Rules(set, folder(t, "f.yaml", inScript(script))); err != nil || len(set.Everything()) > 0 {
			t.Errorf("%s keeps everything, %v", name, err)
		}
	}
	set := new(Set)
	if err := Rules(set, folder(t, "f.yaml", inScript("{job=\"x\"}\nq = 'used_a'"+ask))); err != nil ||
		!strings.Contains(fmt.Sprint(set.Warnings), `it selects {job="x"}, which names no metric`) {
		t.Errorf("%v, warnings %q", err, set.Warnings)
	}
}

// TestManyBraces: no end is looked for in the whole of a text, but in maxParameter bytes behind
// each brace, of which every other one is a token here. Twice the text is twice the work.
func TestManyBraces(t *testing.T) {
	const braces = 20_000
	_, one := textualSteps(strings.Repeat("{ ", braces), nil)
	_, two := textualSteps(strings.Repeat("{ ", 2*braces), nil)
	if most := braces * (maxParameter/2 + 2); one > most || two-one > most || one < braces {
		t.Errorf("for %d braces %d tokens were looked at, for twice as many %d", braces, one, two)
	}
}

// inScript is a ConfigMap with the script.
func inScript(script string) string {
	return object("ConfigMap", "data:\n  a.sh: |\n    "+strings.ReplaceAll(script, "\n", "\n    ")+"\n")
}
