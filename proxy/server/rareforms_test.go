package server

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// TestRareForms: what a limit leaves out is an error all the same where it is one, and is what the
// reference leaves out; a range that is no whole number of milliseconds divides as it says; what is
// pinned inside a subquery with an offset is what the engine makes of it.
func TestRareForms(t *testing.T) {
	start := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	serve := func(series string) string { return serverWith(t, "load 15s\n"+series, start) }
	of := func(labels string) [2]string {
		return [2]string{
			fmt.Sprintf("  part{%[1]sn=\"1\",node=\"a\"} 0.1x120\n  part{%[1]sn=\"2\",node=\"a\"} 0.2x120\n  all{%[1]snode=\"a\"} 0.6x120\n"+
				"  foo{%[1]snode=\"a\"} 0+7x120\n  m{%[1]saz=\"1\",node=\"a\"} 1x120\n", labels),
			fmt.Sprintf("  part{%[1]sn=\"3\",node=\"b\"} 0.3x120\n  bar{%[1]snode=\"a\"} 0+3x120\n"+
				"  foo{%[1]snode=\"b\"} 0+11x120\n  m{%[1]saz=\"1\",b=\"2\",node=\"b\"} 2x120\n", labels),
		}
	}
	held := of(`cluster="jaguar",`)
	one := serve(held[0] + held[1])
	stored := of("")
	_, base := startProxy(t, t.Context(), fmt.Sprintf(
		"groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}]\n",
		serve(stored[0]), serve(stored[1])))
	at := start.Add(20 * time.Minute)
	for _, tc := range []struct {
		query, limit string
	}{
		{`abs({__name__=~"foo|bar"})`, "1"},
		{`rate({__name__=~"foo|bar"}[5m])`, "1"},
		{`label_replace(foo, "node", "x", "", "")`, "1"},
		{"m", "1"},
		{"foo", "1"},
		{"sum(rate(foo[60.0004])) / 2", ""},
		// What is 0.6 in one sum is more in two.
		{"sum(part) / sum(all) == 1", ""},
		{"sum(part) / sum(all) != 1", ""},
		{"sum(part) - sum(all) == bool 0", ""},
		{"count(sum by (cluster) (part) / sum by (cluster) (all) == 1)", ""},
		{"max(sum(part) / sum(all)) == 1", ""},
		{"sum(sum by (cluster) (part)) == 0.6", ""},
		{"sum(part) == 0.6", ""},
		{"sum(part) != bool 0.6", ""},
		{"0.6 == sum(part)", ""},
		{"sum by (cluster) (rate(foo[5m])) == 0 or count(part)", ""},
		{fmt.Sprintf("max_over_time(sum(foo @ %d)[5m:1m] offset -4m)", at.Unix()-300), ""},
		{fmt.Sprintf("max_over_time(sum(foo @ %d)[5m:1m] offset 4m)", at.Unix()-300), ""},
	} {
		ranged := "query_range?step=60&start=" + stamp(at) + "&end=" + stamp(at.Add(3*time.Minute))
		for _, how := range []string{"query?time=" + stamp(at), ranged} {
			path := "/api/v1/" + how + "&query=" + url.QueryEscape(tc.query)
			if tc.limit != "" {
				path += "&limit=" + tc.limit
			}
			r := &rig{t: t, client: newClient(t)}
			get := func(u string) *reply {
				req, err := http.NewRequest(http.MethodGet, u, nil)
				if err != nil {
					t.Fatal(err)
				}
				return r.ask(req)
			}
			got, want := get(base+path), get(one+path)
			same := sortedRows(got.body) == sortedRows(want.body)
			if want.status != http.StatusOK {
				same = true // its words are its own
			}
			if tc.limit != "" && how != ranged && want.status == http.StatusOK {
				same = true // an instant vector has no order: which ones are left is chance
			}
			if got.status != want.status || !same {
				t.Errorf("%s: %s\nwant %s", path, got, want)
			}
		}
	}
}
