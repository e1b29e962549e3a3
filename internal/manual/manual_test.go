package manual

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

func app(t *testing.T) *kingpin.Application {
	t.Helper()
	e, _ := cli.Spillway.Declare(t.Context(), t.Context(), io.Discard, io.Discard)
	return e.App
}

// lines are command lines whose last word is not finished, and all that may stand there.
func lines(t *testing.T) map[string][]string {
	t.Helper()
	m := app(t).Model()
	flags := func(list ...[]*kingpin.FlagModel) (names []string) {
		for _, f := range slices.Concat(list...) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		}
		return names
	}
	out := map[string][]string{"--": flags(m.Flags), "mixin render --format ": {"files", "k8s"}, "relabel pl": {"plan"}, "rel": {"relabel"}}
	var add func(before string, commands []*kingpin.CmdModel)
	add = func(before string, commands []*kingpin.CmdModel) {
		for _, c := range commands {
			out[before] = append(out[before], c.Name)
			if len(c.Commands) > 0 {
				add(before+c.Name+" ", c.Commands)
			} else {
				out[before+c.Name+" --"] = flags(m.Flags, c.Flags)
			}
		}
	}
	add("", m.Commands)
	if len(out) < 15 || !slices.Contains(out["check "], "config") || !slices.Contains(out["proxy --"], "--web.listen-address") {
		t.Fatalf("the command line is not what this test knows: %v", out)
	}
	return out
}

// shells read the script that is $SCRIPT, and for each line of standard input print what it offers
// after the program's name, in one line. None of them reads its user's own files.
var shells = map[string][]string{
	"bash/spillway": {"bash", "--norc", "-c", `
		source "$SCRIPT" || exit
		[[ $(complete -p spillway) =~ -F\ ([^ ]+) ]] || exit
		while IFS= read -r line; do
			read -r -a COMP_WORDS <<<"spillway $line"
			[[ $line && $line != *' ' ]] || COMP_WORDS+=("")
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
			"${BASH_REMATCH[1]}"
			echo "${COMPREPLY[*]}"
		done`},
	// As zsh loads it: the first call of the function is what reads the file.
	"zsh/_spillway": {"zsh", "-f", "-c", `
		fpath=(${SCRIPT:h} $fpath)
		autoload -Uz _spillway
		typeset -A compstate=(nmatches 1)
		compadd() { offered=(${(M)${(P)2}:#${words[CURRENT]}*}) }
		while IFS= read -r line; do
			words=(spillway ${=line})
			if [[ -z $line || $line == *' ' ]]; then words+=(""); fi
			CURRENT=$#words offered=()
			_spillway
			print -r -- $offered
		done`},
	"fish/spillway.fish": {"fish", "--no-config", "-c", `
		source $SCRIPT
		while read -l line
			string join -- ' ' (complete -C "spillway $line")
		end`},
}

// TestCompletions has each shell complete with its script, at each place of the command line, with
// the program as users have it: it offers all commands and flags that are served there, and no
// other.
func TestCompletions(t *testing.T) {
	scripts, err := Completions(app(t))
	if err != nil || len(scripts) != len(shells) {
		t.Fatalf("%v: %d scripts for %d shells", err, len(scripts), len(shells))
	}
	bin := filepath.Dir(realpromtest.Spillway(t))
	all := lines(t)
	var asked []string
	for line := range all {
		asked = append(asked, line)
	}
	slices.Sort(asked)
	for path, shell := range shells {
		t.Run(shell[0], func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skipf("%s is not on this machine (tools/debian.sh shells installs it): its script is not tried", shell[0])
			}
			script := filepath.Join(t.TempDir(), filepath.Base(path))
			if err := os.WriteFile(script, scripts[path], 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(shell[0], shell[1:]...)
			cmd.Env = append(os.Environ(), "SCRIPT="+script, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
			cmd.Dir = t.TempDir() // no file is there that could be offered
			cmd.Stdin = strings.NewReader(strings.Join(asked, "\n") + "\n")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			if err != nil || errs.Len() > 0 || len(got) != len(asked) {
				t.Fatalf("%v: %d answers to %d lines\n%s", err, len(got), len(asked), errs.String())
			}
			for i, line := range asked {
				have := slices.DeleteFunc(strings.Fields(got[i]), func(s string) bool { return s == "help" }) // kingpin's own
				want := slices.Clone(all[line])
				slices.Sort(have)
				slices.Sort(want)
				if !slices.Equal(have, want) {
					t.Errorf("spillway %s| offers\n%q, want\n%q", line, have, want)
				}
			}
		})
	}
}

