package rehearse

import (
	"net/http"
	"strings"
	"testing"
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

// TestTies: another of several equal series is no change where all are there as before; another
// label of one is, and so are equal values of series that were not equal.
func TestTies(t *testing.T) {
	t.Parallel()
	before := prometheus(t)
	// Which two of them it takes is nobody's promise: the answer says another two.
	other := func(query string) func(http.ResponseWriter, []byte) {
		return func(w http.ResponseWriter, answer []byte) {
			text := string(answer)
			if n := strings.Count(text, `"node":"n`); n == 0 {
				t.Errorf("%s: %.200s", query, text)
			}
			_, _ = w.Write([]byte(strings.Replace(text, `"node":"n`, `"node":"other`, 1)))
		}
	}
	for _, tc := range []struct {
		name    string
		query   string
		operand string
		changes int
	}{
		{"tie", `topk(2, cpu_seconds_total * 0)`, "", 0},
		{"the least too", `bottomk(1, cpu_seconds_total{node="n1"} * 0)`, "", 0},
		{"everywhere", `bottomk(2, cpu_seconds_total * 0)`, `(cpu_seconds_total * 0)`, 1},
		{"alone with its value", `topk(2, cpu_seconds_total)`, "", 1},
		{"the only one", `topk(1, cpu_seconds_total{node="n9", mode="m3"})`, "", 1},
	} {
		change := map[string]func(http.ResponseWriter, []byte){tc.query: other(tc.query)}
		if tc.operand != "" {
			change[tc.operand] = other(tc.operand)
		}
		after, asked := altered(t, before, change)
		qs := NewQuestions()
		qs.Rule(tc.query, "r")
		r, err := Run(t.Context(), qs, Options{From: side(t, before), To: side(t, after), At: at})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		r.Write(&text)
		if len(r.Changes) != tc.changes || r.Ties != 1-tc.changes || asked.Load() < 3 ||
			strings.Contains(text.String(), "1 differed only in which of several equal values") != (r.Ties == 1) {
			t.Errorf("%s: %+v", tc.name, r)
		}
		if tc.changes == 1 && r.Changes[0].Question.Query != tc.query {
			t.Errorf("%s: told is %s, which nobody asked", tc.name, r.Changes[0].Question.Query)
		}
	}
}
