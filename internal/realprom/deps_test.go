package realprom

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLinksNoDatabase: whoever starts real servers does not link an embedded one for it.
func TestLinksNoDatabase(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list names %d packages", len(deps))
	}
	for _, dep := range deps {
		if strings.HasPrefix(dep, "github.com/prometheus/prometheus/tsdb") || strings.HasSuffix(dep, "/internal/localprom") {
			t.Errorf("it links %s", dep)
		}
	}
}
