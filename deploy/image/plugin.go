package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/spillwayproject/spillway/deploy/program"
)

// suffix is what the image of the plugin has behind the name of the proxy's.
const suffix = "-grafana-plugin"

const (
	// maxFiles and maxBytes bound what is read of a plugin's archive; plugincopy copies no more.
	maxFiles = 2000
	maxBytes = 512 << 20
)

// plugin is what a plugin's archive holds.
type plugin struct {
	id, version string
	executable  string // how the names of its backends begin
	signed      bool
	files       []file // of the folder id, sorted by name; without folders
}

// readPlugin reads an archive as tools/plugin.sh packs it and as releases have it: one folder,
// which has the plugin's id, with a backend for each platform.
func readPlugin(archive string, platforms []string) (*plugin, error) {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	p := &plugin{}
	rest := int64(maxBytes)
	for _, f := range z.File {
		if f.Mode().IsDir() {
			continue
		}
		if !f.Mode().IsRegular() || !fs.ValidPath(f.Name) || len(p.files) == maxFiles {
			return nil, fmt.Errorf("%s: an archive of a plugin has at most %d files in one folder, and no links", f.Name, maxFiles)
		}
		content, err := unzip(f, rest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		rest -= int64(len(content))
		p.files = append(p.files, file{name: f.Name, mode: 0o644, content: content})
	}
	slices.SortFunc(p.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(p.files); i++ {
		if p.files[i].name == p.files[i-1].name { // which of them counts is each reader's choice
			return nil, fmt.Errorf("%s is in it twice", p.files[i].name)
		}
	}
	if err := p.know(); err != nil {
		return nil, err
	}
	for _, text := range platforms {
		on, err := platform(text)
		if err != nil {
			return nil, err
		}
		if p.backend(on) == nil {
			return nil, fmt.Errorf("it has no %s: make it for that platform too, or choose -platforms", p.backendName(on))
		}
	}
	return p, nil
}

func unzip(f *zip.File, most int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("the archive holds more than %d bytes", maxBytes)
	}
	return content, err
}

// know reads what the plugin is from its plugin.json.
func (p *plugin) know() error {
	if len(p.files) == 0 {
		return errors.New("the archive is empty")
	}
	folder, _, _ := strings.Cut(p.files[0].name, "/")
	var about struct {
		ID         string `json:"id"`
		Executable string `json:"executable"`
		Info       struct {
			Version string `json:"version"`
		} `json:"info"`
	}
	for _, f := range p.files {
		below, ok := strings.CutPrefix(f.name, folder+"/")
		if !ok {
			return fmt.Errorf("%s is not in the folder %s", f.name, folder)
		}
		switch below {
		case "plugin.json":
			if err := json.Unmarshal(f.content, &about); err != nil {
				return fmt.Errorf("plugin.json: %w", err)
			}
		case "MANIFEST.txt":
			p.signed = true
		}
	}
	if about.ID != folder || about.Executable == "" {
		return fmt.Errorf("plugin.json is of the plugin %q with the backend %q, in the folder %s", about.ID, about.Executable, folder)
	}
	p.id, p.version, p.executable = about.ID, about.Info.Version, about.Executable
	for i := range p.files {
		if strings.HasPrefix(p.files[i].name, p.id+"/"+p.executable+"_") {
			p.files[i].mode = 0o755
		}
	}
	return nil
}

// backendName is how Grafana names the backend for a platform.
func (p *plugin) backendName(on *v1.Platform) string {
	return p.executable + "_" + on.OS + "_" + on.Architecture
}

func (p *plugin) backend(on *v1.Platform) *file {
	i := slices.IndexFunc(p.files, func(f file) bool { return f.name == p.id+"/"+p.backendName(on) })
	if i < 0 {
		return nil
	}
	return &p.files[i]
}

// tree is what the image for a platform has of the plugin: not the backends for other platforms,
// which are most of the archive, unless a signature lists them.
func (p *plugin) tree(on *v1.Platform) []file {
	out := []file{{name: "plugin/", mode: 0o755}}
	seen := map[string]bool{}
	for _, f := range p.files {
		if f.mode == 0o755 && f.name != p.id+"/"+p.backendName(on) && !p.signed {
			continue
		}
		for i, c := range f.name {
			if folder := "plugin/" + f.name[:i] + "/"; c == '/' && !seen[folder] {
				seen[folder] = true
				out = append(out, file{name: folder, mode: 0o755})
			}
		}
		f.name = path.Join("plugin", f.name)
		out = append(out, f)
	}
	return out
}

// beside is where the plugin's image goes in a registry when the proxy's goes to ref.
func beside(ref name.Reference) name.Reference {
	return ref.Context().Registry.Repo(ref.Context().RepositoryStr() + suffix).Tag(ref.Identifier())
}

// pack is the image by which an init container puts the plugin into Grafana's pod, and the lists of
// what is in its two programs. It writes the backends into a folder to read what they are made of.
func (p *plugin) pack(s program.Source, programs []built, dir string) (v1.ImageIndex, map[string][]byte, error) {
	about := labels(s, "spillway"+suffix, fmt.Sprintf("Copies the Grafana plugin %s %s to where Grafana looks for plugins.", p.id, p.version))
	config := v1.Config{Entrypoint: []string{"/plugincopy"}, Cmd: []string{"--to=/var/lib/grafana/plugins"}}
	boms := map[string][]byte{}
	index, err := images(s, programs, config, about, func(b built) ([]part, error) {
		copier, err := os.ReadFile(b.copier)
		if err != nil {
			return nil, err
		}
		backend := filepath.Join(dir, "grafana-plugin-"+strings.ReplaceAll(b.platform.String(), "/", "-"))
		if err := os.WriteFile(backend, p.backend(b.platform).content, 0o600); err != nil {
			return nil, err
		}
		its := s
		its.Version = p.version
		for path, of := range map[string]program.Source{b.copier: s, backend: its} {
			if boms[filepath.Base(path)+".cdx.json"], err = program.BOM(of, path); err != nil {
				return nil, err
			}
		}
		return []part{
			{"users", users()},
			{"plugincopy " + s.Version, []file{{name: "plugincopy", mode: 0o755, content: copier}}},
			{p.id + " " + p.version, p.tree(b.platform)},
		}, nil
	})
	return index, boms, err
}
