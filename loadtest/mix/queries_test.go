package mix

import (
	"strings"
	"testing"
	"time"
)

func TestBuiltin(t *testing.T) {
	m := Builtin()
	if m.Range != time.Hour || m.Step != 30*time.Second {
		t.Errorf("range %s, step %s", m.Range, m.Step)
	}
	kinds, shards := map[string]int{}, map[string]int{}
	for _, q := range m.Queries {
		kinds[q.Kind]++
		shards[q.Shards]++
	}
	if len(m.Queries) < 11 || len(m.Queries)%2 == 0 { // an odd number, so that the median of all requests lies within a query
		t.Errorf("%d queries", len(m.Queries))
	}
	if kinds[Instant] < 4 || kinds[Range] < 6 || shards[One] < 4 || shards[All] < 6 {
		t.Errorf("kinds %v, shards %v", kinds, shards)
	}
}

func TestPath(t *testing.T) {
	m := Mix{Range: time.Hour, Step: 30 * time.Second}
	end := time.Unix(10_000, 0)
	for _, c := range []struct{ kind, query, want string }{
		{Instant, `up{node="{{node}}"}`, `/api/v1/query?query=up%7Bnode%3D%22n1%22%7D&time=10000`},
		{Range, `a{namespace="{{namespace}}"}`, `/api/v1/query_range?end=10000&query=a%7Bnamespace%3D%22s1%22%7D&start=6400&step=30`},
	} {
		if got := m.path(Query{Kind: c.kind, Query: c.query}, end, "n1", "s1"); got != c.want {
			t.Errorf("%s: %s, want %s", c.query, got, c.want)
		}
	}
}

func TestParseMixSaysAllThatIsWrong(t *testing.T) {
	_, err := ParseMix([]byte(`
range: 2h
step: 1ms
queries:
  - {name: a, kind: ranged, shards: one, query: 'up'}
  - {name: a, kind: range, shards: some, query: 'up{node="{{node}}"}'}
  - {kind: range, shards: all, query: 'up{'}
  - {name: b, kind: range, shards: all, query: 'up{node="{{node}}"}'}
bulk: '('
`))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"step: 1ms", "range: 2h0m0s", `queries[0].kind: "ranged"`, "queries[0].shards: one is wrong", `queries[1].name: "a"`,
		`queries[1].shards: "some"`, `queries[2].name: ""`, "queries[2].query:",
		"queries[3].shards: all is wrong", "bulk:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := ParseMix([]byte("rang: 1h")); err == nil || !strings.Contains(err.Error(), "rang") {
		t.Errorf("an unknown key: %v", err)
	}
}

func FuzzParseMix(f *testing.F) {
	f.Add(builtin)
	f.Add([]byte("range: 1h\nstep: 30s\nqueries: [{name: a, kind: instant, shards: all, query: up}]\nbulk: up\n"))
	f.Add([]byte("queries: [{query: 'sum('}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseMix(text)
		if err != nil {
			return
		}
		for _, q := range m.Queries {
			if p := m.path(q, time.Unix(1e9, 0), "n", "s"); !strings.HasPrefix(p, "/api/v1/query") {
				t.Errorf("%+v: %s", q, p)
			}
		}
	})
}
