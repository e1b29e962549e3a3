package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/dashboards"
)

// TestFlapping: the panel counts how often each alert of a node began, where it came back and has
// fired: not what is there once, nor what never got beyond its wait, nor the Watchdog.
func TestFlapping(t *testing.T) {
	const began = "ALERTS_FOR_STATE{cluster=\"jaguar\",%s} %s\n"
	const state = "ALERTS{cluster=\"jaguar\",alertstate=\"%s\",%s} %s\n"
	data := "load 1m\n"
	for _, a := range []struct {
		labels, state string
		times         int
	}{
		{`alertname="GPUHot",severity="auto",node="a",gpu="0"`, "firing", 3},
		{`alertname="GPUHot",severity="auto",node="a",gpu="1"`, "firing", 2},
		{`alertname="GPUHot",severity="auto",node="a",gpu="2"`, "firing", 1},
		{`alertname="GPUHot",severity="auto",node="b",gpu="0"`, "pending", 4},
		{`alertname="NodeDiskError",severity="auto",node="a"`, "firing", 1},
		{`alertname="Watchdog",severity="info"`, "firing", 5},
	} {
		since, is := "", ""
		for i := range a.times {
			since += fmt.Sprintf(" %dx9 stale _x49", 3600*i)
			is += " 1x9 stale _x49"
		}
		data += fmt.Sprintf("\t"+began, a.labels, since) + fmt.Sprintf("\t"+state, a.state, a.labels, is)
	}
	storage := promqltest.LoadedStorage(t, data)
	defer storage.Close()
	d := load(t, "alerts")
	at := time.Unix(0, 0).Add(10 * time.Hour)
	vars := dashboards.Vars{
		Interval: time.Minute, Scrape: interval, From: at.Add(-time.Hour), To: at,
		Values: map[string]dashboards.Value{},
	}
	for i := range d.Variables {
		v, chosen := &d.Variables[i], ".*" // a text box or a list, whose words are regular expressions
		if v.Name == "cluster" {
			chosen = "jaguar"
		}
		vars.Values[v.Name] = v.Choose(chosen)
	}
	got, expr := panelShows(t, d, "Flapping", vars, storage, at)
	if want := `{alertname="GPUHot", cluster="jaguar", node="a"} => 5 @[36000000]`; got.Err != nil || got.String() != want {
		t.Errorf("the panel shows %s (%v), want %s\n%s", got, got.Err, want, expr)
	}
}

// panelShows is what the panel's only query finds in the storage at a time, and its text.
func panelShows(
	t *testing.T, d *dashboards.Dashboard, title string, vars dashboards.Vars, data storage.Queryable, at time.Time,
) (*promql.Result, string) {
	t.Helper()
	queries := slices.DeleteFunc(d.Queries(), func(q dashboards.Query) bool { return q.Panel == nil || q.Panel.Title != title })
	if len(queries) != 1 {
		t.Fatalf("the panel has %d queries, want one", len(queries))
	}
	expr, err := dashboards.Substitute(queries[0].Expr, vars)
	if err != nil {
		t.Fatal(err)
	}
	q, err := promqltest.NewTestEngine(t, false, 0, 1e6).NewInstantQuery(t.Context(), data, nil, expr, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q.Exec(t.Context()), expr
}
