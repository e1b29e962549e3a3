package trust

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// engineOf is one as two answers make it; features is empty where the server has no such endpoint.
func engineOf(flags, features string) Engine {
	var e Engine
	e.ReadFlags([]byte(flags))
	if features != "" {
		e.ReadFeatures([]byte(features))
	}
	e.Seal()
	return e
}

// TestEnginesDiffer: what changes the meaning of a query is a difference, however it is spelled,
// and what does not is none.
func TestEnginesDiffer(t *testing.T) {
	const flags = `{"query.lookback-delta":"5m","enable-feature":""}`
	const features = `{"promql_functions":{"rate":true,"increase":true},"api":{"x":true}}`
	most := engineOf(flags, features)
	for _, tc := range []struct {
		name, flags, features string
		says                  string
	}{
		{"equal", flags, features, ""},
		{"a lookback in other words", `{"query.lookback-delta":"300s","enable-feature":""}`, features, ""},
		{"flags of no meaning", `{"query.lookback-delta":"5m","enable-feature":"exemplar-storage,promql-per-step-stats"}`, features, ""},
		{
			"flags that let queries be written, and those that do nothing any more",
			`{"query.lookback-delta":"5m","enable-feature":"promql-at-modifier,promql-negative-offset,promql-experimental-functions,` +
				`promql-extended-range-selectors,promql-binop-fill-modifiers,promql-duration-expr"}`,
			features, "",
		},
		{
			"flags that change answers",
			`{"query.lookback-delta":"5m","enable-feature":"use-start-timestamps,promql-experimental-functions,type-and-unit-labels,promql-delayed-name-removal"}`,
			features, "enable-feature has [promql-delayed-name-removal type-and-unit-labels use-start-timestamps], not []",
		},
		{"features of no meaning", flags, `{"promql_functions":{"rate":true,"increase":true},"promql":{"per_step_stats":true}}`, ""},
		{"a function that is off is none", flags, `{"promql_functions":{"rate":true,"increase":true,"info":false}}`, ""},
		{"nothing known", `nonsense`, features, ""},
		{"another lookback", `{"query.lookback-delta":"1m"}`, features, "query.lookback-delta is 1m, not 5m"},
		{"an experimental engine", `{"query.lookback-delta":"5m","enable-feature":"promql-x"}`, features, "enable-feature has [promql-x], not []"},
		{"a function more", flags, `{"promql_functions":{"rate":true,"increase":true,"info":true}}`, "it has promql_functions/info besides"},
		{"a function less", flags, `{"promql_functions":{"rate":true}}`, "it lacks promql_functions/increase"},
		{"no features endpoint", flags, "", "does not say which functions"},
	} {
		e := engineOf(tc.flags, tc.features)
		got := strings.Join(e.Differences(most), "; ")
		if got != tc.says && (tc.says == "" || !strings.Contains(got, tc.says)) {
			t.Errorf("%s: %q", tc.name, got)
		}
		if same := e.SameLookback(most); same != (tc.name != "another lookback") {
			t.Errorf("%s: the same lookback: %v", tc.name, same)
		}
	}
	// A Prometheus before 3.8 says by its flags alone what it understands.
	gated := `{"query.lookback-delta":"5m","enable-feature":"promql-experimental-functions"}`
	one, other := engineOf(gated, ""), engineOf(flags, "")
	for _, d := range [][]string{one.Differences(other), other.Differences(one)} {
		if len(d) != 1 || !strings.Contains(d[0], "promql-experimental-functions") {
			t.Errorf("of servers without a features endpoint one knows more functions: %q", d)
		}
	}
	one.Thanos = true
	one.Seal()
	for _, o := range []Engine{most, other, engineOf(gated, features)} {
		if d := slices.Concat(one.Differences(o), o.Differences(one)); len(d) > 0 {
			t.Errorf("a Thanos Query refuses by itself what it does not know: %q", d)
		}
	}
	old, older := engineOf(flags, ""), engineOf(flags, "")
	newer := engineOf(flags, "")
	for e, version := range map[*Engine]string{&old: "2.55.1", &older: "v2.9.0-rc.0", &newer: "3.0.1"} {
		e.ReadVersion(version)
		e.Seal()
	}
	for _, d := range [][]string{old.Differences(newer), newer.Differences(old)} {
		if len(d) != 1 || !strings.Contains(d[0], "left end") {
			t.Errorf("2.55 and 3.0 differ in %q", d)
		}
	}
	if d := old.Differences(older); len(d) > 0 {
		t.Errorf("2.55 and 2.9 differ in %q", d)
	}
	for _, version := range []string{"", "main", "10.0.0", "3", "v1beta"} {
		if newer.ReadVersion(version); newer.Old {
			t.Errorf("%q is old", version)
		}
	}
	a, b := engineOf(flags, features), engineOf(flags, features)
	a.EvaluationInterval, b.EvaluationInterval = "1m", "30s"
	a.Seal()
	b.Seal()
	if d := b.Differences(a); len(d) != 1 || !strings.Contains(d[0], "is 30s, not 1m") || a.Same(&b) {
		t.Errorf("evaluation_interval: %q", d)
	}
	b.Thanos = true
	if b.Seal(); len(b.Differences(a)) > 0 {
		t.Errorf("a Thanos Query is sent the step of each subquery: %q", b.Differences(a))
	}
}

