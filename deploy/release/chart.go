package main

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// chartFiles are the files of the Helm chart's folder with what its links lead to in their places:
// the mixin's rules and dashboards are links, which whoever copies that folder alone loses, and
// Flux leaves out. What .helmignore names is for the repository.
func chartFiles(folder string) ([]file, error) {
	var out []file
	var walk func(name string) error
	walk = func(name string) error {
		entries, err := os.ReadDir(filepath.Join(folder, filepath.FromSlash(name))) // sorted
		if err != nil {
			return err
		}
		for _, e := range entries {
			one := path.Join(name, e.Name())
			at := filepath.Join(folder, filepath.FromSlash(one))
			info, err := os.Stat(at) // of what a link leads to
			switch {
			case err != nil:
				return err
			case one == "ci" || strings.HasSuffix(one, ".tgz"):
			case info.IsDir():
				if err := walk(one); err != nil {
					return err
				}
			default:
				b, err := os.ReadFile(at)
				if err != nil {
					return err
				}
				out = append(out, file{one, 0o644, b})
			}
		}
		return nil
	}
	return out, walk("")
}
