package pair

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

var (
	away  = flag.Duration("pair.away", 8*time.Second, "how long one is gone")
	kills = flag.Int("pair.kills", 1, "how often one is killed, in turn")
	every = flag.Duration("pair.every", time.Second, "time between two scrapes of a target")
)

const (
	targets, perTarget = 20, 150 // of less than 16 targets the minutes are not compared (docs/replicas.md)
	maxSeries          = targets * perTarget / 10
	patience           = 2 * time.Minute
	// window is of all rates, and the lookback of the servers' engines.
	window = 30 * time.Second
	// apart is how long both are well before each kill, where there are several: the minute in
	// which the gap of the one lies, and a window, have then passed.
	apart = 105 * time.Second
	// beforeStart is how long before the start the day ends: what one has scraped before the other
	// could is in none of the five minutes that the day reaches into.
	beforeStart = 12 * time.Minute
)

// half is one of the pair: a server that can be killed and started again at its address, on its
// data.
type half struct {
	path string
	args []string
	addr string
	p    *realprom.Process
}

func (h *half) launch() (err error) {
	h.p, err = realprom.StartProcess(realprom.ProcessOptions{Path: h.path, Args: h.args})
	return err
}

func (h *half) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.p.WaitReady(ctx, "http://"+h.addr+"/-/ready"); err != nil {
		t.Fatal(err)
	}
}

// newPair starts both over the same targets and Spillway's page, each with a past of its own.
func newPair(t *testing.T, page string, end time.Time) (pair [2]*half) {
	t.Helper()
	path, err := realprom.Find("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "# TYPE requests_total counter")
		for i := range perTarget {
			fmt.Fprintf(w, "requests_total{path=\"/%d\"} %g\n", i, time.Since(began).Seconds())
		}
	}))
	t.Cleanup(exporter.Close)
	var list strings.Builder
	for i := range targets {
		fmt.Fprintf(&list, "      - {targets: [%q], labels: {instance: node-%d}}\n", strings.TrimPrefix(exporter.URL, "http://"), i)
	}
	ports, err := realprom.FreePorts(len(pair))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range pair {
		file := filepath.Join(dir, fmt.Sprintf("%d.yml", i))
		text := fmt.Sprintf("global: {scrape_interval: 1s, external_labels: {prometheus_replica: r%d}}\nscrape_configs:\n  - {job_name: spillway, static_configs: [{targets: [%q]}]}\n  - job_name: node\n    scrape_interval: %s\n    static_configs:\n%s", i, page, *every, list.String())
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := &half{path: path, addr: fmt.Sprintf("127.0.0.1:%d", ports[i])}
		data := filepath.Join(dir, fmt.Sprintf("data-%d", i))
		writeDay(t, data, "past_total", targets, pastSeries, i, end, pastAway[i])
		h.args = []string{
			"--config.file=" + file, "--storage.tsdb.path=" + data, "--web.listen-address=" + h.addr,
			"--query.lookback-delta=" + window.String(),
		}
		pair[i] = h
	}
	for _, h := range pair { // at once: what one has scraped before the other could it lacks for good
		if err := h.launch(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.p.Kill() })
	}
	for _, h := range pair {
		h.await(t)
	}
	return pair
}

// question is what somebody asks all the time.
type question struct {
	path string
	form url.Values
	want string // what is in each answer, once all has been scraped a few times
	day  bool   // all points of a day are to be as wanted; while one replica is away, but for those that read of the other one's outage
}

