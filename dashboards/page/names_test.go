package page

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Every second experiment gets a name, and its team too, until there are no more names; the others
// keep theirs.
func TestNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names.json")
	names := []string{"<i>a</i>", "b\nc"}
	if err := os.WriteFile(file, []byte(`["<i>a</i>", "b\nc"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	ask, err := Names(file, 2)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	o := cluster.Options{Nodes: 40, Start: now.Add(-30 * 24 * time.Hour)}
	m, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	all := m.Experiments(now.Add(-30*time.Minute), now.Add(-5*time.Minute))
	if len(all) < 4 {
		t.Fatalf("%d experiments are too few to see anything", len(all))
	}
	if o.Called, err = ask(m, now); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range []int{1, 3} {
		c := o.Called[all[i].Name]
		got = append(got, c.Experiment)
		if c.Team != c.Experiment {
			t.Errorf("%q has the team %q", c.Experiment, c.Team)
		}
	}
	if !slices.Equal(got, names) || len(o.Called) != 2 {
		t.Errorf("named are %q, of %v", got, o.Called)
	}
	if _, err := cluster.New(o); err != nil {
		t.Error(err)
	}
	if second, err := ask(m, now); err != nil || len(second) > 0 {
		t.Errorf("the second cluster, when there are no more names: %v, %v", second, err)
	}
	// Clusters that are too small say so, the last one.
	if err := os.WriteFile(file, []byte("["+strings.Repeat(`"x",`, 99)+`"y"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if ask, err = Names(file, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(m, now); err != nil {
		t.Errorf("the first cluster: %v", err)
	}
	if _, err := ask(m, now); err == nil || !strings.Contains(err.Error(), "names more than the demo's clusters have experiments") {
		t.Errorf("the last cluster: %v", err)
	}
}
