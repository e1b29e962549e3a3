package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/proxy/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; a sound demo needs a small part of it.
const patience = 15 * time.Minute

// running is a demo in this process, asked over its sockets as a user would.
type running struct {
	t           *testing.T
	main, admin string
	stop, force context.CancelFunc
	done        chan error
	said        chan string
	heard       []string // taken from said
	client      *http.Client
}

// start runs a demo on free ports and waits until it is ready. Its folder is made under temp.
func start(t *testing.T, temp string, o Options) *running {
	t.Helper()
	t.Setenv("TMPDIR", temp)
	tr := &http.Transport{}
	r := &running{
		t: t, done: make(chan error, 1), said: make(chan string, 1000),
		client: &http.Client{Transport: tr, Timeout: 30 * time.Second},
	}
	ready := make(chan struct{})
	reg := prometheus.NewRegistry()
	o.ListenAddress, o.AdminListenAddress, o.Version, o.Registry = "127.0.0.1:0", "127.0.0.1:0", "test", reg
	o.Logger = slog.New(slog.DiscardHandler)
	o.Say = func(format string, args ...any) { r.said <- fmt.Sprintf(format, args...) }
	o.Ready = func(main, admin net.Addr) {
		r.main, r.admin = "http://"+main.String(), "http://"+admin.String()
		close(ready)
	}
	ctx, stop := context.WithCancel(context.Background())
	force, now := context.WithCancel(context.Background())
	r.stop, r.force = stop, now
	go func() { r.done <- Run(ctx, force, o) }()
	t.Cleanup(func() {
		stop()
		now()
		tr.CloseIdleConnections()
	})
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("the demo ended before it was ready: %v", err)
	case <-time.After(patience):
		t.Fatal("the demo did not get ready")
	}
	return r
}

// end stops the demo and waits for it.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("the demo ended with: %v", err)
		}
	case <-time.After(patience):
		r.t.Error("the demo did not end")
	}
}

// data asks for path and returns what is in the answer's data.
func (r *running) data(base, path string, params url.Values) (data json.RawMessage, warnings []string) {
	r.t.Helper()
	target := base + path
	if len(params) > 0 {
		target += "?" + params.Encode()
	}
	resp, err := r.client.Get(target)
	if err != nil {
		r.t.Errorf("%s: %v", path, err)
		return nil, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Errorf("%s %s: status %d, %v: %.500s", path, params.Encode(), resp.StatusCode, err, body)
		return nil, nil
	}
	var answer struct {
		Status   string
		Data     json.RawMessage
		Warnings []string
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		r.t.Errorf("%s: %v: %.500s", path, err, body)
	}
	return answer.Data, answer.Warnings
}

// vector is the proxy's answer to an instant query.
func (r *running) vector(query string, at time.Time) []sample {
	r.t.Helper()
	return r.asked(r.main, query, at)
}

// asked is a server's answer to an instant query.
func (r *running) asked(server, query string, at time.Time) []sample {
	r.t.Helper()
	params := url.Values{"query": {query}}
	if !at.IsZero() {
		params.Set("time", fmt.Sprint(at.Unix()))
	}
	raw, _ := r.data(server, "/api/v1/query", params)
	var v struct{ Result []sample }
	if raw != nil {
		if err := json.Unmarshal(raw, &v); err != nil {
			r.t.Errorf("%s: %v: %.300s", query, err, raw)
		}
	}
	return v.Result
}

type sample struct {
	Metric map[string]string
	Value  []any
}

