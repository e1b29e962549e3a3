package server

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// TestRawReadsWaitForAPlace: series that are read raw wait for one of process_calls for as long as
// the request does, as other calls do: no other replica is nearer to one, and that there is none
// says nothing of the shard, for which an answer could go without it.
func TestRawReadsWaitForAPlace(t *testing.T) {
	for name, more := range map[string]struct{ group, config, form string }{
		"a spare replica":       {group: "    heartbeat: up\n"},
		"replicas side by side": {},
		"a partial answer":      {config: "partial_response: warn\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now().Truncate(time.Second)
			var urls []string
			for _, name := range []string{"a", "b"} {
				held := scraped(40, now.Add(-40*time.Minute), now, 15*time.Second, nil)
				urls = append(urls, promShard(t, labels.FromStrings("replica", name), held).URL())
			}
			s, base := startProxy(t, t.Context(), replicasConfig(more.group, urls...)+more.config+"limits: {process_calls: 1}\n")
			form := url.Values{"query": {"count(info(up))"}, "time": {stamp(now)}, "timeout": {queueing}}
			if code, got := ask(t, base, "/api/v1/query", form); code != 200 {
				t.Fatalf("before: %d %s", code, got)
			}
			leave, err := s.state.Load().top.Groups[0].Shards[0].Enter(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(3500*time.Millisecond, leave) // more than three fifths of queueing
			code, got := ask(t, base, "/api/v1/query", form)
			if code != 200 || !strings.Contains(string(got), `"40"`) || strings.Contains(string(got), "warnings") {
				t.Errorf("%d %s", code, got)
			}
		})
	}
}
