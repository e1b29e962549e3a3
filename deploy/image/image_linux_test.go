package main

import (
	"bytes"
	"crypto/x509"
	"debug/buildinfo"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/spillwayproject/spillway/deploy/program"
)

var cold = flag.Bool("image.cold", false,
	"build for amd64 and arm64, twice: the second time from a copy of the tree with an empty build cache (a quarter of an hour)")

// maxCompressed is how many bytes of an image a node fetches at most.
const maxCompressed = 45 << 20

// given is what a build is told instead of git's answers, and told is the same as read from there.
var (
	given = []string{"-version=v1.2.3", "-revision=0123456789abcdef", "-created=1700000000"}
	told  = program.Source{Version: "1.2.3", Revision: "0123456789abcdef", Created: time.Unix(1700000000, 0).UTC()}
)

// opened is the image in a folder, as whoever copies it finds it under its version.
func opened(t *testing.T, dir string) v1.ImageIndex {
	t.Helper()
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("index.json: %+v", m)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestImage builds the image for this machine and opens it: it is what the specification says,
// small, runs as nobody in particular, trusts the usual authorities, and is listed.
func TestImage(t *testing.T) {
	programs, err := build(t.Context(), told, []string{"linux/" + runtime.GOARCH}, t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	packed := func() (dir, printed string) {
		dir = filepath.Join(t.TempDir(), "image")
		index, boms, err := pack(told, programs)
		var b strings.Builder
		if err == nil {
			err = write(dir, index, boms, told.Version, &b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir, b.String()
	}
	dir, printed := packed()
	index := opened(t, dir)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	digest, err := index.Digest()
	if err != nil || !strings.Contains(printed, digest.String()) {
		t.Errorf("%v: printed is %q, the image is %s", err, printed, digest)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if p := manifest.Manifests[0].Platform; len(manifest.Manifests) != 1 || p.String() != "linux/"+runtime.GOARCH {
		t.Fatalf("platforms: %+v", manifest)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if size := compressed(t, img); size > maxCompressed {
		t.Errorf("%d bytes compressed, at most %d", size, maxCompressed)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Config.User != "65532:65532" || file.Config.Labels["org.opencontainers.image.version"] != "1.2.3" ||
		file.Created.Unix() != 1700000000 {
		t.Errorf("%+v", file)
	}
	root := unpack(t, img)
	pem, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(pem) || bytes.Count(pem, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("%v: %d certificates of authorities", err, bytes.Count(pem, []byte("BEGIN CERTIFICATE")))
	}
	t.Run("list", func(t *testing.T) {
		isListed(t, root, "spillway", filepath.Join(filepath.Dir(dir), "spillway-linux-"+runtime.GOARCH+".cdx.json"), "1.2.3", 50)
		isListed(t, root, "remediator", filepath.Join(filepath.Dir(dir), "remediator-linux-"+runtime.GOARCH+".cdx.json"), "1.2.3", 8)
	})
	t.Run("start", func(t *testing.T) { starts(t, root, file.Config) })
	t.Run("remediator", func(t *testing.T) {
		// What it says of having no flags is its own word: it is the program, and runs there.
		if out, err := inside(root, "/remediator").CombinedOutput(); errors.Is(err, syscall.EPERM) {
			t.Skip("this user may neither change its root nor make a user namespace: ", err)
		} else if err == nil || !strings.Contains(string(out), "remediator: --cluster is needed") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("again", func(t *testing.T) {
		other, _ := packed()
		same(t, filepath.Dir(dir), filepath.Dir(other))
	})
	t.Run("push", func(t *testing.T) { arrives(t, index) })
}

// isListed compares the bill of materials with what a program says of itself: which program it is,
// and at least so many modules.
func isListed(t *testing.T, root, program, path, version string, least int) {
	list, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(list, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(filepath.Join(root, program))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want = append(want, m.Path+" "+m.Version)
	}
	want = append(want, "std "+info.GoVersion)
	for _, c := range *bom.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(got) < least {
		t.Errorf("listed are\n%s\nlinked are\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c := bom.Metadata.Component; c.Name != info.Path || c.Version != version {
		t.Errorf("the list is of %+v", c)
	}
}

// same compares two folders byte for byte, with the rights of their files.
func same(t *testing.T, a, b string) {
	t.Helper()
	one, two := content(t, a), content(t, b)
	if len(one) < 6 {
		t.Errorf("only %d files in %s", len(one), a)
	}
	for name, text := range one {
		if two[name] != text {
			t.Errorf("%s is not the same in both builds", name)
		}
	}
	if len(one) != len(two) {
		t.Errorf("%d files and %d", len(one), len(two))
	}
}

func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path) // both are under one folder
		out[rel] = info.Mode().String() + "\x00" + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// arrives sends the image to a registry, and looks what came there.
func arrives(t *testing.T, index v1.ImageIndex) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/team/spillway:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := send(t.Context(), ref, index, &out); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(got); err != nil {
		t.Error(err)
	}
	digest, err := got.Digest()
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out.String()), "/team/spillway@"+digest.String()) {
		t.Errorf("%v: there is %s, said was %q", err, digest, out.String())
	}
	server.Close()
	if err := send(t.Context(), ref, index, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "-push: ") {
		t.Errorf("to a registry that is gone: %v", err)
	}
}

// TestCold builds for all platforms twice, the second time from a copy of the tree under another
// path, and with nothing kept of the first build.
func TestCold(t *testing.T) {
	if !*cold {
		t.Skip("takes a quarter of an hour: run with -image.cold, as make test-full does; TestImage builds twice from one cache")
	}
	first, second := t.TempDir(), t.TempDir()
	flags := append([]string{"-plugin=" + archived(t, "amd64", "arm64")}, given...)
	if err := run(t.Context(), append([]string{"-out=" + filepath.Join(first, "image")}, flags...), io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"image", "image" + suffix} {
		for _, m := range manifestsOf(t, opened(t, filepath.Join(first, name))) {
			t.Log(name, m.Platform, m.Digest)
		}
	}
	tree := filepath.Join(t.TempDir(), "another", "path")
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", "../..", tree).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("go", slices.Concat([]string{"run", "./deploy/image", "-out=" + filepath.Join(second, "image")}, flags)...)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOCACHE="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same(t, first, second)
}

func manifestsOf(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Fatalf("%v: want two platforms, got %+v", err, m)
	}
	return m.Manifests
}

// TestRefused: what cannot be built is refused before anything is, in words that say what to do,
// and nothing that is there is lost.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	noZip := filepath.Join(dir, "precious")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"-platforms=windows/amd64"}, `platform "windows/amd64": it is written linux/ARCHITECTURE`},
		{[]string{"-platforms=linux"}, `platform "linux": it is written`},
		{[]string{"-platforms="}, `platform "": it is written`},
		{[]string{"-version=1 2"}, `version "1 2": an image's tag has`},
		{[]string{"-version=" + strings.Repeat("1", 129)}, `an image's tag has up to 128`},
		{[]string{"-push=A/B:c"}, "-push: "},
		{[]string{"-created=soon"}, "invalid value"},
		{[]string{"left"}, `unexpected argument "left"; the flags are:`},
		{[]string{"-plugin=" + dir}, "-plugin " + dir + ": "},
		{[]string{"-plugin=" + noZip}, "zip: not a valid zip file"},
		{[]string{"-out=" + dir}, "the folder holds something else than an image"},
	} {
		args := slices.Concat([]string{"-out=" + filepath.Join(t.TempDir(), "image")}, given, tc.args)
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v; want %q", tc.args, err, tc.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Error(err)
	}
}
