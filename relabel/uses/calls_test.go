package uses

import (
	"fmt"
	"strings"
	"testing"
	"time"
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

// TestObjectsOfOneKindInOneAnother: nested as deep as it may be, a document is read once.
func TestObjectsOfOneKindInOneAnother(t *testing.T) {
	deep := `{"x":1}`
	for range 450 {
		deep = `{"apiVersion":"x/v1","kind":"Dashboard","spec":{"x":1},"foo":` + deep + `}`
	}
	began := time.Now()
	_ = Rules(new(Set), folder(t, "f.json", deep)) // whatever it is
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("36 KB took %s", took)
	}
}
