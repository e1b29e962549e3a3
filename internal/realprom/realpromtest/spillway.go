package realpromtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// program is the built one, and the folder that it is in.
var program = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "spillway-built-"); err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "spillway"), "github.com/spillwayproject/spillway/cmd/spillway").CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build spillway: %w\n%s", err, out), os.RemoveAll(dir))
	}
	used = dir
	return dir, nil
})

// used is what Main removes; "" where no test asked for the program.
var used string

// Spillway is the path of the program as users have it, built once for each test binary: the race detector of the tests would multiply its memory and its time. The package's TestMain
// is Main, which removes it.
func Spillway(t testing.TB) string {
	t.Helper()
	dir, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "spillway")
}

// Main runs the tests of a package, fails where goroutines are left, and removes what Spillway built. It does not return.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if used != "" {
			_ = os.RemoveAll(used)
		}
		os.Exit(code)
	}))
}