// questions are a ruler's, a dashboard's and those of its variables. Read series by series each of
// the first seven would need ten times max_series.
func questions(now time.Time) []question {
	instant := func(q, want string) question {
		form := url.Values{"query": {q}, "time": {fmt.Sprintf("%.3f", float64(now.UnixMilli())/1000)}}
		return question{path: "/api/v1/query", form: form, want: want}
	}
	ranged := func(q, want string) question {
		start, end := fmt.Sprint(now.Add(-5*time.Second).Unix()), fmt.Sprint(now.Unix())
		form := url.Values{"query": {q}, "start": {start}, "end": {end}, "step": {"1"}}
		return question{path: "/api/v1/query_range", form: form, want: want}
	}
	return []question{
		instant(`count(requests_total)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		instant(`count by (job) (rate(requests_total[30s]) > 0)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		instant(`sum by (job) (rate(requests_total[30s]))`, `"job":"node"`),
		instant(`count(topk by (path) (1, requests_total))`, fmt.Sprintf(`"%d"`, perTarget)),
		instant(`count(max by (instance) (requests_total))`, fmt.Sprintf(`"%d"`, targets)),
		ranged(`count(requests_total)`, fmt.Sprintf(`"%d"`, targets*perTarget)),
		ranged(`quantile(0.5, count by (instance) (requests_total))`, fmt.Sprintf(`"%d"`, perTarget)),
		instant(`count(up{job="node"} == 1)`, fmt.Sprintf(`"%d"`, targets)),
		instant(`up == 0`, `"result":[]`),
		{path: "/api/v1/label/instance/values", form: url.Values{"match[]": {"up"}}, want: `"node-9"`},
		{path: "/api/v1/series", form: url.Values{"match[]": {`up{instance="node-3"}`}}, want: `"node-3"`},
		{path: "/api/v1/labels", form: url.Values{"match[]": {"requests_total"}}, want: `"path"`},
		{path: "/api/v1/metadata", form: url.Values{"metric": {"requests_total"}}, want: `"counter"`},
		{path: "/api/v1/targets", form: url.Values{"state": {"active"}}, want: `"node-9"`},
		{path: "/federate", form: url.Values{"match[]": {`up{job="node"}`}}, want: `instance="node-9"`},
	}
}

// reads is how far back the questions' answers tell which targets were there.
const reads = 6 * time.Second

// callers ask until stop is called, and tell what went wrong.
type callers struct {
	url   string
	pair  [2]*half
	asked atomic.Int64
	late  atomic.Int64 // answers that lacked what a server had not scraped in time
	full  atomic.Bool  // no point of the day is missing
	wg    sync.WaitGroup
	ctx   context.Context
	stop  context.CancelFunc

	mu    sync.Mutex
	wrong []string
	phase string
	last  string // phase of the last complaint
}

func (c *callers) enter(phase string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = phase
}

func (c *callers) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < 20 || c.phase != c.last && len(c.wrong) < 60 { // some of each phase
		c.last = c.phase
		c.wrong = append(c.wrong, c.phase+": "+fmt.Sprintf(format, args...))
	}
}

// one asks one question; what is wrong with its answer, empty where nothing is, and whether that is
// no more than that something is not in it. No point of a day may be missing if full says so before
// and after.
func (c *callers) one(ctx context.Context, client *http.Client, q question, full func() bool) (wrong string, lacks bool) {
	was := full()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+q.path+"?"+q.form.Encode(), nil)
	if err != nil {
		return err.Error(), false
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Sprintf("%s: %v", q.form, err), false
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", q.form, err), false
	case resp.StatusCode != http.StatusOK || !strings.Contains(string(body), q.want) || strings.Contains(string(body), `"warnings"`):
		wrong = fmt.Sprintf("%s: want %s, got %d after %s: %.600s", q.form, q.want, resp.StatusCode,
			time.Since(began).Round(time.Millisecond), body)
		return wrong, resp.StatusCode == http.StatusOK && !strings.Contains(string(body), `"warnings"`)
	case q.day:
		all, good := strings.Count(string(body), `"]`), strings.Count(string(body), q.want)
		if was && full() && good < pastPoints || good < pastPoints-hole-edges || good < all-edges {
			return fmt.Sprintf("%s: %d of %d points are %s, of %d", q.form, good, all, q.want, pastPoints), false
		}
	}
	return "", false
}

