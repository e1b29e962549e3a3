package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/deploy/program"
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/internal/manual"
)

// checksums is the file by which all others are checked.
const checksums = "SHA256SUMS"

// file is one file of an archive or beside it.
type file struct {
	name    string // with / between folders
	mode    int64
	content []byte
}

// built is the program for one platform.
type built struct {
	platform program.Platform
	path     string
}

// release is what a release is packed of.
type release struct {
	source   program.Source
	programs []built
	files    []file // in each archive, beside the program
	chart    []file
	beside   []file // published as they are
	notes    []byte
}

// build compiles the program for a list of platforms into a folder.
func build(ctx context.Context, s program.Source, platforms, dir string) ([]built, error) {
	var list []built
	for text := range strings.SplitSeq(platforms, ",") {
		system, arch, ok := strings.Cut(strings.TrimSpace(text), "/")
		if !ok || system != "linux" && system != "darwin" || arch != "amd64" && arch != "arm64" {
			return nil, fmt.Errorf("platform %q: archives are made for linux and darwin, amd64 and arm64, written linux/arm64", text)
		}
		list = append(list, built{program.Platform{OS: system, Arch: arch}, filepath.Join(dir, system+"-"+arch)})
	}
	for _, b := range list {
		if err := program.Build(ctx, s, b.platform, b.path); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// pages are the man pages and completions of the program, in the folders where archives have them.
func pages(ctx context.Context, s program.Source) ([]file, error) {
	e, _ := cli.Spillway.Declare(ctx, ctx, io.Discard, io.Discard)
	scripts, err := manual.Completions(e.App)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for name, b := range scripts {
		all["completions/"+name] = b
	}
	for name, b := range manual.Man(e.App, s.Version, s.Created) {
		all["man/man1/"+name] = b
	}
	var out []file
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, file{name, 0o644, all[name]})
	}
	return out, nil
}

// common are the files that each archive has, whatever its platform.
func common(ctx context.Context, s program.Source) ([]file, error) {
	out, err := pages(ctx, s)
	for _, path := range []string{"LICENSE", "README.md", "CHANGELOG.md", "deploy/systemd/spillway.service"} {
		if err != nil {
			return nil, err
		}
		var b []byte
		b, err = os.ReadFile(path)
		out = append(out, file{filepath.Base(path), 0o644, b})
	}
	return out, err
}

// pack makes all files of the release by their names: archives, lists of what is in the programs,
// the chart, what is published beside, the notes, and checksums of all of these.
func (r release) pack() (map[string][]byte, error) {
	out := map[string][]byte{"NOTES.md": r.notes}
	add := func(name string, content []byte) error {
		if _, there := out[name]; there || name == checksums {
			return fmt.Errorf("two files of the release are called %s", name)
		}
		out[name] = content
		return nil
	}
	for _, b := range r.programs {
		name := fmt.Sprintf("spillway-%s.%s-%s", r.source.Version, b.platform.OS, b.platform.Arch)
		content, err := os.ReadFile(b.path)
		if err != nil {
			return nil, err
		}
		archive, err := tarball(name, append([]file{{"spillway", 0o755, content}}, r.files...), r.source.Created)
		if err != nil {
			return nil, err
		}
		bom, err := program.BOM(r.source, b.path)
		if err != nil {
			return nil, err
		}
		if err := add(name+".tar.gz", archive); err != nil {
			return nil, err
		}
		if err := add(name+".cdx.json", bom); err != nil {
			return nil, err
		}
	}
	archive, err := tarball("spillway", r.chart, r.source.Created) // the folder has to have the chart's name
	if err == nil {
		err = add(fmt.Sprintf("spillway-chart-%s.tgz", r.source.Version), archive)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range r.beside {
		if err := add(f.name, f.content); err != nil {
			return nil, err
		}
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(out)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(out[name]), name)
	}
	out[checksums] = sums.Bytes()
	return out, nil
}

// tarball makes an archive of files in one folder, all as old as the commit and root's.
func tarball(folder string, files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Size: int64(len(f.content)), Mode: f.mode,
			Uname: "root", Gname: "root", ModTime: at, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writePages writes man pages and completions into a folder, for who builds the program alone.
func writePages(ctx context.Context, s *program.Source, to string, out io.Writer) error {
	if err := s.Fill(ctx); err != nil {
		return err
	}
	all, err := pages(ctx, *s)
	if err != nil {
		return err
	}
	for _, f := range all {
		path := filepath.Join(to, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.content, 0o644); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%d files in %s\n", len(all), to)
	return err
}
