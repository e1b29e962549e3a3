package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestOnCallIsServed: a server whose places are all taken by dashboards that wait for it answers
// whoever is on call, through the same address, at once; live queries and metrics tell who is in
// which lane. Without lanes that one waits in vain.
func TestOnCallIsServed(t *testing.T) {
	t.Parallel()
	for _, lanes := range []bool{true, false} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range []string{"grafana", "oncall"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"-0123456789abcdef"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text := fmt.Sprintf("limits: {timeout: 1m, replica_calls: 4, read_slots: 1, endpoints: {series: {timeout: 1m}}}\ntenants:\n"+
				"  - {name: grafana, bearer_token_file: %[1]s/grafana, may_set: [X-Dashboard-Uid, Fromalert]}\n"+
				"  - {name: oncall, bearer_token_file: %[1]s/oncall}\n", dir)
			if lanes {
				text += "lanes: [{name: oncall, match: {tenant: oncall}, share: 0.5}, {name: wall, match: {dashboard: wall}, share: 0.25}]\n"
			}
			r := newRig(t, manyShards(1), text)
			if err := r.all()[0].Set("", alive, fakeshard.Route{Path: "/api/v1/query", Script: "stall"}); err != nil {
				t.Fatal(err)
			}
			as := func(tenant, dashboard string, a asking, form ...string) *http.Request {
				req := r.request(context.Background(), a, form...)
				req.Header.Set("Authorization", "Bearer "+tenant+"-0123456789abcdef")
				req.Header.Set("X-Dashboard-Uid", dashboard)
				return req
			}
			for i := range 6 {
				r.call(as("grafana", []string{"wall", "other"}[i%2], asking{path: "/api/v1/query"}, "query", fmt.Sprint("up + ", i)))
			}
			waiting, timeout := 2.0, "3s"
			if lanes { // each of the two lanes has so many places, and whoever is on call is to be answered
				waiting, timeout = 3, ample.String()
			}
			r.waits("spillway_queue_length", waiting)
			got := r.ask(as("oncall", "", asking{path: "/api/v1/series"}, "match[]", "up", "timeout", timeout))
			if want := map[bool]int{true: 200, false: 429}[lanes]; got.status != want {
				t.Errorf("who is on call gets %s", got)
			}
			in := map[string]int{}
			for _, q := range r.queries() {
				in[q.Lane]++
			}
			if lanes { // an answer is read before its request has ended
				r.eventually("on-call's request is counted", func() bool {
					return r.metric("spillway_lane_requests_total", "lane=oncall") == 1
				})
				r.eventually("its place is given back", func() bool { return r.metric("spillway_lane_places", "lane=oncall") == 0 })
			}
			all, oncall := r.metric("spillway_lane_places"), r.metric("spillway_lane_places", "lane=oncall")
			if lanes && (all != 3 || oncall != 0) {
				t.Errorf("%v places are held, %v of on-call", all, oncall)
			}
			if refused := r.metric("spillway_lane_refused_total"); lanes != (refused == 0) {
				t.Errorf("%v were refused", refused)
			}
			if lanes && (in["wall"] != 3 || in["default"] != 3) || !lanes && in["rules"]+in["default"] != 6 {
				t.Errorf("the live queries are in %v", in)
			}
		})
	}
}

// TestKeysOfLanes: what a lane lends reaches the gates of the shards, and process_calls and which
// lane is first that of all of them.
func TestKeysOfLanes(t *testing.T) {
	t.Parallel()
	for lend, places := range map[string]int{"": 3, ", lend: 0.5": 3, ", lend: 0": 2, ", lend: 1": 4} {
		file := filepath.Join(t.TempDir(), "oncall")
		if err := os.WriteFile(file, []byte("oncall-0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("limits: {replica_calls: 4, read_slots: 1}\ntenants: [{name: oncall, bearer_token_file: %s}]\n"+
			"lanes: [{name: oncall, match: {tenant: oncall}, share: 0.5%s}]\n", file, lend)
		top := newRig(t, manyShards(1), text).s.state.Load().top
		n := 0
		for ; n <= 4; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			leave, err := top.Groups[0].Shards[0].Enter(ctx, 0)
			cancel()
			if err != nil {
				break
			}
			defer leave()
		}
		if n != places {
			t.Errorf("with %q others have %d places of on-call's lane's, want %d", lend, n, places)
		}
	}
	file := filepath.Join(t.TempDir(), "oncall")
	if err := os.WriteFile(file, []byte("oncall-0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	top := newRig(t, manyShards(1), "tenants: [{name: oncall, bearer_token_file: "+file+"}]\n"+
		"lanes: [{name: oncall, match: {tenant: oncall}, share: 1, first: true}]\n").s.state.Load().top
	s := top.Groups[0].Shards[0]
	leave, err := s.Enter(identity.With(t.Context(), identity.Request{Lane: "oncall"}), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	began := time.Now()
	if leave, err = s.Enter(t.Context(), 0); err != nil || time.Since(began) < 200*time.Millisecond {
		t.Errorf("beside a call of a lane that is first another one begins after %s: %v", time.Since(began), err)
	} else {
		leave()
	}
	top = newRig(t, manyShards(4), "limits: {process_calls: 3}\n").s.state.Load().top
	for i, s := range top.Groups[0].Shards {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		leave, err := s.Enter(ctx, 0)
		cancel()
		if e := (*qerr.Error)(nil); i == 3 && (!errors.As(err, &e) || e.Bound != policy.BoundProcessCalls || e.Value != "3") {
			t.Errorf("the fourth call: %v", err)
		} else if i < 3 && err != nil {
			t.Fatal(err)
		}
		if err == nil {
			defer leave()
		}
	}
}
