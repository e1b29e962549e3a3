package server

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// A server says with its answer to a part that a store behind it did not answer. What is read raw
// then lacks as much, and the protocol of remote read has no place to say so: the warning stays.
// What an engine remarks is said anew by ours, if there is reason to.
func TestWarningsOfStoresStay(t *testing.T) {
	const failed, remark = "remote_read: 127.0.0.1:9: connection refused", "PromQL warning: bucket label is missing"
	for _, path := range []string{"/api/v1/query", "/api/v1/query_range"} {
		r := newRig(t, manyShards(2), roomy(ample))
		result := `{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]}`
		form := url.Values{"query": {"sum(up)"}, "time": {"1700000000"}}
		if path == "/api/v1/query_range" {
			result = `{"resultType":"matrix","result":[{"metric":{},"values":[[1700000000,"1"]]}]}`
			form = url.Values{"query": {"sum(up)"}, "start": {"1700000000"}, "end": {"1700000000"}, "step": {"60"}}
		}
		body := `{"status":"success","data":` + result + `,"warnings":["` + failed + `","` + remark + `"]}`
		s := r.all()[1]
		if err := s.Set("", fakeshard.Route{Path: path, Script: "header Content-Type application/json; send '" + body + "'"}); err != nil {
			t.Fatal(err)
		}
		got := r.ask(r.request(context.Background(), asking{path: path, form: form}))
		if got.status != 200 || got.err != nil {
			t.Fatal(got)
		}
		if len(s.RequestsTo("/api/v1/read")) == 0 {
			t.Errorf("%s was not read raw: %s", path, got)
		}
		said := func(text string) bool {
			return slices.ContainsFunc(got.message.Warnings, func(w string) bool { return strings.HasSuffix(w, text) })
		}
		if !said(failed) || said(remark) {
			t.Errorf("%s: %q", path, got.message.Warnings)
		}
		r.idle()
	}
}
