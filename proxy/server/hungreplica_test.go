package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// pairs are two shards of two replicas that hold the same to the bit, so that an answer is the same whichever of them gives it. The first replica of each,
// which is the base, stands behind a scripted server that can hang.
type pairs struct {
	*quartet
	s     *Server
	url   string
	hangs []*fakeshard.Shard
}

func newPairs(t testing.TB, heartbeat bool, timeout time.Duration) *pairs {
	p := &pairs{quartet: &quartet{t: t, now: time.Now().Truncate(time.Second), client: newClient(t)}}
	var cfg strings.Builder
	cfg.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n")
	if heartbeat {
		cfg.WriteString("    heartbeat: up\n")
	}
	cfg.WriteString("    shards:\n")
	for i := range 2 {
		var series []storedSeries
		for n := range 6 {
			node := fmt.Sprintf("n%d", 6*i+n)
			for v, l := range []labels.Labels{
				labels.FromStrings("__name__", "up", "job", "node", "node", node),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "200"),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "500"),
			} {
				one := storedSeries{lbls: l}
				// Samples of the next minutes are there already: nobody scrapes while the test runs.
				for at := p.now.Add(-40 * time.Minute).Add(time.Duration(i*700+n*900) * time.Millisecond); at.Before(p.now.Add(5 * time.Minute)); at = at.Add(15 * time.Second) {
					f := 1.0
					if v > 0 {
						f = math.Floor(at.Sub(p.now.Add(-time.Hour)).Seconds() * float64(6*i+n+v))
					}
					one.points = append(one.points, point{t: at.UnixMilli(), f: f})
				}
				series = append(series, one)
			}
		}
		a := promShard(t, labels.FromStrings("replica", "a"), series).URL()
		b := promShard(t, labels.FromStrings("replica", "b"), series).URL()
		front := fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) { return forward(a, r), true }})
		p.hangs = append(p.hangs, front)
		fmt.Fprintf(&cfg, "      - {replicas: [{url: %q}, {url: %q}]}\n", front.URL(), b)
	}
	cfg.WriteString(limits(timeout))
	p.s, p.url = startProxy(t, t.Context(), cfg.String(), func(o *Options) { o.shards = shard.Options{ProbeInterval: 500 * time.Millisecond} })
	return p
}

// distribution is what a run of requests took.
type distribution []time.Duration

// String implements fmt.Stringer.
func (d distribution) String() string {
	slices.Sort(d)
	at := func(of int) time.Duration { return d[min(len(d)-1, len(d)*of/100)].Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d requests: p50 %s, p90 %s, p99 %s, max %s", len(d), at(50), at(90), at(99), at(100))
}

// TestHungReplica: of each pair the base hangs, in several ways. Every answer is what it was, without a warning; how long they took is printed.
func TestHungReplica(t *testing.T) {
	const timeout = 6 * time.Second
	all := func(script string) []fakeshard.Route { return []fakeshard.Route{{Script: script}} }
	for _, c := range []struct {
		name   string
		def    string // for all but the proxy's own questions
		routes []fakeshard.Route
	}{
		{"requests get no answer", "stall", nil},
		{"requests get a header and no answer", "flush; stall", nil},
		{"requests get half an answer", "limit 40 stall; answer", nil},
		{"nothing gets an answer", "", all("stall")},
		{"everything takes a second", "", all("delay 1s; answer")},
		{"now and then a second", "", []fakeshard.Route{{Path: "/api/v1/*", Nth: 8, To: 10, Script: "delay 1s; answer"}}},
	} {
		for _, heartbeat := range []bool{true, false} {
			name := c.name
			if !heartbeat {
				name += ", no heartbeat"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPairs(t, heartbeat, timeout)
				before := p.sound(t, p.url)
				seed := testSeed
				if seed == 0 {
					seed = uint64(time.Now().UnixNano())
				}
				rng := rand.New(rand.NewPCG(seed, 5))
				list := slices.DeleteFunc(p.inquiries(), func(in inquiry) bool { return in.exact }) // federation is about now, which goes on
				ask := func(n int) (took distribution) {
					for range n {
						in := list[rng.IntN(len(list))]
						got := p.ask(p.url, in)
						took = append(took, got.took)
						if got.err != nil || got.status != 200 || len(got.message.Warnings) > 0 || !p.same(in, got, before[in.name]) {
							t.Errorf("%s: %s\nwant %.300s", in.name, got, before[in.name].body)
						}
					}
					return took
				}
				well := ask(40) // the delay of a hedge is learned from these
				for _, s := range p.hangs {
					if err := s.Set(c.def, c.routes...); err != nil {
						t.Fatal(err)
					}
				}
				ill := ask(6)
				then := ask(12)
				t.Logf("both well: %s; at once after: %s; then: %s (seed %d)", well, ill, then, seed)
				for _, s := range p.hangs {
					if err := s.Set(""); err != nil {
						t.Fatal(err)
					}
				}
				r := &rig{t: t, s: p.s, names: map[*fakeshard.Shard]string{}}
				for _, s := range p.hangs {
					r.names[s] = "jaguar/" + s.Addr()
				}
				r.idle()
			})
		}
	}
}
