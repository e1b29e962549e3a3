package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// proxyOver is how much more than at rest the proxy may have resident, whatever it is asked,
	// with the memory limit that it gives itself; a third more where other things run beside.
	proxyOver = 300 << 20
	// serverMost is how much a server may have resident, as a share of what it had with plain
	// queries over all series of wide; serverBusy where other things run beside and its collector
	// comes late. One text took three and a half times as much before it was weighed.
	serverMost, serverBusy = 1.25, 2
	// otherSeries is how many series the server holds besides, of which nobody asks: a server of
	// the twenty thousand alone has so little that a quarter of it is an answer of theirs.
	otherSeries = 200_000
	// deadline is the proxy's timeout.
	deadline = 5 * time.Second
	// rest is after what time nothing may be computed for a query any more, and idleMost the share
	// of one processor that counts as nothing: the bystander's.
	rest     = 500 * time.Millisecond
	idleMost = 0.5
)

// patience is what depends on how busy the machine is.
type patience struct {
	slack, most time.Duration // how much later than its deadline an answer may be before it is printed, and before it is wrong
	look        time.Duration // after texts that took longer than this the processors are looked at
	others      time.Duration // how long the bystander may wait at the 99th percentile
	failed      float64       // what share of the bystander's requests may run into their deadlines
}

// patienceOf is what is asked for (-hostile.strict), or what holds on a machine that does other
// things too.
func patienceOf(strict bool) patience {
	if strict {
		return patience{
			slack: 500 * time.Millisecond, most: 500 * time.Millisecond, look: 100 * time.Millisecond,
			others: 50 * time.Millisecond,
		}
	}
	return patience{slack: 2 * time.Second, most: 30 * time.Second, look: time.Second, others: deadline, failed: 0.01}
}

// world is a proxy over servers.
type world struct {
	base    string
	other   string // what somebody else asks for
	server  string // of whom the same is asked without the proxy
	proxy   watched
	servers []watched
}

// start starts the built program over a configuration, with further limits.
func start(t *testing.T, config string, limits ...string) world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	limits = append(limits, fmt.Sprintf("timeout: %s", deadline))
	text := fmt.Appendf(nil, "%s\nlimits: {%s}\n", config, strings.Join(limits, ", "))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
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
	over := int64(proxyOver)
	if !*strict {
		over += proxyOver / 3
	}
	return world{base: api, other: "up", proxy: watched{name: "the proxy", pid: p.PID(), over: over}}
}

// nothing is a proxy over servers that hold nothing that is asked for.
func nothing(t *testing.T) world {
	config, server := "groups:\n  - name: heron\n    shards:\n", ""
	for i := range 2 {
		s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "instance": fmt.Sprint(i)}}})
		server = s.URL()
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", server)
	}
	w := start(t, config)
	w.server = server
	return w
}

// readHere is a proxy over two servers whose engines differ, so that it reads their series and
// evaluates everything itself. Somebody else asks another server: these two, which are one program
// on one processor, are busy writing their series.
func readHere(t *testing.T) world {
	config := "groups:\n  - name: heron\n    labels: {cluster: heron}\n    shards:\n"
	for _, url := range startShards(t) {
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", url)
	}
	quiet := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "instance": "quiet"}}})
	config += fmt.Sprintf("  - name: quiet\n    labels: {cluster: quiet}\n    shards: [{replicas: [{url: %q}]}]\n", quiet.URL())
	w := start(t, config)
	w.other, w.server = `up{cluster="quiet"}`, quiet.URL()
	return w
}

