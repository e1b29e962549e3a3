package server

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// A server with a remote_read says with its answer to a part that the store did not answer. What is
// read raw then lacks as much, and the protocol of remote read has no place to say so: the warning
// stays. What an engine remarks is said anew by ours, if there is reason to.
func TestWarningsOfStoresStay(t *testing.T) {
	const failed, remark = "remote_read: 127.0.0.1:9: connection refused", "PromQL warning: bucket label is missing"
	for path, elsewhere := range map[string]bool{"/api/v1/query": true, "/api/v1/query_range": true, "/api/v1/query?": false} {
		path = strings.TrimSuffix(path, "?")
		r := newRig(t, manyShards(2), roomy(ample), func(o *Options) {
			o.shards = shard.Options{ProbeInterval: 20 * time.Millisecond, FactsEvery: 20 * time.Millisecond}
		})
		result := `{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]}`
		form := url.Values{"query": {"sum(up)"}, "time": {"1700000000"}}
		if path == "/api/v1/query_range" {
			result = `{"resultType":"matrix","result":[{"metric":{},"values":[[1700000000,"1"]]}]}`
			form = url.Values{"query": {"sum(up)"}, "start": {"1700000000"}, "end": {"1700000000"}, "step": {"60"}}
		}
		const send = "header Content-Type application/json; send '"
		body := `{"status":"success","data":` + result + `,"warnings":["` + failed + `","` + remark + `"]}`
		routes := []fakeshard.Route{{Path: path, Script: send + body + "'"}}
		if elsewhere {
			const config = `{"status":"success","data":{"yaml":"remote_read: [{url: http://127.0.0.1:9/read}]"}}`
			routes = append(routes, fakeshard.Route{Path: "/api/v1/status/config", Script: send + config + "'"})
		}
		s := r.all()[1]
		if err := s.Set("", routes...); err != nil {
			t.Fatal(err)
		}
		if elsewhere {
			r.eventually("it is known that the server has a remote_read", func() bool {
				return slices.ContainsFunc(r.s.state.Load().top.Groups[0].Shards, (*shard.Shard).MayReadElsewhere)
			})
		}
		got := r.ask(r.request(context.Background(), asking{path: path, form: form}))
		if elsewhere { // a dashboard refreshes
			got = r.ask(r.request(context.Background(), asking{path: path, form: form}))
		}
		if got.status != 200 || got.err != nil {
			t.Fatal(got)
		}
		if len(s.RequestsTo("/api/v1/read")) == 0 {
			t.Errorf("%s was not read raw: %s", path, got)
		}
		said := func(text string) bool {
			return slices.ContainsFunc(got.message.Warnings, func(w string) bool { return strings.HasSuffix(w, text) })
		}
		if said(failed) != elsewhere || said(remark) {
			t.Errorf("%s, elsewhere %v: %q", path, elsewhere, got.message.Warnings)
		}
		r.idle()
	}
}
