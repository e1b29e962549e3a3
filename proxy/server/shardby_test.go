package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// TestFalseShardBy: a shard_by whose label has a value on two shards gives no wrong numbers, and is
// told; one that holds is used.
func TestFalseShardBy(t *testing.T) {
	for _, tc := range []struct {
		name  string
		zones [2][]string
		want  string
		mode  string
	}{
		{"false", [2][]string{{"a", "b", "c"}, {"a", "b", "c"}}, "3", "raw"},
		{"half false", [2][]string{{"a", "b"}, {"b", "c"}}, "3", "raw"},
		{"true", [2][]string{{"a", "b"}, {"c"}}, "3", "push"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("groups:\n  - name: jaguar\n    shard_by: [zone]\n    shards:\n")
			for i, zones := range tc.zones {
				var series []map[string]string
				for _, z := range zones {
					series = append(series, map[string]string{"__name__": "g", "zone": z, "instance": fmt.Sprintf("%d-%s", i, z)})
				}
				fmt.Fprintf(&b, "      - {replicas: [{url: %q}]}\n", fakeshard.Start(t, fakeshard.Config{Series: series}).URL())
			}
			r := &rig{t: t, client: newClient(t)}
			r.s, r.url = startProxy(t, t.Context(), b.String())
			got := r.ask(r.request(context.Background(), asking{path: "/api/v1/query"}, "query", "count(count by (zone) (g))"))
			if got.status != 200 || !strings.Contains(string(got.body), `"`+tc.want+`"]`) {
				t.Errorf("%s", got)
			}
			e, err := r.s.ExplainQuery(t.Context(), Question{Query: "count(count by (zone) (g))"})
			if err != nil || (string(e.Plan.Mode) == "push") != (tc.mode == "push") {
				t.Errorf("%v, %v: %+v", tc.mode, err, e.Plan)
			}
			broken := tc.mode == "raw"
			if state, why := r.s.state.Load().top.Groups[0].ShardByState(); (state == trust.Broken) != broken ||
				(state == trust.Trusted) == broken || broken != strings.Contains(why, "zone=") {
				t.Errorf("%s, %q", state, why)
			}
			cfg, err := config.Parse([]byte(b.String()), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			problems, err := shard.CheckOnline(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if text := fmt.Sprint(problems); strings.Contains(text, "groups[0].shard_by") != broken {
				t.Errorf("check config --online: %s", text)
			}
		})
	}
}
