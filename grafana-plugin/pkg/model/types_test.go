package model

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// typescript is ../../src/types.ts, the front end's side of what this package describes.
func typescript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../src/types.ts")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between returns what stands between begin, at the start of a line, and the next end.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+begin)
	if !ok {
		t.Fatalf("src/types.ts has no line that begins with %q", begin)
	}
	inside, _, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("src/types.ts has no %q after %q", end, begin)
	}
	return inside
}

var quoted = regexp.MustCompile(`'([^']*)'`)

func strs(text string) []string {
	out := []string{}
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// jsonFields are the names of v's fields in JSON, with the kind of TypeScript type that each has
// there.
func jsonFields(v any) map[string]string {
	out := map[string]string{}
	for f := range fields(reflect.TypeOf(v)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		out[name] = kind(f.Type)
	}
	return out
}

func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Slice:
		return kind(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<" + kind(t.Key()) + ", " + kind(t.Elem()) + ">"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Float64:
		return "number"
	case reflect.Struct:
		return t.Name()
	}
	return t.String()
}

var member = regexp.MustCompile(`(?m)^  (\w+)\??: (.+);$`)

// tsFields are the members of an interface of types.ts. Types that are unions of texts count as
// string.
func tsFields(t *testing.T, text, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range member.FindAllStringSubmatch(between(t, text, "export interface "+name+" ", "\n}"), -1) {
		array := strings.HasSuffix(m[2], "[]")
		typ := strings.TrimSuffix(m[2], "[]")
		if slices.Contains([]string{"QueryType", "Metric", "GroupLabel"}, typ) || strings.HasPrefix(typ, "'") {
			typ = "string"
		}
		if array {
			typ += "[]"
		}
		out[m[1]] = typ
	}
	return out
}

// What the front end believes a query and the settings to be is what they are here.
func TestTypesOfTheFrontEnd(t *testing.T) {
	text := typescript(t)
	for _, tc := range []struct {
		name string
		v    any
	}{{"Query", Query{}}, {"Settings", Settings{}}, {"Link", Link{}}} {
		if want, got := jsonFields(tc.v), tsFields(t, text, tc.name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: src/types.ts has\n%v\nand package model\n%v", tc.name, got, want)
		}
	}
}

func TestListsOfTheFrontEnd(t *testing.T) {
	text := typescript(t)
	for _, tc := range []struct {
		name string
		want []string
	}{
		{"QUERY_TYPES", texts(QueryTypes)},
		{"METRICS", texts(Metrics)},
		{"GROUP_LABELS", GroupLabels},
		{"DEFAULT_LABELS", DefaultLabels},
	} {
		if got := strs(between(t, text, "export const "+tc.name+" = [", "]")); !slices.Equal(got, tc.want) {
			t.Errorf("%s: src/types.ts has\n%q\nand package model\n%q", tc.name, got, tc.want)
		}
	}
	views := map[QueryType][]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+): \[(.*)\],$`).FindAllStringSubmatch(between(t, text, "export const VIEWS:", "};"),
		-1) {
		views[QueryType(m[1])] = strs(m[2])
	}
	if !reflect.DeepEqual(views, Views) {
		t.Errorf("VIEWS: src/types.ts has\n%v\nand package model\n%v", views, Views)
	}
	for name, want := range map[string]int{
		"MAX_COMPARED": MaxCompared, "MAX_NAMES": MaxNames, "MAX_K": MaxK, "CEILING": ceiling, "MAX_LINKS": maxLinks,
		"MAX_LABELS": maxLabels,
	} {
		value := strings.ReplaceAll(strings.TrimSpace(between(t, text, "export const "+name+" =", ";")), "_", "")
		if got, err := strconv.Atoi(value); err != nil || got != want {
			t.Errorf("%s: src/types.ts has %s and package model %d", name, value, want)
		}
	}
}

// The editor shows defaults in empty fields; they are those that ParseSettings fills in.
func TestDefaultsOfTheFrontEnd(t *testing.T) {
	raw, err := os.ReadFile("../../src/settings.ts")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+): '?([^',]*)'?,$`).FindAllStringSubmatch(between(t, string(raw),
		"export const DEFAULTS = {", "\n}"), -1) {
		shown[m[1]] = m[2]
	}
	delete(shown, "labels") // DEFAULT_LABELS
	s, err := ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ruleInterval": s.RuleInterval, "idleBelow": fmt.Sprint(*s.IdleBelow), "stragglerBelow": fmt.Sprint(s.StragglerBelow),
		"currency":        s.Currency,
		"partialResponse": s.PartialResponse, "maxSeries": strconv.Itoa(s.MaxSeries), "maxRows": strconv.Itoa(s.MaxRows),
		"nodeDashboard": s.NodeDashboard, "gpuDashboard": s.GPUDashboard, "podDashboard": s.PodDashboard,
	}
	if !reflect.DeepEqual(shown, want) {
		t.Errorf("src/settings.ts shows the defaults\n%v\nand ParseSettings fills in\n%v", shown, want)
	}
}

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// A name that is a dashboard's variable as a whole is one that nobody replaced, as in public
// dashboards and alert rules: nothing has it, and panels would say that all is well.
func TestVariablesThatNobodyReplaced(t *testing.T) {
	for name, bad := range map[string]bool{
		"$experiment": true, "${experiment}": true, "${experiment:raw}": true, "[[experiment]]": true, "a$experiment": false, "$": false,
		"$e.*": false, "${": false, "[[": false, "$1-2": false,
	} {
		for _, list := range []string{"experiments", "clusters", "namespaces", "teams"} {
			_, err := ParseQuery("A", "", fmt.Appendf(nil, `{"queryType":"gpu_health",%q:["x",%q]}`, list, name))
			says := list + "[1]: a dashboard's variable was not replaced (" + name + ")"
			if (err != nil) != bad || bad && !strings.Contains(err.Error(), says) {
				t.Errorf("%s of %s: %v", name, list, err)
			}
		}
	}
}

// A variable of teams that could not be filled has no value: that is no team, and not the pods that
// have none.
func TestNoTeamIsNotUnassigned(t *testing.T) {
	for teams, bad := range map[string]bool{`[""]`: true, `["a",""]`: true, `["unassigned"]`: false, `[]`: false} {
		_, err := ParseQuery("A", "", []byte(`{"queryType":"status","teams":`+teams+`}`))
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "choose a team, or unassigned") {
			t.Errorf("%s: %v", teams, err)
		}
	}
}
