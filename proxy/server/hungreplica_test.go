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
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// twins are the servers of two shards of two replicas that hold the same to the bit, so that an
// answer is the same whichever of them gives it.
type twins struct {
	now  time.Time
	urls [2][2]string
}

func newTwins(t testing.TB) (p twins) {
	p.now = time.Now().Truncate(time.Second)
	for i := range p.urls {
		var series []storedSeries
		for n := range 6 {
			node := fmt.Sprintf("n%d", 6*i+n)
			for v, l := range []labels.Labels{
				labels.FromStrings("__name__", "up", "job", "node", "node", node),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "200"),
				labels.FromStrings("__name__", "requests_total", "job", "api", "node", node, "code", "500"),
			} {
				one := storedSeries{lbls: l}
				// Samples of the next minutes are there already: nobody scrapes while the test
				// runs.
				at := p.now.Add(-40 * time.Minute).Add(time.Duration(i*700+n*900) * time.Millisecond)
				for ; at.Before(p.now.Add(20 * time.Minute)); at = at.Add(15 * time.Second) {
					f := 1.0
					if v > 0 {
						f = math.Floor(at.Sub(p.now.Add(-time.Hour)).Seconds() * float64(6*i+n+v))
					}
					one.points = append(one.points, point{t: at.UnixMilli(), f: f})
				}
				series = append(series, one)
			}
		}
		for j, name := range []string{"a", "b"} {
			p.urls[i][j] = promShard(t, labels.FromStrings("replica", name), series).URL()
		}
	}
	return p
}

// answers are those of a proxy over the servers themselves.
func (p twins) answers(t testing.TB) map[string]*reply {
	t.Helper()
	_, url := startProxy(t, t.Context(), p.config(false, p.urls[0][0], p.urls[1][0])+limits(ample))
	return (&quartet{t: t, now: p.now, client: newClient(t)}).sound(t, url)
}

// config is the groups of a proxy's configuration, with these in the places of the first replicas.
func (p twins) config(heartbeat bool, first ...string) string {
	var cfg strings.Builder
	cfg.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n")
	if heartbeat {
		cfg.WriteString("    heartbeat: up\n")
	}
	cfg.WriteString("    shards:\n")
	for i, urls := range p.urls {
		fmt.Fprintf(&cfg, "      - {replicas: [{url: %q}, {url: %q}]}\n", first[i], urls[1])
	}
	return cfg.String()
}

// pairs is a proxy over twins. The first replica of each shard, which is the base, stands behind a
// scripted server that can hang.
type pairs struct {
	*quartet
	s     *Server
	url   string
	hangs []*fakeshard.Shard
}

func newPairs(t testing.TB, over twins, heartbeat bool, timeout time.Duration) *pairs {
	p := &pairs{quartet: &quartet{t: t, now: over.now, client: newClient(t)}}
	var fronts []string
	for _, urls := range over.urls {
		front := fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
			return forward(urls[0], r),
				true
		}})
		p.hangs, fronts = append(p.hangs, front), append(fronts, front.URL())
	}
	p.s, p.url = startProxy(t, t.Context(), over.config(heartbeat, fronts...)+roomy(timeout), func(o *Options) {
		o.shards = shard.Options{ProbeInterval: 500 * time.Millisecond, HeaderTimeout: 5 * time.Second, ProgressTimeout: 5 * time.Second}
	})
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

// TestHungReplica: of each pair the base hangs, in several ways. Every answer is what it was,
// without a warning but for the one that a replica was not read where there is no heartbeat; how
// long they took is printed.
func TestHungReplica(t *testing.T) {
	const timeout = 40 * time.Second
	servers := newTwins(t)
	before := servers.answers(t)
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
				p := newPairs(t, servers, heartbeat, timeout)
				seed := randseed.Of(t, testSeed)
				rng := rand.New(rand.NewPCG(seed, 5))
				// federation is about now, which goes on
				list := slices.DeleteFunc(p.inquiries(), func(in inquiry) bool { return in.exact })
				ask := func(n int) (took distribution) {
					for range n {
						in := list[rng.IntN(len(list))]
						got := p.ask(p.url, in)
						if !heartbeat { // nobody knows then what the one that hangs has alone
							got.message.Warnings = slices.DeleteFunc(got.message.Warnings,
								func(w string) bool { return strings.HasSuffix(w, ": what only it has is missing") })
						}
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
