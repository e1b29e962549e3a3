package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/plugin"
)

func TestPluginID(t *testing.T) {
	if PluginID != plugin.ID {
		t.Errorf("the host knows the plugin as %q, and it is %q", PluginID, plugin.ID)
	}
}

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for what, c := range map[string]struct{ binary, want string }{
		"no file":              {filepath.Join(dir, "nothing"), "make plugin builds it"},
		"a file of no program": {write("text", "hello", 0o600), "permission denied"},
		"a program that ends":  {write("ends", "#!/bin/sh\nexit 3\n", 0o700), "start "},
		"another protocol":     {write("other", "#!/bin/sh\necho '1|9|tcp|127.0.0.1:1|grpc'\nread x\n", 0o700), "start "},
	} {
		t.Run(what, func(t *testing.T) {
			h, err := Start(Options{Binary: c.binary})
			if err == nil {
				h.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.binary) {
				t.Errorf("%v; want %q and the file's name in it", err, c.want)
			}
		})
	}
}

// TestEnvironment: nothing of the host's environment gets to the plugin, so nothing there changes
// what it does.
func TestEnvironment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	h := start(t)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range strings.Split(strings.Trim(string(raw), "\x00"), "\x00") {
		n, _, _ := strings.Cut(v, "=")
		names = append(names, n)
	}
	for _, n := range names {
		if !strings.HasPrefix(n, "PLUGIN_") && n != "grafana_plugin_type" {
			t.Errorf("the plugin has the variable %s", n)
		}
	}
	if !slices.Contains(names, "grafana_plugin_type") {
		t.Errorf("no handshake among %q: the test reads the wrong thing", names)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	h := start(t)
	found, err := h.Health(t.Context(), contextOf(at(whole(t), "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if found.Status != backend.HealthStatusOk || found.Message == "" {
		t.Errorf("health: %s %q %s", found.Status, found.Message, found.JSONDetails)
	}
	if len(found.JSONDetails) > 0 && !json.Valid(found.JSONDetails) {
		t.Errorf("details are no JSON: %s", found.JSONDetails)
	}
	if n := gauge(t, h, "go_goroutines"); n < 5 {
		t.Errorf("%v goroutines", n)
	}
	for _, settings := range []string{`{"idleBelow":-1}`, `{"labels":["experiment"]}`, `[`} {
		i := at("http://127.0.0.1:1", settings)
		i.UID = settings
		found, err := h.Health(t.Context(), contextOf(i), nil)
		if err != nil {
			t.Errorf("settings %s: %v", settings, err)
		} else if found.Status != backend.HealthStatusError || found.Message == "" {
			t.Errorf("settings %s: health %s %q", settings, found.Status, found.Message)
		}
	}
}

// asked are queries of every type and view, about what the clusters have something of; want is a
// field of the answer's first frame that has values, of which one is not 0.
func asked() []struct{ query, want string } {
	views := func(kind model.QueryType) (out []struct{ query, want string }) {
		for _, v := range model.Views[kind] {
			extra := `"experiments":["run"]`
			if kind == model.Compare {
				extra = `"experiments":["run","queued"]`
			}
			want := map[string]string{
				"gpu_health table": "fault", "cost table": "gpu_hours",
				"compare summary": "gpu_hours",
			}[string(kind)+" "+v]
			out = append(out, struct{ query, want string }{
				fmt.Sprintf(`{"queryType":%q,"view":%q,%s}`, kind, v, extra),
				cmp.Or(want, "Value"),
			})
		}
		return out
	}
	one := func(query, want string) struct{ query, want string } {
		return struct{ query, want string }{query, want}
	}
	list := []struct{ query, want string }{
		one(`{"queryType":"experiments"}`, "experiment"),
		one(`{"queryType":"pods","experiments":["run"]}`, "pod"),
		one(`{"queryType":"nodes","experiments":["run"]}`, "node"),
		one(`{"queryType":"gpu_timeseries","experiments":["run"],"groupBy":["cluster","node"]}`, "Value"),
		one(`{"queryType":"pending","experiments":["queued"]}`, "reason"),
		one(`{"queryType":"events","experiments":["run"]}`, "title"),
		one(`{"queryType":"stragglers","experiments":["run"]}`, "share"),
		one(`{"queryType":"promql","expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","experiments":["run"]}`, "Value"),
		one(`{"queryType":"promql","instant":true,"expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","experiments":["run"]}`, "Value"),
	}
	for _, kind := range []model.QueryType{model.Status, model.GPUHealth, model.Network, model.Cost, model.Compare} {
		list = append(list, views(kind)...)
	}
	return list
}

// TestEveryQueryType asks each type and view of the plugin's program, which asks the real proxy
// over two clusters. What they answer is tested in package experiments; here: that they are all
// there, each with something of what the clusters have, and that frames, notices and the queries
// that were sent come through the protocol.
func TestEveryQueryType(t *testing.T) {
	h := start(t)
	p := contextOf(at(whole(t), ""))
	seen := map[model.QueryType]bool{}
	for _, c := range asked() {
		var q model.Query
		if err := json.Unmarshal([]byte(c.query), &q); err != nil {
			t.Fatal(err)
		}
		seen[q.Type] = true
		t.Run(strings.Trim(fmt.Sprintf("%s %s", q.Type, q.View), " "), func(t *testing.T) {
			answer, err := h.Query(t.Context(), request(p, c.query))
			if err != nil {
				t.Fatal(err)
			}
			got := answer.Responses["A"]
			if got.Error != nil {
				t.Fatalf("%v (status %d, source %s)", got.Error, got.Status, got.ErrorSource)
			}
			if len(got.Frames) == 0 {
				t.Fatal("no frame")
			}
			first := got.Frames[0]
			if first.Meta == nil || first.Meta.ExecutedQueryString == "" {
				t.Error("the queries that were sent are not told")
			}
			for _, f := range got.Frames {
				if f.RefID != "A" || f.Meta == nil || f.Meta.Type == "" && f.Meta.DataTopic != data.DataTopicAnnotations {
					t.Errorf("frame %q of %q: its type is not told: %+v", f.Name, f.RefID, f.Meta)
				}
			}
			something := 0
			for _, f := range got.Frames {
				field, _ := f.FieldByName(c.want)
				if field == nil {
					t.Fatalf("no field %q:\n%s", c.want, table(f))
				}
				for i := range field.Len() {
					if v, ok := field.ConcreteAt(i); ok && v != 0.0 && v != "" {
						something++
					}
				}
			}
			if something == 0 {
				t.Errorf("nothing in the field %q:\n%s", c.want, table(first))
			}
		})
	}
	for _, kind := range model.QueryTypes {
		if !seen[kind] {
			t.Errorf("queries of type %s were not asked", kind)
		}
	}
}

func table(f *data.Frame) string {
	text, err := f.StringTable(20, 5)
	if err != nil {
		return err.Error()
	}
	return text
}

func TestEveryResource(t *testing.T) {
	h := start(t)
	p := contextOf(at(whole(t), ""))
	call := func(method, path, query string) (int, string) {
		t.Helper()
		answer, err := h.Call(t.Context(),
			&backend.CallResourceRequest{PluginContext: p, Method: method, Path: path, URL: path + "?" + query})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status, string(answer.Body)
	}
	for _, c := range []struct {
		path, query string
		want, not   []string
	}{
		{"experiments", "", []string{`"run"`, `"queued"`}, nil},
		{"experiments", "q=RU", []string{`"run"`}, []string{`"queued"`}},
		{"experiments", "team=nobody", nil, []string{`"run"`, `"queued"`}},
		{"experiments", "limit=1", nil, nil},
		{"teams", "", []string{`"vision"`}, nil},
		{"clusters", "", []string{`"ibis"`, `"jaguar"`}, nil},
		{"namespaces", "", []string{`"ml"`}, nil},
		{"nodes", "experiment=run", []string{`"gpu-0"`, `"gpu-1"`}, nil},
		{"health", "", nil, nil},
	} {
		status, body := call(http.MethodGet, c.path, c.query)
		if status != http.StatusOK || !json.Valid([]byte(body)) {
			t.Errorf("%s?%s: %d %s", c.path, c.query, status, body)
		}
		for _, w := range c.want {
			if !strings.Contains(body, w) {
				t.Errorf("%s?%s: no %s in %s", c.path, c.query, w, body)
			}
		}
		for _, w := range c.not {
			if strings.Contains(body, w) {
				t.Errorf("%s?%s: %s in %s", c.path, c.query, w, body)
			}
		}
	}
	for _, path := range []string{"", "query", "api/v1/query", "../teams", "teams/x", "experiments/run"} {
		if status, body := call(http.MethodGet, path, "query=up"); status < 300 { // 404, or the redirect to a path without dots
			t.Errorf("%q is none of the resources and is answered with %d %s", path, status, body)
		}
	}
	if status, body := call(http.MethodDelete, "teams", ""); status != http.StatusMethodNotAllowed && status != http.StatusNotFound {
		t.Errorf("DELETE: %d %s", status, body)
	}
}
