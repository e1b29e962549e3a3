package demo

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgramOf: the command that the demo prints can be copied.
func TestProgramOf(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for called, want := range map[string]string{
		"":                    "spillway",
		"spillway-lab":        "spillway-lab",
		"/opt/spillway-lab":   "/opt/spillway-lab",
		"./dist/spillway-lab": filepath.Join(here, "dist/spillway-lab"),
		"/tmp/go-build1741/b001/exe/spillway-lab": "go run ./cmd/spillway",
	} {
		if got := programOf(called); got != want {
			t.Errorf("called %q: %s, want %s", called, got, want)
		}
	}
}
