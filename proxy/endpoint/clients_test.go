package endpoint

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/endpoint/endpointtest"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func clientRequests(t testing.TB) []endpointtest.ClientRequest {
	t.Helper()
	all, err := endpointtest.Load("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readRequest parses the bytes as a server does and checks that nothing is left over.
func readRequest(t testing.TB, raw []byte) *http.Request {
	t.Helper()
	br := bufio.NewReader(bytes.NewReader(raw))
	r, err := http.ReadRequest(br)
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(br); len(rest) > 0 {
		t.Fatalf("%d bytes after the body: Content-Length is wrong", len(rest))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

func TestClients(t *testing.T) {
	seen := map[ID]bool{}
	for _, c := range clientRequests(t) {
		t.Run(c.Name, func(t *testing.T) {
			req, err := Parse(readRequest(t, c.Raw), Options{})
			if err != nil {
				if got := qerr.From(err).Kind.Status(); got != c.Status {
					t.Fatalf("status %d, want %d: %v", got, c.Status, err)
				}
				return
			}
			if c.Status != http.StatusOK {
				t.Fatalf("parsed, want status %d", c.Status)
			}
			seen[req.ID] = true
			got := req.Values()
			if got == nil {
				got = url.Values{}
			}
			if string(req.ID) != c.Endpoint || req.Label != c.Label || !reflect.DeepEqual(got, c.Params) {
				t.Errorf("got %s %q %v\nwant %s %q %v", req.ID, req.Label, got, c.Endpoint, c.Label, c.Params)
			}
			if len(req.Dropped)+len(c.Dropped) > 0 && !reflect.DeepEqual(req.Dropped, c.Dropped) {
				t.Errorf("dropped %q, want %q", req.Dropped, c.Dropped)
			}
			roundTrip(t, req)

			// Whoever sets strict_parameters must not lose a client over parameters that mean
			// nothing.
			_, err = Parse(readRequest(t, c.Raw), Options{StrictParameters: true})
			if (err != nil) != (len(c.Dropped) > 0) {
				t.Errorf("strict: %v", err)
			}
		})
	}
	for _, e := range Table {
		if !seen[e.ID] {
			t.Errorf("no client request for %s", e.ID)
		}
	}
}

func TestRemoteReadOfPrometheus(t *testing.T) {
	for _, c := range clientRequests(t) {
		if c.Name != "prometheus-remote-read" {
			continue
		}
		req, err := Parse(readRequest(t, c.Raw), Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := &prompb.ReadRequest{
			AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES},
			Queries: []*prompb.Query{{
				StartTimestampMs: 1755000000001, EndTimestampMs: 1755003600000,
				Matchers: []*prompb.LabelMatcher{
					{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "node_load1"},
					{Type: prompb.LabelMatcher_RE, Name: "node", Value: "gpu-.+"},
				},
				Hints: &prompb.ReadHints{StepMs: 15000, Func: "rate", StartMs: 1754999700001, EndMs: 1755003600000, RangeMs: 300000},
			}},
		}
		if !reflect.DeepEqual(req.ReadQuery, want) {
			t.Errorf("got %v\nwant %v", req.ReadQuery, want)
		}
		return
	}
	t.Fatal("the file prometheus-remote-read.http is missing")
}