// TestReadAgain: what was read stays where nothing new came, and nonsense changes nothing.
func TestReadAgain(t *testing.T) {
	e := engineOf(`{"query.lookback-delta":"5m","query.max-concurrency":"7"}`, `{"promql":{"x":true}}`)
	was := e
	if e.ReadFlags([]byte(`{"query.lookback-delta":"5m","query.max-concurrency":"7"}`)) != nil || e.ReadFlags([]byte(`[]`)) != nil {
		t.Error("flags that say nothing new were read")
	}
	e.ReadFeatures([]byte(`[]`))
	if e.Seal(); !e.Same(&was) || e.Slots != 7 || !slices.Equal(e.Features, []string{"promql/x"}) {
		t.Errorf("%+v", e)
	}
	if e.ReadFlags([]byte(`{"query.lookback-delta":"2m","query.max-concurrent":"8"}`)) == nil || e.Lookback != "2m" || e.Slots != 8 {
		t.Errorf("%+v", e)
	}
	if e.Seal(); e.Same(&was) {
		t.Error("another lookback is the same")
	}
}

// TestCommonest: of engines that as many have the first counts, and those that are not known do
// not.
func TestCommonest(t *testing.T) {
	of := func(lookback string) Engine { return engineOf(`{"query.lookback-delta":"`+lookback+`"}`, "") }
	for _, tc := range []struct {
		engines []Engine
		want    string
	}{
		{nil, ""},
		{[]Engine{{}, {}}, ""},
		{[]Engine{{}, of("1m")}, "1m"},
		{[]Engine{of("1m"), of("5m")}, "1m"},
		{[]Engine{of("1m"), of("5m"), {}, {}, of("5m")}, "5m"},
	} {
		if e, known := Commonest(slices.Values(tc.engines)); e.Lookback != tc.want || known != (tc.want != "") {
			t.Errorf("%q, known %v, want %q", e.Lookback, known, tc.want)
		}
	}
}

// TestSealed: engines that differ in any field but Slots and Search are not the same.
func TestSealed(t *testing.T) {
	var plain Engine
	plain.Seal()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Engine]()) {
		if !field.IsExported() {
			continue
		}
		var e Engine
		switch v := reflect.ValueOf(&e).Elem().FieldByIndex(field.Index); v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int:
			v.SetInt(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // one that is empty is not nil
		default:
			t.Fatalf("%s is a %s: say here how it is set", field.Name, v.Kind())
		}
		if e.Seal(); e.Same(&plain) != (field.Name == "Slots" || field.Name == "Search") {
			t.Errorf("another %s is the same: %v", field.Name, e.Same(&plain))
		}
	}
}
