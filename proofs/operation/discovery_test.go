package operation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestShardsComeAndGo: the file in which shards are looked up changes, to what is of no use at
// times; shards come, go, and move to another server that holds the same, or have both.
func TestShardsComeAndGo(t *testing.T) {
	const most = 4 // shards; the first is always there
	var homes [most][2]*fakeshard.Shard
	for i := range homes {
		for j := range homes[i] {
			homes[i][j] = fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{
				"__name__": "up", "instance": fmt.Sprint("node-", i), "job": "fake",
			}}})
		}
	}
	dir := t.TempDir()
	list, file := filepath.Join(dir, "shards.yml"), filepath.Join(dir, "spillway.yaml")
	write := func(change, n int) (servers int) {
		t.Helper()
		var b strings.Builder
		for i := range n {
			for j := range 2 {
				if k := (change + i) % 3; k == j || k == 2 {
					fmt.Fprintf(&b, "- {targets: [%q], labels: {__spillway_shard__: s%d, __spillway_replica__: r%d}}\n", homes[i][j].Addr(), i, k/2*j)
					servers++
				}
			}
		}
		replace(t, list, b.String())
		return servers
	}
	write(0, 1)
	replace(t, file, fmt.Sprintf("groups:\n  - {name: heron, labels: {cluster: heron}, shards_from: {files: [%q], keep: 1ms, refresh_interval: 200ms}}\nlimits: {timeout: 50s}\n", list))
	p := start(t, file, "", nil)

	served, end := p.load()
	defer end()
	found := func() (float64, float64) {
		m := p.metrics()
		return m[`spillway_discovery_servers{group="heron",state="found"}`], m[`spillway_discovery_refused{group="heron"}`]
	}
	for i := 1; i <= *changes; i++ {
		if i%10 == 9 {
			replace(t, list, "- {targets: [nowhere]}\n") // in no shard
			if !eventually(func() bool { _, refused := found(); return refused == 1 }) {
				t.Fatalf("change %d: what is of no use is not refused", i)
			}
		}
		want := write(i, 1+(i*7+i/4)%most)
		at := homes[0][i%3%2].Addr()
		if !eventually(func() bool {
			have, refused := found()
			return have == float64(want) && refused == 0 && shown(p, at) == want
		}) {
			t.Fatalf("change %d: there are not %d servers", i, want)
		}
	}
	end()
	if m := p.metrics(); m["spillway_config_last_reload_successful"] != 1 {
		t.Error("the last reload did not succeed")
	}
	t.Logf("%d changes, %d requests", *changes, served.Load())
}

// load has clients ask until end is called, which waits for some more of their answers and fails
// the test where one went wrong, where a series is doubled, or where the shard is missing that is
// always there, of node-0.
func (p *program) load() (served *atomic.Int64, end func()) {
	p.t.Helper()
	var wrong complaints
	var wg sync.WaitGroup
	served = &atomic.Int64{}
	stop := make(chan struct{})
	for i := range 6 {
		c := newClient(p.t, nil)
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				all := append(askedNow(), asked{"/api/v1/query", url.Values{"query": {onceEach}}})
				a := all[n%len(all)]
				status, body, err := get(c, a.url(p.main))
				if said := a.wrong(status, body, err); said != "" {
					wrong.add("%s: %s", a.url(""), said)
					continue
				}
				served.Add(1)
			}
		})
	}
	return served, sync.OnceFunc(func() {
		p.t.Helper()
		before := served.Load()
		if !eventually(func() bool { return served.Load() >= before+20 || wrong.some() }) {
			p.t.Error("nobody is served any more")
		}
		close(stop)
		wg.Wait()
		wrong.tell(p.t)
	})
}

// onceEach is 1 for each node, unless a series is counted twice: the shards count, and Spillway
// adds up.
const onceEach = "count by (instance) (up)"

var sampleValue = regexp.MustCompile(`"value":\[[^,]*,"([^"]*)"\]`)

// wrong is what is wrong with an answer about nodes; empty where nothing is.
func (a asked) wrong(status int, body []byte, err error) string {
	var got answer
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &got) != nil || len(got.Warnings) > 0 {
		return fmt.Sprintf("%d %v %.300s", status, err, body)
	}
	nodes := valuesOf(body, "instance")
	for node, n := range nodes {
		if n != 1 {
			return fmt.Sprintf("%s is there %d times: %.600s", node, n, body)
		}
	}
	for _, m := range sampleValue.FindAllSubmatch(body, -1) {
		if a.form.Get("query") == onceEach && string(m[1]) != "1" {
			return fmt.Sprintf("a node is counted %s times: %.600s", m[1], body)
		}
	}
	if len(nodes) > 0 && nodes["node-0"] == 0 { // else an answer of names, or a sum
		return fmt.Sprintf("the shard that is always there is not: %.600s", body)
	}
	return ""
}

// shown is how many replicas are in force; 0 where the address is none of them.
func shown(p *program, address string) int {
	status, body, err := get(p.client, p.admin+"/api/spillway/v1/shards")
	if err != nil || status != http.StatusOK || !strings.Contains(string(body), address) {
		return 0
	}
	return len(valuesOf(body, "url"))
}
