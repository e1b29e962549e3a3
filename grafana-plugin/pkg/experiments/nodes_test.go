package experiments

import (
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

func TestNodes(t *testing.T) {
	w := worldOf(t, "gpus")
	all := []string{
		"eu-1 | gpu-c | unknown | false | 1 | 2 | 8 | 44 | 74 | NVLink error.",
		"us-1 | gpu-a | ready | true | 1 | 2 | 8 | 93 | 63 | Row remapping recorded.",
		"eu-1 | gpu-a | ready | false | 1 | 2 | 8 | 60 | 43 | GPU stopped processing.",
		"eu-1 | gpu-b | gone | false | 0 | 0 | - | 90 | 48 | Double-bit ECC error.",
	}
	for _, c := range []struct {
		name, query string
		want        []string
	}{
		{"in both clusters", `"experiments":["llama"]`, all},
		{"in one", `"experiments":["llama"],"clusters":["us-1"]`, all[1:2]},
		{"one that shares a node", `"experiments":["tiny"]`, []string{"eu-1 | gpu-a | ready | false | 1 | 1 | 8 | 50 | 43 | GPU stopped processing."}},
		{"cut", `"experiments":["llama"],"limit":2`, all[:2]},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.run(t, settingsOf(t, ""), `{"queryType":"nodes",`+c.query+`}`, gpusFrom, gpusUntil)
			frames, err := nodesTable(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := columns(frames[0]), "cluster node state cordoned pods gpus_held gpus util xid xid_text"; got != want {
				t.Errorf("columns %s, want %s", got, want)
			}
			equal(t, "rows", rows(t, frames[0]), c.want)
			if len(c.want) == 4 {
				golden(t, "nodes", frames)
			}
		})
	}
}

// Where nothing is seen of a cluster any more, its nodes are unknown and not gone.
func TestNodesOfALostCluster(t *testing.T) {
	w := worldOf(t, "gpus")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"nodes","experiments":["llama"],"clusters":["us-1"]}`, gpusFrom, 300*60e9)
	frames, err := nodesTable(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", rows(t, frames[0]), []string{"us-1 | gpu-a | unknown | false | 0 | 0 | - | 93 | 63 | Row remapping recorded."})
}

// What nobody ever ran has frames with the right columns or types, no rows, and a notice that says
// so.
func TestNothing(t *testing.T) {
	w := worldOf(t, "gpus")
	for _, c := range []struct {
		query   string
		handle  Handler
		kind    data.FrameType
		columns string
	}{
		{`"queryType":"nodes"`, nodesTable, data.FrameTypeTable, "cluster node state cordoned pods gpus_held gpus util xid xid_text"},
		{`"queryType":"gpu_timeseries"`, gpuTimeSeries, data.FrameTypeTimeSeriesMulti, ""},
		{`"queryType":"gpu_health"`, gpuHealth, data.FrameTypeTable, "cluster node gpu UUID model pod fault class value since text action"},
		{`"queryType":"gpu_health","view":"count"`, gpuHealth, data.FrameTypeNumericMulti, ""},
		{`"queryType":"network"`, network, data.FrameTypeTimeSeriesMulti, ""},
		{`"queryType":"cost"`, cost, data.FrameTypeTable, "team experiment cluster model gpu_hours idle_gpu_hours idle_share"},
		{`"queryType":"cost","view":"total"`, cost, data.FrameTypeNumericMulti, ""},
		{`"queryType":"stragglers"`, stragglers, data.FrameTypeTable, "cluster node gpu UUID pod value median share"},
	} {
		t.Run(c.query, func(t *testing.T) {
			r := w.run(t, settingsOf(t, ""), "{"+c.query+`,"experiments":["nobody's"]}`, gpusFrom, gpusUntil)
			frames, err := c.handle(t.Context(), r)
			if err != nil {
				t.Fatalf("something is not set up in this world: %v", err)
			}
			if len(frames) != 1 || frames[0].Meta.Type != c.kind || columns(frames[0]) != c.columns || frames[0].Rows() != 0 {
				t.Errorf("frames %v of type %s with columns %s", frames, frames[0].Meta.Type, columns(frames[0]))
			}
			if got := noticesOf(r); !strings.Contains(got, "There are no ") {
				t.Errorf("notices %q", got)
			}
		})
	}
}
