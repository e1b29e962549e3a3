package shard

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// fleetGroups are groups of four shards over the servers.
func fleetGroups(urls []string) []config.Group {
	var out []config.Group
	for i := 0; i < len(urls); i += 4 {
		g := group()
		g.Name, g.Labels, g.Shards = fmt.Sprintf("g%03d", i/4), map[string]string{"cluster": fmt.Sprintf("g%03d", i/4)}, nil
		for _, u := range urls[i:min(i+4, len(urls))] {
			g.Shards = append(g.Shards, group(u).Shards...)
		}
		out = append(out, g)
	}
	return out
}

// Over 80 servers of which nothing changes there is a comparison each half minute, whatever they
// are asked meanwhile, and one more when something does change; and the questions to each server do
// not grow with their number.
func TestIdleFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 80
		var lookback atomic.Value
		lookback.Store("5m")
		cfgs := make([]fakeshard.Config, n)
		for i := range cfgs {
			cfgs[i].Series = []map[string]string{{"__name__": "up", "instance": fmt.Sprintf("i%d", i)}}
		}
		cfgs[7].Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if r.Path != "/api/v1/status/flags" {
				return fakeshard.Answer{}, false
			}
			body := fmt.Sprintf(`{"status":"success","data":{"query.lookback-delta":%q}}`, lookback.Load())
			return fakeshard.Answer{Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}, true
		}
		b := newBubble(t, cfgs...)
		top := build(t, Options{Dial: b.dial}, true, fleetGroups(b.urls)...)
		time.Sleep(time.Minute)
		count := func() (rounds int64, asked int) {
			for _, f := range b.fakes {
				asked += len(f.Requests())
			}
			return top.compare.rounds.Load(), asked
		}
		rounds, asked := count()
		const minutes = 5
		time.Sleep(minutes * time.Minute)
		later, then := count()
		t.Logf("in a minute: %.1f comparisons, %.1f questions to each server", float64(later-rounds)/minutes, float64(then-asked)/n/minutes)
		if got := later - rounds; got > minutes*2+1 {
			t.Errorf("%d comparisons in %d minutes in which nothing changed", got, minutes)
		}
		if got := (then - asked) / n / minutes; got > 36 { // six of them for its own metrics
			t.Errorf("%d questions a minute to each server that nobody asks anything", got)
		}
		lookback.Store("1m")
		time.Sleep(70 * time.Second)
		if len(top.Groups[1].Sick()) != 1 || !top.Groups[0].Trusted() {
			t.Errorf("another lookback is not noticed: %v", top.Groups[1].Sick())
		}
		top.Close()
		b.close()
	})
}

// BenchmarkJudge is one comparison of 800 servers in 200 groups that agree in everything, with a
// thousand targets each.
func BenchmarkJudge(b *testing.B) {
	const n = 800
	urls := make([]string, n)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://10.0.%d.%d:9090", i/200, i%200)
	}
	top := build(b, Options{}, false, fleetGroups(urls)...)
	features := make([]string, 150)
	for i := range features {
		features[i] = fmt.Sprintf("promql_functions/function_%03d", i)
	}
	i := 0
	for r := range top.replicas() {
		known := &targets{at: time.Now().Add(24 * time.Hour)}
		for j := range 1000 {
			known.hashes = append(known.hashes, uint64(j)<<32|uint64(i))
		}
		known.places = known.hashes
		r.targets.Store(known)
		e := trust.Engine{Known: true, Lookback: model.Duration(5 * time.Minute).String()}
		for _, f := range features {
			e.Features = append(e.Features, string([]byte(f))) // of its own, as it is read
		}
		e.Seal()
		r.up.health.engine = e
		i++
	}
	for _, c := range []struct {
		name         string
		read, change bool
	}{{"engines", false, false}, {"targets", true, false}, {"changed targets", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				learned.Add(1)
				if c.change {
					targetChanges.Add(1)
				}
				top.judge(b.Context(), c.read)
			}
		})
	}
}

// Of many servers those that give no reason to be looked at are probed more rarely. One that is
// down, or fails a call, is looked at as soon as ever.
func TestManyReplicasAreProbedMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, false, group(b.urls[0]), called(group(b.urls[1]), "ibis"))
		top.size = 4 * manyReplicas // as if there were so many
		top.Start(t.Context())
		time.Sleep(time.Minute)
		probes := func(i int, d time.Duration) int {
			before := b.count(i, "/-/ready")
			time.Sleep(d)
			return b.count(i, "/-/ready") - before
		}
		if got := probes(0, 200*time.Second); got < 9 || got > 12 {
			t.Errorf("%d probes in 200 s of a server that is up, want one every 20 s", got)
		}
		if err := b.fakes[0].Set("", fakeshard.Route{Path: "/-/ready", Script: "status 503"},
			fakeshard.Route{Path: "/api/v1/query", Script: "reset"}); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t.Context(), top.Groups[0].Shards[0], sumRequest); err == nil {
			t.Error("an answer")
		}
		time.Sleep(6 * time.Second)
		if s := top.Groups[0].Shards[0].Replicas[0].State(); s != Down {
			t.Errorf("six seconds after a call failed the server is %s", s)
		}
		if got := probes(0, 100*time.Second); got < 17 {
			t.Errorf("%d probes in 100 s of a server that is down, want one every 5 s", got)
		}
		if got := probes(1, 100*time.Second); got > 6 {
			t.Errorf("%d probes in 100 s of the other one", got)
		}
		top.Close()
		b.close()
	})
}

// Of many servers each says more rarely what it is and what it scrapes; what a group promises of
// its series is checked as often as ever, and a server that comes back is asked at once.
func TestManyReplicasAreReadMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		promising := called(group(b.urls[1]), "ibis")
		promising.ShardBy = []string{"node"}
		top := build(t, Options{Dial: b.dial}, false, group(b.urls[0]), promising)
		top.size = 4 * manyReplicas // as if there were so many
		top.Start(t.Context())
		time.Sleep(time.Minute)
		asked := func(i int, path string, d time.Duration) int {
			before := b.count(i, path)
			time.Sleep(d)
			return b.count(i, path) - before
		}
		if got := asked(0, "/api/v1/status/config", 20*time.Minute); got < 8 || got > 10 {
			t.Errorf("%d readings in 20 minutes, want one each two minutes", got)
		}
		if got := asked(0, "/api/v1/query", 20*time.Minute); got < 8 || got > 11 {
			t.Errorf("its targets were read %d times in 20 minutes, want each two minutes", got)
		}
		if got := asked(1, "/api/v1/status/config", 20*time.Minute); got < 27 {
			t.Errorf("%d readings in 20 minutes where shard_by is to be checked, want one after every second probe", got)
		}
		if err := b.fakes[0].Set("", fakeshard.Route{Path: "/-/ready", Script: "status 503"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if err := b.fakes[0].Set(""); err != nil {
			t.Fatal(err)
		}
		if got := asked(0, "/api/v1/status/config", 10*time.Second); got != 1 {
			t.Errorf("%d readings after it came back", got)
		}
		top.Close()
		b.close()
	})
}

func called(g config.Group, name string) config.Group {
	g.Name, g.Labels = name, map[string]string{"cluster": name}
	return g
}
