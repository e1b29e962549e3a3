package operation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestShardsComeAndGo: the file in which shards are looked up changes, to what is of no use at
// times; shards come, go, and move to another server that holds the same.
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
	write := func(change, n int) {
		t.Helper()
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "- {targets: [%q], labels: {__spillway_shard__: s%d, __spillway_replica__: r}}\n", homes[i][(change+i)%3%2].Addr(), i)
		}
		replace(t, list, b.String())
	}
	write(0, 1)
	replace(t, file, fmt.Sprintf("groups:\n  - {name: heron, labels: {cluster: heron}, shards_from: {files: [%q], keep: 1ms, refresh_interval: 200ms}}\nlimits: {timeout: 50s}\n", list))
	p := start(t, file, "", nil)

	var wrong complaints
	var served atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer func() { end(); wrong.tell(t) }()
	for i := range 6 {
		c := newClient(t, nil)
		wg.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				all := askedNow()
				a := all[n%len(all)]
				status, body, err := get(c, a.url(p.main))
				var got answer
				if err != nil || status != http.StatusOK || json.Unmarshal(body, &got) != nil || len(got.Warnings) > 0 {
					wrong.add("%s: %d %v %.300s", a.url(""), status, err, body)
					continue
				}
				served.Add(1)
				nodes := valuesOf(body, "instance")
				if len(nodes) == 0 { // an answer of names, or a sum
					continue
				}
				for node, n := range nodes {
					if n != 1 {
						wrong.add("%s: %s is there %d times: %.600s", a.url(""), node, n, body)
					}
				}
				if nodes["node-0"] == 0 {
					wrong.add("%s: the shard that is always there is not: %.600s", a.url(""), body)
				}
			}
		})
	}
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
		n := 1 + (i*7+i/4)%most
		write(i, n)
		at := homes[0][i%3%2].Addr()
		if !eventually(func() bool {
			have, refused := found()
			return have == float64(n) && refused == 0 && shown(p, at) == n
		}) {
			t.Fatalf("change %d: there are not %d shards", i, n)
		}
	}
	before := served.Load()
	if !eventually(func() bool { return served.Load() >= before+20 || wrong.some() }) {
		t.Error("nobody is served any more")
	}
	end()
	if m := p.metrics(); m["spillway_config_last_reload_successful"] != 1 {
		t.Error("the last reload did not succeed")
	}
	t.Logf("%d changes, %d requests", *changes, served.Load())
}

// shown is how many replicas are in force; 0 where the address is none of them.
func shown(p *program, address string) int {
	status, body, err := get(p.client, p.admin+"/api/spillway/v1/shards")
	if err != nil || status != http.StatusOK || !strings.Contains(string(body), address) {
		return 0
	}
	return len(valuesOf(body, "url"))
}
