package page

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Every kind can be staged, alone and together with all others, in a cluster as small as the demo
// of the tests.
func TestStage(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, nodes := range []int{6, 40} {
		o := cluster.Options{
			Seed: 1, Cluster: "jaguar", Nodes: nodes, Start: now.Add(-30 * 24 * time.Hour),
			Exporters: cluster.AllExporters,
		}
		m, err := cluster.New(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, names := range append([]string{"all"}, TroubleKinds()...) {
			stage, err := Stage([]string{names})
			if err != nil {
				t.Fatal(err)
			}
			staged := stage(m, now)
			want := map[bool]int{true: len(TroubleKinds()), false: 1}[names == "all"]
			if names == "all" && nodes == 6 {
				want -= 2 // with every trouble of six nodes, no experiment runs on
			}
			if len(staged) < want {
				t.Errorf("%d nodes, %s: %d troubles, want %d", nodes, names, len(staged), want)
			}
			with := o
			with.Troubles = staged
			if _, err := cluster.New(with); err != nil {
				t.Errorf("%d nodes, %s: %v", nodes, names, err)
			}
		}
	}
}

func TestStageChooses(t *testing.T) {
	if stage, err := Stage(nil); stage != nil || err != nil {
		t.Errorf("none: %v", err)
	}
	if _, err := Stage([]string{"GPUHot,Nonsense"}); err == nil || !strings.Contains(err.Error(), `"Nonsense"`) ||
		!strings.Contains(err.Error(), "GPUHot") {
		t.Errorf("an unknown kind: %v", err)
	}
	stage, err := Stage([]string{"GPUHot,NodeDown", "GPUHot"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var models []*cluster.Model
	for _, name := range []string{"jaguar", "ibis"} {
		m, err := cluster.New(cluster.Options{Cluster: name, Nodes: 8, Start: now.Add(-24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	var kinds []cluster.Kind
	for _, tr := range stage(models[0], now) {
		kinds = append(kinds, tr.Kind)
	}
	if !slices.Equal(kinds, []cluster.Kind{cluster.GPUHot, cluster.NodeDown}) {
		t.Errorf("staged %v", kinds)
	}
	if other := stage(models[1], now); len(other) > 0 {
		t.Errorf("the second cluster has %v", other)
	}
}
