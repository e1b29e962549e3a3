package uses

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/effort"
)

// TestNamesPutTogether: names that a script puts together of parts, and regular expressions of
// names in whatever quotes, are kept.
func TestNamesPutTogether(t *testing.T) {
	const ask = "\nrequests.get(f\"{P}/api/v1/query?query={q}\")"
	for script, metrics := range map[string]string{
		"# each\nfor m in [\"took_a\"]:\n  x = 1\n  requests.get(f\"{P}/api/v1/query?query=rate({m}_total[5m])\")": "took_a_total",
		"q = f\"took_{x}\"" + ask:                                    "took_a",
		"q = f\"took{x}\"" + ask:                                     "took_a",
		"q = f\"{x}took{y}\"" + ask:                                  "a_took_a",
		"q = 'took_' + x" + ask:                                      "took_a",
		"q = x + '_took'" + ask:                                      "a_took",
		"q = 'job:' + x" + ask:                                       "job:took",
		"q = x + ':took'" + ask:                                      "job:took",
		"q = 'took%s' % x" + ask:                                     "took_a",
		"q = '%stook' % x" + ask:                                     "a_took",
		"q = '%(x)s_took' % x" + ask:                                 "a_took",
		"q = 'sum(took_{0})'.format(x)" + ask:                        "took_a",
		"q=`sum(${x}took)`" + ask:                                    "a_took",
		"q=\"took$x\"" + ask:                                         "took_a",
		"q=\"#{x}took\"" + ask:                                       "a_took",
		"q='took.*'" + ask:                                           "took_a",
		"q = 'sum({__name__=~\"took.+\"})'" + ask:                    "took_a",
		"q = \"sum({__name__=~\\\"took.+_a|x\\\"})\"" + ask:          "took_b_a",
		"q = '''{job=\"x\", __name__ =~ \"(took)_\\\\w+\"}'''" + ask: "took_a",
		"q = f'{{__name__=~\"{x}[_]took\"}}'" + ask:                  "a_took",
		"q = '{__name__=~\"to'\"$x\"'\"}'" + ask:                     "took_a",
		"q = \"{__name__=~\\\"(too[k]|x)_\\\\d+\\\"}\"" + ask:        "took_1",
		"q = '{__name__=~\"(took\\\\d+|x)_a\"}'" + ask:               "took12_a",
		"q = '%7B__name__%3D~%22too[k]_.*%22%7D'" + ask:              "took_a",
	} {
		holds(t, script, "f.yaml", inScript(script), metrics)
	}
}

// TestWordsThatAreNoParts: units of time, keys, and what stands alone are no parts of names.
func TestWordsThatAreNoParts(t *testing.T) {
	set := new(Set)
	script := "_ = __name__\nq: used\nx:=1\nrate(a[{w}m]) [%dm] [${w}s] used_a{job=\"x\"} {__name__=~\"$x\"} {a=\"b\"}\nrequests.get(P + '/api/v1/query', {'query': q})"
	if err := Rules(set, folder(t, "f.yaml", inScript(script))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a_m", "q:x", "x:y", "used_ab", "am", "as", "x__name__"} {
		if set.keeps(name) {
			t.Errorf("%s is kept\n%s", name, strings.Join(set.lines(""), "\n"))
		}
	}
	for _, u := range set.Everything() {
		for _, n := range u.Needs {
			if n.everything() && !strings.Contains(n.Selector(), `a="b"`) {
				t.Errorf("%s keeps everything", n.Selector())
			}
		}
	}
}

// TestManyParts: parts of names beyond a bound are one need, and none is lost.
func TestManyParts(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		b.WriteString("f'x" + strings.Repeat("y", i%7) + string(rune('a'+i%26)) + strings.Repeat("z", i%31) + "_{x}' %sused_{y} ")
	}
	var needs []Need
	if took := effort.Of(func() { needs = allWords(b.String()) }); took > 5*time.Second || len(needs) > 20_000 {
		t.Errorf("%d needs, %s", len(needs), took)
	}
	for _, name := range []string{"xa_b", "xyyyyyyzzzz", "the_used_one"} {
		found := false
		for _, n := range needs {
			found = found || n.named(name)
		}
		if found == strings.Contains(name, "zzzz") {
			t.Errorf("%s: %t", name, found)
		}
	}
}

