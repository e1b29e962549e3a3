package hostile

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

const (
	// wideSeries is how many series the metric wide has.
	wideSeries = 20_000
	// proxyMost is what the proxy may have resident, whatever it is asked, under proxyLimit: without a limit the collector lets garbage of a million steps lie.
	proxyMost  = 300 << 20
	proxyLimit = "256MiB"
	// serverMost is how much more a server may have resident than with plain queries over all of its series, and serverRoom what queries take there that have nothing
	// hostile about them: six ranges over all of its series, joined by +, take 360 MiB for a moment, and several such before its collector runs were seen to take
	// 970. A text that multiplies labels takes 3.4 GiB.
	serverMost, serverRoom = 1.25, 2 << 30
	// deadline is the proxy's timeout, slack how much later an answer may be on a machine that does other things.
	deadline = 5 * time.Second
	slack    = 10 * time.Second
	// rest is after what time nothing may be computed for a query any more, and idleMost the share of one processor that counts as nothing: the bystander's.
	rest     = 500 * time.Millisecond
	idleMost = 0.5
)

// world is a proxy over servers.
type world struct {
	base    string
	proxy   watched
	servers []watched
}

// start starts the built program over a configuration.
func start(t *testing.T, config string) world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s\nlimits: {timeout: %s}\n", config, deadline), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMEMLIMIT", proxyLimit)
	p, api, _, err := realprom.StartProxy(t.Context(), realpromtest.Spillway(t), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("stop the proxy: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the proxy:\n%s", p.Log())
		}
	})
	return world{base: api, proxy: watched{"the proxy", p.PID(), proxyMost}}
}

// nothing is a proxy over servers that hold nothing that is asked for.
func nothing(t *testing.T) world {
	config := "groups:\n  - name: heron\n    shards:\n"
	for i := range 2 {
		s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "instance": fmt.Sprint(i)}}})
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", s.URL())
	}
	return start(t, config)
}

// readHere is a proxy over two servers whose engines differ, so that it reads their series and evaluates everything itself.
func readHere(t *testing.T) world {
	config := "groups:\n  - name: heron\n    shards:\n"
	for i := range 2 {
		held := []map[string]string{{"__name__": "up", "instance": fmt.Sprint(i)}}
		for j := i; j < wideSeries; j += 2 {
			held = append(held, map[string]string{"__name__": "wide", "pod": fmt.Sprintf("pod-%d", j), "node": fmt.Sprintf("node-%d", j%100), "x": "research-training-7f8d9c"})
		}
		s := fakeshard.Start(t, fakeshard.Config{Series: held, Flags: map[string]string{"query.lookback-delta": fmt.Sprintf("%dm", 5+i)}})
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", s.URL())
	}
	return start(t, config+"memory: {budget: 64MiB}\n")
}

// passedOn is a proxy over one real Prometheus that scrapes as many series, so that whole queries are handed on to it.
func passedOn(t *testing.T) world {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range wideSeries {
			fmt.Fprintf(w, "wide{pod=\"pod-%d\",node=\"node-%d\",x=\"research-training-7f8d9c\"} %d\n", i, i%100, i)
		}
	}))
	t.Cleanup(site.Close)
	srv := realpromtest.Start(t, realprom.Options{Config: fmt.Sprintf(`
global: {scrape_interval: 5s}
scrape_configs: [{job_name: wide, static_configs: [{targets: [%q]}]}]
`, strings.TrimPrefix(site.URL, "http://"))})
	w := start(t, fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]", srv.URL()))
	w.servers = []watched{{"Prometheus", srv.PID(), 0}}
	return w
}

// TestNothingIsTakenDown puts hostile texts to the built program and watches what it and the server behind it use, and how somebody else is served.
func TestNothingIsTakenDown(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory and processor time of other processes are read from /proc")
	}
	first := randseed.Of(t, *seed)
	for i, tc := range []struct {
		name  string
		world func(*testing.T) world
		share int // of the texts, in percent
	}{
		{"over no data", nothing, 80}, {"over series that are read", readHere, 5}, {"over a real server", passedOn, 15},
	} {
		t.Run(tc.name, func(t *testing.T) { hold(t, tc.world(t), NewWriter(first+uint64(i)), *count*tc.share/100) })
	}
}

