package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// ranged asks for a query at steps and returns the status, the bound and the sentence.
func ranged(t *testing.T, base, text, start, end, step string) (code int, bound, sentence string) {
	t.Helper()
	code, body := ask(t, base, "/api/v1/query_range", url.Values{"query": {text}, "start": {start}, "end": {end}, "step": {step}})
	var e struct {
		Error    string
		Spillway struct{ Bound string }
	}
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	return code, e.Spillway.Bound, e.Error
}

// TestSeriesMadeAtStepsAreBounded: count_values makes a series of each value at each step, and the
// engine room for all steps in each: texts that took gigabytes, or had somebody else's request
// ended for them, are refused before they are evaluated.
func TestSeriesMadeAtStepsAreBounded(t *testing.T) {
	base, fakes := makingRig(t, 2, 5, 20)
	for _, text := range []string{
		`count_over_time(count_values("v", vector(time()))[40000s:1s])`,
		`count_over_time((count_values("v", vector(time()))+0)[20000s:1s])`,
		`count_over_time(count_values("v", time() + 0*(up @ end()))[219998s:1s])`,
		`count_over_time(count_values without (zzz) ("v", up * time())[40000s:1s])`,
	} {
		if code, bound, sentence, _ := instant(t, base, text); code != 422 || bound != "label_bytes" ||
			!strings.Contains(sentence, "count_values at 1:") {
			t.Errorf("%s: %d %s %s", text, code, bound, sentence)
		}
	}
	for _, text := range []string{
		`count_values("v", vector(time()))`,
		`count_values("v", vector(time())) + 0 + 0 + 0`,
		`count_values("v", vector(time())) or count_values("w", vector(time()))`,
		`sort_by_label(count_values("v", vector(time())), "v")`,
		`up * on () group_left (v) count_values("v", vector(time()))`,
	} {
		if code, bound, sentence := ranged(t, base, text, "1795000000", "1795010999", "1"); code != 422 || bound != "label_bytes" ||
			!strings.Contains(sentence, "count_values at 1:") {
			t.Errorf("%s: %d %s %s", text, code, bound, sentence)
		}
	}
	for _, s := range fakes {
		for _, r := range s.Requests() {
			if text := r.Form.Get("query"); strings.Contains(text, "count_values") {
				t.Errorf("a shard was asked for %s", text)
			}
		}
	}
}

// TestSeriesMadeByJoinsAreBounded: a join copies a label onto each series from another series at
// each step, so that each becomes as many.
func TestSeriesMadeByJoinsAreBounded(t *testing.T) {
	base, fakes := makingRig(t, 1, 5, 20)
	var many, turns []string
	for i := range 60 {
		many = append(many, fmt.Sprintf(`label_replace(vector(1),"a","%d","","")`, i))
		turns = append(turns, fmt.Sprintf(`(label_replace(vector(1),"w","%d","","") and on() (vector(time()%%60)==%d))`, i, i))
	}
	text := "(" + strings.Join(many, " or ") + ") * on() group_left(w) (" + strings.Join(turns, " or ") + ")"
	if code, bound, sentence := ranged(t, base, text, "1795000000", "1795010999", "1"); code != 422 || bound != "label_bytes" || !strings.Contains(sentence, "group_left at 1:1 makes a series of each set of labels") {
		t.Errorf("%d %s %s", code, bound, sentence)
	}
	for _, text := range []string{
		`up * on () group_left (w) label_replace(topk(1, up), "w", "$1", "pod", "(.*)")`,
		`sum(up * on (pod) group_left (w) topk by (pod) (1, label_replace(up, "w", "$1", "pod", "(.*)")))`,
	} {
		if code, _, sentence := ranged(t, base, text, "1795000000", "1795000600", "5"); code != 200 {
			t.Errorf("%s: %d %s", text, code, sentence)
		}
	}
	var asked []string
	for _, r := range fakes[0].Requests() {
		if text := r.Form.Get("query"); strings.Contains(text, "group_left") {
			asked = append(asked, text)
		}
	}
	if len(asked) != 1 || !strings.Contains(asked[0], "sum") {
		t.Errorf("the shard was asked for %q, want the join by pod alone", asked)
	}
}

// TestFewSeriesMadeAtStepsPass: a panel of versions, however many series have them, and a table of
// them, which shards count.
func TestFewSeriesMadeAtStepsPass(t *testing.T) {
	base, fakes := makingRig(t, 2, 2000, 20)
	const text = `count_values("version", up)`
	if code, _, sentence := ranged(t, base, text, "1795000000", "1795021600", "60"); code != 200 {
		t.Errorf("%d %s", code, sentence)
	}
	if code, _, sentence := ranged(t, base, `sum(`+text+`) + 0`, "1795000000", "1795021600", "60"); code != 200 {
		t.Errorf("%d %s", code, sentence)
	}
	if code, _, sentence := ranged(t, base, `count_values("hour", hour())`, "1795000000", "1795599400", "60"); code != 200 {
		t.Errorf("%d %s", code, sentence)
	}
	if code, _, sentence, _ := instant(t, base, text); code != 200 {
		t.Errorf("%d %s", code, sentence)
	}
	asked := 0
	for _, s := range fakes {
		for _, r := range s.Requests() {
			if strings.Contains(r.Form.Get("query"), "count_values") {
				asked++
			}
		}
	}
	if asked != len(fakes) {
		t.Errorf("%d questions for count_values at one time, want one of each of %d shards", asked, len(fakes))
	}
}
