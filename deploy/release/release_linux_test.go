package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/deploy/program"
	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/realprom"
)

// told is what a release is made of here instead of git's answers.
var told = program.Source{Version: "1.2.3", Revision: "0123456789abcdef", Created: time.Unix(1700000000, 0).UTC()}

// TestRelease packs a release for this machine, and does with it what somebody does who finds it:
// the checksums are right, the archive is complete, its list is what the program says of itself,
// and the program, started, tells its version wherever it tells one.
func TestRelease(t *testing.T) {
	t.Chdir("../..")
	platform := "linux/" + runtime.GOARCH
	programs, err := build(t.Context(), told, platform, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packed := func() (string, map[string][]byte) {
		r := release{source: told, programs: programs, notes: []byte("- [FEATURE] all of it\n")}
		r.beside = []file{{"plugin-0.1.0.zip", 0o644, []byte("a plugin")}}
		if r.files, err = common(t.Context(), told); err != nil {
			t.Fatal(err)
		}
		if r.chart, err = chartFiles(filepath.Dir(chartFile)); err != nil {
			t.Fatal(err)
		}
		all, err := r.pack()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "release")
		if err := write(dir, all, io.Discard); err != nil {
			t.Fatal(err)
		}
		return dir, all
	}
	dir, all := packed()
	_, again := packed()
	for name, content := range all {
		if !bytes.Equal(again[name], content) {
			t.Errorf("%s is not the same the second time", name)
		}
	}
	name := "spillway-1.2.3.linux-" + runtime.GOARCH
	want := []string{"NOTES.md", checksums, "plugin-0.1.0.zip", name + ".cdx.json", name + ".tar.gz", "spillway-chart-1.2.3.tgz"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	check := exec.Command("sh", "-ec", onPage(t, "docs/release.md", "sha256sum --check "))
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(want)-1 {
		t.Errorf("%v: %s", err, out)
	}
	root := filepath.Join(unpack(t, all[name+".tar.gz"]), name)
	t.Run("complete", func(t *testing.T) { isComplete(t, root) })
	t.Run("list", func(t *testing.T) { isListed(t, filepath.Join(root, "spillway"), all[name+".cdx.json"]) })
	t.Run("version", func(t *testing.T) { tells(t, filepath.Join(root, "spillway"), "1.2.3") })
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	slices.Sort(all)
	return all
}

// unpack opens an archive, each file of which has to be root's, of the commit's time, and what
// everybody may read.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	root := t.TempDir()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		mode := int64(0o644)
		if filepath.Base(h.Name) == "spillway" && !strings.Contains(h.Name, "completions") {
			mode = 0o755
		}
		if h.Typeflag != tar.TypeReg || h.Mode != mode || h.Uid+h.Gid != 0 || h.ModTime.Unix() != 1700000000 || !filepath.IsLocal(h.Name) {
			t.Errorf("%+v", h)
		}
		path := filepath.Join(root, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(path, b, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isComplete looks whether the archive has what it is said to have, and no empty file.
func isComplete(t *testing.T, root string) {
	for _, name := range []string{
		"spillway", "LICENSE", "README.md", "CHANGELOG.md", "spillway.service",
		"completions/bash/spillway", "completions/zsh/_spillway", "completions/fish/spillway.fish",
		"man/man1/spillway.1", "man/man1/spillway-proxy.1", "man/man1/spillway-rehearse-upgrade.1",
	} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() < 100 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// isListed compares the list of what is in the program with what go version -m says.
func isListed(t *testing.T, path string, list []byte) {
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); {
		case len(f) >= 3 && f[0] == "=>": // in the place of the line before
			want[len(want)-1] = f[1] + " " + f[2]
		case len(f) >= 3 && f[0] == "dep":
			want = append(want, f[1]+" "+f[2])
		case strings.HasPrefix(line, path):
			want = append(want, "std "+f[1])
		}
	}
	var bom struct {
		Components []struct{ Name, Version string }
		Metadata   struct{ Component struct{ Version string } }
	}
	if err := json.Unmarshal(list, &bom); err != nil {
		t.Fatal(err)
	}
	for _, c := range bom.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) < 50 || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("of %s are listed\n%s\nlinked are\n%s", bom.Metadata.Component.Version, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// tells looks which version a program says it has: as a command and as a flag, in its metric, and
// to the servers that it asks.
func tells(t *testing.T, path, version string) {
	for _, word := range []string{"version", "--version"} {
		out, err := exec.Command(path, word).Output()
		if err != nil || !strings.HasPrefix(string(out), "spillway, version "+version+" ") ||
			!strings.Contains(string(out), "0123456789abcdef") {
			t.Errorf("spillway %s: %v: %s", word, err, out)
		}
	}
	shard := fakeshard.Start(t, fakeshard.Config{})
	config := filepath.Join(t.TempDir(), "spillway.yaml")
	text := fmt.Sprintf("groups: [{name: a, labels: {cluster: a}, shards: [{replicas: [{url: %q}]}]}]\n", shard.URL())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p, api, admin, err := realprom.StartProxy(t.Context(), path, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Errorf("%v\n%s", err, p.Log())
		}
	}()
	if err := p.WaitReady(t.Context(), api+"/-/ready"); err != nil {
		t.Fatal(err)
	}
	get := func(url string) string {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v, status %d: %s", url, err, resp.StatusCode, b)
		}
		return string(b)
	}
	get(api + "/api/v1/query?query=up")
	defer http.DefaultClient.CloseIdleConnections()
	info := ""
	for line := range strings.Lines(get(admin + "/metrics")) {
		if strings.HasPrefix(line, "spillway_build_info{") {
			info = line
		}
	}
	if !strings.Contains(info, fmt.Sprintf(",version=%q}", version)) {
		t.Errorf("the metric is %q", info)
	}
	asked := shard.RequestsTo("/api/v1/query")
	if len(asked) == 0 {
		t.Error("the server was not asked")
	}
	for _, r := range shard.Requests() {
		if got := r.Header.Get("User-Agent"); got != "Spillway/"+version {
			t.Errorf("%s was asked by %q", r.Path, got)
		}
	}
}

// TestCold makes the release twice, the second time from a copy of the tree under another path, and
// with nothing kept of the first build.
func TestCold(t *testing.T) {
	if !*cold {
		t.Skip("takes a quarter of an hour: run with -release.cold, as make test-full does; TestRelease packs twice from one build")
	}
	clone := func() string {
		tree := filepath.Join(t.TempDir(), "tree")
		if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", "../..", tree).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		// The lines of a version, which only a released commit has.
		for _, args := range [][]string{
			{"go", "run", "./deploy/release", "-cut", "-version=1000.0.0"},
			{"git", "-c", "user.name=t", "-c", "user.email=t@t.invalid", "commit", "-q", "-a", "-m", "1000.0.0"},
		} {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir, cmd.Env = tree, append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", args, err, out)
			}
		}
		return tree
	}
	released := func(tree string, env ...string) string {
		cmd := exec.Command("go", "run", "./deploy/release", "-version=1000.0.0", "-platforms=linux/amd64,linux/arm64")
		cmd.Dir, cmd.Env = tree, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return filepath.Join(tree, "dist/release")
	}
	first, second := released(clone()), released(clone(), "GOCACHE="+t.TempDir())
	if a, b := names(t, first), names(t, second); !slices.Equal(a, b) || len(a) != 7 {
		t.Fatalf("%q and %q", a, b)
	}
	for _, name := range names(t, first) {
		a, errA := os.ReadFile(filepath.Join(first, name))
		b, errB := os.ReadFile(filepath.Join(second, name))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not the same in both: %v, %v", name, errA, errB)
		}
	}
}

