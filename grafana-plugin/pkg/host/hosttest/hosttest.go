// Package hosttest builds the datasource's program for tests that run it with package host. It runs
// the go command and nothing else; a build takes seconds where packages are compiled already, a
// minute or two where they are not.
package hosttest

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build compiles the plugin from source into a folder, which must exist, and returns the program's
// path. The error has what the compiler said.
func Build(dir string) (string, error) {
	to := filepath.Join(dir, "gpx_spillway_experiments")
	out, err := exec.Command("go", "build", "-o", to, "github.com/spillwayproject/spillway/grafana-plugin/pkg").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the plugin: %w\n%s", err, out)
	}
	return to, nil
}
