package cost

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// TestThroughTheProxy bills half a day of two clusters, the first of which has its two
// kube-state-metrics replicas on two shards, through a proxy whose limits are so low that queries
// must be halved, and compares it with the truth; and once more with a shard gone, where there must
// be no bill.
func TestThroughTheProxy(t *testing.T) {
	from := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	worlds := []*month{}
	text := "groups:\n"
	var last interface{ Close() error }
	for i, name := range []string{"jaguar", "ibis"} {
		w := &month{t: t, from: from, to: from.Add(12 * time.Hour), scrape: time.Minute}
		w.gap = cluster.Gap{From: from.Add(7 * time.Hour), Until: from.Add(10 * time.Hour)}
		var err error
		w.model, err = cluster.New(cluster.Options{
			Seed: uint64(i + 1), Cluster: name, Nodes: 4, GPUsPerNode: 2, NodesPerRack: 2,
			Start: from.Add(-48 * time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("  - name: %s\n    labels: {cluster: %s}\n    shards:\n", name, name)
		first := w.serve()
		second := first
		text += fmt.Sprintf("      - replicas: [{url: %q}]\n", first.URL())
		if i == 0 {
			second = w.serve()
			text += fmt.Sprintf("      - replicas: [{url: %q}]\n", second.URL())
		}
		w.fill(first, second)
		worlds = append(worlds, w)
		last = first
	}
	url, _ := servertest.Start(t, text+"limits: {max_series: 24}\n")
	c := testClient(t, url)
	halved := map[string]int{}
	c.Log = func(format string, args ...any) {
		said := fmt.Sprintf(format, args...)
		t.Log(said)
		for _, what := range []string{"windows", "namespaces"} {
			if strings.Contains(said, "is halved to") && strings.Contains(said, what+":") {
				halved[what]++
			}
		}
	}
	o := Options{
		Client: c, Range: Range{from, from.Add(12 * time.Hour), time.UTC}, By: []Dimension{Cluster, Team, Experiment}, Directory: directory,
		Now: func() time.Time { return from.Add(72 * time.Hour) },
	}
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"jaguar", "ibis"} {
		w := worlds[i]
		billed := map[string]float64{}
		for _, r := range b.Rows {
			if r.Keys[0] == name {
				billed[r.Keys[1]+" "+r.Keys[2]] += r.GPUHours.Hours()
			}
		}
		truth := w.truth(w.from, w.to, func(x *cluster.Experiment, _ string) string { return teamOf(x) + " " + x.Name })
		worst := compare(t, name, truth, billed)
		t.Logf("%s: %.3f GPU hours billed, %.3f in truth, no row more than %.3f away", name, sum(billed), sum(truth), worst)
	}
	if halved["windows"] == 0 || halved["namespaces"] == 0 {
		t.Errorf("no query had to be halved by %v: lower max_series", halved)
	}
	if len(b.Gaps) != 2 || b.Total.Measured == 0 {
		t.Errorf("gaps %v, measured %s", b.Gaps, b.Total.Measured)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if b, err := Make(ctx, o); err == nil {
		t.Errorf("with a shard gone there is a bill of %s GPU hours", b.Total.GPUHours)
	} else if !strings.Contains(err.Error(), "deadline") && !strings.Contains(err.Error(), "ibis") {
		t.Errorf("with a shard gone: %v", err)
	}
}
