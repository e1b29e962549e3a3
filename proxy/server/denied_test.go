package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/journal"
)

// adminRule asks the admin listener for what stands behind deny.
func (r *rig) adminRule(method, path, body string, status int) string {
	r.t.Helper()
	req, err := http.NewRequest(method, r.admin+adminAPI+"deny"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.ask(req)
	if got.status != status || got.err != nil {
		r.t.Errorf("%s deny%s %s: %s, want %d", method, path, body, got, status)
	}
	return string(got.body)
}

// ruled are the rules by name.
func (r *rig) ruled() map[string]deny.Entry {
	r.t.Helper()
	var out struct{ Data []deny.Entry }
	if err := json.Unmarshal([]byte(r.adminRule(http.MethodGet, "", "", 200)), &out); err != nil {
		r.t.Fatal(err)
	}
	by := map[string]deny.Entry{}
	for _, e := range out.Data {
		by[e.Name] = e
	}
	return by
}

// logs wants each of the words in the log.
func (r *rig) logs(words ...string) {
	r.t.Helper()
	log := strings.Join(r.log.atLeast(slog.LevelDebug), "\n")
	for _, w := range words {
		if !strings.Contains(log, w) {
			r.t.Errorf("the log has no %q:\n%s", w, log)
		}
	}
}

func (r *rig) asks(path string, form ...string) *reply {
	r.t.Helper()
	return r.ask(r.request(context.Background(), asking{path: path}, form...))
}

// TestDenyRules: what a rule of the configuration or of the admin listener refuses reaches no
// shard, and its caller is told why; everything else is answered.
func TestDenyRules(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(2), `deny:
  - {name: wall, reason: ask team X, dashboard: abc}
  - {name: old, reason: it is over, until: "2020-01-01T00:00:00Z", query: up}
  - {name: looking, reason: not yet, selector: '{job="fake"}', shadow: true}
`)
	asked := func() (n int) {
		for _, s := range r.all() {
			n += len(s.RequestsTo("/api/v1/query")) + len(s.RequestsTo("/api/v1/series"))
		}
		return n
	}
	refused := func(got *reply, rule, reason string) {
		t.Helper()
		if got.status != 422 || !strings.Contains(got.message.Error, "by the rule "+rule+": "+reason) ||
			!strings.Contains(string(got.body), `"bound":"deny_rule","value":"`+rule+`"`) {
			t.Errorf("want a refusal by %s, got %s", rule, got)
		}
	}
	req := r.request(context.Background(), asking{path: "/api/v1/query"}, "query", "up")
	req.Header.Set("X-Dashboard-Uid", "abc")
	before := asked()
	refused(r.ask(req), "wall", "ask team X")
	if n := asked(); n != before {
		t.Errorf("a refused request was asked of shards, %d times", n-before)
	}
	for _, form := range [][]string{{"query", "up"}, {"query", `up{job="fake"}`}} {
		if got := r.asks("/api/v1/query", form...); got.status != 200 {
			t.Errorf("%q: %s", form, got)
		}
	}
	if got := r.metric("spillway_denied_requests_total", "mode=shadow"); got != 1 {
		t.Errorf("%g requests would have been refused, want 1", got)
	}
	if got := r.metric("spillway_denied_requests_total", "mode=refused"); got != 1 {
		t.Errorf("%g requests were refused, want 1", got)
	}
	said := r.adminRule(http.MethodPost, "", `{"name": "sum", "reason": "too dear", "query": "sum( up )", "for": "10m"}`, 200)
	if !strings.Contains(said, `"name":"sum"`) || !strings.Contains(said, `"kept":false`) || strings.Contains(said, "warning") {
		t.Error(said)
	}
	r.adminRule(http.MethodPost, "", `{"reason": "which", "endpoint": "series"}`, 200)
	refused(r.asks("/api/v1/query", "query", "sum(up)"), "sum", "too dear")
	if got := r.asks("/api/v1/series", "match[]", "up"); got.status != 422 || !strings.Contains(got.message.Error, ": which") {
		t.Errorf("series: %s", got)
	}
	rules := r.ruled()
	if len(rules) != 4 || rules["sum"].Hits != 1 || rules["sum"].Source != deny.API || rules["wall"].Hits != 1 ||
		rules["looking"].Hits != 1 || time.Until(rules["sum"].Until) > 11*time.Minute {
		t.Errorf("%+v", rules)
	}
	if got := r.metric("spillway_deny_rules", "source=api"); got != 2 {
		t.Errorf("%g rules of the admin listener", got)
	}
	page := string(r.get(r.admin + "/").body)
	for _, want := range []string{"<code>wall</code>", "<code>looking</code> (shadow)", "too dear", "it is removed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if got := r.adminRule(http.MethodDelete, "/wall", "", 400); !strings.Contains(got, "stands in the configuration") {
		t.Error(got)
	}
	r.adminRule(http.MethodDelete, "/nobody", "", 404)
	r.adminRule(http.MethodDelete, "/sum", "", 200)
	if got := r.asks("/api/v1/query", "query", "sum(up)"); got.status != 200 {
		t.Errorf("the rule is gone: %s", got)
	}
	for body, want := range map[string]string{
		"":                            "it is no rule in JSON",
		`{"user": "a"}`:               "reason: ",
		`{"reason": "a"}`:             "it names nothing to refuse",
		`{"reason": "a", "usr": "a"}`: "unknown field",
		`{"reason": "a", "user": "a", "for": "31d"}`:                         "for: a duration up to 30d",
		`{"reason": "a", "user": "a", "for": 3600}`:                          "for: 3600 is no duration",
		`{"reason": "a", "user": "a", "step": "soon"}`:                       `step: \"soon\" is no duration`,
		`{"reason": "a", "user": "a", "until": "2027-01-01T00:00:00Z"}`:      "say with for",
		`{"reason": "a", "user": "a", "name": "wall"}`:                       "another rule has this name",
		`{"reason": "a", "regex": "("}`:                                      "regex: ",
		`{"reason": "a", "endpoint": "query-range"}`:                         "did you mean query_range?",
		`{"reason": "a", "tenant": "nobody"}`:                                "there are no tenants",
		`{"reason": "a", "user": "a"}{"b": 1}`:                               "something follows it",
		`{"reason": "` + strings.Repeat("a", maxDenyBody) + `", "user": ""}`: "it is no rule in JSON",
	} {
		if got := r.adminRule(http.MethodPost, "", body, 400); !strings.Contains(got, want) {
			t.Errorf("%.60s: %s, want %q", body, got, want)
		}
	}
	r.logs("action=deny", "action=allow", "shadow_rules")
	r.idle()
}

