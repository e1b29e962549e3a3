package weigh

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestSelectedByGroupLabels: what a selector selects on the same servers depends on the labels of
// their group, which are not sent: a reload that changes these has it counted again.
func TestSelectedByGroupLabels(t *testing.T) {
	of := func(group string, replica ...string) string {
		g := &shard.Group{Name: "jaguar", ReplicaLabels: replica}
		if group != "" {
			g.Labels = labels.FromStrings("cluster", group)
		}
		return (&shard.Shard{Group: g}).Identity()
	}
	seen := map[string]bool{}
	for _, key := range []string{
		of(""), of("jaguar"), of("ibis"), of("jaguar", "replica"), of("", "replica"), of("", "replica", "b"), of("", `replica" "b`),
	} {
		if seen[key] {
			t.Errorf("%q twice", key)
		}
		seen[key] = true
	}
	if !seen[of("jaguar", "replica")] {
		t.Error("the same group has another key each time")
	}
}
