package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestAdminCardinality: whoever runs Spillway reads what all shards' heads have, merged; a shard
// that does not tell is an error that names it.
func TestAdminCardinality(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, limits(ample))
	for i, s := range r.shards["jaguar"] {
		head := `"headStats":{"numSeries":` + strings.Repeat("1", i+1) + `,"numLabelPairs":5,"chunkCount":7,"minTime":1,"maxTime":2}`
		lists := `"seriesCountByMetricName":[{"name":"up","value":3},{"name":"down","value":2}],"labelValueCountByLabelName":[],` +
			`"memoryInBytesByLabelName":[],"seriesCountByLabelValuePair":[]`
		script := `send '{"status":"success","data":{` + head + "," + lists + "}}'"
		if err := s[0].Set("", fakeshard.Route{Path: "/api/v1/status/tsdb", Script: script}); err != nil {
			t.Fatal(err)
		}
	}
	got := r.get(r.admin + "/api/spillway/v1/cardinality?limit=1")
	var data struct {
		HeadStats               struct{ NumSeries int }
		SeriesCountByMetricName []struct {
			Name  string
			Value int
		}
	}
	if err := json.Unmarshal(got.message.Data, &data); got.status != 200 || err != nil || data.HeadStats.NumSeries != 12 ||
		len(data.SeriesCountByMetricName) != 1 || data.SeriesCountByMetricName[0].Value != 6 {
		t.Errorf("%v %s", err, got)
	}
	if err := r.shards["jaguar"][0][0].Set("status 500"); err != nil {
		t.Fatal(err)
	}
	if got := r.get(r.admin + "/api/spillway/v1/cardinality"); got.status != 502 || !strings.Contains(got.message.Error, "jaguar[0]") {
		t.Errorf("a shard that does not tell: %s", got)
	}
}
