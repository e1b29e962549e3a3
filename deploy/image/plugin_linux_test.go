package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/spillwayproject/spillway/deploy/program"
)

const (
	pluginID = "spillway-experiments-datasource"
	gpx      = "gpx_spillway_experiments_"
	// maxPlugin is how many bytes of the plugin's image a node fetches at most.
	maxPlugin = 20 << 20
)

// zipped packs files by their names, in a random order.
func zipped(t *testing.T, all map[string][]byte) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range all {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "plugin.zip")
	if err := errors.Join(w.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// archived is an archive as tools/plugin.sh packs it, with the real back end for architectures of
// Linux, and texts in the place of what webpack and other compilers make.
func archived(t *testing.T, archs ...string) string {
	t.Helper()
	manifest, err := os.ReadFile("../../grafana-plugin/src/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{
		"plugin.json":                manifest,
		"module.js":                  []byte("front end"),
		"img/logo.svg":               []byte("<svg/>"),
		"go_plugin_build_manifest":   []byte("sums"),
		gpx + "windows_amd64.exe":    []byte("for Windows"),
		gpx + "darwin_arm64":         []byte("for a Mac"),
		"dashboards/experiment.json": []byte("{}"),
	}
	for _, arch := range archs {
		file := filepath.Join(t.TempDir(), arch)
		p := program.Platform{OS: "linux", Arch: arch}
		if err := program.BuildPackage(t.Context(), told, p, "github.com/spillwayproject/spillway/grafana-plugin/pkg", file); err != nil {
			t.Fatal(err)
		}
		if all[gpx+"linux_"+arch], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	named := map[string][]byte{pluginID + "/": nil}
	for name, content := range all {
		named[pluginID+"/"+name] = content
	}
	return zipped(t, named)
}

// TestPluginImage makes the plugin's image for this machine from an archive and opens it: it is
// what the specification says, the same twice, small, listed, and its copier puts the plugin, with
// a back end that starts, where Grafana looks for it, writing nowhere else.
func TestPluginImage(t *testing.T) {
	on, work := "linux/"+runtime.GOARCH, t.TempDir()
	p, err := readPlugin(archived(t, runtime.GOARCH), []string{on})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := platform(on)
	if err != nil {
		t.Fatal(err)
	}
	b := built{platform: parsed, copier: filepath.Join(work, "plugincopy-linux-"+runtime.GOARCH)}
	here := program.Platform{OS: "linux", Arch: runtime.GOARCH}
	if err := program.BuildPackage(t.Context(), told, here, program.PluginCopy, b.copier); err != nil {
		t.Fatal(err)
	}
	packed := func() string {
		dir := filepath.Join(t.TempDir(), "image")
		index, boms, err := p.pack(told, []built{b}, work)
		if err == nil {
			err = write(dir, index, boms, told.Version, io.Discard)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := packed()
	same(t, filepath.Dir(dir), filepath.Dir(packed()))
	index := opened(t, dir)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatal(err, manifest)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if size := compressed(t, img); size > maxPlugin {
		t.Errorf("%d bytes compressed, at most %d", size, maxPlugin)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := file.Config; c.User != "65532:65532" || c.Labels["org.opencontainers.image.title"] != "spillway-grafana-plugin" {
		t.Errorf("%+v", c)
	}
	root := unpack(t, img)
	isListed(t, root, "plugincopy", filepath.Join(filepath.Dir(dir), "plugincopy-linux-"+runtime.GOARCH+".cdx.json"), "1.2.3", 2)
	isListed(t, root, "plugin/"+pluginID+"/"+gpx+"linux_"+runtime.GOARCH,
		filepath.Join(filepath.Dir(dir), "grafana-plugin-linux-"+runtime.GOARCH+".cdx.json"), p.version, 50)
	lands(t, root, file.Config)
}

// compressed is how large an image's layers are.
func compressed(t *testing.T, img v1.Image) (size int64) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	t.Logf("%.1f MB compressed", float64(size)/1e6)
	return size
}

// lands runs the image as an init container, twice, and starts the back end from where it copied it
// to.
func lands(t *testing.T, root string, c v1.Config) {
	source := content(t, filepath.Join(root, "plugin"))
	if names := slices.Sorted(maps.Keys(source)); len(names) != 6 || strings.Count(strings.Join(names, " "), gpx) != 1 {
		t.Errorf("the image has of the plugin %q", names)
	}
	before := content(t, root)
	target := filepath.Join(root, "var/lib/grafana/plugins")
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(target, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"was copied into", "was there already in"} {
		out, err := inside(root, append(append([]string{}, c.Entrypoint...), c.Cmd...)...).CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("this user may neither change its root nor make a user namespace: ", err)
		}
		if err != nil || !strings.Contains(string(out), pluginID) || !strings.Contains(string(out), want) {
			t.Fatalf("%v: %s; want %q", err, out, want)
		}
		if !maps.Equal(content(t, target), source) {
			t.Error("what was copied is not what the image has")
		}
	}
	after := content(t, root)
	maps.DeleteFunc(after, func(name, _ string) bool { return strings.HasPrefix(name, "var/lib/grafana/plugins/") })
	if !maps.Equal(before, after) {
		t.Error("it wrote elsewhere too")
	}
	// Nobody speaks its protocol here: it says what it is and ends.
	out, err := inside(target, "/"+pluginID+"/"+gpx+"linux_"+runtime.GOARCH).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "This binary is a plugin") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOutWithSlash: a folder is the same with and without a slash behind it.
func TestOutWithSlash(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), []string{
		"-out=" + dir + "/image/", "-plugin=" + archived(t, runtime.GOARCH), "-platforms=linux/" + runtime.GOARCH,
		"-version=" + told.Version, "-revision=" + told.Revision, fmt.Sprint("-created=", told.Created.Unix()),
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"image", "image" + suffix} {
		opened(t, filepath.Join(dir, name))
	}
	if found, err := filepath.Glob(dir + "/*.cdx.json"); err != nil || len(found) != 4 {
		t.Errorf("%v: the lists beside them are %q", err, found)
	}
}

// TestPluginArchives: what is no archive of a plugin, or lacks a back end, is refused, in words
// that say what is wrong; a signed plugin keeps all files that its signature lists.
func TestPluginArchives(t *testing.T) {
	const about = `{"id":"a-datasource","executable":"gpx_a","info":{"version":"1"}}`
	good := map[string][]byte{
		"a-datasource/plugin.json": []byte(about), "a-datasource/gpx_a_linux_amd64": nil, "a-datasource/gpx_a_darwin_arm64": nil,
	}
	with := func(name, content string) map[string][]byte {
		all := maps.Clone(good)
		all[name] = []byte(content)
		return all
	}
	twice := zipped(t, with("a-datasource/plugin.jsoX", about)) // a name that is as long
	b, err := os.ReadFile(twice)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(twice, bytes.ReplaceAll(b, []byte("plugin.jsoX"), []byte("plugin.json")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = readPlugin(twice, []string{"linux/amd64"})
	if err == nil || !strings.Contains(err.Error(), "a-datasource/plugin.json is in it twice") {
		t.Errorf("one name twice: %v", err)
	}
	many := maps.Clone(good)
	for i := range maxFiles {
		many[fmt.Sprintf("a-datasource/%d", i)] = nil
	}
	for want, all := range map[string]map[string][]byte{
		"the archive is empty":             {},
		"b/x is not in the folder":         with("b/x", ""),
		`of the plugin "b" with`:           with("a-datasource/plugin.json", `{"id":"b","executable":"gpx_a"}`),
		"plugin.json: unexpected end":      with("a-datasource/plugin.json", ""),
		"it has no gpx_a_linux_arm64":      good,
		"../x: an archive of a plugin has": with("../x", ""),
		"has at most 2000 files":           many,
	} {
		_, err := readPlugin(zipped(t, all), []string{"linux/amd64", "linux/arm64"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	for n, all := range map[int]map[string][]byte{2: good, 4: with("a-datasource/MANIFEST.txt", "signed")} {
		p, err := readPlugin(zipped(t, all), []string{"linux/amd64"})
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, f := range p.tree(&v1.Platform{OS: "linux", Architecture: "amd64"}) {
			if !strings.HasSuffix(f.name, "/") {
				files++
			}
		}
		if files != n {
			t.Errorf("the image has %d files of %q, want %d", files, slices.Sorted(maps.Keys(all)), n)
		}
	}
	ref, err := name.ParseReference("registry.example.org:5000/team/spillway:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if got := beside(ref).String(); got != "registry.example.org:5000/team/spillway-grafana-plugin:1.2.3" {
		t.Errorf("it goes to %s", got)
	}
}
