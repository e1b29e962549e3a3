package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// couples are four shards of two replicas each that are known to hold the same, so that one of them
// is asked alone.
type couples struct {
	*rig
	first, second []*fakeshard.Shard
}

func newCouples(t testing.TB, more string, change ...func(*Options)) *couples {
	c := &couples{rig: &rig{
		t: t, shards: map[string][][]*fakeshard.Shard{}, names: map[*fakeshard.Shard]string{}, log: &logbook{},
		client: newClient(t),
	}}
	var b strings.Builder
	b.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    heartbeat: up\n    shards:\n")
	for i := range 4 {
		var pair []*fakeshard.Shard
		for range 2 {
			s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{
				"__name__": "up", "instance": fmt.Sprintf("jaguar-%d", i),
				"job": "fake",
			}}})
			c.names[s] = "jaguar/" + s.Addr()
			pair = append(pair, s)
		}
		c.first, c.second = append(c.first, pair[0]), append(c.second, pair[1])
		c.shards["jaguar"] = append(c.shards["jaguar"], pair)
		fmt.Fprintf(&b, "      - {replicas: [{url: %q}, {url: %q}]}\n", pair[0].URL(), pair[1].URL())
	}
	c.s, c.url = startProxy(t, t.Context(), b.String()+more, change...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now := time.Now()
	for _, s := range c.s.state.Load().top.Groups[0].Shards {
		c.eventually("the replicas are known to be whole", func() bool {
			_, whole, err := s.Whole(ctx, now.Add(-10*time.Minute).UnixMilli(), now.UnixMilli(), time.Now())
			return whole && err == nil
		})
	}
	return c
}

// calls is how many requests of clients' the servers have seen at a path, and how many remote
// reads.
func (c *couples) calls(path string) int {
	n := 0
	for _, s := range c.all() {
		for _, r := range s.Requests() {
			switch {
			case r.Path == "/api/v1/read":
				n++
			case r.Path == path && (r.Form.Get("query") == "" || strings.Contains(r.Form.Get("query"), "jaguar-")):
				n++ // the others are what a proxy asks for itself
			}
		}
	}
	return n
}

// TestRetriesAreATenth: whatever way the servers fail in, their copies too, a request costs about
// one call for each shard, however many requests there are, and a call a second besides.
func TestRetriesAreATenth(t *testing.T) {
	const requests = 160
	for _, fault := range []struct {
		name, script string
		both         bool // not only the first replicas
		want         int  // status of most
	}{
		{"first replicas cut their bodies", "limit 20 close; answer", false, 200},
		{"first replicas reset", "reset", false, 200},
		{"all cut their bodies", "limit 20 close; answer", true, 502},
		{"all reset", "reset", true, 502},
		{"all say 500", "error 500 internal boom", true, 502},
		{"first say 429 with Retry-After", "header Retry-After 30; error 429 too_many_requests busy", false, 200},
		{"all say 429 with Retry-After", "header Retry-After 30; error 429 too_many_requests busy", true, 429},
	} {
		for _, a := range askings() {
			switch a.name {
			case "query spliced", "query pushed", "query_range pushed", "query raw", "series":
			default:
				continue
			}
			t.Run(fault.name+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				c := newCouples(t, limits(ample))
				if q := a.form.Get("query"); q != "" {
					a.form.Set("query", strings.ReplaceAll(q, "up{", `up{instance=~"jaguar-.+",`))
				}
				if got := c.ask(c.request(context.Background(), a)); got.status != 200 {
					t.Fatalf("of sound servers: %s", got)
				}
				per := c.calls(a.at) // some take two calls for each shard
				bad := c.first
				if fault.both {
					bad = c.all()
				}
				for _, s := range bad {
					if err := s.Set(fault.script); err != nil {
						t.Fatal(err)
					}
				}
				statuses := map[int]int{}
				began := time.Now()
				for range requests {
					statuses[c.ask(c.request(context.Background(), a)).status]++
				}
				n := c.calls(a.at) - per
				t.Logf("%s: %d calls, %.3f of what it takes; %v", t.Name(), n, float64(n)/float64(per*requests), statuses)
				most := per*requests*11/10 + int(time.Since(began)/time.Second) // one a second is there however few calls are made
				if n > most {
					t.Errorf("%d calls for %d requests that take %d, more than a tenth and one a second too many (%d)", n, requests, per, most)
				}
				if statuses[fault.want] < requests*9/10 {
					t.Errorf("statuses %v, most were to be %d", statuses, fault.want)
				}
			})
		}
	}
}
