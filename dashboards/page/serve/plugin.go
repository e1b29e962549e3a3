package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/host"
)

// plugin is the datasource for experiments, as it is built and would be installed.
type plugin struct {
	dir    string
	binary string
}

// openPlugin looks for what is needed of the plugin in dir.
func openPlugin(dir string) (*plugin, error) {
	text, err := os.ReadFile(filepath.Join(dir, "plugin.json"))
	if err != nil {
		return nil, fmt.Errorf("--plugin=%s holds no built plugin; make plugin builds grafana-plugin/dist: %w", dir, err)
	}
	var manifest struct{ ID, Executable string }
	if err := json.Unmarshal(text, &manifest); err != nil {
		return nil, fmt.Errorf("--plugin=%s: plugin.json: %w", dir, err)
	}
	if manifest.ID != host.PluginID || manifest.Executable == "" {
		return nil, fmt.Errorf("--plugin=%s: plugin.json is of %q, not of %s", dir, manifest.ID, host.PluginID)
	}
	p := &plugin{dir: dir, binary: filepath.Join(dir, fmt.Sprintf("%s_%s_%s", manifest.Executable, runtime.GOOS, runtime.GOARCH))}
	for _, file := range []string{filepath.Join(dir, "module.js"), p.binary} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("--plugin=%s is not built for this machine; make plugin does it: %w", dir, err)
		}
	}
	return p, nil
}

// start runs the plugin with a datasource that asks api. What is returned must be closed.
func (p *plugin) start(api *url.URL, log io.Writer) (*host.Host, *host.Server, error) {
	h, err := host.Start(host.Options{Binary: p.binary, Log: log})
	if err != nil {
		return nil, nil, err
	}
	s, err := host.NewServer(host.ServerOptions{
		Host: h, User: backend.User{Login: "viewer", Name: "Viewer", Role: "Viewer"}, Files: os.DirFS(p.dir),
		Instance: backend.DataSourceInstanceSettings{
			UID: "spillway-experiments", Name: "Experiments", URL: api.String(),
			JSONData: []byte(demoSettings),
		},
	})
	if err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, s, nil
}

// demoSettings are those with which the datasource's whole can be seen: with prices, and a link.
const demoSettings = `{"partialResponse":"warn","prices":{"default":2.5},"currency":"USD","links":[{"title":"TensorBoard","url":"https://tensorboard.example.org/?run=${experiment}"}]}`

// dashboards are those that the plugin brings.
func (p *plugin) dashboards() fs.FS { return os.DirFS(filepath.Join(p.dir, "dashboards")) }

// union has the files of several folders; of two with one name, the first is there.
type union []fs.FS

var _ fs.GlobFS = union{}

func (u union) Open(name string) (fs.File, error) {
	for _, f := range u {
		if file, err := f.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (u union) Glob(pattern string) ([]string, error) {
	var all []string
	for _, f := range u {
		names, err := fs.Glob(f, pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
