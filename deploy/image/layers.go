package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/spillwayproject/spillway/deploy/program"
)

// nobody is who the program runs as, whom distroless images call nonroot.
const nobody = 65532

// file is one entry of a layer. A name that ends in a slash is a folder.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// users are the files by which a program knows who it is.
func users() []file {
	return []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nobody)},
		{
			name: "etc/passwd", mode: 0o644,
			content: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", nobody, nobody),
		},
	}
}

// ground is what a static program expects to find: who it is, whom it trusts, and room for files.
func ground() []file {
	return append(
		users(),
		file{name: "etc/spillway/", mode: 0o755},
		file{name: "etc/ssl/", mode: 0o755},
		file{name: "etc/ssl/certs/", mode: 0o755},
		file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: roots()},
		file{name: "tmp/", mode: 0o1777},
		file{name: "var/", mode: 0o755},
		file{name: "var/lib/", mode: 0o755},
		file{name: "var/lib/spillway/", mode: 0o755, owner: nobody},
	)
}

// roots are the authorities that Mozilla trusts, in PEM. Those that it trusts only for certificates
// issued before some day are left out: a file of certificates cannot say that.
func roots() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a buffer takes everything
		}
	}
	return b.Bytes()
}

// layer packs files, all as old as the commit.
func layer(files []file, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: f.mode, Uid: f.owner, Gid: f.owner,
			ModTime: at, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
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
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// platform is the parsed form of linux/amd64 or linux/arm/v7.
func platform(text string) (*v1.Platform, error) {
	p, err := v1.ParsePlatform(strings.TrimSpace(text))
	if err != nil || p.OS != "linux" || p.Architecture == "" || p.OSVersion != "" {
		return nil, fmt.Errorf("platform %q: it is written linux/ARCHITECTURE, such as linux/arm64; the image has nothing but Linux programs", text)
	}
	return p, nil
}

// built are the programs for one platform: the proxy, and the remediator, which only runs where
// somebody gives it rights.
type built struct {
	platform         *v1.Platform
	path, remediator string
	copier           string // the one of the plugin's image; empty without it
}

// build compiles the programs for the platforms into a folder, that of the plugin's image too where
// it is wanted.
func build(ctx context.Context, s program.Source, platforms []string, dir string, plugin bool) ([]built, error) {
	var out []built
	for _, text := range platforms {
		p, err := platform(text)
		if err != nil {
			return nil, err
		}
		suffix := strings.ReplaceAll(p.String(), "/", "-")
		b := built{platform: p, path: filepath.Join(dir, "spillway-"+suffix), remediator: filepath.Join(dir, "remediator-"+suffix)}
		on := program.Platform{OS: p.OS, Arch: p.Architecture, Variant: p.Variant}
		if err := program.Build(ctx, s, on, b.path); err != nil {
			return nil, err
		}
		if err := program.BuildPackage(ctx, s, on, program.Remediator, b.remediator); err != nil {
			return nil, err
		}
		if plugin {
			b.copier = filepath.Join(dir, "plugincopy-"+suffix)
			if err := program.BuildPackage(ctx, s, on, program.PluginCopy, b.copier); err != nil {
				return nil, err
			}
		}
		out = append(out, b)
	}
	return out, nil
}

// part is a layer with the words of its history.
type part struct {
	by    string
	files []file
}

// pack is the image of the programs, and their lists of what is in them by the lists' file names.
func pack(s program.Source, programs []built) (v1.ImageIndex, map[string][]byte, error) {
	about := labels(s, "spillway", "A query proxy that keeps Prometheus standing on very large clusters.")
	config := v1.Config{
		Entrypoint:   []string{"/spillway"},
		Cmd:          []string{"proxy", "--config.file=/etc/spillway/spillway.yaml", "--web.listen-address=:9090"},
		ExposedPorts: map[string]struct{}{"9090/tcp": {}},
	}
	boms := map[string][]byte{}
	index, err := images(s, programs, config, about, func(b built) ([]part, error) {
		parts := []part{{"ground", ground()}}
		for _, p := range []struct{ name, path string }{{"remediator", b.remediator}, {"spillway", b.path}} {
			content, err := os.ReadFile(p.path)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part{p.name + " " + s.Version, []file{{name: p.name, mode: 0o755, content: content}}})
			if boms[filepath.Base(p.path)+".cdx.json"], err = program.BOM(s, p.path); err != nil {
				return nil, err
			}
		}
		return parts, nil
	})
	return index, boms, err
}

// images is an index of one image for each platform, of the layers that are made for it.
func images(
	s program.Source, programs []built, c v1.Config, about map[string]string, of func(built) ([]part, error),
) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	c.User, c.Env, c.WorkingDir, c.Labels = fmt.Sprintf("%d:%d", nobody, nobody), []string{"PATH=/"}, "/", about
	for _, b := range programs {
		parts, err := of(b)
		if err != nil {
			return nil, err
		}
		img, err := image(s, b.platform, c, parts)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: b.platform}})
	}
	return mutate.Annotations(index, about).(v1.ImageIndex), nil
}

// image is the image for one platform.
func image(s program.Source, p *v1.Platform, config v1.Config, parts []part) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, part := range parts {
		l, err := layer(part.files, s.Created)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: s.Created}, CreatedBy: part.by}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: history}); err != nil {
			return nil, err
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant, file.Created = p.OS, p.Architecture, p.Variant, v1.Time{Time: s.Created}
	file.Config = config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, config.Labels).(v1.Image), nil
}

// labels are what registries show of an image (OCI image specification 1.1, annotations.md).
func labels(s program.Source, title, description string) map[string]string {
	revision := s.Revision
	if s.Modified {
		revision += "-dirty"
	}
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     s.Version,
		"org.opencontainers.image.revision":    revision,
		"org.opencontainers.image.created":     s.Created.Format(time.RFC3339),
	}
}
