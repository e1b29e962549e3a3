package grafana

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/internal/lab"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// provisioning is the form of Grafana's file, with the keys that this one sets. An unknown key
// fails the test: Grafana would ignore a misspelt one.
type provisioning struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name      string `yaml:"name"`
		UID       string `yaml:"uid"`
		Type      string `yaml:"type"`
		Access    string `yaml:"access"`
		URL       string `yaml:"url"`
		IsDefault bool   `yaml:"isDefault"`
		Editable  bool   `yaml:"editable"`
		JSONData  struct {
			HTTPMethod                    string `yaml:"httpMethod"`
			PrometheusType                string `yaml:"prometheusType"`
			PrometheusVersion             string `yaml:"prometheusVersion"`
			TimeInterval                  string `yaml:"timeInterval"`
			QueryTimeout                  string `yaml:"queryTimeout"`
			Timeout                       int    `yaml:"timeout"`
			CacheLevel                    string `yaml:"cacheLevel"`
			IncrementalQuerying           bool   `yaml:"incrementalQuerying"`
			IncrementalQueryOverlapWindow string `yaml:"incrementalQueryOverlapWindow"`
			SeriesLimit                   int    `yaml:"seriesLimit"`
			SeriesEndpoint                bool   `yaml:"seriesEndpoint"`
			DisableRecordingRules         bool   `yaml:"disableRecordingRules"`
			ManageAlerts                  bool   `yaml:"manageAlerts"`
			AllowAsRecordingRulesTarget   bool   `yaml:"allowAsRecordingRulesTarget"`
		} `yaml:"jsonData"`
	} `yaml:"datasources"`
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return time.Duration(d)
}

func TestDatasource(t *testing.T) {
	d := yaml.NewDecoder(strings.NewReader(readFile(t, "provisioning/datasources/spillway.yaml")))
	d.KnownFields(true)
	var p provisioning
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != 1 || len(p.Datasources) != 1 {
		t.Fatalf("apiVersion %d, %d data sources: want 1 and 1", p.APIVersion, len(p.Datasources))
	}
	ds := p.Datasources[0]
	if ds.Type != "prometheus" || ds.Access != "proxy" || ds.UID == "" || ds.Name == "" {
		t.Errorf("%+v: want a prometheus data source with name and uid that Grafana's server asks", ds)
	}

	limits := config.Default().Limits
	j := ds.JSONData
	// A GET carries the query in its URL, where long ones are cut and logged.
	if j.HTTPMethod != "POST" {
		t.Errorf("httpMethod is %q", j.HTTPMethod)
	}
	// Grafana's list for Prometheus ends with this version, which stands for everything after 2.50;
	// from 2.24 on it asks labels and values with match[] instead of /series.
	if j.PrometheusType != "Prometheus" || j.PrometheusVersion != "2.50.1" || j.SeriesEndpoint {
		t.Errorf("%s %s, seriesEndpoint %v: Grafana would look for labels by /series", j.PrometheusType, j.PrometheusVersion, j.SeriesEndpoint)
	}
	if got := duration(t, j.TimeInterval); got != 15*time.Second {
		t.Errorf("timeInterval is %s, the scrape interval 15s", got)
	}
	if got := duration(t, j.QueryTimeout); got >= limits.Timeout || got < limits.Timeout-5*time.Second {
		t.Errorf("queryTimeout is %s: it must be a little below Spillway's own %s", got, limits.Timeout)
	}
	if got := time.Duration(j.Timeout) * time.Second; got <= limits.Timeout {
		t.Errorf("timeout is %s: Grafana would hang up before Spillway's %s, and its sentence would be lost", got, limits.Timeout)
	}
	if !j.IncrementalQuerying || duration(t, j.IncrementalQueryOverlapWindow) != 10*time.Minute {
		t.Errorf("incrementalQuerying %v, overlap %s", j.IncrementalQuerying, j.IncrementalQueryOverlapWindow)
	}
	if j.CacheLevel != "Medium" || !j.ManageAlerts || j.AllowAsRecordingRulesTarget || j.DisableRecordingRules {
		t.Errorf("%+v", j)
	}
	if most := config.Default().LimitsFor(endpoint.LabelValues).MaxSeries; j.SeriesLimit > most || j.SeriesLimit == 0 {
		t.Errorf("seriesLimit is %d: above Spillway's %d every list would come with a warning", j.SeriesLimit, most)
	}

	// Every key is explained.
	readme := readFile(t, "README.md")
	var raw struct {
		Datasources []struct {
			JSONData map[string]any `yaml:"jsonData"`
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "provisioning/datasources/spillway.yaml")), &raw); err != nil {
		t.Fatal(err)
	}
	for key := range raw.Datasources[0].JSONData {
		if !strings.Contains(readme, "`"+key) {
			t.Errorf("README.md does not explain %s", key)
		}
	}
}

