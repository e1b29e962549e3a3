package plugin

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// The example of provisioning is one of this datasource, names every setting there is, and its
// values are the defaults, but for the prices and the links, as it says.
func TestProvisioningExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "provisioning", "datasources", "experiments.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			JSONData                     map[string]any `yaml:"jsonData"`
		}
	}
	// Grafana reads $NAME as one of its environment, and $$ as $.
	d := yaml.NewDecoder(strings.NewReader(strings.ReplaceAll(string(text), "$$", "$")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if file.APIVersion != 1 || len(file.Datasources) != 1 || file.Datasources[0].Type != ID || file.Datasources[0].Access != "proxy" {
		t.Fatalf("%+v", file)
	}
	ours := file.Datasources[0]
	raw, err := json.Marshal(ours.JSONData)
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.ParseSettings(raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := model.ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Prices) == 0 || len(got.Links) == 0 || !strings.HasSuffix(got.Links[0].URL, "${experiment}") {
		t.Errorf("prices %v, links %v", got.Prices, got.Links)
	}
	got.Prices, got.Links = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example has\n%+v, and the defaults are\n%+v", got, want)
	}
	names := []string{"timeout"} // of Grafana's own settings
	fields := reflect.TypeFor[model.Settings]()
	for i := range fields.NumField() {
		if name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if has := slices.Sorted(maps.Keys(ours.JSONData)); !slices.Equal(has, names) {
		t.Errorf("the example names %q, and the settings are %q", has, names)
	}
	c, err := httpClient(t.Context(), backend.DataSourceInstanceSettings{URL: ours.URL, JSONData: raw})
	if err != nil {
		t.Fatal(err)
	}
	usual, err := httpClient(t.Context(), backend.DataSourceInstanceSettings{URL: ours.URL, JSONData: []byte("{}")})
	if err != nil || c.Timeout != usual.Timeout {
		t.Errorf("timeout %s, and Grafana's own is %s: %v", c.Timeout, usual.Timeout, err)
	}
	if _, err := New(t.Context(), backend.DataSourceInstanceSettings{URL: ours.URL, JSONData: raw}); err != nil {
		t.Error(err)
	}
	// README.md has a row for each.
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name the setting %s", name)
		}
	}
}
