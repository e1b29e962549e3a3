package realprom

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const modulePath = "github.com/spillwayproject/spillway"

// Find returns the path of a program in tools/bin (prometheus, promtool, thanos), looking upwards
// from the working directory for this module's go.mod. The error says to run `make tools`.
func Find(name string) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", name, err)
	}
	return find(wd, name)
}

func find(dir, name string) (string, error) {
	root, err := moduleRoot(dir)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", name, err)
	}
	bin := filepath.Join(root, "tools", "bin", name)
	info, err := os.Stat(bin)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s is not built: run `make tools` in %s (minutes the first time), then try again", name, root)
	case err != nil:
		return "", fmt.Errorf("look for %s: %w", name, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", fmt.Errorf("%s is not a program: remove it and run `make tools` in %s", bin, root)
	}
	return bin, nil
}

// moduleRoot goes up from dir to the folder with this module's go.mod; the go.mod files of tools/
// and of test data are passed by.
func moduleRoot(dir string) (string, error) {
	for d := dir; ; d = filepath.Dir(d) {
		text, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil {
			for line := range bytes.Lines(text) {
				if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == "module" && string(f[1]) == modulePath {
					return d, nil
				}
			}
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside a checkout of %s: the real servers are built there by `make tools`; change to it and try again", dir, modulePath)
		}
	}
}
