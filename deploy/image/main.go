package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// run builds the image as the arguments say, and writes where to.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var (
		to        = flags.String("out", "dist/image", "`folder` of the OCI image layout; the lists of what is in it (SBOM) go beside it")
		platforms = flags.String("platforms", "linux/amd64,linux/arm64", "for which `list` of platforms")
		push      = flags.String("push", "", "also send it to this registry as `HOST/NAME:TAG`, with the credentials of ~/.docker/config.json")
		s         source
	)
	flags.StringVar(&s.version, "version", "", "`version` that the program tells; default: git describe")
	flags.StringVar(&s.revision, "revision", "", "commit `hash`; default: git's")
	created := flags.Int64("created", 0, "`seconds` since 1970 that every file has; default: SOURCE_DATE_EPOCH, then the commit's time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the flags are: -out, -platforms, -push, -version, -revision, -created", flags.Arg(0))
	}
	if *created > 0 {
		s.created = time.Unix(*created, 0).UTC()
	}
	var ref name.Reference
	if *push != "" { // before minutes of work
		var err error
		if ref, err = name.ParseReference(*push); err != nil {
			return fmt.Errorf("-push: %w", err)
		}
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "spillway-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left of it harms nobody
	programs, err := build(ctx, s, strings.Split(*platforms, ","), dir)
	if err != nil {
		return err
	}
	index, boms, err := pack(s, programs)
	if err != nil {
		return err
	}
	if err := write(*to, index, boms, s.version, out); err != nil {
		return err
	}
	if ref == nil {
		return nil
	}
	return send(ctx, ref, index, out)
}

// write writes the image and its lists, and says where they are.
func write(to string, index v1.ImageIndex, boms map[string][]byte, version string, out io.Writer) error {
	if err := writeLayout(to, index, version); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: version %s, %s\n", to, version, digest)
	for _, file := range slices.Sorted(maps.Keys(boms)) {
		path := filepath.Join(filepath.Dir(to), file)
		if err := os.WriteFile(path, boms[file], 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, path)
	}
	return nil
}

// send writes the image to a registry.
func send(ctx context.Context, ref name.Reference, index v1.ImageIndex, out io.Writer) error {
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "sent to %s; deploy it as %s\n", ref, ref.Context().Digest(digest.String()))
	return nil
}

// source is what an image is built from.
type source struct {
	version  string    // a semantic version without a v, or what git describe says
	revision string    // of the commit
	created  time.Time // the commit's time, UTC
	modified bool      // what is built is not what was committed
}

// tag is what a registry takes for a tag (OCI distribution specification 1.1, section "pulling
// manifests").
var tag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// fill asks git for what was not given.
func (s *source) fill(ctx context.Context) error {
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); s.created.IsZero() && epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q, which is no number of seconds", epoch)
		}
		s.created = time.Unix(seconds, 0).UTC()
	}
	asked := s.version == "" || s.revision == "" || s.created.IsZero()
	if asked {
		if err := s.askGit(ctx); err != nil {
			return err
		}
	}
	s.version = strings.TrimPrefix(s.version, "v")
	if !tag.MatchString(s.version) {
		return fmt.Errorf("version %q: an image's tag has up to 128 letters, digits, dots, underscores and hyphens", s.version)
	}
	return nil
}

func (s *source) askGit(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
			}
			return "", fmt.Errorf("git %s: %w; without git give -version, -revision and -created", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	head, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	hash, seconds, _ := strings.Cut(head, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("git log says %q, which is no commit and its time", head)
	}
	described, err := git("describe", "--tags", "--always", "--dirty")
	if err != nil {
		return err
	}
	if s.version == "" {
		s.version = described
	}
	if s.revision == "" {
		s.revision = hash
		s.modified = strings.HasSuffix(described, "-dirty")
	}
	if s.created.IsZero() {
		s.created = time.Unix(at, 0).UTC()
	}
	return nil
}
