package server

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Two failures a second of each of two shards for ten minutes: the first of each is told, then a
// line a minute for each; refusals, clients that left and slow requests have a line a minute while
// there are any, and quiet minutes none.
func TestDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := &logbook{}
		log := slog.New(book)
		var d digest
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.run(ctx, log); close(done) }()
		one, two := qerr.New(qerr.ShardFailed, "down"), qerr.New(qerr.Timeout, "late")
		one.Shards, two.Shards = []string{"jaguar/10.0.0.1:9090"}, []string{"jaguar/10.0.0.2:9090"}
		refused := qerr.Refuse("max_series", "1", "2", "", "too many")
		told := 0
		time.Sleep(time.Millisecond) // not in the moment of a summary
		for range 10 * 60 * 2 {
			for _, qe := range []*qerr.Error{one, two} {
				if d.first(qe) {
					told++
				}
				d.request("query", time.Second, qe)
			}
			d.request("series", time.Second, refused)
			d.request("query", time.Second, qerr.From(qerr.ErrClientLeft))
			d.request("query", 7*time.Second, nil)
			d.request("query", time.Second, nil)
			time.Sleep(500 * time.Millisecond)
		}
		if told != 2 {
			t.Errorf("%d failures were told, want the first of each shard", told)
		}
		time.Sleep(10 * time.Minute)
		if !d.first(one) {
			t.Error("after quiet minutes a failure is no news")
		}
		cancel()
		<-done
		got := map[string]int{}
		for _, l := range book.atLeast(slog.LevelInfo) {
			got[l[:strings.Index(l, " requests=")]]++
		}
		for line, want := range map[string]int{
			"requests failed like one that was logged outcome=shard_failed shards=jaguar/10.0.0.1:9090": 11,
			"requests failed like one that was logged outcome=timeout shards=jaguar/10.0.0.2:9090":      11,
			"requests were refused endpoint=series":                                                     11,
			"clients left before the answer endpoint=query":                                             11,
			"requests were slow endpoint=query":                                                         11,
		} {
			if got[line] < want-1 || got[line] > want {
				t.Errorf("%q stands %d times, want %d or one less", line, got[line], want)
			}
			delete(got, line)
		}
		if len(got) > 0 {
			t.Errorf("other lines: %v", got)
		}
	})
}

// Failing requests are one line at first, whose text is clipped, and no line each.
func TestFailuresAreToldOnce(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, limits(ample))
	a := asking{
		id: endpoint.Query, path: "/api/v1/query", at: "/api/v1/query",
		form: url.Values{"query": {"sum(up) + 0 * count(up{instance!=\"" + strings.Repeat("x", 1000) + "\"})"}},
	}
	fault{script: "error 500 internal boom"}.set(t, r.shards["jaguar"][0][0], []asking{a})
	for range 30 {
		if got := r.ask(r.request(context.Background(), a)); got.status != 502 {
			t.Fatal(got)
		}
	}
	lines := 0
	for _, l := range r.log.atLeast(slog.LevelWarn) {
		if strings.HasPrefix(l, "request ") {
			lines++
			if strings.Contains(l, strings.Repeat("x", 300)) {
				t.Errorf("the text is not clipped: %s", l)
			}
		}
	}
	if lines != 1 {
		t.Errorf("%d lines about 30 requests that failed in the same way:\n%s", lines, strings.Join(r.log.atLeast(slog.LevelWarn), "\n"))
	}
}
