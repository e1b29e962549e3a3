package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// terms is a query of n leaves that are all different.
func terms(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(" + ")
		}
		fmt.Fprintf(&b, "sum(up offset %ds)", i)
	}
	return b.String()
}

// query asks the rig for a query now.
func (r *rig) query(text string) *reply {
	r.t.Helper()
	return r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {text}}, post: true}))
}

// mostOfOneRequest is how many connections one request may hold at one server, with one for what
// the proxy asks for itself.
const mostOfOneRequest = 8 + 1

// However many leaves a query has, it holds few connections of a server at once, and the servers
// answer others meanwhile.
func TestOneQueryHoldsFewConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}}, "", func(o *Options) { o.shards = seldom })
	r.quiet()
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "delay 20ms; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.query(terms(60)); got.status != http.StatusOK || !strings.Contains(string(got.body), `"120"`) {
		t.Error(got)
	}
	for _, s := range r.all() {
		if n := s.MostConns(); n > mostOfOneRequest {
			t.Errorf("%s: the request held %d connections", r.names[s], n)
		}
	}
}

// However many clients there are, a server has at most as many connections of the proxy as one
// replica may have calls, and no client fails for that.
func TestManyQueriesHoldFewConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(4), limits(10*patience), func(o *Options) { o.shards = seldom })
	r.quiet()
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "delay 5ms; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if got := r.query(terms(8)); got.status != http.StatusOK || !strings.Contains(string(got.body), `"32"`) {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	for _, s := range r.all() {
		if n := s.MostConns(); n > 24+1 {
			t.Errorf("%s: %d connections at once", r.names[s], n)
		}
	}
}

// What stands in a query more than once is asked once, and counts as often as it stands there.
func TestEqualPartsAreAskedOnce(t *testing.T) {
	t.Parallel()
	info := `count(info(up{cluster="jaguar"}))`
	for _, tc := range []struct {
		name, text, want string
		raw              bool
		asked            int // of each shard
	}{
		{name: "pushed", text: strings.Repeat("sum(up) + ", 99) + "sum(up)", want: `"200"`, asked: 1},
		{name: "pushed for two uses", text: "sum(up) > 1 or sum(up) * 2", want: `"2"`, asked: 1},
		{name: "pushed at other times", text: "sum(up) + sum(up offset 1m) + sum(up)", want: `"6"`, asked: 2},
		{name: "raw alone", text: info, want: `"2"`, raw: true, asked: 2}, // up and target_info
		{name: "raw", text: info + " + " + info + " + " + info, want: `"6"`, raw: true, asked: 2},
		{
			name: "raw in other windows", text: info + " + " + strings.Replace(info, "})", "} offset 1m)", 1), want: `"4"`, raw: true,
			asked: 4,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}}, "")
			got := r.query(tc.text)
			if got.status != http.StatusOK || !strings.Contains(string(got.body), tc.want) {
				t.Error(got)
			}
			for _, s := range r.all() {
				n := len(s.RequestsTo("/api/v1/read"))
				if !tc.raw {
					n = 0
					for _, req := range s.RequestsTo("/api/v1/query") {
						if strings.HasPrefix(req.Form.Get("query"), "sum(up") {
							n++
						}
					}
				}
				if n != tc.asked {
					t.Errorf("%s was asked %d times, want %d", r.names[s], n, tc.asked)
				}
			}
		})
	}
}
