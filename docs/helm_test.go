package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// helmCommand is a command of Helm that changes a release, in quotes, on a line of its own or
	// at the end of a comment, up to its end.
	helmCommand = regexp.MustCompile("(?:`|^[ $#]*|: )(helm (?:install|upgrade|rollback|uninstall) [a-z][^`\n]*)")
	inNamespace = regexp.MustCompile(` (--namespace|-n)[ =]\S`)
)

// TestHelmNamespace: each command that changes a release says in which namespace it is. Without it
// Helm looks in the kubeconfig's, and finds no release, or another one.
func TestHelmNamespace(t *testing.T) {
	commands := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".md" && ext != ".txt" && ext != ".yaml" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			for _, m := range helmCommand.FindAllStringSubmatch(line, -1) {
				commands++
				if !inNamespace.MatchString(m[1]) {
					t.Errorf("%s: %s: in which namespace?", path, strings.TrimSpace(m[1]))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if commands < 8 {
		t.Errorf("only %d commands were found", commands)
	}
}
