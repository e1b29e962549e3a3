package uses

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/prometheus/model/labels"
)

// uncovered says what the needs of a query ask for that wider needs do not: a series, a label of
// it, or its buckets one by one. It is "" where wider asks for all of it.
func uncovered(needs, wider []Need, w world) string {
	for _, n := range needs {
		for _, s := range w {
			if !matches(n.Matchers, s.Metric) {
				continue
			}
			var over []Need
			for _, o := range wider {
				if matches(o.Matchers, s.Metric) && (n.Quantile || !o.Quantile) {
					over = append(over, o)
				}
			}
			if len(over) == 0 {
				return s.Metric.String()
			}
			for _, label := range []string{"a", "b", "c", "d", "job", "le", "version"} {
				if n.Reads(label) && !slices.ContainsFunc(over, func(o Need) bool { return o.Reads(label) }) {
					return label + " of " + s.Metric.String()
				}
			}
		}
	}
	return ""
}

// TestVariablesCoverTheirValues puts a variable in the place of any word, or any string, of random
// queries: it needs all that the query needed.
func TestVariablesCoverTheirValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 6))
	parsed := 0
	var w world
	for round := range 8 * *rounds {
		if round%40 == 0 {
			w = newWorld(rng)
		}
		query := writer{rng}.vector(1 + rng.IntN(3))
		all := slices.DeleteFunc(tokens(query), func(t token) bool { return t.kind != 'w' && t.kind != 's' })
		at := all[rng.IntN(len(all))]
		from, to := at.offset, at.offset+len(at.text)
		if at.kind == 's' { // what is in the quotes, or a part of it
			if from, to = from+1, to-1; to-from > 1 && rng.IntN(2) == 0 {
				from += rng.IntN(to - from)
			}
		}
		variable := []string{"${v}", "[[v]]", "${v:regex}"}[rng.IntN(3)]
		asked := query[:from] + variable + query[to:]
		needs, _ := Needs(query)
		wider, warning := Needs(asked)
		if warning == "" {
			parsed++
		}
		// Nothing may be known of a query that is a variable as a whole, see Needs.
		if missing := uncovered(needs, wider, w); missing != "" && asked != variable {
			t.Fatalf("%s\nneeds %v\n%s\nneeds %v\nnot %s; %s", query, show(needs), asked, show(wider), missing, warning)
		}
	}
	if parsed < 2**rounds {
		t.Errorf("only %d queries with a variable were understood", parsed)
	}
}

// TestParsersAgree holds what MetricsQL and the last resort make of PromQL against what PromQL
// makes of it.
func TestParsersAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 7))
	parsed := 0
	var w world
	for round := range 4 * *rounds {
		if round%40 == 0 {
			w = newWorld(rng)
		}
		query := writer{rng}.vector(1 + rng.IntN(3))
		needs, _ := Needs(query)
		if vm, err := metricsql.Parse(query); err == nil {
			// info is Prometheus' own
			needs := slices.DeleteFunc(slices.Clone(needs), func(n Need) bool { name, _ := n.Name(); return name == "target_info" })
			if missing := uncovered(needs, selectors(vm, nil), w); missing != "" {
				t.Fatalf("MetricsQL: %s does not need %s", query, missing)
			}
			parsed++
		}
		named := slices.DeleteFunc(slices.Clone(needs), func(n Need) bool {
			return !slices.ContainsFunc(n.Matchers, func(m *labels.Matcher) bool { return isName(m) && m.Value != "target_info" })
		})
		if missing := uncovered(named, textual(query, nil), w); missing != "" {
			t.Fatalf("text: %s does not need %s", query, missing)
		}
	}
	if parsed < 2**rounds {
		t.Errorf("only %d queries were read by both parsers", parsed)
	}
}
