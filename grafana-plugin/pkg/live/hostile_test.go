package live

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

type metricType = model.MetricType

// quote writes a string as JSON.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has JSON
	}
	return string(b)
}

// testHostile: whatever an experiment is called, choosing it gives its own pods and nobody else's,
// from every type of query, and its name comes back byte for byte. Chosen together they give what
// they give alone.
func testHostile(t *testing.T, s *stage) {
	of := func(names ...string) (must, may map[string]bool) {
		must, may = map[string]bool{}, map[string]bool{}
		for _, name := range names {
			for _, p := range s.of(name) {
				low, high := marks(p.Created, p.Removed, s.from, s.until)
				if high > 0 {
					may[p.UID] = true
				}
				if low > 0 {
					must[p.UID] = true
				}
			}
		}
		return must, may
	}
	pods := func(t *testing.T, names ...string) {
		list, err := json.Marshal(names)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, row := range s.rows(t, fmt.Sprintf(`{"queryType":"pods","experiments":%s}`, list)) {
			got[row["uid"].(string)] = true
			if !slices.Contains(names, row["experiment"].(string)) {
				t.Errorf("a pod of %.100q is among those of %.300q", row["experiment"], names)
			}
		}
		must, may := of(names...)
		between(t, fmt.Sprintf("pods of %.60q", names), got, must, may)
	}
	for i, name := range hostile {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			pods(t, name)
			one := fmt.Sprintf(`"experiments":[%s]`, quote(name))
			nodes := map[string]bool{}
			for _, p := range s.of(name) {
				if p.Node != "" {
					nodes[p.cluster+"|"+p.Node] = true
				}
			}
			for _, query := range []string{"nodes", "gpu_health", "stragglers"} {
				for _, row := range s.rows(t, `{"queryType":"`+query+`",`+one+`}`) {
					if !nodes[id(row, "cluster", "node")] {
						t.Errorf("%s of %.60q: %v is not its own", query, name, row)
					}
				}
			}
			for _, query := range []string{"experiments", "cost"} {
				rows := s.rows(t, `{"queryType":"`+query+`",`+one+`}`)
				for _, row := range rows {
					if row["experiment"] != name {
						t.Errorf("%s: the name comes back as %.200q", query, row["experiment"])
					}
				}
				if len(rows) == 0 {
					t.Errorf("%s of %.60q has no row", query, name)
				}
			}
			if rows := s.rows(t, fmt.Sprintf(`{"queryType":"experiments","search":%s}`, quote(strings.ToUpper(name)))); len(rows) != 1 ||
				rows[0]["experiment"] != name {
				t.Errorf("searching for %.60q finds %d rows", name, len(rows))
			}
			for _, f := range s.frames(t, `{"queryType":"gpu_timeseries","groupBy":["experiment","node"],`+one+`}`) {
				l := f.Fields[1].Labels
				if l["experiment"] != name || !slices.ContainsFunc(slices.Collect(maps.Keys(nodes)),
					func(k string) bool { return strings.HasSuffix(k, "|"+l["node"]) }) {
					t.Errorf("gpu_timeseries of %.60q has a line %.200q", name, l)
				}
			}
			want := 0.0
			for _, p := range s.of(name) {
				if p.phase(s.until) == "Running" {
					want += float64(len(p.GPUs))
				}
			}
			got := 0.0
			for _, f := range s.frames(t, `{"queryType":"promql","expr":"sum(experiment:pod:gpus{$__experiment}) or vector(0)","instant":true,`+one+`}`) {
				for _, field := range f.Fields {
					if v, err := field.FloatAt(0); err == nil && field.Name != "Time" && field.Name != "time" {
						got = v
					}
				}
			}
			if got != want {
				t.Errorf("promql finds %v GPUs of %.60q, and in truth there are %v", got, name, want)
			}
			// Grafana shows an annotation's text as HTML.
			if f := s.frames(t, `{"queryType":"events",`+one+`}`); len(f) == 1 {
				for _, row := range rowsOf(t, f[0]) {
					if text := id(row, "title", "text"); strings.ContainsAny(text, "<>\"") {
						t.Errorf("events of %.60q: %.300s is HTML", name, text)
					}
				}
			}
			for _, query := range []string{
				`"status"`, `"status","view":"over_time"`, `"pending"`, `"network"`, `"network","view":"ethernet"`,
				`"gpu_health","view":"count"`, `"cost","view":"total"`,
			} {
				s.frames(t, `{"queryType":`+query+`,`+one+`}`)
			}
			both := fmt.Sprintf(`"experiments":[%s,%s]`, quote(name), quote(spread))
			rows := s.rows(t, `{"queryType":"compare","view":"summary",`+both+`}`)
			runs := map[string]bool{}
			for _, row := range rows {
				runs[fmt.Sprint(row["run"])] = true
			}
			if !runs[name] || !runs[spread] || len(rows) != 2 {
				t.Errorf("comparing %.60q with %s gives %d rows", name, spread, len(rows))
			}
		})
	}
	t.Run("together", func(t *testing.T) { pods(t, hostile[:6]...) })
	t.Run("nobody", func(t *testing.T) {
		// What is part of a name, or a pattern of it, chooses nothing.
		for _, name := range []string{"llama", "llama-70.", "llama-70b|x", strings.ToUpper(spread), " " + spread} {
			f, err := s.do(t.Context(), fmt.Sprintf(`{"queryType":"pods","experiments":[%s]}`, quote(name)))
			if err != nil {
				t.Errorf("%q: %v", name, err)
				continue
			}
			if n, _ := f[0].RowLen(); n != 0 {
				t.Errorf("%q chooses %d pods", name, n)
			}
			if f[0].Meta == nil || len(f[0].Meta.Notices) == 0 {
				t.Errorf("%q: nothing says why there is nothing", name)
			}
		}
	})
}