// passedOn is a proxy over one real Prometheus that scrapes as many series, so that whole queries
// are handed on to it.
func passedOn(t *testing.T) world {
	mux := http.NewServeMux()
	mux.HandleFunc("/wide", func(w http.ResponseWriter, _ *http.Request) {
		for i := range wideSeries {
			fmt.Fprintf(w, "wide{pod=\"pod-%d\",node=\"node-%d\",x=\"research-training-7f8d9c\"} %d\n", i, i%100, i)
		}
	})
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) {
		for i := range otherSeries {
			fmt.Fprintf(w, "other_%d{pod=\"pod-%d\",node=\"node-%d\",namespace=\"research-training\"} %d\n", i%500, i, i%100, i)
		}
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	target := strings.TrimPrefix(site.URL, "http://")
	srv := realpromtest.Start(t, realprom.Options{Config: fmt.Sprintf(`
global: {scrape_interval: 5s}
scrape_configs:
  - {job_name: wide, metrics_path: /wide, static_configs: [{targets: [%[1]q]}]}
  - {job_name: other, metrics_path: /other, scrape_interval: 20s, static_configs: [{targets: [%[1]q]}]}
`, target)})
	w := start(t, fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", srv.URL()), "max_shard_bytes: 32MiB")
	w.server = srv.URL()
	share := float64(serverBusy)
	if *strict {
		share = serverMost
	}
	w.servers = []watched{{name: "Prometheus", pid: srv.PID(), share: share, scrapes: true}}
	return w
}

// TestNothingIsTakenDown puts hostile texts to the built program and watches what it and the server
// behind it use, and how somebody else is served.
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
	all := append([]watched{w.proxy}, w.servers...)
	all[0].allow(t) // at rest
	settle(t, c, len(w.servers) > 0)
	for i := range all {
		if i > 0 {
			all[i].allow(t) // with plain queries
		}
		all[i].reset(t)
	}
	p := patienceOf(*strict)
	other := newBystander(w)
	defer other.end(t, p)
	codes, failed, looks, cut := map[int]int{}, 0, 0, 0
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
		ctx, cancel := context.WithTimeout(t.Context(), deadline+p.most+time.Second)
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
		case errors.Is(err, io.ErrUnexpectedEOF) && code == http.StatusOK && took <= deadline+p.most:
			cut++ // an answer that had begun, at its deadline or at max_response_bytes: there is no other way to say so
		case err != nil:
			bad("%v", err)
		case code != 200 && code != 400 && code != 422 && code != 429 && code != 503:
			bad("neither an answer nor a refusal")
		case took > deadline+p.most:
			bad("after the deadline of %s", deadline)
		case took > deadline+p.slack:
			t.Logf("late: text %d was answered after %s", i, took.Round(time.Millisecond))
		}
		for j, w := range all {
			peak := w.peak(t)
			if peak > w.most && tops[j] <= w.most {
				bad("%s had %d MiB resident, at most %d MiB are allowed", w.name, peak>>20, w.most>>20)
			}
			if peak > tops[j]+tops[j]/20 { // what is resident stays so for a while
				t.Logf("%s: %d MiB resident with text %d, %s, range %s by %s: %.200s", w.name, peak>>20, i, q.Kind, q.Range, q.Step, q.Text)
			}
			tops[j] = max(tops[j], peak)
		}
		if took > time.Second {
			t.Logf("slow: text %d, %s, range %s by %s, %d after %s, %s of the proxy's processor time: %.300s", i, q.Kind, q.Range, q.Step, code, took.Round(time.Millisecond), all[0].spent(t)-before, q.Text)
		}
		if took > p.look {
			looks++
			quiet(t, all, bad)
		}
		if failed > 20 {
			t.Fatal("that is enough")
		}
	}
	for j, w := range all {
		t.Logf("%s: at most %d MiB resident, %d at rest", w.name, tops[j]>>20, w.rest>>20)
	}
	t.Logf("%d texts: %v, the longest took %s; %d were cut off at the deadline; the processors were looked at after %d", n, codes, longest.Round(time.Millisecond), cut, looks)
}

// settle waits until the proxy answers and the server behind it holds all series, and asks for them
// a few times.
func settle(t *testing.T, c *client, scraped bool) {
	t.Helper()
	asked, most := 0, 5
	if *strict && scraped {
		most = 100 // some collections, each of which leaves another amount
	}
	for end := time.Now().Add(2 * time.Minute); asked < most; time.Sleep(100 * time.Millisecond) {
		code, body, err := c.ask(t.Context(), Query{Text: "count(wide)"})
		all := strings.Contains(string(body), fmt.Sprintf("%q", fmt.Sprint(wideSeries)))
		if err == nil && code == http.StatusOK && (!scraped || all && c.has(t, "count(other_499)")) {
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

// has tells whether a query has an answer that is not empty.
func (c *client) has(t *testing.T, query string) bool {
	t.Helper()
	code, body, err := c.ask(t.Context(), Query{Text: query})
	return err == nil && code == http.StatusOK && strings.Contains(string(body), `"value"`)
}

// quiet sees that nothing is computed any more soon after an answer. What scrapes may be in the
// midst of that, and then collect its garbage: it is looked at three times.
func quiet(t *testing.T, all []watched, bad func(string, ...any)) {
	t.Helper()
	time.Sleep(rest)
	const window = 400 * time.Millisecond
	for again := range 3 {
		before := make([]time.Duration, len(all))
		for i, p := range all {
			before[i] = p.spent(t)
		}
		began := time.Now()
		time.Sleep(window)
		took := time.Since(began)
		busy := false
		for i, p := range all {
			used := p.spent(t) - before[i]
			switch {
			case used <= time.Duration(idleMost*float64(took)):
			case p.scrapes && again < 2:
				busy = true
			default:
				bad("%s used %s of processor time in %s, half a second after the answer", p.name, used, took.Round(time.Millisecond))
			}
		}
		if !busy {
			return
		}
	}
}
