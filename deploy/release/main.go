package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"

	"github.com/spillwayproject/spillway/deploy/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// options are the command line.
type options struct {
	out, platforms, key, pages string
	beside                     []string
	cut                        bool
	source                     program.Source
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.source.Version, "version", "", "`version` that is released: a semantic version, 1.2.3 or 1.3.0-rc.1")
	flags.StringVar(&o.out, "out", "dist/release", "`folder` of the release")
	flags.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64,darwin/arm64", "for which `list` of platforms")
	flags.StringVar(&o.key, "sign", "", "sign the checksums with the key in this `file`: ECDSA P-256, PEM")
	flags.Func("beside", "publish this `file` too, such as the plugin's archive; may be given several times", func(s string) error {
		o.beside = append(o.beside, s)
		return nil
	})
	flags.BoolVar(&o.cut, "cut", false, "only give the unreleased lines of CHANGELOG.md to the version")
	flags.StringVar(&o.pages, "pages", "", "only write man pages and completions, into this `folder`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; the flags are: -version, -out, -platforms, -sign, -beside, -cut, -pages", flags.Arg(0))
	}
	return o, nil
}

// run does what the arguments say, in the module's folder, and writes what came of it.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.pages != "" {
		return writePages(ctx, &o.source, o.pages, out)
	}
	if err := ready(ctx, o.source.Version, !o.cut); err != nil {
		return err
	}
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	if o.cut {
		return cutFiles(string(text), o.source.Version, out)
	}
	if err := charted(o.source.Version); err != nil {
		return err
	}
	r := release{}
	if r.notes, err = notes(string(text), o.source.Version); err != nil {
		return err
	}
	var key *ecdsa.PrivateKey
	if o.key != "" { // before minutes of work
		if key, err = readKey(o.key); err != nil {
			return err
		}
	}
	if err := replaceable(o.out); err != nil {
		return err
	}
	if err := o.source.Fill(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "spillway-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left of it harms nobody
	r.source = o.source
	if r.programs, err = build(ctx, o.source, o.platforms, dir); err != nil {
		return err
	}
	if r.files, err = common(ctx, o.source); err != nil {
		return err
	}
	if r.chart, err = chartFiles(filepath.Dir(chartFile)); err != nil {
		return err
	}
	for _, path := range o.beside {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		r.beside = append(r.beside, file{filepath.Base(path), 0o644, b})
	}
	all, err := r.pack()
	if err != nil {
		return err
	}
	if key != nil {
		if all[checksums+".sig"], err = sign(key, all[checksums]); err != nil {
			return err
		}
	}
	return write(o.out, all, out)
}

// ready says why the version cannot be released from this tree. In a release its tag may be there,
// on this very commit: so whoever builds again has the same.
func ready(ctx context.Context, version string, tagged bool) error {
	v := "v" + strings.TrimPrefix(version, "v")
	if v == "v" {
		return errors.New("which version? make release VERSION=1.2.3")
	}
	if semver.Canonical(v) != v {
		return fmt.Errorf("version %q: write a semantic version without build metadata, such as 1.2.3 or 1.3.0-rc.1", version)
	}
	changed, err := git(ctx, "status", "--porcelain")
	if err != nil {
		return fmt.Errorf("a release is made of a clone, which this is not: %w", err)
	}
	if changed != "" {
		list := strings.Split(changed, "\n")
		return fmt.Errorf("the tree is not as it was committed: commit or remove %d files, the first of which is %s", len(list), strings.TrimSpace(list[0]))
	}
	commit, err := git(ctx, "rev-parse", "--verify", "--quiet", "refs/tags/"+v+"^{commit}")
	if err != nil {
		return nil // there is no such tag
	}
	head, err := git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if !tagged || commit != head {
		return fmt.Errorf("version %s is released: the tag %s is at commit %.12s; choose the next version", strings.TrimPrefix(v, "v"), v, commit)
	}
	return nil
}

// git runs git, whoever owns the clone.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.Trim(string(out), "\n"), nil
}

// chartFile is the Helm chart's, which has the program's version.
const chartFile = "deploy/helm/spillway/Chart.yaml"

// versions are the lines of the chart that have it.
var versions = regexp.MustCompile(`(?m)^(version|appVersion): (.*)$`)

// charted says whether the chart is of another version.
func charted(version string) error {
	b, err := os.ReadFile(chartFile)
	if err != nil {
		return err
	}
	version = strings.TrimPrefix(version, "v")
	all := versions.FindAllStringSubmatch(string(b), -1)
	for _, m := range all {
		if m[2] != version {
			return fmt.Errorf("%s has %s %s, and %s is released: make cut VERSION=%s changes it", chartFile, m[1], m[2], version, version)
		}
	}
	if len(all) != 2 {
		return fmt.Errorf("%s has %d lines with versions, not version and appVersion", chartFile, len(all))
	}
	return nil
}

// cutFiles gives the unreleased lines to the version, and the chart its number, and says what is
// next.
func cutFiles(text, version string, out io.Writer) error {
	version = strings.TrimPrefix(version, "v")
	next, err := cut(text, version, time.Now().UTC())
	if err != nil {
		return err
	}
	b, err := os.ReadFile(chartFile)
	if err != nil {
		return err
	}
	b = versions.ReplaceAll(b, []byte("${1}: "+version))
	if err := errors.Join(os.WriteFile("CHANGELOG.md", []byte(next), 0o644), os.WriteFile(chartFile, b, 0o644)); err != nil {
		return err
	}
	fmt.Fprintf(out, "CHANGELOG.md has a section %s, and the chart this version; make generate writes it to where the chart's objects stand. "+
		"Commit all that, then: make release VERSION=%s\n", version, version)
	return nil
}

// replaceable says why a release may not be written into a folder.
func replaceable(to string) error {
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == checksums }) {
		return nil
	}
	return fmt.Errorf("-out %s: the folder holds something else than a release; name an empty or a new one", to)
}

// write puts the files into a folder in the place of the release that is there, and says which.
func write(to string, files map[string][]byte, out io.Writer) error {
	if err := replaceable(to); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty by then, or half a release
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s:\n%s", to, files[checksums])
	return err
}