// eventually repeats what may need another scrape or the back-fill.
func (r *running) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestDemo runs a small demo through its whole life and asks it what dashboards ask.
func TestDemo(t *testing.T) {
	temp := t.TempDir()
	began := time.Now()
	r := start(t, temp, Options{Groups: 2, Shards: 2, Replicas: 2, Nodes: 10, History: 30 * time.Minute, Seed: 7, recent: 12 * time.Minute})
	ready := time.Now()

	t.Run("the line that explains a query can be copied", func(t *testing.T) {
		explain := regexp.MustCompile(`^  explain a query: (\S+) explain --config\.file=(\S+) 'sum by \(cluster\) \(up\)'$`)
		var m []string
		for m == nil {
			select {
			case line := <-r.said:
				r.heard = append(r.heard, line)
				m = explain.FindStringSubmatch(line)
			default:
				t.Fatal("no such line was said before the demo was ready")
			}
		}
		if m[1] != "spillway" {
			t.Errorf("the program is called %s", m[1])
		}
		if _, err := config.Load(m[2]); err != nil {
			t.Errorf("its configuration: %v", err)
		}
	})

	t.Run("every replica is up", func(t *testing.T) {
		groups := map[string]int{}
		for _, p := range r.replicas() {
			groups[p.Group]++
			if p.State != "up" || !strings.HasPrefix(p.URL, "http://127.0.0.1:") {
				t.Errorf("replica %+v", p)
			}
		}
		if len(groups) != 3 || groups["jaguar"] != 4 || groups["ibis"] != 4 || groups["rules"] != 1 {
			t.Errorf("replicas of the groups: %v, want 4 of jaguar, 4 of ibis and the ruler's", groups)
		}
	})

	t.Run("variables", func(t *testing.T) {
		raw, _ := r.data(r.main, "/api/v1/label/cluster/values", url.Values{"match[]": {"kube_node_info"}})
		if string(raw) != `["ibis","jaguar"]` {
			t.Errorf("label_values(kube_node_info, cluster) = %s", raw)
		}
		raw, _ = r.data(r.main, "/api/v1/label/node/values", url.Values{"match[]": {`kube_node_info{cluster="jaguar"}`}})
		var nodes []string
		if err := json.Unmarshal(raw, &nodes); err != nil || len(nodes) != 10 {
			t.Errorf("label_values(kube_node_info{cluster=\"jaguar\"}, node) = %s", raw)
		}
	})

	t.Run("instant queries", func(t *testing.T) {
		for query, want := range map[string]int{
			`sum by (cluster) (kube_node_info)`:         2,
			`count by (cluster) (DCGM_FI_DEV_GPU_UTIL)`: 2,
			`sum by (cluster, job) (up)`:                -1,
			`histogram_quantile(0.99, sum by (cluster, le) (rate(apiserver_request_duration_seconds_bucket{verb="LIST"}[5m])))`: 2,
			`topk(3, sum by (namespace) (rate(container_cpu_usage_seconds_total{cluster="jaguar", container!=""}[5m])))`:        3,
			`1 - avg by (cluster) (rate(node_cpu_seconds_total{mode="idle"}[5m]))`:                                              2,
			`sum by (cluster) (kube_pod_status_phase{phase="Running"})`:                                                         2,
			`avg by (cluster) (DCGM_FI_DEV_GPU_UTIL) and on (cluster) sum by (cluster) (kube_node_info) > 0`:                    2,
			`sum(rate(apiserver_request_total{cluster="ibis",code=~"5.."}[5m])) / sum(rate(apiserver_request_total{}[5m]))`:     -1,
			`1+1`: 0, // a scalar
		} {
			if query == `1+1` {
				if raw, _ := r.data(r.main, "/api/v1/query", url.Values{"query": {query}}); !strings.Contains(string(raw), `"scalar"`) {
					t.Errorf("1+1 = %s", raw)
				}
				continue
			}
			got := r.vector(query, time.Time{})
			if len(got) != want && want >= 0 || want < 0 && len(got) == 0 {
				t.Errorf("%s: %d series, want %d: %v", query, len(got), want, got)
			}
		}
		for _, s := range r.vector(`count by (cluster) (kube_node_info)`, time.Time{}) {
			if s.Value[1] != "10" {
				t.Errorf("nodes of %v: %v, want 10 whatever the shards and replicas", s.Metric, s.Value[1])
			}
		}
	})

	t.Run("range queries", func(t *testing.T) {
		for _, query := range []string{`sum by (cluster) (DCGM_FI_DEV_POWER_USAGE)`, `histogram_quantile(0.5, sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[5m])))`} {
			raw, _ := r.data(r.main, "/api/v1/query_range", url.Values{
				"query": {query}, "start": {fmt.Sprint(began.Add(-10 * time.Minute).Unix())}, "end": {fmt.Sprint(began.Unix())},
				"step": {"30"},
			})
			var m struct {
				Result []struct{ Values [][]any }
			}
			if err := json.Unmarshal(raw, &m); err != nil || len(m.Result) == 0 || len(m.Result[0].Values) < 15 {
				t.Errorf("%s over ten minutes: %v: %.300s", query, err, raw)
			}
		}
	})

	t.Run("the killer is answered bounded", func(t *testing.T) {
		raw, warnings := r.data(r.main, "/api/v1/series", url.Values{"match[]": {`{le!=""}`}})
		var series []map[string]string
		if err := json.Unmarshal(raw, &series); err != nil || len(series) == 0 || len(series) > 4000 {
			t.Errorf("%d series, %v; want some, and at most 1,000 from each of four shards", len(series), err)
		}
		if len(warnings) == 0 {
			t.Error("a cut answer carries a warning")
		}
	})

	t.Run("scrapes go on", func(t *testing.T) {
		r.eventually("a sample is younger than the demo", func() bool {
			got := r.vector(`min by (cluster) (timestamp(up{job="node-exporter"}))`, time.Time{})
			return len(got) == 2 && !slices.ContainsFunc(got, func(s sample) bool { return number(s) < float64(began.Unix()) })
		})
	})

	t.Run("older history appears behind", func(t *testing.T) {
		r.eventually("both clusters have samples from before the first", func() bool {
			got := r.vector(`count by (cluster) (kube_node_info)`, began.Add(-25*time.Minute))
			return len(got) == 2 && number(got[0]) == 10 && number(got[1]) == 10
		})
		if said := r.lines(); !slices.ContainsFunc(said,
			func(s string) bool { return strings.Contains(s, "of older history is there for shard") }) {
			t.Errorf("the demo did not say so: %q", said)
		}
	})

	t.Run("recorded history", func(t *testing.T) {
		r.eventually("the demo says that all recorded history is there", func() bool {
			return len(slices.DeleteFunc(slices.Clone(r.lines()),
				func(s string) bool { return !strings.HasPrefix(s, "recorded series and alerts are there for") })) == 2
		})
		for _, ago := range []time.Duration{2 * time.Minute, 10 * time.Minute, 25 * time.Minute} {
			for query, want := range map[string]float64{
				`count by (cluster) (node:cpu_busy:ratio_rate5m)`:           10, // by the shards
				`cluster:nodes:count`:                                       10, // by the ruler
				`count by (cluster) (namespace:gpu_allocated:sum) > bool 0`: 1,
				`sum by (cluster) (cluster:gpu_capacity:sum)`:               80,
				`group by (cluster) (ALERTS{alertname="Watchdog"})`:         1, // each shard has one
			} {
				got := r.vector(query, began.Add(-ago))
				if len(got) != 2 || number(got[0]) != want || number(got[1]) != want {
					t.Errorf("%s, %s before the start: %v, want %g of two clusters", query, ago, got, want)
				}
			}
		}
	})

	t.Run("rules go on", func(t *testing.T) {
		r.eventually("a recorded sample of each road is younger than the demo", func() bool {
			for _, query := range []string{`min by (cluster) (timestamp(cluster:nodes:count))`, `min by (cluster) (timestamp(node:cpu_busy:ratio_rate5m))`} {
				got := r.vector(query, time.Time{})
				if len(got) != 2 || slices.ContainsFunc(got,
					func(s sample) bool { return number(s) < float64(began.Add(time.Minute).Unix()) }) {
					return false
				}
			}
			return true
		})
		raw, _ := r.data(r.main, "/api/v1/rules", url.Values{"type": {"alert"}})
		for _, alert := range []string{`"Watchdog"`, `"FleetNodesNotReady"`} {
			if !strings.Contains(string(raw), alert) {
				t.Errorf("the list of alerts lacks %s", alert)
			}
		}
		if strings.Contains(string(raw), `"ProxyDown"`) {
			t.Error("the demo has no servers beside the rulers, and rules about them")
		}
	})

	t.Run("the past joins what goes on", func(t *testing.T) {
		for metric, files := range map[string]fs.FS{
			`node:cpu_busy:ratio_rate5m`: alerts.Shard(), `pod:gpu_allocated:sum`: alerts.Global(), `cluster:nodes:count`: alerts.Global(),
			`experiment:pod:gpus`: alerts.Global(),
		} {
			interval := intervalOf(t, files, metric).Seconds()
			raw, _ := r.data(r.main, "/api/v1/query", url.Values{"query": {metric + "[40m]"}})
			var m struct {
				Result []struct {
					Metric map[string]string
					Values [][]any
				}
			}
			if err := json.Unmarshal(raw, &m); err != nil || len(m.Result) == 0 {
				t.Errorf("%s: %v: %.300s", metric, err, raw)
			}
			went, wrong := 0, 0 // on after the demo was ready
			gapless := 0
			for _, series := range m.Result {
				before, gaps := 0.0, 0
				for _, v := range series.Values {
					at, _ := v[0].(float64)
					apart := at - before
					// What counts samples, as sums of GPU hours do, is right where each is worth an
					// interval. Pods and nodes come and go; and later than this a busy machine may
					// miss an evaluation.
					near, far := apart < interval-0.01, apart > interval+0.01 && at < float64(ready.Unix())
					if before > 0 && far {
						gaps++
					}
					if far = far && series.Metric["pod"] == "" && series.Metric["node"] == ""; before > 0 && (near || far) {
						if wrong++; wrong == 1 {
							t.Errorf("a sample %.3fs after the one before it, %.0fs after the start; want %.0fs: %v", apart, at-float64(began.Unix()), interval, series.Metric)
						}
					}
					if at > float64(ready.Unix()) {
						went++
					}
					before = at
				}
				if gaps == 0 {
					gapless++
				}
			}
			if gapless == 0 {
				t.Errorf("%s: each of %d series has a gap", metric, len(m.Result))
			}
			if wrong > 1 {
				t.Errorf("%s: %d more such samples", metric, wrong-1)
			}
			if went == 0 {
				t.Errorf("%s: no sample is younger than the demo, so this shows nothing", metric)
			}
		}
	})

	t.Run("the proxy is scraped", func(t *testing.T) {
		r.eventually("its own series are found through it", func() bool {
			return len(r.vector(`up{job="spillway", cluster="monitoring"} == 1`, time.Time{})) == 1
		})
	})

	r.end()
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// intervalOf is that of the group that records a metric.
func intervalOf(t *testing.T, files fs.FS, metric string) time.Duration {
	t.Helper()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Groups []struct {
				Interval model.Duration
				Rules    []struct{ Record string }
			}
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range file.Groups {
			if slices.ContainsFunc(g.Rules, func(r struct{ Record string }) bool { return r.Record == metric }) {
				return cmp.Or(time.Duration(g.Interval), evaluationInterval)
			}
		}
	}
	t.Fatalf("nobody records %s", metric)
	return 0
}

