package rehearse

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/usage"
)

// TestUnchosen: what is asked to see whether a difference is one of ties.
func TestUnchosen(t *testing.T) {
	for query, want := range map[string]string{
		`topk(3, a + b) * 2`:                         `(a + b) * 2`,
		`sum by (x) (topk by (y) (3, rate(a[5m])))`:  `sum by (x) ((rate(a[5m])))`,
		`bottomk(1, a) by (x) or topk(2, b)`:         `(a) or (b)`,
		`topk(2, topk(3, max by (j) (a{b=")é"})) )`:  `((max by (j) (a{b=")é"})))`,
		`max_over_time(topk(3, rate(a[5m]))[1h:5m])`: `max_over_time((rate(a[5m]))[1h:5m])`,
		`topk(scalar(topk(1, n)), a)`:                `(a)`,
		`sum(a)`:                                     "",
		`limitk(3, a)`:                               "",
		`topk(`:                                      "",
	} {
		if got, ok := unchosen(query); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s (%t), want %s", query, got, ok, want)
		}
	}
}

// sent is a series of an answer, as it is sent.
type sent struct {
	Metric map[string]string `json:"metric"`
	Value  []any             `json:"value,omitempty"`
	Values [][]any           `json:"values,omitempty"`
}

// edited changes the series of an answer, its warnings and its statistics.
func edited(t *testing.T, change func(series []sent, whole, data map[string]any)) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, answer []byte) {
		var whole map[string]any
		var list struct {
			Data struct{ Result []sent }
		}
		if err := errors.Join(json.Unmarshal(answer, &whole), json.Unmarshal(answer, &list)); err != nil || len(list.Data.Result) == 0 {
			t.Errorf("%v: %.200s", err, answer)
			return
		}
		data := whole["data"].(map[string]any)
		change(list.Data.Result, whole, data)
		data["result"] = list.Data.Result
		_ = json.NewEncoder(w).Encode(whole)
	}
}

// took says which of the equal series were taken, by their modes: which a server takes is nobody's
// promise, and it takes others each time.
func took(modes ...string) func(series []sent, whole, data map[string]any) {
	return func(series []sent, _, _ map[string]any) {
		for i := range series {
			series[i].Metric = map[string]string{"node": "n1", "mode": modes[i]}
		}
	}
}

// labelled sets a label of the first series.
func labelled(name, value string) func(series []sent, _, _ map[string]any) {
	return func(series []sent, _, _ map[string]any) { series[0].Metric[name] = value }
}

// TestTies: another of several equal series is no change where all are there as before; a series
// that is not among them is one, and so are series that were not equal, and the same one twice.
func TestTies(t *testing.T) {
	t.Parallel()
	before := prometheus(t)
	const two = `topk(2, cpu_seconds_total{node="n1"} * 0)`
	first := took("m0", "m1")
	renamed := func(series []sent, _, _ map[string]any) {
		for _, s := range series {
			if s.Metric["mode"] == "m0" {
				s.Metric["mode"] = "other"
			}
		}
	}
	for _, tc := range []struct {
		name    string
		query   string
		first   func(series []sent, whole, data map[string]any) // on both sides
		change  func(series []sent, whole, data map[string]any)
		operand string
		changes int
	}{
		{"tie", two, first, took("m2", "m1"), "", 0},
		{"the least too", `bottomk(1, cpu_seconds_total{node="n1"} * 0)`, first, took("m3"), "", 0},
		{"everywhere", `bottomk(1, cpu_seconds_total{node="n1"} * 0)`, first, renamed, `(cpu_seconds_total{node="n1"} * 0)`, 1},
		{"alone with its value", `topk(2, cpu_seconds_total)`, nil, labelled("mode", "m9"), "", 1},
		{"the only one", `topk(1, cpu_seconds_total{node="n9", mode="m3"})`, nil, labelled("mode", "m9"), "", 1},
		{"not there", two, first, labelled("node", "other"), "", 1},
		{"one more label", two, first, labelled("replica", "a"), "", 1},
		{"swapped values", `topk(2, cpu_seconds_total)`, nil, func(s []sent, _, _ map[string]any) {
			s[0].Value, s[1].Value = s[1].Value, s[0].Value
			s[0].Values, s[1].Values = s[1].Values, s[0].Values
		}, "", 1},
		{"the same twice", two, first, func(s []sent, _, _ map[string]any) { s[1].Metric = s[0].Metric }, "", 1},
	} {
		one := map[string]func(http.ResponseWriter, []byte){}
		change := map[string]func(http.ResponseWriter, []byte){}
		if tc.first != nil {
			one[tc.query] = edited(t, tc.first)
		}
		change[tc.query] = edited(t, func(series []sent, whole, data map[string]any) {
			if tc.first != nil {
				tc.first(series, whole, data)
			}
			tc.change(series, whole, data)
		})
		if tc.operand != "" {
			change[tc.operand] = edited(t, tc.change)
		}
		for _, e := range []endpoint.ID{endpoint.Query, endpoint.QueryRange} {
			from, _ := altered(t, before, one)
			after, asked := altered(t, before, change)
			r := rehearsedOnce(t, e, tc.query, from, after)
			var text strings.Builder
			if err := r.Write(&text); err != nil {
				t.Fatal(err)
			}
			if len(r.Changes) != tc.changes || r.Ties != 1-tc.changes || asked.Load() < 3 ||
				strings.Contains(text.String(), "1 differed only in which of several equal values") != (r.Ties == 1) {
				t.Errorf("%s, %s: %+v", tc.name, e, r)
			}
			if tc.changes == 1 && (len(r.Changes) != 1 || r.Changes[0].Question.Query != tc.query || r.Changes[0].Kind != Answer) {
				t.Errorf("%s, %s: told is %+v", tc.name, e, r.Changes)
			}
		}
	}
}