// TestProgramsThatAreDocuments: a script that happens to be YAML is read as a script too: what it
// asks stands in its keys as well.
func TestProgramsThatAreDocuments(t *testing.T) {
	for _, script := range []string{
		"for m in [\"used_a\"]:\n  requests.get(f\"{P}/api/v1/query?query={m}\")",
		"def f(q=\"used_a\"):\n  return get(P + '/api/v1/query', {'query' : q})",
		"if 'used_a' in names:\n  requests.get(f\"{P}/api/v1/query?query={m}\")",
	} {
		holds(t, script, "f.yaml", inScript(script), "used_a")
	}
}

// TestSelectorsInQuotes: a selector without a name selects in quotes what it does elsewhere; one
// behind a name belongs to it.
func TestSelectorsInQuotes(t *testing.T) {
	const ask = "\nrequests.get(f\"{P}/api/v1/query?query={q}\")"
	for script, want := range map[string]string{
		"q = 'count by (__name__) ({job=\"a\"})'" + ask:   `{job="a"}`,
		"q = \"count({job=\\\"a\\\"})\"" + ask:            `{job="a"}`,
		"q = f'count({{job=\"a\"}})'" + ask:               `{job="a"}`,
		"q = 'count(%7Bjob%3D%22a%22%7D)'" + ask:          `{job="a"}`,
		"q = 'count(x{job=\"a\"})'" + ask:                 "",
		"q = f'count({m}{{job=\"a\"}})'" + ask:            "",
		"q = 'count({job=~\".*\"}) + x{}', {}, { }" + ask: "",
	} {
		got := ""
		for _, n := range allWords(script) {
			if n.everything() {
				got += n.Selector()
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

// TestManySelectors: selectors without a name are needs once each, and told up to a bound.
func TestManySelectors(t *testing.T) {
	if n := len(allWords(strings.Repeat("{a=\"b\"} ", 100))); n > 5 {
		t.Errorf("%d needs", n)
	}
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "{a=\"%d\"} ", i)
	}
	set := new(Set)
	set.Add(&Use{Kind: Object, Where: "x", Needs: allWords(b.String())})
	if n := len(set.Warnings); n != maxTold+1 || !strings.Contains(set.Warnings[maxTold], "4980 more selectors") {
		t.Errorf("%d warnings, %q", n, set.Warnings[n-1])
	}
}

// TestPatternsPutTogether: of a regular expression of names that a script joins of a list, the
// names of the list are kept, and not every metric; nor for a format that looks like an escape.
func TestPatternsPutTogether(t *testing.T) {
	const ask = "\nrequests.get(f\"{P}/api/v1/query?query={q}\")"
	for script, begins := range map[string]string{
		"names = ['used_a']\nq = '{__name__=~\"(' + '|'.join(names) + ')\"}'" + ask:      "",
		"names = ['used_a']\nq = `{__name__=~\"${names.join('|')}\"}`" + ask:             "",
		"names = ['used_a']\nq = f'{{__name__=~\"^({\"|\".join(names)})$\"}}'" + ask:     "",
		"names = ['used_a']\nq = '{__name__=~\"took_(' + '|'.join(names) + ')\"}'" + ask: "took_b",
		"printf '%8d:%s' used_a" + ask:                                                   "",
	} {
		set := new(Set)
		if err := Rules(set, folder(t, "f.yaml", inScript(script))); err != nil {
			t.Fatal(err)
		}
		if !set.keeps("used_a") || begins != "" && !set.keeps(begins) || set.keeps("other_b") {
			t.Errorf("%s\nkeeps %s", script, strings.Join(set.lines(""), "\n"))
		}
		for _, u := range set.Everything() {
			t.Errorf("%s\nkeeps everything: %+v", script, u)
		}
	}
}