// TestReplicasAreWhole: soon after the start every replica is whole, and the minutes in which
// history meets live scrapes will not make it less: the proxy asks about those when their five
// minutes are over, which is later than a test waits, so the same is asked here. A machine that is
// busy with other things loses scrapes in these minutes, one demo's replicas others than each
// other: what is wrong with every demo that is started is not that.
func TestReplicasAreWhole(t *testing.T) {
	const demos = 4
	var differs string
	for i := range demos {
		if differs = wholeAtTheSeam(t); differs == "" {
			return
		}
		t.Logf("demo %d of %d: %s", i+1, demos, differs)
	}
	t.Errorf("the replicas of %d demos never had the same in all windows that hold the moment at which live scrapes began; of the last: %s", demos, differs)
}

// wholeAtTheSeam starts a demo and says what its replicas lack of each other in the windows that
// hold the moment at which live scrapes began: nothing, once there is nothing.
func wholeAtTheSeam(t *testing.T) string {
	t.Helper()
	const shards, replicas = 2, 3
	r := start(t, t.TempDir(), Options{Groups: 1, Shards: shards, Replicas: replicas, Nodes: 40, History: 10 * time.Minute, Seed: 7})
	defer r.end()
	ready := time.Now()
	var all []replica
	r.eventually("every replica is whole", func() bool {
		all = r.replicas()
		// and the ruler's store, which has no second
		return len(all) == shards*replicas+1 && !slices.ContainsFunc(all, func(p replica) bool { return !p.Whole })
	})
	byShard := map[int][]replica{}
	for _, p := range all {
		if p.Group == names[0] {
			byShard[p.Shard] = append(byShard[p.Shard], p)
		}
	}
	if len(byShard) != shards {
		t.Fatalf("replicas of the shards: %v", byShard)
	}
	// All phases of scrapes are gone through, and each target has been scraped live before the
	// first.
	for end := ready.Add(2 * time.Minute); ; time.Sleep(time.Second) {
		last := time.Now().Add(-2 * time.Second).Truncate(time.Second)
		first := last.Add(-scrapeInterval)
		if first.Before(ready.Add(scrapeInterval)) {
			continue
		}
		differs := ""
		for at := first; differs == "" && !at.After(last); at = at.Add(time.Second) {
			for _, replicas := range byShard {
				differs = cmp.Or(differs, r.differ(replicas, at))
			}
		}
		if differs == "" || time.Now().After(end) {
			return differs
		}
	}
}