// unscraped tells whether a server of the pair has failed to scrape a target since then, which on a
// machine that is busy with something else is true, and is what an answer says. A server that is
// not there has scraped nothing.
func (c *callers) unscraped(since time.Time) bool {
	query := fmt.Sprintf(`count_over_time(({__name__="up"} == 0)[%ds:500ms])`, int(time.Since(since).Seconds())+1)
	for _, h := range c.pair {
		resp, err := http.Get("http://" + h.addr + "/api/v1/query?" + url.Values{"query": {query}}.Encode())
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && !strings.Contains(string(body), `"result":[]`) {
			return true
		}
	}
	return false
}

// run asks from n callers at once, with a pause after each round.
func (c *callers) run(n int, pause time.Duration, ask func(now time.Time) []question) {
	for range n {
		c.wg.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr}
			for c.ctx.Err() == nil {
				now := time.Now()
				for _, q := range ask(now) {
					w, lacks := c.one(c.ctx, client, q, c.full.Load)
					switch {
					case w == "" || c.ctx.Err() != nil:
					case lacks && !q.day && c.unscraped(now.Add(-reads)):
						c.late.Add(1)
					default:
						c.complain("%s", w)
					}
					c.asked.Add(1)
				}
				time.Sleep(pause)
			}
		})
	}
}