// TestSuspects: what was under way when the process was killed is refused after the start, and
// nothing else; whoever runs Spillway can let it pass, and rules of theirs are still there.
func TestSuspects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "running.journal")
	killed(t, file, "sum(up)")
	var name string
	t.Run("first", func(t *testing.T) {
		r := newRig(t, manyShards(2), "state_dir: "+dir+"\n")
		got := r.asks("/api/v1/query", "query", "sum(up)")
		if got.status != 503 || got.header.Get("Retry-After") == "" || !strings.Contains(string(got.body), `"bound":"quarantine"`) ||
			!strings.Contains(got.message.Error, "it was under way, one of 1, when Spillway was killed") {
			t.Errorf("what was under way: %s", got)
		}
		for _, other := range []string{"up", "sum(up )"} {
			if got := r.asks("/api/v1/query", "query", other); got.status != 200 {
				t.Errorf("%s: %s", other, got)
			}
		}
		for n, e := range r.ruled() {
			if name = n; e.Source != deny.Crash || time.Until(e.Until) > suspected || e.Hits != 1 {
				t.Errorf("%+v", e)
			}
		}
		said := r.adminRule(http.MethodPost, "", `{"name": "kept", "reason": "a", "user": "b"}`, 200)
		if !strings.Contains(said, `"kept":true`) {
			t.Error(said)
		}
	})
	killed(t, file, "sum(up)")
	t.Run("second", func(t *testing.T) {
		r := newRig(t, manyShards(2), "state_dir: "+dir+"\n")
		rules := r.ruled()
		if len(rules) != 2 || rules["kept"].Source != deny.API || time.Until(rules[name].Until) < suspected {
			t.Errorf("after the second kill: %+v", rules)
		}
		r.adminRule(http.MethodDelete, "/"+name, "", 200)
		if got := r.asks("/api/v1/query", "query", "sum(up)"); got.status != 200 {
			t.Errorf("it may pass: %s", got)
		}
	})
	if text, err := os.ReadFile(file); err != nil || len(text) > 0 {
		t.Errorf("after an orderly end: %v, %q", err, text)
	}
}