// differ says of which replica the proxy would find that it lacks what others have in the five
// minutes before a moment: half as many samples of a job as the job has targets, or a target.
func (r *running) differ(replicas []replica, at time.Time) string {
	r.t.Helper()
	type beats struct{ targets, samples float64 }
	most := map[string]beats{}
	of := make([]map[string]beats, len(replicas))
	for i, p := range replicas {
		of[i] = map[string]beats{}
		for _, s := range r.asked(p.URL, "count by (job) (count_over_time("+heartbeat+"[5m]))", at) {
			of[i][s.Metric["job"]] = beats{targets: number(s)}
		}
		for _, s := range r.asked(p.URL, "sum by (job) (count_over_time("+heartbeat+"[5m]))", at) {
			of[i][s.Metric["job"]] = beats{of[i][s.Metric["job"]].targets, number(s)}
		}
		for job, b := range of[i] {
			most[job] = beats{max(most[job].targets, b.targets), max(most[job].samples, b.samples)}
		}
	}
	if len(most) == 0 {
		return "the heartbeat is nowhere"
	}
	for i, p := range replicas {
		for job, full := range most {
			if b := of[i][job]; b.targets != full.targets || b.samples <= full.samples-full.targets/2 {
				return fmt.Sprintf("at %s %s has %g samples of %g targets of %s, another one %g of %g", at, p.URL, b.samples, b.targets, job, full.samples, full.targets)
			}
		}
	}
	return ""
}

// replica is what the proxy says of one.
type replica struct {
	Group, URL, State string
	Shard             int
	Whole             bool
}

// replicas are those of all groups.
func (r *running) replicas() (all []replica) {
	r.t.Helper()
	raw, _ := r.data(r.admin, "/api/spillway/v1/shards", nil)
	if err := json.Unmarshal(raw, &all); err != nil {
		r.t.Fatalf("the list of replicas: %v: %s", err, raw)
	}
	return all
}

// number is a sample's value.
func number(s sample) float64 {
	var f float64
	if len(s.Value) == 2 {
		_, _ = fmt.Sscan(fmt.Sprint(s.Value[1]), &f)
	}
	return f
}

// lines are what the demo has said so far.
func (r *running) lines() []string {
	for {
		select {
		case s := <-r.said:
			r.heard = append(r.heard, s)
		default:
			return r.heard
		}
	}
}
