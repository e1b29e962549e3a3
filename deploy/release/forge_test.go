package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	target = regexp.MustCompile(`(?m)^([a-z-]+):.*## `)
	// step is a call of one target, perhaps with variables, and nothing that a shell would make
	// more of.
	step = regexp.MustCompile(`^make ([a-z-]+)(?: [A-Z]+=(?:[A-Za-z0-9./:-]+|"\$\{GITHUB_REF_NAME#v\}"))*$`)
	// pinned is an action by its commit, with the version in a comment.
	pinned = regexp.MustCompile(`uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

// TestWorkflows: the forge runs what everybody can run, with rights to read and actions that cannot
// change under their names.
func TestWorkflows(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range target.FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, m[1])
	}
	files, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v: %q", err, files)
	}
	ran := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var flow struct {
			Name        string            `json:"name"`
			On          map[string]any    `json:"on"`
			Permissions map[string]string `json:"permissions"`
			Jobs        map[string]struct {
				If     string `json:"if"`
				RunsOn string `json:"runs-on"`
				Limit  int    `json:"timeout-minutes"`
				Steps  []struct {
					Uses string         `json:"uses"`
					Run  string         `json:"run"`
					With map[string]any `json:"with"`
				} `json:"steps"`
			} `json:"jobs"`
		}
		// on is a truth value in YAML 1.1.
		if err := yaml.UnmarshalStrict([]byte(strings.Replace(string(text), "\non:", "\n\"on\":", 1)), &flow); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if len(flow.On) == 0 || len(flow.Jobs) == 0 || len(flow.Permissions) != 1 || flow.Permissions["contents"] != "read" {
			t.Errorf("%s: %+v", file, flow)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(strings.TrimRight(line, "\n")) {
				t.Errorf("%s: this action is not pinned: %s", file, line)
			}
		}
		for name, job := range flow.Jobs {
			if job.Limit == 0 {
				t.Errorf("%s: %s has no end", file, name)
			}
			for _, s := range job.Steps {
				if s.Uses != "" {
					continue
				}
				m := step.FindStringSubmatch(s.Run)
				if m == nil || !slices.Contains(targets, m[1]) {
					t.Errorf("%s: %s runs %q, which is no target of the Makefile", file, name, s.Run)
					continue
				}
				ran[m[1]] = true
			}
		}
	}
	for _, want := range []string{"test", "vulncheck", "release"} {
		if !ran[want] {
			t.Errorf("no workflow runs make %s", want)
		}
	}
}

// TestGoreleaserBuildsNothing: there is one way to build a release, and goreleaser publishes what
// that made, from where it is.
func TestGoreleaserBuildsNothing(t *testing.T) {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Builds             []struct{ Skip bool }
		Checksum           struct{ Disable bool }
		Dist               string
		Archives, Dockers  []any
		Sboms, Nfpms, Kos  []any
		Signs, DockerSigns []any
		Release            struct {
			Draft      bool
			ExtraFiles []struct{ Glob string } `json:"extra_files"`
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	made := len(c.Archives) + len(c.Dockers) + len(c.Sboms) + len(c.Nfpms) + len(c.Kos) + len(c.Signs) + len(c.DockerSigns)
	if len(c.Builds) != 1 || !c.Builds[0].Skip || !c.Checksum.Disable || made > 0 || !c.Release.Draft ||
		len(c.Release.ExtraFiles) != 1 || c.Release.ExtraFiles[0].Glob != "./"+o.out+"/*" || strings.HasPrefix(o.out, c.Dist) {
		t.Errorf("%+v", c)
	}
}

// TestGoreleaser has goreleaser itself read its configuration.
func TestGoreleaser(t *testing.T) {
	if !*cold {
		t.Skip("builds goreleaser, three minutes: run with -release.cold, as make test-full does")
	}
	const goreleaser = "github.com/goreleaser/goreleaser/v2@v2.16.0"
	check := func(file string) (string, error) {
		out, err := exec.Command("go", "run", goreleaser, "check", "-f", file).CombinedOutput()
		return string(out), err
	}
	if out, err := check("../../.goreleaser.yaml"); err != nil || !strings.Contains(out, "1 configuration file(s) validated") {
		t.Errorf("%v: %s", err, out)
	}
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	save(t, wrong, strings.Replace(string(text), "extra_files:", "extra_filez:", 1))
	if out, err := check(wrong); err == nil || !strings.Contains(out, "extra_filez") {
		t.Errorf("a key that is none: %v: %s", err, out)
	}
}

// TestVulncheck: a check that could not be made is not one that was passed. go and govulncheck are
// stand-ins, since the database of vulnerabilities is not on this machine.
func TestVulncheck(t *testing.T) {
	bin := t.TempDir()
	for _, tc := range []struct {
		name, install, run string
		code               int
		want               string
	}{
		{"nothing is known", "exit 0", "echo 'No vulnerabilities found.'", 0, "No vulnerabilities found."},
		{"something is known", "exit 0", "echo 'Vulnerability #1: GO-1'; exit 3", 3, "GO-1"},
		{"no database", "exit 0", "echo 'no such host' >&2; exit 1", 2, "Without a network it cannot read the database of vulnerabilities. Nothing was checked."},
		{"no module", "exit 1", "exit 0", 2, "could not be built: it is a Go module that has to be fetched first. Nothing was checked."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stub := "#!/bin/sh\n[ \"$1 $2\" = \"install golang.org/x/vuln/cmd/govulncheck@v1.9.0\" ] || exit 9\n" +
				"printf '#!/bin/sh\\n%s\\n' \"$RUN\" >\"$GOBIN/govulncheck\" && chmod +x \"$GOBIN/govulncheck\"\n" + tc.install + "\n"
			if err := os.WriteFile(filepath.Join(bin, "go"), []byte(stub), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("../../tools/vulncheck.sh")
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RUN="+tc.run)
			out, err := cmd.CombinedOutput()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tc.code || !strings.Contains(string(out), tc.want) {
				t.Errorf("exit code %d, want %d: %s", code, tc.code, out)
			}
		})
	}
}