// TestMan: there is a page for each command, with all that its help has; roff finds nothing to
// complain of, and shows the text as it stands in the program.
func TestMan(t *testing.T) {
	a := app(t)
	day := time.Unix(1700000000, 0).UTC()
	pages := Man(a, "1.2.3", day)
	again := Man(app(t), "1.2.3", day)
	commands := 0
	for _, c := range a.Model().FlattenedCommands() {
		if c.Name == "help" {
			continue
		}
		commands++
		name := "spillway-" + strings.ReplaceAll(c.FullCommand, " ", "-") + ".1"
		holds(t, pages, name, c.FlagGroupModel, c.Help)
		for _, arg := range c.Args {
			if !strings.Contains(string(pages[name]), ".TP\n\\fI"+text(arg.Name)+"\\fR\n") {
				t.Errorf("%s lacks the argument %s", name, arg.Name)
			}
		}
		if !strings.Contains(string(pages["spillway.1"]), `\fB`+text(strings.TrimSuffix(name, ".1"))+`\fR(1)`) {
			t.Errorf("spillway.1 does not name %s", name)
		}
	}
	holds(t, pages, "spillway.1", a.Model().FlagGroupModel, a.Help)
	if len(pages) != commands+1 || commands < 10 {
		t.Errorf("%d pages of %d commands", len(pages), commands)
	}
	for name, page := range pages {
		if !bytes.Equal(page, again[name]) {
			t.Errorf("%s is another one the second time", name)
		}
	}
	for tool, args := range map[string][]string{
		"groff":  {"-ww", "-z", "-man", "-Tutf8"},
		"mandoc": {"-T", "lint", "-W", "warning"},
	} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("%s is not on this machine (tools/debian.sh shells installs it): it has not read the pages", tool)
			continue
		}
		for name, page := range pages {
			cmd := exec.Command(tool, args...)
			cmd.Stdin = bytes.NewReader(page)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s %s: %v\n%s", tool, name, err, out)
			}
		}
	}
}

// holds says what of a command is not on its page.
func holds(t *testing.T, pages map[string][]byte, name string, flags *kingpin.FlagGroupModel, help string) {
	t.Helper()
	page := string(pages[name])
	if !strings.Contains(page, ".SH DESCRIPTION\n"+sentences(help)+"\n") || !strings.Contains(page, `"2023-11-14" "spillway 1.2.3"`) {
		t.Errorf("%s is:\n%s", name, page)
	}
	for _, f := range flags.Flags {
		long := `\fB` + text("--"+f.Name) + `\fR`
		if f.IsBoolFlag() && f.Name != "help" && f.Name != "version" {
			long = `\fB` + text("--[no-]"+f.Name) + `\fR`
		}
		if strings.Contains(page, long) == f.Hidden || !f.Hidden && !strings.Contains(page, "\n"+sentences(f.HelpWithEnvar())+"\n") {
			t.Errorf("%s: --%s, hidden %t", name, f.Name, f.Hidden)
		}
	}
}

// TestTextIsNoInstruction: what roff would take for its own is shown as it is.
func TestTextIsNoInstruction(t *testing.T) {
	const hostile = ".so /etc/passwd\n'br \\fB --a-b ~ ^ ` é…"
	want := `\&.so /etc/passwd` + "\n" + `\&\(aqbr \efB \-\-a\-b \(ti \(ha \(ga \[u00E9]\[u2026]`
	if got := text(hostile); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not on this machine: it does not show the text")
	}
	file := filepath.Join(t.TempDir(), "x.1")
	page := ".TH X 1 2023-11-14 x x\n.SH NAME\nx \\- y\n.SH DESCRIPTION\n.nf\n" + text(hostile) + "\n"
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("man", "-l", file)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=80")
	out, err := cmd.CombinedOutput()
	for _, line := range strings.Split(hostile, "\n") {
		if err != nil || !strings.Contains(string(out), line) {
			t.Errorf("%v: man does not show %q:\n%s", err, line, out)
		}
	}
}
