package ruler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/deploy/alertmanager"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// writeLag is how long it takes until what thanos rule evaluated is in its store, at most: it looks
// for new results every 15 s and sends them within a second. The rest is for a loaded machine;
// waiting ends as soon as it can.
const writeLag = 90 * time.Second

// stopping is what a test ends by its own hand or at the end.
type stopping interface{ Stop() error }

func stopAtEnd(t *testing.T, what string, s stopping, log func() string) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop %s: %v", what, err)
		}
		if t.Failed() {
			text := log()
			t.Logf("log of %s ends with:\n%s", what, text[max(0, len(text)-4000):])
		}
	})
}

// get decodes a JSON answer. One that cannot be had is an error: servers start and stop here.
func get(t *testing.T, address string, into any) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, body)
	}
	return json.Unmarshal(body, into)
}

// query returns the series of an instant query as labels and value.
func query(t *testing.T, base, expr string) ([]string, error) {
	var m struct {
		Warnings []string
		Data     struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := get(t, base+"/api/v1/query?query="+url.QueryEscape(expr), &m); err != nil {
		return nil, err
	}
	if len(m.Warnings) > 0 {
		return nil, fmt.Errorf("warnings: %v", m.Warnings)
	}
	var out []string
	for _, r := range m.Data.Result {
		labels, err := json.Marshal(r.Metric) // sorted by name
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%s %v", labels, r.Value[1]))
	}
	return out, nil
}

// activeAlert is an alert of the ruler's own page.
type activeAlert struct {
	Labels   map[string]string
	State    string
	ActiveAt time.Time
}

func alertsOf(t *testing.T, ruler string) ([]activeAlert, error) {
	var m struct {
		Data struct{ Alerts []activeAlert }
	}
	err := get(t, ruler+"/api/v1/alerts", &m)
	return m.Data.Alerts, err
}

// notified are the alerts that an Alertmanager has, of a name.
func notified(t *testing.T, manager, name string) ([]map[string]string, error) {
	var m []struct{ Labels map[string]string }
	err := get(t, manager+"/api/v2/alerts?filter="+url.QueryEscape(fmt.Sprintf("alertname=%q", name)), &m)
	var out []map[string]string
	for _, a := range m {
		out = append(out, a.Labels)
	}
	return out, err
}

// rulerDown says what is wrong with the one notification that a ruler is gone.
func rulerDown(t *testing.T, manager, address string) string {
	got, err := notified(t, manager, "RulerDown")
	got = slices.DeleteFunc(got, func(l map[string]string) bool { return l["instance"] != address })
	if err != nil || len(got) != 1 || got[0]["cluster"] != "monitoring" || got[0]["ruler_replica"] != "" {
		return fmt.Sprintf("%v, %v", got, err)
	}
	return ""
}

// wait asks until check gives "" or the time is over; check says what is still missing.
func wait(t *testing.T, what string, bound time.Duration, check func() string) {
	t.Helper()
	end := time.Now().Add(bound)
	for {
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %s", what, missing)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLive runs the deployment with its own flags and files: a shard, the proxy with the group of
// the rules, two rulers with their small servers, and Alertmanager.
func TestLive(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "# TYPE node_filesystem_readonly gauge\nnode_filesystem_readonly{node=\"gpu-1\"} 1\nnode_filesystem_readonly{node=\"gpu-2\"} 0\n")
	}))
	defer page.Close()
	shard, err := realprom.Start(t.Context(), realprom.Options{Config: `
global: {scrape_interval: 2s, scrape_timeout: 2s} # a scrape that times out on a busy machine would end the alert
scrape_configs:
  - job_name: node-exporter
    static_configs: [{targets: ["` + strings.TrimPrefix(page.URL, "http://") + `"]}]
`})
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, "the shard", shard, shard.Log)

	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 8<<20))
	}))
	defer hooks.Close()
	conf, err := alertmanager.Rehearsal(alertmanager.Config, hooks.URL, 60)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := alertmanager.Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, "alertmanager", manager, manager.Log)

	// The wait for the alert is above the grace period of 10m/150 = 4 s: only such a wait survives
	// a restart.
	global := writeFile(t, "node.yaml", `
groups:
  - name: node
    interval: 500ms
    rules:
      - {record: 'node:readonly:max', expr: 'max by (cluster, node) (node_filesystem_readonly)'}
      - {alert: NodeFilesystemReadOnly, expr: 'node:readonly:max == 1', for: 6s, labels: {severity: auto}}
      - {alert: TotalWrong, expr: 'sum by (cluster) (node:readonly:max) != sum by (cluster) (node_filesystem_readonly)', for: 6s, labels: {severity: warning}}
`)
	local := writeFile(t, "spillway.yaml", `
groups:
  - name: spillway
    rules:
      - {alert: RulerDown, expr: 'up{job="thanos-rule"} == 0', labels: {severity: critical}}
`)
	const scale = 150
	names := []string{"ruler-0", "ruler-1"}
	// The servers that watch must know the rulers' ports before these run; so the ports are those
	// of a listener in between.
	doors := make([]*door, len(names))
	var addresses []string
	for i := range names {
		doors[i] = newDoor(t)
		addresses = append(addresses, doors[i].Addr())
	}
	stores := make([]*realprom.Server, len(names))
	for i, name := range names {
		stores[i], err = StartStore(t.Context(), StoreOptions{
			Name: name, RuleFiles: []string{local}, Alertmanagers: []string{manager.URL()},
			Scrapes: map[string][]string{"thanos-rule": addresses}, TimeScale: 15,
		})
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, "the store of "+name, stores[i], stores[i].Log)
	}
	base, stopProxy := servertest.Start(t, fmt.Sprintf(`
groups:
  - name: jaguar
    labels: {cluster: jaguar}
    shards: [{replicas: [{url: %q}]}]
  - name: rules
    replica_labels: [ruler_replica]
    heartbeat: ruler:heartbeat:vector
    names: ["%s"]
    shards: [{replicas: [{url: %q}, {url: %q}]}]
partial_response: abort
`, shard.URL(), strings.Join(Names(), `", "`), stores[0].URL(), stores[1].URL()))

	data := t.TempDir()
	startRule := func(i int) *Rule {
		t.Helper()
		r, err := StartRule(t.Context(), RuleOptions{
			Name: names[i], Query: base, Store: stores[i].URL(), RuleFiles: []string{global}, Alertmanagers: []string{manager.URL()},
			TimeScale: scale,
			Dir:       filepath.Join(data, names[i]),
		})
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, names[i], r, r.Log)
		doors[i].open(strings.TrimPrefix(r.URL(), "http://"))
		return r
	}
	rulers := []*Rule{startRule(0), startRule(1)}

	wait(t, "what was recorded is in the proxy's answers, once, under its own cluster", writeLag, func() string {
		got, err := query(t, base, `sort(node:readonly:max)`)
		want := `{"__name__":"node:readonly:max","cluster":"jaguar","node":"gpu-2"} 0|{"__name__":"node:readonly:max","cluster":"jaguar","node":"gpu-1"} 1`
		if strings.Join(got, "|") != want {
			return fmt.Sprintf("%v, %v", got, err)
		}
		return ""
	})
	// Each small server holds its own ruler's, without the label that the ruler put on: the server
	// has it for all that leaves it.
	wait(t, "each store has its ruler's", writeLag, func() string {
		for i, s := range stores {
			if got, err := query(t, s.URL(), `count by (ruler_replica) (node:readonly:max)`); err != nil ||
				strings.Join(got, "|") != "{} 2" {
				return fmt.Sprintf("%s: %v, %v", names[i], got, err)
			}
		}
		return ""
	})
	// A join across the group of the rules and the cluster's own.
	if got, err := query(t, base, `node:readonly:max - on (cluster, node) group_left () max by (cluster, node) (node_filesystem_readonly)`); err != nil || len(got) != 2 {
		t.Errorf("recorded and raw series do not meet: %v, %v", got, err)
	}

	var active [2]time.Time
	wait(t, "both rulers fire", 90*time.Second, func() string {
		for i, r := range rulers {
			alerts, err := alertsOf(t, r.URL())
			if err != nil || len(alerts) != 1 || alerts[0].State != "firing" {
				return fmt.Sprintf("%s: %+v, %v", names[i], alerts, err)
			}
			active[i] = alerts[0].ActiveAt
		}
		return ""
	})
	wait(t, "Alertmanager has the alert of both, as one", 90*time.Second, func() string {
		got, err := notified(t, manager.URL(), "NodeFilesystemReadOnly")
		if err != nil || len(got) != 1 {
			return fmt.Sprintf("%v, %v", got, err)
		}
		if l := got[0]; l["cluster"] != "jaguar" || l["node"] != "gpu-1" || l["severity"] != "auto" || l["ruler_replica"] != "" {
			return fmt.Sprint(l)
		}
		return ""
	})

	// A ruler that was away goes on where it was: the state is in what was written, and is read
	// through the proxy.
	wait(t, "the state of the alert is written", writeLag, func() string {
		got, err := query(t, base, `ALERTS_FOR_STATE{alertname="NodeFilesystemReadOnly"} and ignoring (alertstate) ALERTS{alertstate="firing"}`)
		if err != nil || len(got) != 1 {
			return fmt.Sprintf("%v, %v", got, err)
		}
		return ""
	})
	if err := rulers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	doors[0].shut()
	wait(t, "the servers that watch see it gone", 90*time.Second, func() string {
		return rulerDown(t, manager.URL(), addresses[0])
	})
	rulers[0] = startRule(0)
	wait(t, "the ruler that came back fires with its old time", 90*time.Second, func() string {
		alerts, err := alertsOf(t, rulers[0].URL())
		if err != nil || len(alerts) != 1 || alerts[0].State != "firing" {
			return fmt.Sprintf("%+v, %v", alerts, err)
		}
		if d := alerts[0].ActiveAt.Sub(active[0]).Abs(); d > time.Second && alerts[0].ActiveAt.Sub(active[1]).Abs() > time.Second {
			return fmt.Sprintf("active since %s, before the restart since %s", alerts[0].ActiveAt, active[0])
		}
		return ""
	})

	// Without the proxy rules fail, and say so; the alerts about it and about the rulers do not
	// need it.
	stopProxy()
	wait(t, "the rules fail", 90*time.Second, func() string {
		var m struct {
			Data struct {
				Groups []struct {
					Name  string
					Rules []struct{ Health, LastError string }
				}
			}
		}
		if err := get(t, rulers[1].URL()+"/api/v1/rules", &m); err != nil {
			return err.Error()
		}
		for _, g := range m.Data.Groups {
			for _, r := range g.Rules {
				if r.Health != "err" || r.LastError == "" {
					return fmt.Sprintf("%s: %+v", g.Name, r)
				}
			}
		}
		return ""
	})
	doors[1].shut()
	wait(t, "another ruler gone is told without the proxy", 90*time.Second, func() string {
		got, err := query(t, stores[0].URL(), `ALERTS{alertname="RulerDown",alertstate="firing",instance="`+addresses[1]+`"}`)
		if err != nil || len(got) != 1 {
			return fmt.Sprintf("%v, %v", got, err)
		}
		return rulerDown(t, manager.URL(), addresses[1])
	})
}

// door is an address that is known before the server behind it runs: it passes requests on while it
// is open, and answers 502 while it is shut.
type door struct {
	s      *httptest.Server
	target atomic.Pointer[string] // nil: shut
}

func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{}
	tr := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(tr.CloseIdleConnections)
	forward := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", p.In.Context().Value(doorKey{}).(string)
		},
		Transport:    tr,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	d.s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := d.target.Load()
		if to == nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), doorKey{}, *to)))
	}))
	t.Cleanup(d.s.Close)
	return d
}

type doorKey struct{}

func (d *door) Addr() string   { return strings.TrimPrefix(d.s.URL, "http://") }
func (d *door) open(to string) { d.target.Store(&to) }
func (d *door) shut()          { d.target.Store(nil) }