// hold asks n texts of a world, one after another.
func hold(t *testing.T, w world, texts *Writer, n int) {
	c := &client{base: w.base}
	defer c.http.CloseIdleConnections()
	settle(t, c, len(w.servers) > 0)
	all := append([]watched{w.proxy}, w.servers...)
	for i := range all {
		idle := all[i].peak(t)
		if all[i].most == 0 {
			all[i].most = int64(float64(idle)*serverMost) + serverRoom
		}
		t.Logf("%s: %d MiB with plain queries, at most %d MiB allowed", all[i].name, idle>>20, all[i].most>>20)
		all[i].reset(t)
	}
	other := newBystander(w.base)
	defer other.end(t)
	codes, failed := map[int]int{}, 0
	var q Query
	defer func() {
		if t.Failed() { // a program that has died is seen only when it is looked at
			t.Logf("the last text, %s, range %s by %s: %.2000s", q.Kind, q.Range, q.Step, q.Text)
		}
	}()
	var longest time.Duration
	tops := make([]int64, len(all))
	for i := range n {
		q = texts.Next()
		before := all[0].spent(t)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), deadline+slack)
		code, body, err := c.ask(ctx, q)
		cancel()
		took := time.Since(began)
		codes[code]++
		longest = max(longest, took)
		bad := func(format string, args ...any) {
			failed++
			t.Errorf("text %d, %s, %d bytes, range %s by %s, answered %d after %s (%s of the proxy's processor time): %s\n%.400s\n%.300s", i, q.Kind, len(q.Text), q.Range, q.Step, code,
				took.Round(time.Millisecond), all[0].spent(t)-before, fmt.Sprintf(format, args...), q.Text, body)
		}
		switch {
		case err != nil:
			bad("%v", err)
		case code != 200 && code != 400 && code != 422 && code != 429 && code != 503:
			bad("neither an answer nor a refusal")
		case took > deadline+slack:
			bad("after the deadline of %s", deadline)
		}
		for j, p := range all {
			peak := p.peak(t)
			if peak > p.most && peak > tops[j]+tops[j]/20 { // what is resident stays so for a while
				bad("%s had %d MiB resident, at most %d MiB are allowed", p.name, peak>>20, p.most>>20)
			}
			tops[j] = max(tops[j], peak)
		}
		if took > time.Second {
			t.Logf("slow: text %d, %s, range %s by %s, %d after %s, %s of the proxy's processor time: %.300s", i, q.Kind, q.Range, q.Step, code, took.Round(time.Millisecond), all[0].spent(t)-before, q.Text)
			quiet(t, all, bad)
		}
		if failed > 20 {
			t.Fatal("that is enough")
		}
	}
	for j, p := range all {
		t.Logf("%s: at most %d MiB resident", p.name, tops[j]>>20)
	}
	t.Logf("%d texts: %v, the longest took %s", n, codes, longest.Round(time.Millisecond))
}

// settle waits until the proxy answers and the server behind it holds all series, and asks for them a few times.
func settle(t *testing.T, c *client, scraped bool) {
	t.Helper()
	asked := 0
	for end := time.Now().Add(2 * time.Minute); asked < 5; time.Sleep(100 * time.Millisecond) {
		code, body, err := c.ask(t.Context(), Query{Text: "count(wide)"})
		if err == nil && code == http.StatusOK && (!scraped || strings.Contains(string(body), fmt.Sprintf("%q", fmt.Sprint(wideSeries)))) {
			asked++
			_, _, _ = c.ask(t.Context(), Query{Text: "sum by (pod) (wide) + sum by (pod) (wide)"})
			_, _, _ = c.ask(t.Context(), Query{Text: "rate(wide[5m])", Range: 10 * time.Minute, Step: 15 * time.Second})
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("the proxy does not answer: %d %s %v", code, body, err)
		}
	}
}

// quiet sees that nothing is computed any more soon after an answer.
func quiet(t *testing.T, all []watched, bad func(string, ...any)) {
	t.Helper()
	time.Sleep(rest)
	const window = 400 * time.Millisecond
	before := make([]time.Duration, len(all))
	for i, p := range all {
		before[i] = p.spent(t)
	}
	began := time.Now()
	time.Sleep(window)
	took := time.Since(began)
	for i, p := range all {
		if used := p.spent(t) - before[i]; used > time.Duration(idleMost*float64(took)) {
			bad("%s used %s of processor time in %s, half a second after the answer", p.name, used, took.Round(time.Millisecond))
		}
	}
}