// TestFewSuspects: of many that were under way those are suspected that held most. Where none is
// known to have held much they are refused only if they were under way at another kill, unless
// nothing else was there: else what kills within a second would do so at each start.
func TestFewSuspects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held                 int64
		of, counted, refused int // at the first start
	}{
		"many that held much":   {heap.MinWeight, 3 * maxSuspects, 0, maxSuspects},
		"many that held hardly": {10 << 10, maxSuspects, maxSuspects, 0},
		"two that held nothing": {0, 2, 2, 0},
		"one that held hardly":  {10 << 10, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir, all := t.TempDir(), map[string]journal.Leftover{}
			for i := range c.of {
				all["up + "+itoa(int64(i))] = journal.Leftover{Held: c.held}
			}
			for start, want := range [][2]int{{c.counted, c.refused}, {0, c.counted + c.refused}} {
				if start > 0 && c.of > maxSuspects {
					break // it may be others
				}
				left(t, filepath.Join(dir, "running.journal"), all)
				t.Run(itoa(int64(start)), func(t *testing.T) {
					r, got := newRig(t, manyShards(1), "state_dir: "+dir+"\n"), [2]int{}
					for _, rule := range r.ruled() {
						if rule.Shadow {
							got[0]++
						} else {
							got[1]++
						}
					}
					if got != want {
						t.Errorf("start %d: %d are counted and %d refused, want %d and %d", start, got[0], got[1], want[0], want[1])
					}
				})
			}
		})
	}
}

// TestYoungSuspects: what began last is suspected too, whatever the older ones held that are known
// to have held little; of what is asked for rules no number of such kills has any refused.
func TestYoungSuspects(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), map[string]journal.Leftover{"young": {Rule: true}}
	for i := range 2 * maxSuspects {
		all["old + "+itoa(int64(i))] = journal.Leftover{Held: 500 << 10}
	}
	for range 2 {
		left(t, filepath.Join(dir, "running.journal"), all)
		t.Run("", func(t *testing.T) {
			r, digest := newRig(t, manyShards(1), "state_dir: "+dir+"\n"), deny.Digest("query", "", "", "young")
			found := false
			for _, rule := range r.ruled() {
				if rule.Digest == digest {
					found = true
					if !rule.Shadow {
						t.Errorf("a rule's request is refused: %+v", rule)
					}
				}
			}
			if !found {
				t.Error("the youngest is not suspected")
			}
		})
	}
}

// TestStateDir: a file that cannot be used keeps nobody from being served; a folder that cannot be
// made is an error.
func TestStateDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"running.journal", "deny.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("something else"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, manyShards(1), "state_dir: "+dir+"\n")
	if got := r.asks("/api/v1/query", "query", "up"); got.status != 200 {
		t.Error(got)
	}
	r.logs("no journal of Spillway's", "was put aside")
}

