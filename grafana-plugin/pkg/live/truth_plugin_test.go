package live

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/host"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/host/hosttest"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// testPlugin sends a query of every type and view through the built program, as Grafana does, and
// once directly: both ways give the same frames. That those are right is tested beside this.
func testPlugin(t *testing.T, s *stage) {
	binary, err := hosttest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Start(host.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	url, err := s.servers.First(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	direct := *s
	direct.client = newClient(t, url)
	instance := &backend.DataSourceInstanceSettings{
		ID: 1, UID: "experiments", Type: host.PluginID, Name: "Experiments", URL: url,
		JSONData: []byte(prices),
	}
	other := ""
	for _, p := range s.pods {
		if p.Experiment != spread && p.phase(s.until) == "Running" {
			other = p.Experiment
		}
	}
	list := append(everything([]string{spread, other}),
		`{"queryType":"promql","expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","experiments":[`+quote(spread)+`]}`,
		`{"queryType":"promql","instant":true,"expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","experiments":[`+quote(spread)+`]}`,
		`{"queryType":"promql","expr":"sum by ("}`)
	types := map[model.QueryType]bool{}
	for _, query := range list {
		q, err := model.ParseQuery("A", "", []byte(query))
		if err != nil {
			t.Fatal(err)
		}
		types[q.Type] = true
		answer, err := h.Query(t.Context(), &backend.QueryDataRequest{
			PluginContext: backend.PluginContext{OrgID: 1, PluginID: host.PluginID, DataSourceInstanceSettings: instance},
			Queries: []backend.DataQuery{{
				RefID: "A", JSON: []byte(query), MaxDataPoints: points,
				TimeRange: backend.TimeRange{From: s.from, To: s.until},
			}},
		})
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		want, wrong := direct.do(t.Context(), query)
		if differs := difference(t, answer.Responses["A"], want, wrong); differs != "" {
			t.Errorf("%s: %s", query, differs)
		}
	}
	for _, kind := range model.QueryTypes {
		if !types[kind] {
			t.Errorf("queries of type %s were not asked", kind)
		}
	}
}

// difference says what an answer that came through the plugin has that a direct one has not; ""
// where both are one. Two answers without a row differ: there is nothing to compare.
func difference(t *testing.T, got backend.DataResponse, want data.Frames, wrong error) string {
	t.Helper()
	switch {
	case (got.Error == nil) != (wrong == nil) || wrong != nil && got.Error.Error() != wrong.Error():
		return fmt.Sprintf("%v through the plugin, and %v directly", got.Error, wrong)
	case wrong != nil:
		return ""
	case len(got.Frames) != len(want):
		return fmt.Sprintf("%d frames through the plugin, and %d directly", len(got.Frames), len(want))
	}
	rows := 0
	for i := range want {
		rows += want[i].Rows()
		if a, b := wire(t, got.Frames[i]), wire(t, want[i]); a != b {
			return fmt.Sprintf("frame %d is through the plugin\n%.2000s\nand directly\n%.2000s", i, a, b)
		}
	}
	if rows == 0 {
		return "there is nothing to compare"
	}
	return ""
}

// wire is a frame as JSON once it went the way that frames go between programs.
func wire(t *testing.T, f *data.Frame) string {
	t.Helper()
	raw, err := f.MarshalArrow()
	if err != nil {
		t.Fatal(err)
	}
	back, err := data.UnmarshalArrowFrame(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
