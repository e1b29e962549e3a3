package live

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			_ = os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}

// built is the folder with the program that tests run, if one was needed.
var built string

// binary builds spillway as users have it, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillway-dashboards-test-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "spillway")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/spillway").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build spillway: %w\n%s", err, out)
	}
	return path, nil
})
