package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/spillwayproject/spillway/deploy/program"
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
		archive   = flags.String("plugin", "", "also make the image of the Grafana plugin of this `file` (tools/plugin.sh zip), as -out and -push with "+suffix+" behind the name")
		s         program.Source
	)
	flags.StringVar(&s.Version, "version", "", "`version` that the program tells; default: git describe")
	flags.StringVar(&s.Revision, "revision", "", "commit `hash`; default: git's")
	created := flags.Int64("created", 0, "`seconds` since 1970 that every file has; default: SOURCE_DATE_EPOCH, then the commit's time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the flags are: -out, -platforms, -plugin, -push, -version, -revision, -created", flags.Arg(0))
	}
	*to = filepath.Clean(*to) // without a slash behind it, since other names are made of it
	if *created > 0 {
		s.Created = time.Unix(*created, 0).UTC()
	}
	var ref name.Reference
	if *push != "" { // before minutes of work
		var err error
		if ref, err = name.ParseReference(*push); err != nil {
			return fmt.Errorf("-push: %w", err)
		}
	}
	if err := s.Fill(ctx); err != nil {
		return err
	}
	if !tag.MatchString(s.Version) {
		return fmt.Errorf("version %q: an image's tag has up to 128 letters, digits, dots, underscores and hyphens", s.Version)
	}
	var p *plugin
	if *archive != "" {
		var err error
		if p, err = readPlugin(*archive, strings.Split(*platforms, ",")); err != nil {
			return fmt.Errorf("-plugin %s: %w", *archive, err)
		}
	}
	dir, err := os.MkdirTemp("", "spillway-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left of it harms nobody
	programs, err := build(ctx, s, strings.Split(*platforms, ","), dir, p != nil)
	if err != nil {
		return err
	}
	index, boms, err := pack(s, programs)
	if err != nil {
		return err
	}
	if err := deliver(ctx, *to, ref, index, boms, s.Version, out); err != nil || p == nil {
		return err
	}
	if index, boms, err = p.pack(s, programs, dir); err != nil {
		return err
	}
	if ref != nil {
		ref = beside(ref)
	}
	return deliver(ctx, *to+suffix, ref, index, boms, s.Version, out)
}

// deliver writes an image into a folder and, where it has a name there, into a registry.
func deliver(
	ctx context.Context, to string, ref name.Reference, index v1.ImageIndex, boms map[string][]byte, version string, out io.Writer,
) error {
	if err := write(to, index, boms, version, out); err != nil || ref == nil {
		return err
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

// tag is what a registry takes for a tag (OCI distribution specification 1.1, section "pulling
// manifests").
var tag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
