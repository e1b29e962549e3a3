package live

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/spillwayproject/spillway/dashboards"
)

// TestNotReady: the panel names all nodes that are not ready, and their racks where they have any.
func TestNotReady(t *testing.T) {
	storage := promqltest.LoadedStorage(t, `load 1m
		node:ready:max{cluster="jaguar",node="a"} 0x9
		node:rack:info{cluster="jaguar",node="a",rack="r1"} 1x9
		node:ready:max{cluster="jaguar",node="b"} 0x9
		node:ready:max{cluster="jaguar",node="c"} 1x9
		node:ready:max{cluster="ibis",node="a"} 0x9
		node:ready:max{cluster="ibis",node="d"} 1x9
`)
	defer storage.Close()
	d := load(t, "node")
	at := time.Unix(0, 0).Add(5 * time.Minute)
	vars := dashboards.Vars{
		Interval: time.Minute, Scrape: interval, From: at.Add(-time.Hour), To: at,
		Values: map[string]dashboards.Value{},
	}
	for i := range d.Variables {
		v := &d.Variables[i]
		vars.Values[v.Name] = v.Choose("jaguar", "ibis")
	}
	got, expr := panelShows(t, d, "Nodes that are not ready", vars, storage, at)
	v, err := got.Vector()
	if err != nil {
		t.Fatalf("%v\n%s", err, expr)
	}
	var names []string
	for _, s := range v {
		names = append(names, s.Metric.String())
	}
	slices.Sort(names)
	want := []string{`{cluster="ibis", node="a"}`, `{cluster="jaguar", node="a", rack="r1"}`, `{cluster="jaguar", node="b"}`}
	if !slices.Equal(names, want) {
		t.Errorf("the panel shows %q, want %q\n%s", names, want, expr)
	}
}