// rehearsedOnce is the report of one query.
func rehearsedOnce(t *testing.T, e endpoint.ID, query, before, after string) *Report {
	t.Helper()
	rec := usage.Record{Time: at, Endpoint: string(e), Facts: usage.Facts{Query: query}}
	if e == endpoint.QueryRange {
		rec.RangeSeconds, rec.StepSeconds = 600, 60
	}
	qs := NewQuestions()
	if err := qs.read(t.Context(), bytes.NewReader(rec.Line()), time.Time{}); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), qs, Options{From: side(t, before), To: side(t, after), At: at})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTiesBesides: a tie hides nothing: a warning, cost or plan that changes beside it is told.
func TestTiesBesides(t *testing.T) {
	t.Parallel()
	before := prometheus(t)
	const query = `topk(2, cpu_seconds_total{node="n1"} * 0)`
	first, other := took("m0", "m1"), took("m2", "m1")
	from, _ := altered(t, before, map[string]func(http.ResponseWriter, []byte){query: edited(t, first)})
	cost := func(data map[string]any) {
		data["stats"] = map[string]any{"samples": map[string]any{"totalQueryableSamples": 100_000}}
	}
	for _, tc := range []struct {
		kind   Kind
		is     string
		change func(whole, data map[string]any)
	}{
		{Notes, "slow down", func(whole, _ map[string]any) { whole["warnings"] = []string{"slow down"} }},
		{Cost, "100000 samples", func(_, data map[string]any) { cost(data) }},
		{Notes, "slow down", func(whole, data map[string]any) { cost(data); whole["infos"] = []string{"slow down"} }},
	} {
		after, _ := altered(t, before, map[string]func(http.ResponseWriter, []byte){
			query: edited(t, func(series []sent, whole, data map[string]any) {
				other(series, whole, data)
				tc.change(whole, data)
			}),
		})
		r := rehearsedOnce(t, endpoint.Query, query, from, after)
		if len(r.Changes) != 1 || r.Ties != 0 || r.Changes[0].Kind != tc.kind || r.Changes[0].After != tc.is ||
			r.Changes[0].Question.Query != query {
			t.Errorf("%s: %+v", tc.is, r)
		}
	}
	// Spillway's plans.
	answers := func(mode, node string) answer {
		return answer{mode: mode, cost: 9, data: []row{{key: node, points: []point{{"1", "0"}}}}}
	}
	o := Options{costs: true, Tolerance: 1e-9}
	ties, r := looser{}, Report{}
	q := &Question{Query: query}
	r.settle(&o, &result{q, answers("pushed", "a"), answers("fetched", "b")}, ties)
	for asked := range ties {
		all := answers("fetched", "a")
		all.data = append(all.data, answers("", "b").data...)
		r.tie(&o, &result{asked, all, all}, ties)
	}
	if len(r.Changes) != 1 || r.Changes[0] != (Change{Cost, *q, "plan pushed", "plan fetched"}) || len(ties) > 0 || r.Ties != 0 {
		t.Errorf("%+v", r)
	}
}
