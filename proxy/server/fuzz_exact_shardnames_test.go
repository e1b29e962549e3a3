package server

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan"
)

// What one shard of a group has alone, by its names, is asked of that shard, and what joins is
// answered there as a whole. Where another shard has such a metric too all are asked, as without.
func TestExactByNameWithShardNames(t *testing.T) {
	const (
		of0 = "foo{node=\"a\"} 5\nbaz{x=\"1\"} 1\nother{x=\"1\"} 7\nnode:own{node=\"a\"} 1"
		of1 = "foo{node=\"b\"} 6\nkube_pod{pod=\"p\",node=\"a\"} 2\nkube_pod{pod=\"q\",node=\"b\"} 3\n" +
			"kube_labels{pod=\"p\",team=\"x\"} 1\nkube_labels{pod=\"q\",team=\"y\"} 1\nkube_apiserver{node=\"b\"} 1"
		of2 = "foo{node=\"c\"} 7\nkube_apiserver{node=\"c\"} 1"
	)
	cases := []exactNamed{
		{"a join", nil, `kube_pod * on (pod) group_left (team) kube_labels`, "{node=\"a\", pod=\"p\", team=\"x\"} 2\n{node=\"b\", pod=\"q\", team=\"y\"} 3"},
		{"a join over time", nil, `sum by (team) (max_over_time(kube_pod[5m] offset 1m) * on (pod) group_left (team) kube_labels @ end())`, "{team=\"x\"} 2\n{team=\"y\"} 3"},
		{"one name", nil, `kube_pod`, "*"},
		{"several names of one shard", nil, `count({__name__=~"kube_pod|kube_labels"})`, "{} 4"},
		{"names of two shards", nil, `sum({__name__=~"kube_pod|baz"})`, "{} 6"},
		{"a name and one that is anywhere", nil, `count({__name__=~"kube_pod|foo"})`, "{} 5"},
		{"names of two shards joined", nil, `sum(kube_pod) + on () group_left () baz`, "*"},
		{"one of no shard", nil, `count(kube_apiserver)`, "{} 2"},
		{"a pattern", nil, `count({__name__=~"kube_.+"})`, "{} 6"},
		{"a name and none", nil, `count({__name__=~"kube_pod|",pod!=""})`, "{} 2"},
		{"names that exclude each other", nil, `{__name__="kube_pod",__name__=~"kube_labels|foo"}`, ""},
		{"a node's", nil, `sum(kube_pod{node="a"})`, "{} 2"},
		{"a name that is nowhere", nil, `absent(kube_nowhere{x="y"})`, "{x=\"y\"} 1"},
		{"a join of what is everywhere", nil, `kube_pod * on (node) group_left () foo`, "{node=\"a\", pod=\"p\"} 10\n{node=\"b\", pod=\"q\"} 18"},
	}
	const narrow, wide = `[kube_pod, "kube_(labels|nowhere)"]`, `["kube_.+"]`
	roads := map[string]map[string]string{} // by what is declared and by case: what each shard was asked
	for name, keys := range map[string][2]string{"without": {}, "with": {"[baz]", narrow}, "broken": {"[baz]", wide}} {
		t.Run(name, func(t *testing.T) {
			w := newTable()
			g := &exactGroup{
				name: "jaguar", labels: labels.FromStrings("cluster", "jaguar"),
				replicaLabels: []string{"prometheus_replica"}, heartbeat: "up",
			}
			w.table(t, g, 1, of0+"\n", of1+"\n", of2+"\n")
			for i, names := range keys {
				if names != "" {
					g.shards[i].keys = "        names: " + names + "\n"
				}
			}
			h := (&exactHarness{t: t, w: w, tally: &exactTally{modes: map[string]int{}}}).serve()
			roads[name] = map[string]string{}
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					end := w.start.Add(17*time.Minute + 3*time.Second)
					h.named(t, c, end, false)
					h.ref.seen()
					if _, err := h.proxy(exactQuestion{query: c.query, start: end, end: end}); err != nil {
						t.Fatal(err)
					}
					seen := h.ref.seen()
					var calls []string
					for _, call := range seen.calls {
						calls = append(calls, call.shard+" "+call.query)
					}
					slices.Sort(calls)
					roads[name][c.name] = fmt.Sprintf("%q %d", calls, len(seen.selected))
				})
			}
			if name == "with" {
				h.tellsShardNames(t, w.start.Add(17*time.Minute))
			}
		})
	}
	for name, want := range map[string]string{
		"a join":                          `["jaguar[1] kube_pod * on (pod) group_left (team) kube_labels"] 0`,
		"a join over time":                `["jaguar[1] sum by (team) (max_over_time(kube_pod[5m] offset 1m) * on (pod) group_left (team) kube_labels @ end())"] 0`,
		"one name":                        `["jaguar[1] kube_pod"] 0`,
		"several names of one shard":      `["jaguar[1] count({__name__=~\"kube_pod|kube_labels\"})"] 0`,
		"names of two shards":             `["jaguar[0] sum({__name__=~\"kube_pod|baz\"})" "jaguar[1] sum({__name__=~\"kube_pod|baz\"})"] 0`,
		"a node's":                        `["jaguar[1] sum(kube_pod{node=\"a\"})"] 0`,
		"a name that is nowhere":          `["jaguar[1] absent(kube_nowhere{x=\"y\"})"] 0`,
		"one of no shard":                 roads["without"]["one of no shard"],
		"a name and one that is anywhere": roads["without"]["a name and one that is anywhere"],
		"a pattern":                       roads["without"]["a pattern"],
		"a name and none":                 roads["without"]["a name and none"],
	} {
		if got := roads["with"][name]; got != want {
			t.Errorf("%s with names: the shards were asked %s, want %s", name, got, want)
		}
	}
	if !maps.Equal(roads["broken"], roads["without"]) {
		t.Errorf("names that a server does not keep to change something:\n%v\n%v", roads["broken"], roads["without"])
	}
	if with, without := roads["with"]["a join"], roads["without"]["a join"]; with == without {
		t.Errorf("a join runs the same without names: %s", without)
	}
}