// TestHeavySuspects: beside what held much the others are not suspected, and what was asked for a
// rule is refused when it was under way at the second kill.
func TestHeavySuspects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "running.journal")
	under := func() {
		left(t, file, map[string]journal.Leftover{
			"heavy": {Held: 800 << 20}, "half": {Held: 400 << 20}, "rule": {Held: 300 << 20, Rule: true},
			"light": {Held: 1 << 20}, "none": {},
		})
	}
	refused := func(r *rig) (out []string) {
		for _, text := range []string{"half", "heavy", "light", "none", "rule"} {
			if got := r.asks("/api/v1/query", "query", text); got.status == 503 {
				out = append(out, text)
			}
		}
		return out
	}
	under()
	t.Run("first", func(t *testing.T) {
		if got := refused(newRig(t, manyShards(1), "state_dir: "+dir+"\n")); !slices.Equal(got, []string{"half", "heavy"}) {
			t.Errorf("%q are refused", got)
		}
	})
	under()
	t.Run("second", func(t *testing.T) {
		if got := refused(newRig(t, manyShards(1), "state_dir: "+dir+"\n")); !slices.Equal(got, []string{"half", "heavy", "rule"}) {
			t.Errorf("%q are refused", got)
		}
	})
}

// TestAlertsAreSpared: what is asked for an alert passes after the first kill, and is counted, also
// where a dashboard asked the same text, which is refused, whoever of them held more; after the
// second kill both are refused.
func TestAlertsAreSpared(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]map[string]journal.Leftover{
		"the dashboard alone":  {"sum(up)": {Held: 2 << 20}},
		"the dashboard first":  {"sum(up)": {Held: 2 << 20}, "sum(up)#2": {Held: 1 << 20, Rule: true}},
		"the alert first":      {"sum(up)": {Held: 1 << 20}, "sum(up)#2": {Held: 2 << 20, Rule: true}},
		"both, and both again": {"sum(up)": {}, "sum(up)#2": {Rule: true}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for kill, want := range []int{200, 503} {
				left(t, filepath.Join(dir, "running.journal"), all)
				t.Run(fmt.Sprint("kill ", kill+1), func(t *testing.T) {
					r := newRig(t, manyShards(1), "state_dir: "+dir+"\n")
					if got := r.asks("/api/v1/query", "query", "sum(up)"); got.status != 503 {
						t.Errorf("the dashboard: %s", got)
					}
					// Grafana's alerts, and a Thanos ruler, which says so by nothing else.
					for header, value := range map[string]string{identity.HeaderFromAlert: "true", "User-Agent": "thanos-rule"} {
						req := r.request(t.Context(), asking{path: "/api/v1/query", form: url.Values{"query": {"sum(up)"}}})
						req.Header.Set(header, value)
						if got := r.ask(req); got.status != want {
							t.Errorf("%s: %s, want %d", value, got, want)
						}
					}
					if got := r.metric("spillway_denied_requests_total", "mode=shadow"); kill == 0 && got != 2 {
						t.Errorf("%v are counted", got)
					}
				})
			}
		})
	}
}

// TestOneKillOfTwo: what two have asked alike when the process was killed was there once.
func TestOneKillOfTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killed(t, filepath.Join(dir, "running.journal"), "sum(up)", "sum(up)#2")
	rules := newRig(t, manyShards(1), "state_dir: "+dir+"\n").ruled()
	for name, e := range rules {
		if time.Until(e.Until) > suspected || len(rules) != 1 {
			t.Errorf("%s, one of %d, after one kill: %s", name, len(rules), time.Until(e.Until))
		}
	}
}

