package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; a sound demo needs a small part of it.
const patience = 3 * time.Minute

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
	r := &running{t: t, done: make(chan error, 1), said: make(chan string, 1000), client: &http.Client{Transport: tr, Timeout: 30 * time.Second}}
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

// vector is the answer to an instant query.
func (r *running) vector(query string, at time.Time) []sample {
	r.t.Helper()
	params := url.Values{"query": {query}}
	if !at.IsZero() {
		params.Set("time", fmt.Sprint(at.Unix()))
	}
	raw, _ := r.data(r.main, "/api/v1/query", params)
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

	t.Run("every replica is up", func(t *testing.T) {
		raw, _ := r.data(r.admin, "/api/spillway/v1/shards", nil)
		var replicas []struct{ Group, URL, State string }
		flat(t, raw, &replicas)
		groups := map[string]int{}
		for _, p := range replicas {
			groups[p.Group]++
			if p.State != "up" || !strings.HasPrefix(p.URL, "http://127.0.0.1:") {
				t.Errorf("replica %+v", p)
			}
		}
		if len(groups) != 3 || groups["jaguar"] != 4 || groups["ibis"] != 4 || groups["rules"] != 1 {
			t.Errorf("replicas of the groups: %v, want 4 of jaguar, 4 of ibis and the ruler's: %s", groups, raw)
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
				"query": {query}, "start": {fmt.Sprint(began.Add(-10 * time.Minute).Unix())}, "end": {fmt.Sprint(began.Unix())}, "step": {"30"},
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
		if said := r.lines(); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "of older history is there for shard") }) {
			t.Errorf("the demo did not say so: %q", said)
		}
	})

	t.Run("recorded history", func(t *testing.T) {
		r.eventually("the demo says that all recorded history is there", func() bool {
			return len(slices.DeleteFunc(slices.Clone(r.lines()), func(s string) bool { return !strings.HasPrefix(s, "recorded series and alerts are there for") })) == 2
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
				if len(got) != 2 || slices.ContainsFunc(got, func(s sample) bool { return number(s) < float64(began.Add(time.Minute).Unix()) }) {
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

// TestReplicasAreWhole: soon after the start both replicas are whole. The five minutes in which history meets live scrapes are not closed by then, so it says nothing of those.
func TestReplicasAreWhole(t *testing.T) {
	r := start(t, t.TempDir(), Options{Groups: 1, Shards: 1, Replicas: 2, Nodes: 40, History: 10 * time.Minute, Seed: 7})
	r.eventually("both replicas are whole", func() bool {
		raw, _ := r.data(r.admin, "/api/spillway/v1/shards", nil)
		return strings.Count(string(raw), `"whole":true`) == 3 // and the ruler's store, which has no second
	})
	r.end()
}

// flat collects the objects that have a url, at whatever depth the answer keeps them.
func flat(t *testing.T, raw json.RawMessage, into *[]struct{ Group, URL, State string }) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	var walk func(v any, group string)
	walk = func(v any, group string) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e, group)
			}
		case map[string]any:
			if g, ok := v["group"].(string); ok {
				group = g
			}
			if u, ok := v["url"].(string); ok {
				state, _ := v["state"].(string)
				*into = append(*into, struct{ Group, URL, State string }{group, u, state})
			}
			for _, e := range v {
				walk(e, group)
			}
		}
	}
	walk(v, "")
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

// TestStoppedWhileStarting ends demos at moments at which shards are still being written and started, and while history is filled in behind.
func TestStoppedWhileStarting(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 400 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err := Run(ctx, t.Context(), Options{
			Groups: 2, Shards: 2, Replicas: 2, Nodes: 4, History: 2 * time.Hour, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0",
			Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Say: func(string, ...any) {},
		})
		cancel()
		if err != nil {
			t.Errorf("stopped after %s: %v", after, err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("stopped after %s, left behind: %v %v", after, left, err)
		}
	}
}

// TestTakenPort tells about a taken port before anything is built.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Run(t.Context(), t.Context(), Options{
		Groups: 1, Shards: 1, Replicas: 1, Nodes: 1, History: time.Hour, ListenAddress: "127.0.0.1:0", AdminListenAddress: l.Addr().String(),
		Say: func(format string, _ ...any) { t.Errorf("it began: %s", format) },
	})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("error %v, want one that names %s", err, l.Addr())
	}
}

// TestValidate names every wrong option at once.
func TestValidate(t *testing.T) {
	err := Options{Groups: 9, Shards: 17, Replicas: 5, Nodes: 0, History: time.Second}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, flag := range []string{"--groups is 9", "--shards is 17", "--replicas is 5", "--nodes is 0", "--history is 1s"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%q is not in %q", flag, err)
		}
	}
	if err := (Options{Groups: 8, Shards: 16, Replicas: 4, Nodes: 2000, History: time.Hour}).Validate(); err != nil {
		t.Error(err)
	}
}
