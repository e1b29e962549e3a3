package propose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// sampled proposes with a sample of what merges.
func sampled(t *testing.T, src memory, set *uses.Set) ([]propose.Rule, []propose.Refusal) {
	t.Helper()
	inv, err := inventory.Collect(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	index := set.Index(uses.External, inv.Known())
	o := propose.Options{Risk: propose.High}
	o.Collisions = propose.NewCollisions(inv, set, index, o)
	for _, ls := range src {
		index.Observe(ls)
		o.Collisions.Observe(ls)
	}
	return propose.Propose(inv, set, index, o)
}

// TestCollisions: of labels that no answer depends on, the one that can go is proposed, however
// many values those have that cannot; and these are refused with two series that show it.
func TestCollisions(t *testing.T) {
	var src memory
	for i := range 2000 {
		src = append(src, labels.FromStrings("__name__", "a", "job", "j", "instance", "i", "ns", fmt.Sprint(i/2%10), "pod",
			fmt.Sprintf("p%d", i/2), "uid", fmt.Sprintf("u%d", i/4), "shard", fmt.Sprint(i)))
	}
	rules, refused := sampled(t, src, queries("sum by (ns) (a)"))
	// shard alone tells series apart, so that it cannot go; pod and uid can, one of them.
	if got, want := show(rules), []string{"j/label/pod high a pod"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
	if len(refused) != 1 || refused[0].Label != "shard" {
		t.Fatalf("refused %+v, want shard", refused)
	}
	r := refused[0]
	if len(r.Examples) != 1 || strings.Count(r.Examples[0], "shard=") != 2 || !strings.Contains(r.Instead, "sum without (shard)") {
		t.Errorf("%+v", r)
	}
	if r.Saves.Series != 1000 {
		t.Errorf("aggregating would save %d, want half of them", r.Saves.Series)
	}
	again, _ := sampled(t, src, queries("sum by (ns) (a)"))
	if !slices.Equal(show(rules), show(again)) {
		t.Errorf("made twice: %q and %q", show(rules), show(again))
	}
}

// TestCollisionsEstimate: what aggregation would save is about what it saves, from a sample of
// thirty groups.
func TestCollisionsEstimate(t *testing.T) {
	var src memory
	for i := range 5000 {
		src = append(src, labels.FromStrings("__name__", "a_total", "job", "j", "instance", "i", "code", fmt.Sprint(i/10), "worker",
			fmt.Sprint(i%10)))
	}
	_, refused := sampled(t, src, queries("sum by (code) (rate(a_total[5m]))"))
	if len(refused) != 1 || refused[0].Label != "worker" || refused[0].Saves.Series != 4500 {
		t.Errorf("refused %+v, want worker with 4500 series", refused)
	}
}