// figures are the samples of a metric whose labels contain those given, by the rest of what tells
// them apart.
func figures(t testing.TB, reg *prometheus.Registry, name string, with map[string]string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if has(m, with) {
				text, err := json.Marshal(m.Label)
				if err != nil {
					t.Fatal(err)
				}
				out[string(text)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

func has(m *dto.Metric, with map[string]string) bool {
	n := 0
	for _, l := range m.Label {
		if v, ok := with[l.GetName()]; ok && v == l.GetValue() {
			n++
		}
	}
	return n == len(with)
}

// total is the sum of figures.
func total(t *testing.T, reg *prometheus.Registry, name string, with map[string]string) (n float64) {
	t.Helper()
	for _, v := range figures(t, reg, name, with) {
		n += v
	}
	return n
}

// failures are the calls to a replica that ended in any way that is held against it, went to the
// other one instead, or were made twice; and whether its breaker is open.
func failures(t *testing.T, reg *prometheus.Registry, replica string) (n float64) {
	t.Helper()
	for _, name := range []string{"retries_total", "failovers_total", "quarantined_total", "breaker_open"} {
		n += total(t, reg, "spillway_shard_"+name, map[string]string{"replica": replica})
	}
	for _, outcome := range []string{"silent", "internal", "overloaded", "shard_failed", "timeout", "unavailable"} {
		n += total(t, reg, "spillway_shard_requests_total", map[string]string{"replica": replica, "outcome": outcome})
	}
	return n
}

// state is 1 where the replica is in the state.
func state(t *testing.T, reg *prometheus.Registry, replica, state string) float64 {
	t.Helper()
	return total(t, reg, "spillway_shard_replica_state", map[string]string{"replica": replica, "state": state})
}

// whole tells whether the replica lacks nothing that the other one has, as of the last minute.
func whole(t *testing.T, reg *prometheus.Registry, replica string) bool {
	t.Helper()
	return total(t, reg, "spillway_shard_replica_whole", map[string]string{"replica": replica}) == 1
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// plans are the queries that shards answered themselves, and those of which series were fetched
// since something was wrong with servers.
func plans(t *testing.T, reg *prometheus.Registry) (pushed, fetched float64) {
	t.Helper()
	for _, mode := range []string{"pass", "push", "mixed", "stretches"} {
		pushed += total(t, reg, "spillway_query_plans_total", map[string]string{"mode": mode, "cause": "none"})
	}
	for _, cause := range []string{"not_whole", "no_heartbeat", "unreachable", "engine", "sick", "labels", "boundary", "inexact"} {
		fetched += total(t, reg, "spillway_query_plans_total", map[string]string{"cause": cause})
	}
	return pushed, fetched
}

// TestLossOfOne kills one of the pair, and starts it again on what it had written. Each had an
// hour's outage of its own during the day before.
func TestLossOfOne(t *testing.T) {
	reg := prometheus.NewRegistry()
	page := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(page.Close)
	alerts := proxyAlerts(t)
	end := time.Now().Add(-beforeStart).Truncate(pastStep)
	pair := newPair(t, strings.TrimPrefix(page.URL, "http://"), end)
	text := fmt.Sprintf("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [prometheus_replica]\n    heartbeat: up\n    shards: [{replicas: [{url: 'http://%s'}, {url: 'http://%s'}]}]\nlimits: {max_series: %d}\n", pair[0].addr, pair[1].addr, maxSeries)
	base, _ := servertest.Start(t, text, func(o *server.Options) { o.Registerer, o.Gatherer = reg, reg })
	c := &callers{url: base, pair: pair, phase: "both are well"}
	c.ctx, c.stop = context.WithCancel(t.Context())
	client := &http.Client{}
	defer client.CloseIdleConnections()
	day := dayQuestions(end)
	wrong := func(qs []question) string {
		for _, q := range qs {
			if w, _ := c.one(t.Context(), client, q, func() bool { return true }); w != "" {
				return w
			}
		}
		return ""
	}
	c.full.Store(true)
	eventually(t, "all has been scraped often enough", func() bool { return wrong(questions(time.Now())) == "" })
	time.Sleep(max(5*time.Second, 3**every)) // so that the steps of range queries have all of it too
	if w := wrong(day); w != "" {
		t.Fatal(w)
	}
	rules, watch := newRuler(t, base, alerts), newWatch(t, base, strings.TrimPrefix(page.URL, "http://"), alerts)
	began := time.Now()
	c.run(4, 100*time.Millisecond, questions)
	c.run(1, time.Second, func(time.Time) []question { return day })
	time.Sleep(2 * time.Second)
	for k := range *kills {
		if *kills > 1 {
			time.Sleep(apart)
		}
		i := k % 2
		h, other := pair[i], pair[1-i]
		// What the one that is left is known to lack is refused for a minute: one may have scraped
		// a few targets before the other's first scrape.
		eventually(t, "neither is known to lack anything", func() bool { return whole(t, reg, h.addr) && whole(t, reg, other.addr) })
		dead := named + " " + h.addr
		clean := failures(t, reg, other.addr)
		c.full.Store(false)
		c.enter(fmt.Sprintf("replica %d was killed", i))
		pushedBefore, fetchedBefore := plans(t, reg)
		h.p.Kill()
		killed := time.Now()
		pushedAtOnce, _ := plans(t, reg)
		time.Sleep(time.Second)
		pushed, fetched := plans(t, reg)
		if pushed == pushedAtOnce {
			t.Error("within a second of the kill no query was pushed")
		}
		eventually(t, "the one that was killed is named", func() bool { return state(t, reg, h.addr, "down") == 1 })
		t.Logf("replica %d is down by spillway_shard_replica_state %s after it was killed", i, time.Since(killed).Round(100*time.Millisecond))
		eventually(t, "both rulers fire", func() bool { return len(rules.firing(t)) > 0 && slices.Contains(watch.firing(t), dead) })
		t.Logf("both rulers say so %s after it was killed", time.Since(killed).Round(100*time.Millisecond))
		time.Sleep(max(0, *away-time.Since(killed)))
		// Not at any one moment: a scrape of Spillway's page that came too late ends the alert for
		// some seconds.
		eventually(t, "the ruler names it, and nothing else", func() bool { return slices.Equal(rules.firing(t), []string{dead}) })
		if n := state(t, reg, other.addr, "up"); n != 1 {
			t.Errorf("the one that is left is not up: %g", n)
		}
		c.enter(fmt.Sprintf("replica %d is started again", i))
		gone := time.Since(killed)
		if err := h.launch(); err != nil {
			t.Fatal(err)
		}
		h.await(t)
		back := time.Now()
		eventually(t, "it is up again", func() bool { return state(t, reg, h.addr, "up") == 1 })
		// It is read again at some moment from then on.
		c.enter(fmt.Sprintf("replica %d is back", i))
		eventually(t, "the day is whole again", func() bool { return wrong(day) == "" })
		c.full.Store(true)
		t.Logf("it was away for %s; the day has no gap %s after it was back", gone.Round(100*time.Millisecond), time.Since(back).Round(100*time.Millisecond))
		eventually(t, "no ruler names it any more", func() bool {
			return len(rules.firing(t)) == 0 && !slices.Contains(watch.firing(t), dead)
		})
		time.Sleep(max(0, 16*time.Second-time.Since(back)))
		if n := failures(t, reg, other.addr) - clean; n != 0 {
			t.Errorf("%g failures were charged to the replica that is well", n)
		}
		// Of all that time, as the watching Prometheus scraped and evaluated it each second.
		over := fmt.Sprintf("[%ds]", int(time.Since(killed).Seconds())+1)
		blamed := func(replica string) map[string]float64 {
			return watch.vector(t, fmt.Sprintf(`max by (alertname) (max_over_time(ALERTS{alertstate="firing",replica=%q}%s))`, replica, over), "alertname")
		}
		if got := blamed(h.addr); got[named] != 1 {
			t.Errorf("alerts that fired for the one that was killed: %v", got)
		}
		if got := blamed(other.addr); len(got) > 0 {
			t.Errorf("alerts that fired for the replica that is well: %v", got)
		}
		if got := watch.vector(t, fmt.Sprintf("max_over_time(spillway_shard_breaker_open{replica=%q}%s)", other.addr, over), "job"); len(got) != 1 || got["spillway"] != 0 {
			t.Errorf("the breaker of the replica that is well: %v", got)
		}
		p, f := plans(t, reg)
		if p == pushed || f > fetched && !c.unscraped(killed.Add(-reads)) {
			t.Errorf("from a second after the kill on %g queries were pushed, and %g times series were fetched", p-pushed, f-fetched)
		}
		t.Logf("since the kill %g queries were pushed, %g of them within a second; %g times series were fetched, in that second", p-pushedBefore, pushed-pushedAtOnce, fetched-fetchedBefore)
	}
	c.stop()
	c.wg.Wait()
	for _, w := range c.wrong {
		t.Error(w)
	}
	evaluations, failed := rules.counts(t)
	if evaluations < 20 || failed > 0 {
		t.Errorf("of %g evaluations of the ruler's rules %g failed or had a warning", evaluations, failed)
	}
	read := fmt.Sprintf("[%ds] offset 2s", int(time.Since(began).Seconds())-2)
	sum, n := watch.vector(t, "sum_over_time("+nodes+read+")", "instance"), watch.vector(t, "count_over_time("+ticks+read+")", "job")[""]
	if n < 10 {
		t.Errorf("there were %g evaluations", n)
	}
	// What a server itself failed to scrape, on a machine that is busy with something else, is
	// true, and is read for two evaluations at most.
	late := map[string]float64{}
	for _, h := range pair {
		for name, n := range (ruler{"http://" + h.addr}).vector(t, fmt.Sprintf(`count_over_time(({__name__="up",job="node"} == 0)[%ds:500ms])`, int(time.Since(began).Seconds())), "instance") {
			late[name] += n
		}
	}
	if len(late) > 0 {
		t.Logf("targets that were not scraped in time, for how many half seconds: %v", late)
	}
	for i := range targets {
		if name := fmt.Sprint("node-", i); n-sum[name] > late[name] {
			t.Errorf("by remote read up of %s was 1 at %g of %g evaluations; for %g half seconds it was not scraped", name, sum[name], n, late[name])
		}
	}
	if n, failed := watch.counts(t); n < 100 || failed > 0 {
		t.Errorf("of %g evaluations of the alerts about Spillway %g failed", n, failed)
	}
	t.Logf("%d answers lacked what a server had not scraped in time", c.late.Load())
	t.Logf("%d questions over %d series with max_series %d, and %g evaluations", c.asked.Load(), targets*perTarget, maxSeries, evaluations)
}

func TestMain(m *testing.M) { realpromtest.Main(m) }
