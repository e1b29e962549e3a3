package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/internal/cli"
)

// codeLine is a line of an indented or fenced block that runs one of the programs, inlineCode one
// that stands in a sentence.
var (
	codeLine   = regexp.MustCompile(`^\s*(?:\$ )?(?:\./dist/|go run \./cmd/)?(spillway|spillway-lab) ([a-z-].*)$`)
	inlineCode = regexp.MustCompile("`(?:go run \\./cmd/)?(spillway|spillway-lab) ([a-z-][^`]*)`")
)

var programs = map[string]cli.Program{"spillway": cli.Spillway, "spillway-lab": Laboratory}

// words splits a line as a shell would that expands nothing: it ends at a comment, a pipe, a
// redirection or another command.
func words(line string) (out []string) {
	var word strings.Builder
	var quote rune
	begun := false
	end := func() {
		if begun {
			out = append(out, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			end()
		case quote == 0 && (r == '|' && !begun || r == '>' || r == ';' || r == '&' || r == '#' && !begun):
			end()
			return out
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	return out
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		`explain 'a b{c="d"}' --x="y z"`:   {"explain", `a b{c="d"}`, "--x=y z"},
		"emit plan.json   # a comment":     {"emit", "plan.json"},
		"cost --from=a#b > out && rm -r x": {"cost", "--from=a#b"},
		"demo --a=files|k8s | head":        {"demo", "--a=files|k8s"},
		"a ''":                             {"a", ""},
	} {
		if got := words(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// wrongLine says what is wrong with a command line that somebody is told to type: a command or flag
// that does not exist, or a flag's value that is not taken. Values in a sentence may stand for
// others, and are not looked at.
func wrongLine(program string, args []string, values bool) error {
	if sentence := programs[program].Moved[args[0]]; sentence != "" {
		return errors.New(sentence)
	}
	e, runs := programs[program].Declare(context.Background(), context.Background(), io.Discard, io.Discard)
	c, err := e.App.ParseContext(args)
	if err != nil && !values { // a flag may be named alone
		c, err = e.App.ParseContext(append(slices.Clone(args), "value"))
	}
	if err != nil {
		return err
	}
	if c.SelectedCommand == nil {
		if slices.Contains(args, "--help") || slices.Contains(args, "--version") {
			return nil
		}
		return fmt.Errorf("there is no such command")
	}
	if full := c.SelectedCommand.FullCommand(); values && runs[full] == nil {
		return fmt.Errorf("%s does nothing of itself", full)
	}
	for _, el := range c.Elements {
		if f, ok := el.Clause.(*kingpin.FlagClause); ok && values && el.Value != nil {
			if err := f.Model().Value.Set(*el.Value); err != nil {
				return fmt.Errorf("--%s: %w", f.Model().Name, err)
			}
		}
	}
	return nil
}

// TestCommandLinesOfDocs: what the pages tell people to type is what the program takes.
func TestCommandLinesOfDocs(t *testing.T) {
	root, found := os.DirFS("../.."), map[string]int{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md":
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		// A line that ends with a backslash goes on in the next one.
		for n, line := range strings.Split(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
			look := func(program, line string, values bool) {
				args := words(line)
				found[args[0]]++
				if err := wrongLine(program, args, values); err != nil {
					t.Errorf("%s:%d: %s %s: %v", path, n+1, program, line, err)
				}
			}
			if m := codeLine.FindStringSubmatch(line); m != nil &&
				(line[0] == ' ' || line[0] == '\t' || line[0] == '$' || strings.Contains(line, " --")) {
				look(m[1], m[2], true)
				continue
			}
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				look(m[1], m[2], false)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "cost", "demo", "explain", "loadtest", "mixin", "proxy", "relabel"} {
		if found[command] == 0 {
			t.Errorf("no page has a line that runs %s, so this looks at nothing", command)
		}
	}
}
