package fakeshard

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// The healthy answers, endpoint by endpoint, and those that the configuration changes.
func TestAnswers(t *testing.T) {
	s := Start(t, Config{
		ExternalLabels: map[string]string{"cluster": "jaguar", "prometheus_replica": "a"},
		Flags:          map[string]string{"query.lookback-delta": "1m", "enable-feature": "promql-experimental-functions"},
		Version:        "3.14.2",
		Series: []map[string]string{
			{"__name__": "up", "job": "b", "instance": "y"},
			{"__name__": "up", "job": "a", "instance": "x"},
			{"__name__": "node_load1", "job": "a", "instance": "x"},
		},
		Queries: map[string]string{"sum(up)": `{"resultType":"vector","result":[{"metric":{},"value":[1,"7"]}]}`, "broken": `{`},
		Answer: func(r Record) (Answer, bool) {
			return Answer{Status: 418, Body: []byte("tea")}, r.Form.Get("query") == "tea"
		},
	})
	c := newClient(t)
	for _, tc := range []struct {
		path   string
		status int
		want   string // a part, or all of it with a "=" before it
	}{
		{"/-/healthy", 200, "=Prometheus Server is Ready.\n"},
		{"/api/v1/status/buildinfo", 200, `"version":"3.14.2"`},
		{"/api/v1/status/flags", 200, `"query.lookback-delta":"1m"`},
		{"/api/v1/status/flags", 200, `"query.max-samples":"50000000"`},
		{"/api/v1/status/config", 200, `external_labels:\n    cluster: \"jaguar\"\n    prometheus_replica: \"a\"\n`},
		{"/api/v1/status/runtimeinfo", 200, `"GOMAXPROCS":2`},
		{"/api/v1/status/tsdb", 200, `"seriesCountByMetricName":[{"name":"node_load1","value":1},{"name":"up","value":2}]`},
		{"/api/v1/status/walreplay", 200, `={"status":"success","data":{"current":0,"max":0,"min":0}}`},
		{"/api/v1/features", 200, `"promql_functions":{`},
		{"/api/v1/series", 200, `={"status":"success","data":[{"__name__":"node_load1","instance":"x","job":"a"},{"__name__":"up","instance":"x","job":"a"},{"__name__":"up","instance":"y","job":"b"}]}`},
		{"/api/v1/series?match[]=up&limit=1", 200, `={"status":"success","data":[{"__name__":"up","instance":"x","job":"a"}],"warnings":["results truncated due to limit"]}`},
		{"/api/v1/series?match[]=nothing", 200, `={"status":"success","data":[]}`},
		{"/api/v1/series?match[]={job%3D%22a%22}&match[]=up", 200, `"y"`},
		{"/api/v1/series?match[]={", 400, `"errorType":"bad_data"`},
		{"/api/v1/labels", 200, `={"status":"success","data":["__name__","instance","job"]}`},
		{"/api/v1/labels?limit=2", 200, `={"status":"success","data":["__name__","instance"],"warnings":["results truncated due to limit"]}`},
		{"/api/v1/labels?match[]=(", 400, `"status":"error"`},
		{"/api/v1/label/job/values", 200, `={"status":"success","data":["a","b"]}`},
		{"/api/v1/label/job/values?match[]=node_load1", 200, `={"status":"success","data":["a"]}`},
		{"/api/v1/label/nothing/values", 200, `={"status":"success","data":[]}`},
		{"/api/v1/query?query=1%2B1&time=4", 200, `={"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}`},
		{"/api/v1/query?query=up&time=4.5", 200, `={"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","instance":"x","job":"a"},"value":[4.5,"1"]},{"metric":{"__name__":"up","instance":"y","job":"b"},"value":[4.5,"1"]}]}}`},
		{"/api/v1/query?query=rate(up[5m])&time=1970-01-01T00:00:04Z", 200, `"value":[4,"0"]`},
		{"/api/v1/query?query=sum(up)", 200, `={"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"7"]}]}}`},
		{"/api/v1/query?query=broken", 500, `not JSON`},
		{"/api/v1/query?query=tea", 418, "=tea"},
		{"/api/v1/query", 400, `no expression`},
		{"/api/v1/query?query=up&time=noon", 400, `noon`},
		{"/api/v1/query_range?query=node_load1&start=0&end=30&step=15", 200, `={"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"node_load1","instance":"x","job":"a"},"values":[[0,"1"],[15,"1"],[30,"1"]]}]}}`},
		{"/api/v1/query_range?query=2&start=0&end=15&step=15s", 200, `={"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[0,"2"],[15,"2"]]}]}}`},
		{"/api/v1/query_range?query=up&start=0&end=1e9&step=1", 400, `11,000 points`},
		{"/api/v1/query_range?query=up&start=0", 400, `start, end and step`},
		{"/api/v1/query_exemplars?query=up&start=0&end=1", 200, `"exemplars":[{"labels":{"trace_id":`},
		{"/api/v1/metadata", 200, `={"status":"success","data":{"node_load1":[{"help":"A series of the fake shard.","type":"gauge","unit":""}],"up":[{"help":"A series of the fake shard.","type":"gauge","unit":""}]}}`},
		{"/api/v1/metadata?metric=up", 200, `={"status":"success","data":{"up":[{"help":"A series of the fake shard.","type":"gauge","unit":""}]}}`},
		{"/api/v1/rules", 200, `"groups":[{`},
		{"/api/v1/alerts", 200, `"alerts":[{`},
		{"/api/v1/targets", 200, `"activeTargets":[{`},
		{"/api/v1/scrape_pools", 200, `={"status":"success","data":{"scrapePools":["fake"]}}`},
		{"/api/v1/alertmanagers", 200, `"activeAlertmanagers":[{"url":"http://alertmanager-0:9093/api/v2/alerts"}]`},
		{"/api/v1/targets/metadata", 200, `"metric":"up"`},
		{"/api/v1/format_query?query=up", 200, `={"status":"success","data":"up"}`},
		{"/api/v1/parse_query?query=up", 200, `"type":"vectorSelector"`},
		{"/federate", 200, "="},
		{
			"/federate?match[]=node_load1", 200,
			"# TYPE node_load1 untyped\nnode_load1{cluster=\"jaguar\",instance=\"x\",job=\"a\",prometheus_replica=\"a\"} 1 ",
		},
		{"/federate?match[]={", 400, "parse error"},
		{"/api/v1/read", 405, "remote read is a POST"},
		{"/api/v1/admin/tsdb/snapshot", 404, "not_found"},
	} {
		resp, err := c.Get(s.URL() + tc.path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		all, exact := strings.CutPrefix(tc.want, "=")
		if resp.StatusCode != tc.status || exact && string(b) != all || !strings.Contains(string(b), all) {
			t.Errorf("%s = %d %s, want %d %s", tc.path, resp.StatusCode, b, tc.status, tc.want)
		}
	}
}

// The healthy remote read, in both forms, with the external labels as Prometheus treats them.
func TestRemoteRead(t *testing.T) {
	s := Start(t, Config{ExternalLabels: map[string]string{"cluster": "jaguar", "job": "external"}})
	c := newClient(t)
	ask := func(accept prompb.ReadRequest_ResponseType, ms ...*prompb.LabelMatcher) *http.Response {
		t.Helper()
		resp, err := c.Post(s.URL()+"/api/v1/read", "application/x-protobuf", bytes.NewReader(readRequest(t, accept, ms...)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != 200 {
			t.Fatalf("status %s", resp.Status)
		}
		return resp
	}
	wantLabels := func(ls []prompb.Label) {
		t.Helper()
		var b strings.Builder
		for _, l := range ls {
			b.WriteString(l.Name + "=" + l.Value + " ")
		}
		// The series' own job stands: external labels are added where the series lacks them.
		if b.String() != "__name__=up cluster=jaguar instance=node-1:9100 job=fake " {
			t.Errorf("labels %s", b.String())
		}
	}
	only := []*prompb.LabelMatcher{
		{Name: "cluster", Value: "jaguar"}, // an equality on an external label is taken out
		{Name: "instance", Type: prompb.LabelMatcher_RE, Value: "node-1.*"},
	}

	resp := ask(prompb.ReadRequest_STREAMED_XOR_CHUNKS, only...)
	r := remote.NewChunkedReader(resp.Body, 1<<20, nil)
	var m prompb.ChunkedReadResponse
	if err := r.NextProto(&m); err != nil {
		t.Fatal(err)
	}
	wantLabels(m.ChunkedSeries[0].Labels)
	if n := len(m.ChunkedSeries[0].Chunks); n != 3 { // 241 samples
		t.Errorf("%d chunks", n)
	}
	if err := r.NextProto(&m); err != io.EOF {
		t.Errorf("a second frame: %v", err)
	}

	resp = ask(prompb.ReadRequest_SAMPLES, only...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := snappy.Decode(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	var all prompb.ReadResponse
	if err := all.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	ts := all.Results[0].Timeseries
	if len(ts) != 1 || len(ts[0].Samples) != 241 {
		t.Fatalf("%d series", len(ts))
	}
	wantLabels(ts[0].Labels)

	if resp := ask(prompb.ReadRequest_SAMPLES, &prompb.LabelMatcher{Name: "cluster", Value: "ibis"}); resp.ContentLength > 16 {
		t.Errorf("a matcher on another cluster found something: %d bytes", resp.ContentLength)
	}
	bad, err := c.Post(s.URL()+"/api/v1/read", "application/x-protobuf", strings.NewReader("this is no snappy"))
	if err != nil {
		t.Fatal(err)
	}
	bad.Body.Close()
	if bad.StatusCode != 400 {
		t.Errorf("bad snappy: %s", bad.Status)
	}
}
