package mix

import (
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

// built is the folder with the binary that tests run, if one was needed.
var built string

// program builds spillway as users have it, without the race detector of a test binary.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillway-mix-test-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "spillway")
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/spillway").CombinedOutput()
	if err != nil {
		_, _ = os.Stderr.Write(out)
	}
	return path, err
})
