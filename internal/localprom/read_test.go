package localprom

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// Options.Read takes the place of the shard's own TSDB on every road that reads samples, and of
// nothing that writes.
func TestReadsAnotherStorage(t *testing.T) {
	other := start(t, Options{DisableWAL: true})
	load(t, other, "load 15s\n  m{from=\"other\"} 1 2 3", time.UnixMilli(0))
	s := start(t, Options{DisableWAL: true, Read: other.DB()})
	load(t, s, "load 15s\n  m{from=\"own\"} 1 2 3", time.UnixMilli(0))
	if n := s.DB().Head().NumSeries(); n != 1 {
		t.Errorf("what is loaded goes to the shard's own TSDB: it has %d series", n)
	}
	for _, path := range []string{"/api/v1/query?time=30&query=m", "/api/v1/query_range?start=0&end=30&step=15&query=m", "/api/v1/series?start=0&end=30&match[]=m", "/api/v1/label/from/values?start=0&end=30"} {
		if code, body := get(t, s, path); code != http.StatusOK || !strings.Contains(body, `"other"`) || strings.Contains(body, `"own"`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	q, err := remote.ToQuery(0, 30_000, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "m")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := readSamples(t.Context(), s.URL()+"/api/v1/read", q)
	if err != nil || len(samples.Timeseries) != 1 || !strings.Contains(samples.Timeseries[0].String(), "other") {
		t.Errorf("samples: %v %v", samples, err)
	}
	u, err := url.Parse(s.URL() + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := remote.NewReadClient("test", &remote.ClientConfig{
		URL: &commonconfig.URL{URL: u}, Timeout: model.Duration(time.Minute),
		ChunkedReadLimit: config.DefaultChunkedReadLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := chunks.Read(t.Context(), q, true)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for set.Next() {
		if n++; set.At().Labels().Get("from") != "other" {
			t.Errorf("chunks: %s", set.At().Labels())
		}
	}
	if set.Err() != nil || n != 1 {
		t.Errorf("chunks: %d series, %v", n, set.Err())
	}
}

// readSamples asks a remote-read endpoint for samples, as clients did before chunks were streamed.
func readSamples(ctx context.Context, url string, q *prompb.Query) (*prompb.QueryResult, error) {
	msg, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{q}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(snappy.Encode(nil, msg)))
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", res.Status, body)
	}
	if body, err = snappy.Decode(nil, body); err != nil {
		return nil, err
	}
	var answer prompb.ReadResponse
	if err := proto.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	return answer.Results[0], nil
}
