package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestBulkAnswersEndWhole: of answers that are longer than what is held of one before it is sent
// nothing is missing at their end, also where what is written last is small.
func TestBulkAnswersEndWhole(t *testing.T) {
	some := func(n, size int, name string) (all []map[string]string) {
		for i := range n {
			all = append(all, map[string]string{"__name__": name, "instance": fmt.Sprint(i), "text": strings.Repeat("v", size)})
		}
		return all
	}
	for name, all := range map[string][]map[string]string{
		"a small one":                 some(100, 200, "a"),
		"6,000 lines":                 some(6_000, 200, "a"),
		"12,000 lines":                some(12_000, 200, "a"),
		"a mebibyte and a bit":        some(5_260, 180, "a"),
		"large ones, then small ones": append(some(20, 90_000, "a"), some(5, 1, "b")...),
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, client: newClient(t)}
			r.s, r.url = startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - name: jaguar\n    shards: [{replicas: [{url: %q}]}]\n",
				fakeshard.Start(t, fakeshard.Config{Series: all}).URL())+roomy(ample))
			if n := strings.Count(r.federated(), "\n"); n != len(all) {
				t.Errorf("federation has %d of %d series", n, len(all))
			}
			var streamed prompb.ChunkedReadResponse
			n, frames := 0, remote.NewChunkedReader(bytes.NewReader(r.readAll(prompb.ReadRequest_STREAMED_XOR_CHUNKS)), 8<<20, nil)
			for ; ; n += len(streamed.ChunkedSeries) {
				streamed.Reset()
				if err := frames.NextProto(&streamed); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("after %d of %d series: %v", n, len(all), err)
				}
			}
			if n != len(all) {
				t.Errorf("remote read streams %d of %d series", n, len(all))
			}
			var samples prompb.ReadResponse
			plain, err := snappy.Decode(nil, r.readAll(prompb.ReadRequest_SAMPLES))
			if err == nil {
				err = samples.Unmarshal(plain)
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := len(samples.Results[0].Timeseries); n != len(all) {
				t.Errorf("remote read has samples of %d of %d series", n, len(all))
			}
		})
	}
}

// federated is the page of all series, without comments.
func (r *rig) federated() string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+`/federate?match[]={__name__=~"a|b"}`, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(r.bodyOf(req))) {
		if !strings.HasPrefix(line, "#") && strings.HasSuffix(line, "\n") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// readAll is the remote read of all series.
func (r *rig) readAll(as prompb.ReadRequest_ResponseType) []byte {
	r.t.Helper()
	now := time.Now()
	all := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", "a|b")}
	q, err := remote.ToQuery(now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), all, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := (&prompb.ReadRequest{Queries: []*prompb.Query{q}, AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{as}}).Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	return r.bodyOf(req)
}

// bodyOf is the body of an answer, which is 200.
func (r *rig) bodyOf(req *http.Request) []byte {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %d %v %.300s", req.URL.Path, resp.StatusCode, err, body)
	}
	return body
}
