package compose

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/internal/lab"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// strictly reads YAML in which an unknown key is an error: it would be ignored where it is used.
func strictly(t *testing.T, name string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, name)))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

type service struct {
	Build struct {
		Context, Dockerfile, Target string
	}
	Command     []string
	Tmpfs       []string
	Ports       []string
	Init        bool
	Grace       string            `yaml:"stop_grace_period"`
	NetworkMode string            `yaml:"network_mode"`
	DependsOn   []string          `yaml:"depends_on"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string
}

func services(t *testing.T) map[string]service {
	t.Helper()
	var c struct {
		Name     string
		Services map[string]service
	}
	strictly(t, "compose.yaml", &c)
	if len(c.Services) != 2 {
		t.Fatalf("%d services", len(c.Services))
	}
	return c.Services
}

// manifest is what these files must agree with of the plugin's own.
type manifest struct {
	ID           string
	Executable   string
	Dependencies struct{ GrafanaDependency string }
}

func plugin(t *testing.T) manifest {
	t.Helper()
	var m manifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, "grafana-plugin", "src", "plugin.json"))), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

const pluginsFolder = "/var/lib/grafana/plugins/"

func TestServices(t *testing.T) {
	all := services(t)
	demo, grafana := all["demo"], all["grafana"]
	stages := regexp.MustCompile(`(?m)^FROM \S+ AS (\S+)$`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	for name, s := range all {
		if !slices.ContainsFunc(stages, func(m []string) bool { return m[1] == s.Build.Target }) ||
			filepath.Join(s.Build.Context, s.Build.Dockerfile) != filepath.Join(root, "deploy/compose/Dockerfile") {
			t.Errorf("%s is built from %+v; the Dockerfile has %v", name, s.Build, stages)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s: a demo without passwords is for this machine", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, rest, _ := strings.Cut(v, ":")
			if _, err := os.Stat(from); err != nil || !strings.HasSuffix(rest, ":ro") {
				t.Errorf("%s mounts %s: it must be there, and be read only (%v)", name, v, err)
			}
		}
	}
	// Grafana's data sources ask 127.0.0.1: the two share a network, whose ports are the demo's.
	if grafana.NetworkMode != "service:demo" || len(grafana.Ports) != 0 || !slices.Contains(grafana.DependsOn, "demo") ||
		len(demo.Ports) != 1 || !strings.HasSuffix(demo.Ports[0], ":3000") {
		t.Errorf("demo %+v, grafana %+v", demo, grafana)
	}
	// The image has no /tmp, and the demo keeps its data there.
	if !slices.Contains(demo.Tmpfs, "/tmp") {
		t.Errorf("the demo has no folder for its data: %v", demo.Tmpfs)
	}
	var out bytes.Buffer
	lab.Laboratory.Run(context.Background(), context.Background(), []string{"demo", "--help"}, &out, &out)
	if len(demo.Command) == 0 || demo.Command[0] != "demo" {
		t.Fatalf("the demo runs %v", demo.Command)
	}
	for _, flag := range demo.Command[1:] {
		name, _, _ := strings.Cut(flag, "=")
		if !strings.Contains(out.String(), name+"=") {
			t.Errorf("spillway-lab demo has no %s", name)
		}
	}
}

func TestGrafanaSettings(t *testing.T) {
	env, p := services(t)["grafana"].Environment, plugin(t)
	if env["GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS"] != p.ID {
		t.Errorf("Grafana may load %q, the plugin is %q", env["GF_PLUGINS_ALLOW_LOADING_UNSIGNED_PLUGINS"], p.ID)
	}
	home, ok := strings.CutPrefix(env["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"], pluginsFolder+p.ID+"/")
	if _, err := os.Stat(filepath.Join(root, "grafana-plugin", "src", home)); !ok || err != nil {
		t.Errorf("the first dashboard: %v", err)
	}
	// Lines of grafana.ini as variables.
	section := ""
	for _, line := range strings.Split(read(t, "../grafana/grafana.ini"), "\n") {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
		}
		key, value, ok := strings.Cut(line, " = ")
		if ok && !strings.HasPrefix(line, ";") && env["GF_"+strings.ToUpper(section+"_"+key)] != value {
			t.Errorf("[%s] %s is %q here and %q in deploy/grafana", section, key, env["GF_"+strings.ToUpper(section+"_"+key)], value)
		}
	}
}

func TestDatasource(t *testing.T) {
	type sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool           `yaml:"isDefault"`
			Editable                     bool           `yaml:"editable"`
			JSONData                     map[string]any `yaml:"jsonData"`
		}
	}
	var ours, theirs sources
	strictly(t, "provisioning/datasources/experiments.yaml", &ours)
	strictly(t, "../grafana/provisioning/datasources/spillway.yaml", &theirs)
	if len(ours.Datasources) != 1 || len(theirs.Datasources) != 1 || ours.APIVersion != 1 {
		t.Fatalf("%+v, %+v", ours, theirs)
	}
	a, b := ours.Datasources[0], theirs.Datasources[0]
	if a.Type != plugin(t).ID || a.URL != b.URL || a.UID == b.UID || a.Name == b.Name || a.IsDefault || a.Access != "proxy" {
		t.Errorf("%+v beside %+v", a, b)
	}
	raw, err := json.Marshal(a.JSONData)
	if err != nil {
		t.Fatal(err)
	}
	s, err := model.ParseSettings(raw)
	if err != nil || len(s.Prices) == 0 {
		t.Errorf("jsonData: %+v, %v", s, err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&model.Settings{}); err != nil {
		t.Errorf("jsonData: %v", err)
	}
	// The mixin's prices.
	config := read(t, filepath.Join(root, "jsonnet", "config.libsonnet"))
	for name, price := range s.Prices {
		of := strconv.FormatFloat(price, 'f', -1, 64)
		if !strings.Contains(config, "'"+name+"': "+of+",") && !strings.Contains(config, name+": "+of+",") {
			t.Errorf("%s costs %s an hour here, and something else in jsonnet/config.libsonnet", name, of)
		}
	}
}

func TestDashboards(t *testing.T) {
	var p struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type, Folder    string
			DisableDeletion       bool `yaml:"disableDeletion"`
			AllowUIUpdates        bool `yaml:"allowUiUpdates"`
			UpdateIntervalSeconds int  `yaml:"updateIntervalSeconds"`
			Options               struct {
				Path                      string
				FoldersFromFilesStructure bool `yaml:"foldersFromFilesStructure"`
			}
		}
	}
	strictly(t, "provisioning/dashboards/experiments.yaml", &p)
	if len(p.Providers) != 1 || p.Providers[0].Options.Path != pluginsFolder+plugin(t).ID+"/dashboards" || p.Providers[0].Type != "file" {
		t.Errorf("%+v", p)
	}
	// The folder of the others is where deploy/grafana looks for them.
	mounted := ""
	for _, v := range services(t)["grafana"].Volumes {
		if parts := strings.Split(v, ":"); filepath.Clean(parts[0]) == filepath.Join(root, "dashboards") {
			mounted = parts[1]
		}
	}
	if mounted == "" || !strings.Contains(read(t, "../grafana/provisioning/dashboards/spillway.yaml"), "path: "+mounted+"\n") {
		t.Errorf("dashboards/ is mounted at %q", mounted)
	}
}

// The images are of the versions that the plugin is written for, and what is copied is there.
func TestDockerfile(t *testing.T) {
	text, p := read(t, "Dockerfile"), plugin(t)
	image := func(name string) string {
		t.Helper()
		m := regexp.MustCompile(`(?m)^FROM ` + regexp.QuoteMeta(name) + `:(\S+) AS`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no stage from %s", name)
		}
		return m[1]
	}
	if m := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, filepath.Join(root, "go.mod"))); m == nil ||
		m[1] != image("golang") {
		t.Errorf("Go is %v in go.mod and %s here", m, image("golang"))
	}
	var npm struct {
		Engines      struct{ Node string }
		Dependencies map[string]string
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, "grafana-plugin", "package.json"))), &npm); err != nil {
		t.Fatal(err)
	}
	if npm.Engines.Node != ">="+image("node") {
		t.Errorf("Node is %s in package.json and %s here", npm.Engines.Node, image("node"))
	}
	if npm.Dependencies["@grafana/data"] != image("grafana/grafana") {
		t.Errorf("the front end is built against Grafana %s and runs in %s", npm.Dependencies["@grafana/data"], image("grafana/grafana"))
	}
	if !strings.Contains(text, "/"+p.Executable+"_linux_$(go env GOARCH) ./grafana-plugin/pkg") {
		t.Errorf("the backend is not built as %s", p.Executable)
	}
	if n := strings.Count(text, " "+pluginsFolder+p.ID+"\n"); n != 2 {
		t.Errorf("%d of the plugin's two halves are copied to %s%s", n, pluginsFolder, p.ID)
	}
	ignored := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(t, "Dockerfile.dockerignore"), ""))
	for _, line := range regexp.MustCompile(`(?m)^COPY ([^-].*)$`).FindAllStringSubmatch(text, -1) {
		files := strings.Fields(line[1])
		for _, f := range files[:len(files)-1] {
			if _, err := os.Stat(filepath.Join(root, f)); err != nil {
				t.Errorf("COPY %s: %v", line[1], err)
			}
			for _, i := range ignored {
				if ok, err := filepath.Match(i, f); ok || err != nil {
					t.Errorf("COPY %s: %s is ignored by %s (%v)", line[1], f, i, err)
				}
			}
		}
	}
}
