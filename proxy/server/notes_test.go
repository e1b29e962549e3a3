package server

import (
	"context"
	"net/url"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestNotesSayTheCallersPlaces: a place in a note of a shard, which is one in what the shard was
// sent, is told as the place in what the caller wrote, or not at all.
func TestNotesSayTheCallersPlaces(t *testing.T) {
	const note = "PromQL info: metric might not be a counter"
	r := newRig(t, manyShards(2), limits(ample))
	for _, tc := range []struct {
		query, at string // the place that shards tell
		want      []string
	}{
		{`rate(up[5m])`, "1:6", []string{note + " (1:6)"}},
		{` rate( up [5m] )`, "1:8", []string{note + " (1:8)"}},                               // sent as it is written
		{` rate( up{cluster="jaguar"}[5m])`, "1:6", []string{note + " (1:8)"}},               // the shards do not know the label
		{`sum by (job) (  rate(up{cluster!="no"}[5m]))`, "1:20", []string{note + " (1:22)"}}, // likewise
		{`quantile(0.5, rate(up[5m]))`, "1:6", []string{note + " (1:20)"}},                   // a part
		{"quantile(0.5,\n\n  rate(up[5m]))", "1:6", []string{note + " (3:8)"}},
		{`quantile(0.5, rate(up[5m])) + 0`, "1:77", []string{note}},                    // outside of what was sent
		{`quantile(0.5, rate(up[5m])) + 0 `, "2:1", []string{note}},                    // likewise
		{`quantile(0.5, rate(up[5m])) + 0 `, "1:7", []string{note}},                    // no node begins there
		{`avg(rate(up[5m]))`, "1:98", []string{note}},                                  // sent as sum and count
		{`sum(rate(up[5m])) / 2`, "1:10", []string{note + " (1:10)"}},                  // the first part
		{`2 / sum(rate(up[5m])) `, "1:10", []string{note + " (1:14)"}},                 // not the first
		{`sum(rate(up[5m])) / sum(rate(up[5m]))`, "1:10", []string{note + " (1:10)"}},  // asked once
		{`max(rate(up[5m])) - max( rate(up[5m]))`, "1:10", []string{note + " (1:10)"}}, // likewise
		{`topk(1, sum by (job) (rate(up[5m])))`, "1:20", []string{note + " (1:28)"}},   // inside of what is chosen here
		{`absent(rate(up[5m]))`, "1:12", []string{note}},                               // sent as group()
		{`quantile(0.5, rate(up[5m]))  `, "invalid position", []string{note}},          // nobody's place
	} {
		for _, s := range r.all() {
			body := `{"status":"success","data":{"resultType":"vector","result":[]},"infos":["` + note + ` (` + tc.at + `)"]}`
			if err := s.Set("", fakeshard.Route{
				Path:   "/api/v1/query",
				Script: "header Content-Type application/json; send '" + body + "'",
			}); err != nil {
				t.Fatal(err)
			}
		}
		got := r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {tc.query}}}))
		notes, err := readNotes(got.body)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(notes.infos, tc.want) {
			t.Errorf("%s: %q, want %q; %s", tc.query, notes.infos, tc.want, got)
		}
	}
}