// TestPlatforms: the program can be built for each platform that a release has, and is for that.
func TestPlatforms(t *testing.T) {
	if !*cold {
		t.Skip("compiles everything for three platforms: run with -release.cold, as make test-full does; TestRelease has this machine's")
	}
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := build(t.Context(), told, o.platforms, t.TempDir())
	if err != nil || len(programs) != 3 {
		t.Fatalf("%v: %d programs", err, len(programs))
	}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p.path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, s := range info.Settings {
			found[s.Key] = s.Value
		}
		if found["GOOS"]+"/"+found["GOARCH"] != p.platform.String() || found["CGO_ENABLED"] != "0" || found["-trimpath"] != "true" {
			t.Errorf("%s: %v", p.platform, found)
		}
	}
}

// TestPlainBuilds: what a program says that was built without make release, from a clone, from a
// changed one, and from files without git.
func TestPlainBuilds(t *testing.T) {
	if !*cold {
		t.Skip("links the program three times: run with -release.cold, as make test-full does; internal/cli has a table of what is said")
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", "../..", tree).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	head, err := exec.Command("git", "-C", tree, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(head))
	says := func() string {
		path := filepath.Join(t.TempDir(), "spillway")
		cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/spillway")
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "GOFLAGS=-buildvcs=auto")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.Command(path, "version").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))[2]
	}
	if v := says(); !strings.HasSuffix(v, commit) {
		t.Errorf("of a clone at %s: %s", commit, v)
	}
	if err := os.WriteFile(filepath.Join(tree, "cmd/spillway/more.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v := says(); !strings.HasSuffix(v, commit+"+dirty") {
		t.Errorf("of a changed clone: %s", v)
	}
	if err := os.RemoveAll(filepath.Join(tree, ".git")); err != nil {
		t.Fatal(err)
	}
	if v := says(); v != "unknown" {
		t.Errorf("of files without git: %s", v)
	}
}
