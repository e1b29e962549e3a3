package mixin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// TestXidSources: of where Xids can be read but the one of the defaults, which alerts/tests has.
// The cases of testdata/xids are of the rules that the configuration of the same name renders.
func TestXidSources(t *testing.T) {
	for name, config := range map[string]string{"labels.yaml": "labels.yaml", "old.yaml": "old.json"} {
		t.Run(name, func(t *testing.T) {
			files := rendering(t, "testdata/values/"+config)
			dir := t.TempDir()
			if err := files.Write(dir); err != nil {
				t.Fatal(err)
			}
			cases, err := os.ReadFile(filepath.Join("testdata", "xids", name))
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(dir, name)
			if err := os.WriteFile(at, cases, 0o600); err != nil {
				t.Fatal(err)
			}
			realpromtest.Promtool(t, "test", "rules", at)
		})
	}
}
