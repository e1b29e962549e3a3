package realpromtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// folder is where the programs are built.
var folder = sync.OnceValues(func() (dir string, err error) {
	used, err = os.MkdirTemp("", "spillway-built-")
	return used, err
})

// builds are those of the programs, each made once.
var builds = map[string]func() (string, error){
	"spillway":     sync.OnceValues(build("spillway")),
	"spillway-lab": sync.OnceValues(build("spillway-lab")),
}

func build(name string) func() (string, error) {
	return func() (string, error) {
		dir, err := folder()
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, name)
		if out, err := exec.Command("go", "build", "-o", file,
			"github.com/spillwayproject/spillway/cmd/"+name).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return file, depend("github.com/spillwayproject/spillway/cmd/" + name)
	}
}

// depend looks at all that the program is built from. go test keeps the result of a package until
// what it has imported or looked at changes, and would repeat that of another program.
func depend(program string) error {
	const each = `{{if and .Module .Module.Main}}{{.Dir}}{{range .EmbedFiles}}|{{.}}{{end}}{{end}}`
	out, err := exec.Command("go", "list", "-deps", "-f", each, program).Output()
	if err != nil {
		return fmt.Errorf("list what %s is built from: %w", program, err)
	}
	for line := range strings.Lines(string(out)) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		if parts[0] == "" {
			continue
		}
		if _, err := os.ReadDir(parts[0]); err != nil {
			return err
		}
		for _, file := range parts[1:] {
			if _, err := os.Stat(filepath.Join(parts[0], file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// used is what Main removes; "" where no test asked for the program.
var used string

// Spillway is the path of the program as users have it, built once for each test binary: the race
// detector of the tests would multiply its memory and its time. The package's TestMain is Main,
// which removes it.
func Spillway(t testing.TB) string {
	t.Helper()
	return program(t, "spillway")
}

// Laboratory is the path of spillway-lab, likewise.
func Laboratory(t testing.TB) string {
	t.Helper()
	return program(t, "spillway-lab")
}

func program(t testing.TB, name string) string {
	t.Helper()
	file, err := builds[name]()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Main runs the tests of a package, fails where goroutines are left, and removes what Spillway
// built. It does not return.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if used != "" {
			_ = os.RemoveAll(used)
		}
		os.Exit(code)
	}))
}
