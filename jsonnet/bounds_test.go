package mixin

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/policy"
)

// TestBounds: lib/bounds.libsonnet has the proxy's bounds, and no other file names several.
func TestBounds(t *testing.T) {
	text, err := newVM(embedded).EvaluateAnonymousSnippet("bounds", "import '"+sourceDir+"lib/bounds.libsonnet'")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Capacity, Suspect string }
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	if have, want := sorted(strings.Split(got.Capacity, "|")), sorted(policy.CapacityBounds()); !slices.Equal(have, want) {
		t.Errorf("capacity is %v, and %v in the proxy", have, want)
	}
	if got.Suspect != policy.BoundQuarantine {
		t.Errorf("suspect is %s", got.Suspect)
	}
	err = fs.WalkDir(embedded, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "lib/bounds.libsonnet" {
			return err
		}
		b, err := fs.ReadFile(embedded, name)
		for _, bound := range policy.CapacityBounds() {
			if s := string(b); strings.Contains(s, "|"+bound) || strings.Contains(s, bound+"|") {
				t.Errorf("%s lists bounds, %s among them: import lib/bounds.libsonnet", name, bound)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
