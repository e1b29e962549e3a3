package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// A refusal names a bound that docs/bounds has a page of, with its own size, and calls a verdict
// Prometheus' own only where Prometheus says the same.
func TestVerdictsSayWhose(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, "")
	const form = "application/x-www-form-urlencoded"
	type said struct {
		Error    string
		Spillway struct{ Bound, Value, Advice string }
	}
	for _, tc := range []struct {
		name, path, kind, body string
		status                 int
		bound, value           string
		own                    bool // Prometheus'
	}{
		{"a form of 300 KiB", "query", form, "query=" + strings.Repeat("x", 300<<10), 413, "body", "262144", false},
		{"a remote read of 2 MiB", "read", "application/x-protobuf", strings.Repeat("x", 2<<20), 413, "body", "1048576", false},
		{
			"a remote read that inflates to 5 MiB", "read", "application/x-protobuf", string(snappy.Encode(nil, make([]byte, 5<<20))), 413,
			"body", "4194304", false,
		},
		{"a remote read that is none", "read", "application/x-protobuf", "x", 400, "", "", false},
		{"a parameter twice", "query", form, "query=up&query=down", 400, "", "", false},
		{"a time that is none", "query", form, "query=up&time=noon", 400, "", "", false},
		{"a query that does not parse", "query", form, "query=sum(", 400, "", "", true},
		{"a range that ends before it begins", "query_range", form, "query=up&start=9&end=1&step=1", 400, "", "", true},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url+"/api/v1/"+tc.path,
			bytes.NewReader([]byte(tc.body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", tc.kind)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var got said
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%s: %v: %.300s", tc.name, err, body)
		}
		if err != nil || resp.StatusCode != tc.status || got.Spillway.Bound != tc.bound || got.Spillway.Value != tc.value {
			t.Errorf("%s: %d, %v: %.300s", tc.name, resp.StatusCode, err, body)
		}
		if tc.bound != "" && !slices.Contains(policy.Bounds(), got.Spillway.Bound) {
			t.Errorf("%s: there is no bound %q", tc.name, got.Spillway.Bound)
		}
		if own := strings.Contains(string(body), "Prometheus' own verdict"); own != tc.own || tc.bound == "" && got.Spillway.Advice == "" {
			t.Errorf("%s: called Prometheus' own: %t, want %t: %.300s", tc.name, own, tc.own, body)
		}
	}
	if kib := endpoint.DefaultMaxBodyBytes >> 10; kib != 256 {
		t.Errorf("docs/bounds/body.md says 256 KiB, not %d", kib)
	}
}