// TestTextless: what has no text is no suspect, since every other request of its kind would be too.
func TestTextless(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, manyShards(1), "state_dir: "+dir+"\n")
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/label/job/values", Script: "wait go; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	const path = "/api/v1/label/job/values"
	for i, form := range [][]string{nil, {"match[]", "up"}, {"match[]", "down"}} {
		r.call(r.request(context.Background(), asking{path: path}, form...))
		r.eventually("it is asked", func() bool { return r.askedAt(path) == i+1 })
	}
	// A request goes on although it is not written yet; what is written is in their order.
	var text []byte
	r.eventually("the last one is written", func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(dir, "running.journal"))
		return err == nil && strings.Contains(string(text), `"t":"down"`)
	})
	if strings.Count(string(text), `"d":"`) != 2 || !strings.Contains(string(text), `"t":"up"`) {
		t.Errorf("%q", strings.Trim(string(text), "\x00"))
	}
	r.release()
}

// TestDeniedElsewhere: a rule holds on the page that draws queries too, and for a tenant whose
// queries are narrowed, by what it has written.
func TestDeniedElsewhere(t *testing.T) {
	t.Parallel()
	const rules = "deny: [{name: no, reason: because, query: sum(up)}, {name: re, reason: because, regex: 'count\\(up\\)'}]\n"
	r := newRig(t, manyShards(1), rules)
	got := r.get(r.url + "/graph?g0.expr=sum(up)&g0.tab=0")
	for _, s := range r.all() {
		for _, q := range slices.Concat(s.RequestsTo("/api/v1/query"), s.RequestsTo("/api/v1/query_range")) {
			if strings.Contains(q.Form.Get("query"), "sum") {
				t.Errorf("the shard was asked %v", q.Form)
			}
		}
	}
	if !strings.Contains(string(got.body), "by the rule no: because") {
		t.Errorf("the page does not say so: %s", got)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-research"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, manyShards(1), rules+
		"tenants: [{name: research, bearer_token_file: "+token+", matchers: ['{namespace=~\"research-.+\"}']}]\n")
	for query, want := range map[string]int{"sum(up)": 422, "count(up)": 422, "up": 200} {
		req := r.request(context.Background(), asking{path: "/api/v1/query"}, "query", query)
		req.Header.Set("Authorization", "Bearer token-of-research")
		if got := r.ask(req); got.status != want {
			t.Errorf("%s: %s, want %d", query, got, want)
		}
	}
}

// killed leaves a journal as a process does that is killed while it answers such queries.
func killed(t *testing.T, path string, texts ...string) {
	t.Helper()
	all := map[string]journal.Leftover{}
	for _, text := range texts {
		all[text] = journal.Leftover{}
	}
	left(t, path, all)
}

// left leaves a journal with such slots, by the queries' texts; what stands behind a # tells equal
// ones apart.
func left(t *testing.T, path string, all map[string]journal.Leftover) {
	t.Helper()
	j, _, err := journal.Open(path, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for text, what := range all {
		text, _, _ = strings.Cut(text, "#")
		what.Digest, what.Endpoint, what.Text, what.Began = deny.Digest("query", "", "", text), "query", text, time.Now()
		if what.Held > 0 {
			what.Began = what.Began.Add(-time.Minute)
		}
		j.Enter(what, func() int64 { return what.Held })
	}
	var was []byte
	for strings.Count(string(was), `"d":"`) < len(all) { // a slot may be written a little later
		if was, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, was, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestJournalWorking: a metric tells whether what is under way is remembered, where it is to be.
func TestJournalWorking(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	writeText(t, filepath.Join(foreign, "running.journal"), "precious")
	for _, tc := range []struct{ config, want string }{
		{"", ""},
		{"state_dir: " + t.TempDir() + "\n", "spillway_journal_working 1"},
		{"state_dir: " + foreign + "\n", "spillway_journal_working 0"},
	} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(journalWorking{newRig(t, manyShards(1), tc.config).s})
		var out []string
		families, err := reg.Gather()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				out = append(out, fmt.Sprint(f.GetName(), " ", m.GetGauge().GetValue()))
			}
		}
		if got := strings.Join(out, ","); got != tc.want || err != nil {
			t.Errorf("%q: %q, want %q (%v)", tc.config, got, tc.want, err)
		}
	}
}