// tellsShardNames looks whether explain says that names have decided, where they have.
func (h *exactHarness) tellsShardNames(t *testing.T, at time.Time) {
	const says = "by its names shard jaguar[%d] alone has such metrics"
	for query, want := range map[string][]int{ // how often of each shard
		`kube_pod * on (pod) group_left (team) kube_labels`:     {0, 1, 0},
		`quantile(0.5, kube_pod + on () group_left () baz)`:     {1, 1, 0},
		`quantile(0.5, kube_pod * on (node) group_left () foo)`: {0, 1, 0},
		`sum({__name__=~"kube_pod|foo"})`:                       {0, 0, 0},
		`sum({__name__=~"kube_pod|baz"})`:                       {1, 1, 0},
		`sum by (cluster) (kube_pod) + sum by (cluster) (foo)`:  {0, 1, 0},
	} {
		body, _ := h.planned(t, query, at)
		for i, n := range want {
			if got := strings.Count(body, fmt.Sprintf(says, i)); got != n {
				t.Errorf("%s: explain says %d times that shard %d alone has such metrics, want %d:\n%s", query, got, i, n, body)
			}
		}
	}
}

// Where what a shard has alone moves to another one, each is asked alone about its own time, and
// all about what reaches over the moment.
func TestExactByNameWithShardNamesInTime(t *testing.T) {
	const kube, moved = "kube_pod{pod=\"p\"} 2\nkube_labels{pod=\"p\",team=\"x\"} 1\n", 12 * time.Minute
	w := newTable()
	g := &exactGroup{name: "jaguar", replicaLabels: []string{"prometheus_replica"}}
	w.table(t, g, 1, kube, kube, "foo{node=\"c\"} 7\n")
	for i, s := range g.shards[:2] {
		s.keys = "        names: [\"kube_(pod|labels)\"]\n"
		*[]*time.Time{&s.until, &s.from}[i] = w.start.Add(moved)
	}
	h := (&exactHarness{t: t, w: w, tally: &exactTally{modes: map[string]int{}}}).serve()
	for _, c := range []struct {
		query string
		at    time.Duration
		on    string // the shards that are asked
	}{
		{`kube_pod`, 24 * time.Minute, "1"},
		{`kube_pod * on (pod) group_left (team) kube_labels`, 24 * time.Minute, "1"},
		{`kube_pod offset 14m`, 24 * time.Minute, "0"},
		{`kube_pod * on (pod) group_left (team) kube_labels`, 10 * time.Minute, "0"},
		{`count_over_time(kube_pod[14m])`, 24 * time.Minute, "012"},
		{`kube_pod`, 14 * time.Minute, "012"},
		{`kube_pod + (kube_pod offset 14m)`, 24 * time.Minute, "01"},
		{`foo`, 24 * time.Minute, "12"},
	} {
		end := w.start.Add(c.at)
		q := exactQuestion{query: c.query, start: end, end: end}
		if v := h.check(q); v.failed {
			t.Errorf("%s at +%s (ran as %s): %s", c.query, c.at, v.mode, v.text)
		}
		_, asked := h.planned(t, c.query, end)
		if on := strings.NewReplacer("jaguar[", "", "]", "").Replace(strings.Join(asked, "")); on != c.on {
			t.Errorf("%s at +%s: the shards %s were asked, want %s", c.query, c.at, on, c.on)
		}
	}
}

// planned is what explain says of a query at an instant, and the shards that it asks.
func (h *exactHarness) planned(t *testing.T, query string, at time.Time) (text string, shards []string) {
	t.Helper()
	form := url.Values{"query": {query}, "time": {stamp(at)}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.base+"/api/v1/query?"+form.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(explainHeader, explainPlan)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %s, %v", resp.StatusCode, body, err)
	}
	var answer struct{ Data plan.Explanation }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	asked := map[string]bool{}
	var walk func(*plan.Node)
	walk = func(n *plan.Node) {
		for _, c := range n.Calls {
			asked[c.Shard] = true
		}
		for _, c := range n.Children {
			walk(c)
		}
	}
	walk(answer.Data.Plan)
	return string(body), slices.Sorted(maps.Keys(asked))
}
