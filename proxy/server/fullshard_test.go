package server

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestPartialWithoutRoom: the server of one shard hangs and all places for calls to it are taken.
// An answer that can go without it does, in good time; another request that needs it is told where
// there was no room, and one that does not is answered: who waits for the shard that hangs keeps no
// places at others.
func TestPartialWithoutRoom(t *testing.T) {
	t.Parallel()
	const timeout = 15 * time.Second
	for _, tc := range []struct {
		name, path string
		form, away []string // away: of a group that is well
		stalls     string
		fill       func(r *rig)
	}{
		{
			"calls", "/api/v1/query",
			[]string{"query", "up"},
			[]string{"query", `up{cluster="heron"}`},
			"/api/v1/query",
			func(r *rig) { r.crowd(8, "query", "up"); r.waits("spillway_shard_calls_waiting", 6) },
		},
		{
			"unselective slots", "/api/v1/series",
			[]string{"match[]", `{le!=""}`},
			[]string{"match[]", `{job!="",cluster="heron"}`},
			"/api/v1/series",
			func(r *rig) {
				for i := range 3 * maxUnselective { // not the same one, which would be asked once
					of := url.Values{"match[]": {`{le!=""}`}, "limit": {itoa(int64(100 + i))}}
					r.call(r.request(context.Background(), asking{path: "/api/v1/series", form: of}))
				}
				bad := r.shards["jaguar"][1][0]
				r.eventually("both are asked", func() bool { return len(bad.RequestsTo("/api/v1/series")) == maxUnselective })
				r.waits("spillway_requests_in_flight", 3*maxUnselective)
			},
		},
	} {
		for _, configured := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, configured %t", tc.name, configured), func(t *testing.T) {
				t.Parallel()
				groups := []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}
				// Those who fill it stay, and who finds it full has time for the others' answer.
				r := newRig(t, groups, "limits: {timeout: 10m, replica_calls: 2, read_slots: 1, endpoints: {series: {timeout: 10m}}}\n")
				accept, refuse := []string{"partial_response", "true"}, []string(nil)
				if configured {
					r.lacking("jaguar", "warn")
					accept, refuse = nil, []string{"partial_response", "false"}
				}
				r.stalls(tc.stalls)
				tc.fill(r)
				ask := func(form []string, more ...string) *reply {
					form = slices.Concat([]string{"timeout", timeout.String()}, form, more)
					return r.ask(r.request(context.Background(), asking{path: tc.path}, form...))
				}
				got := ask(tc.away)
				if got.status != 200 || !strings.Contains(string(got.body), "heron-0") {
					t.Errorf("of another group: %s", got)
				}
				got = ask(tc.form, accept...)
				if got.err != nil || got.status != 200 || got.took > timeout*9/10 ||
					!strings.Contains(strings.Join(got.message.Warnings, "\n"), "jaguar[1]") {
					t.Errorf("want the others' answer with a warning that names jaguar[1], got %s", got)
				}
				got = ask(tc.form, refuse...)
				if got.status != qerr.Overloaded.Status() || !strings.Contains(got.message.Error, "jaguar[1]") {
					t.Errorf("without partial answers: %s", got)
				}
			})
		}
	}
}