// TestDashboardProvider holds the folder to that of the mixin, and the settings to what README.md
// says of them.
func TestDashboardProvider(t *testing.T) {
	type provider struct {
		Name                  string `yaml:"name"`
		Type                  string `yaml:"type"`
		Folder                string `yaml:"folder"`
		DisableDeletion       bool   `yaml:"disableDeletion"`
		AllowUIUpdates        bool   `yaml:"allowUiUpdates"`
		UpdateIntervalSeconds int    `yaml:"updateIntervalSeconds"`
		Options               struct {
			Path                      string `yaml:"path"`
			FoldersFromFilesStructure bool   `yaml:"foldersFromFilesStructure"`
		} `yaml:"options"`
	}
	d := yaml.NewDecoder(strings.NewReader(readFile(t, "provisioning/dashboards/spillway.yaml")))
	d.KnownFields(true)
	var p struct {
		APIVersion int        `yaml:"apiVersion"`
		Providers  []provider `yaml:"providers"`
	}
	if err := d.Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.APIVersion != 1 || len(p.Providers) != 1 {
		t.Fatalf("apiVersion %d, %d providers: want 1 and 1", p.APIVersion, len(p.Providers))
	}
	got := p.Providers[0]
	if got.Type != "file" || got.Name == "" || got.AllowUIUpdates || got.UpdateIntervalSeconds < 10 ||
		!strings.HasPrefix(got.Options.Path, "/") {
		t.Errorf("%+v", got)
	}
	// The list of dashboards at the top of each one has the folder's name.
	for _, name := range dashboards.Names() {
		board, err := dashboards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(board.Links) == 0 || board.Links[0].Title != got.Folder {
			t.Errorf("%s lists %+v, the folder is %s", name, board.Links, got.Folder)
		}
	}
	readme := readFile(t, "README.md")
	for _, key := range []string{
		"folder", "path", "updateIntervalSeconds", "allowUiUpdates", "disableDeletion",
		"foldersFromFilesStructure",
	} {
		if !strings.Contains(readme, "| `"+key+"`") {
			t.Errorf("README.md does not explain %s", key)
		}
	}
}

// TestURLIsTheDemos compares the data source's address with the default of the command line, as its
// help prints it.
func TestURLIsTheDemos(t *testing.T) {
	var p provisioning
	if err := yaml.Unmarshal([]byte(readFile(t, "provisioning/datasources/spillway.yaml")), &p); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(p.Datasources[0].URL)
	if err != nil || u.Scheme != "http" || u.Path != "" {
		t.Fatalf("%q: %v", p.Datasources[0].URL, err)
	}
	for command, program := range map[string]cli.Program{"demo": lab.Laboratory, "proxy": cli.Spillway} {
		var out bytes.Buffer
		program.Run(context.Background(), context.Background(), []string{command, "--help"}, &out, &out)
		m := regexp.MustCompile(`--web\.listen-address="?([0-9.:]+)"?`).FindStringSubmatch(out.String())
		if m == nil || m[1] != u.Host {
			t.Errorf("%s listens on %q, the data source asks %s", command, m, u.Host)
		}
	}
}

// readINI reads sections of `key = value` lines as Grafana does; ; and # begin comments.
func readINI(t *testing.T, text string) map[string]string {
	t.Helper()
	out, section := map[string]string{}, ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("line %d: %q is no key = value", i+1, line)
		}
		name := section + "." + strings.TrimSpace(key)
		if _, twice := out[name]; twice {
			t.Errorf("%s stands twice", name)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out
}

func TestServerSettings(t *testing.T) {
	got := readINI(t, readFile(t, "grafana.ini"))
	if got["dataproxy.send_user_header"] != "true" {
		t.Error("[dataproxy] send_user_header is not true: the user's name would never come")
	}
	seconds, err := strconv.Atoi(got["dataproxy.timeout"])
	if limit := config.Default().Limits.Timeout; err != nil || time.Duration(seconds)*time.Second <= limit {
		t.Errorf("[dataproxy] timeout is %q: it must be above Spillway's %s", got["dataproxy.timeout"], limit)
	}
	readme := readFile(t, "README.md")
	for key := range got {
		if _, name, _ := strings.Cut(key, "."); !strings.Contains(readme, "`"+name) {
			t.Errorf("README.md does not explain %s", key)
		}
	}
	if len(got) != 2 {
		t.Errorf("%v: these are settings of somebody else's Grafana; keep to what Spillway needs", got)
	}
}
