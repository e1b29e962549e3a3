package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/docstest"
	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
)

// TestGenuineBeside follows the sections of docs/install.md about kube-prometheus-stack and Thanos
// on a genuine node, whose Prometheus servers the genuine operator makes: the values as they stand
// there, by Helm.
func TestGenuineBeside(t *testing.T) {
	if !*genuine {
		t.Skip("a real node, operator and helm, which take minutes to build: make test-full runs it, by -genuine")
	}
	if !realkubetest.Inside(t, 20*time.Minute, func(dir string) {
		builds(t, "operator", "old-prometheus", "thanos")(dir)
		realkubetest.BuildOperator(t, dir)
	}) {
		return
	}
	cluster, node := realkubetest.Node(t)
	realkubetest.ImportSpillway(t, node)
	u := newUser(t, cluster, node)
	manifests := realkubetest.NewManifests(cluster, node)
	manifests.Apply(t, realkubetest.OperatorManifest())
	for _, way := range []struct {
		name string
		does func(user, *realkubetest.Manifests)
	}{
		{"kube-prometheus-stack", user.besideStack},
		{"thanos", user.besideThanos},
	} {
		t.Run(way.name, func(t *testing.T) {
			one := u
			one.judge = &judge{Cluster: u.Cluster, t: t, ctx: t.Context()}
			way.does(one, manifests)
		})
	}
}

// operated are the operator's servers of the namespace that run whole, by name, with their URLs.
func (u user) operated(namespace string) map[string]string {
	u.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				PodIP             string
				ContainerStatuses []struct{ Ready bool }
			}
		}
	}
	text, err := u.tries(".", "kubectl -n "+namespace+" get pods -l app.kubernetes.io/name=prometheus -o json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	if err != nil {
		u.t.Fatal(err, text)
	}
	out := map[string]string{}
	for _, p := range list.Items {
		ready := len(p.Status.ContainerStatuses) > 0
		for _, s := range p.Status.ContainerStatuses {
			ready = ready && s.Ready
		}
		if ready {
			out[p.Metadata.Name] = "http://" + p.Status.PodIP + ":9090"
		}
	}
	return out
}

// serve waits until so many of them do.
func (u user) serve(namespace string, want int) map[string]string {
	u.t.Helper()
	var all map[string]string
	u.becomes(fmt.Sprint(want, " servers"), func() (string, bool) {
		all = u.operated(namespace)
		return fmt.Sprint(slices.Sorted(maps.Keys(all))), len(all) == want
	})
	return all
}

// series are those of an answer, without the group's label, in an order of their own.
func series(status int, body string) (out []string, err error) {
	var a struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s %w", status, body, err)
	}
	for _, r := range a.Data.Result {
		r = bytes.ReplaceAll(r, []byte(`"cluster":"main",`), nil)
		out = append(out, string(bytes.ReplaceAll(r, []byte(`"cluster":"main"`), nil)))
	}
	slices.Sort(out)
	return out, nil
}

// asksAt asks a server or Spillway for the series of a query at a time.
func (u user) asksAt(base, query string, at time.Time) ([]string, error) {
	u.t.Helper()
	one := u
	one.address = strings.TrimPrefix(base, "http://")
	status, body, err := one.asks("/api/v1/query", url.Values{"query": {query}, "time": {fmt.Sprint(at.Unix())}})
	if err != nil {
		return nil, err
	}
	return series(status, body)
}

// besideQueries are asked of Spillway and of one Prometheus that scrapes everything.
var besideQueries = []string{
	"count(up)", targets, "count by (job) (up)", "topk(3, node_load1)", "avg by (gpu) (gpu_temperature)", "max by (gpu) (gpu_temperature)",
	"histogram_quantile(0.9, sum by (le) (latency_seconds_bucket))", "node_load1 * on (instance) group_left () " + targets,
	"quantile(0.5, node_load1)", "sum(max_over_time(" + targets + "[10s]))", "absent(nothing_of_that_name)",
}

// equals holds Spillway's answers of a moment to those of the one Prometheus.
func (u user) equals(whole string, at time.Time) {
	u.t.Helper()
	for _, q := range besideQueries {
		got, err := u.asksAt(u.address, q, at)
		want, err2 := u.asksAt(whole, q, at)
		if err != nil || err2 != nil {
			u.t.Errorf("%s: %v %v", q, err, err2)
		} else if !slices.Equal(got, want) || len(got) == 0 {
			u.t.Errorf("%s\nSpillway:       %q\none Prometheus: %q", q, got, want)
		}
	}
	if code, body, err := u.asks("/api/v1/labels", nil); err != nil || code != http.StatusOK || strings.Contains(body, `"prometheus`) ||
		!strings.Contains(body, `"cluster"`) {
		u.t.Errorf("its labels: %d %s %v", code, body, err)
	}
}

// besideStack follows "Beside kube-prometheus-stack".
func (u user) besideStack(manifests *realkubetest.Manifests) {
	manifests.Apply(u.t, "testdata/beside/stack.yaml")
	u.serve("monitoring", 4)
	whole := slices.Collect(maps.Values(u.serve("elsewhere", 1)))[0]
	text := docstest.Section(u.t, "install.md", "## Beside kube-prometheus-stack")
	u.saves("spillway", "values.yaml", text)
	for _, command := range commands(u.t, docstest.Section(u.t, "install.md", "## By Helm"), 2) {
		u.types("spillway", command)
	}
	u.finds("spillway")
	u.isWhole("1 group, 2 shards, 4 replicas")
	// The two pods are scraped by their ServiceMonitor.
	u.answers("count(up == 1)", "14")
	u.answers(`count(up{job="spillway"} == 1)`, "2")
	u.equals(whole, u.divided())
	u.grafanaAsks(text)
	before := u.pods()
	u.addsShard()
	if after := u.pods(); !maps.Equal(before, after) {
		u.t.Errorf("the pods were %v, they are %v", before, after)
	}
	u.equals(whole, u.divided())
}

// isWhole waits until what the page checks is well.
func (u user) isWhole(want string) {
	u.t.Helper()
	check := quotedExec.FindStringSubmatch(docstest.Section(u.t, "install.md", "## See that it works"))[1]
	u.becomes("what the page checks", func() (string, bool) {
		out, err := u.tries(".", check)
		return out, err == nil && strings.Contains(out, "is valid: "+want)
	})
}

// grafanaAsks: the page's values for Grafana name a data source that Grafana would reach.
func (u user) grafanaAsks(text string) {
	u.t.Helper()
	seen := 0
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] != "kube-prometheus-stack.yaml" {
			continue
		}
		var values struct {
			Grafana struct {
				Sidecar struct {
					Datasources struct {
						URL     string
						Timeout int
					}
				}
				AdditionalDataSources []struct{ URL string }
			}
		}
		if err := yaml.Unmarshal([]byte(m[2]), &values); err != nil {
			u.t.Fatal(err)
		}
		for _, s := range append(values.Grafana.AdditionalDataSources, struct{ URL string }{values.Grafana.Sidecar.Datasources.URL}) {
			if s.URL == "" {
				continue
			}
			seen++
			got, err := u.asksAt(u.resolved(s.URL), "count(up)", time.Now())
			if err != nil || len(got) != 1 {
				u.t.Errorf("%s: %q %v", s.URL, got, err)
			}
		}
	}
	if seen != 2 {
		u.t.Errorf("%d data sources, want 2", seen)
	}
}

// resolved is a URL of the page with the address that the cluster's DNS has for it.
func (u user) resolved(raw string) string {
	u.t.Helper()
	parsed, err := url.Parse(raw)
	if err != nil {
		u.t.Fatal(err)
	}
	addrs, err := realkubetest.Resolver().LookupHost(u.ctx, parsed.Hostname()+".cluster.local")
	if err != nil || len(addrs) != 1 {
		u.t.Fatal(raw, addrs, err)
	}
	return "http://" + addrs[0] + ":" + parsed.Port()
}

const targets = `up{job="target"}`

// divided waits until the servers have all targets, and each has one of them once, for as long as
// the queries look back, and gives a time that is so.
func (u user) divided() (at time.Time) {
	u.t.Helper()
	since := time.Time{}
	u.becomes("who scrapes the targets", func() (said string, ok bool) {
		at = time.Now().Add(-5 * time.Second)
		var n [2]int // of each replica
		for name, server := range u.operated("monitoring") {
			got, err := u.asksAt(server, "up", at)
			said += fmt.Sprintln(name, len(got), err)
			n[name[len(name)-1]-'0'] += len(got)
		}
		if n != [2]int{14, 14} {
			since = time.Time{}
		} else if since.IsZero() {
			since = at
		}
		return said, !since.IsZero() && at.Sub(since) > 12*time.Second
	})
	return at
}

// moment is what Spillway said of a time.
type moment struct {
	at    time.Time
	said  []string
	count []string
	err   error
}

// addsShard lets the operator divide the targets anew, and holds what Spillway says meanwhile to
// what the servers hold.
func (u user) addsShard() {
	u.t.Helper()
	var all []moment
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			m := moment{at: time.Now().Add(-5 * time.Second)}
			if m.said, m.err = u.asksAt(u.address, targets, m.at); m.err == nil {
				m.count, m.err = u.asksAt(u.address, "count("+targets+")", m.at)
			}
			all = append(all, m)
		}
	}()
	func() {
		defer func() { close(stop); <-done }()
		u.types(".", `kubectl -n monitoring patch prometheus kube-prometheus-stack-prometheus --type=merge -p '{"spec":{"shards":3}}'`)
		u.serve("monitoring", 6)
		u.isWhole("1 group, 3 shards, 6 replicas")
		u.divided()
	}()
	u.judges(all, u.operated("monitoring"))
}

// judges: nothing is refused, and whatever moves, an answer is what the servers hold together, each
// series once, in an aggregate too.
func (u user) judges(all []moment, servers map[string]string) {
	u.t.Helper()
	refused, short, twice := 0, 0, 0
	var last string
	for _, m := range all {
		held, each, fresh := map[string]bool{}, "", 0
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			got, err := u.asksAt(servers[name], targets, m.at)
			if err != nil {
				u.t.Fatal(err)
			}
			if strings.Contains(name, "-shard-2-") {
				fresh += len(got)
			} else {
				each += fmt.Sprint(" ", len(got))
			}
			for _, s := range got {
				held[s] = true
			}
		}
		wrong := len(m.count) != 1 || !strings.Contains(m.count[0], fmt.Sprintf("%q", fmt.Sprint(len(held))))
		now := fmt.Sprintf("%d of %d series, held as%s and %d, refused: %t, counted wrong: %t", len(m.said), len(held), each, fresh, m.err != nil, wrong)
		if now != last {
			u.t.Logf("%s: %s", m.at.Format("15:04:05.0"), now)
		}
		last = now
		switch want := slices.Sorted(maps.Keys(held)); {
		case m.err != nil:
			refused++
			u.t.Errorf("refused: %s: %v", now, m.err)
		case !slices.Equal(m.said, want):
			short++
			u.t.Errorf("%s: %q", now, m.said)
		case wrong:
			twice++
			u.t.Errorf("%s: %q", now, m.count)
		}
	}
	u.t.Logf("of %d answers %d were refused, %d short, %d counted wrong", len(all), refused, short, twice)
	if len(all) < 50 {
		u.t.Error("too few answers")
	}
}

// oldBlocks gives a bucket the blocks of three targets of 18 days ago, which two replicas had
// scraped.
func (u user) oldBlocks(bucket string, at time.Time) {
	u.t.Helper()
	var text strings.Builder
	text.WriteString("# TYPE up gauge\n")
	for i := range 3 {
		for d := -time.Hour; d <= time.Hour; d += time.Minute {
			fmt.Fprintf(&text, "up{job=\"target\",instance=\"10.88.9.%d:8080\"} 1 %d\n", i, at.Add(d).Unix())
		}
	}
	text.WriteString("# EOF\n")
	u.write(".", "old.txt", text.String())
	for i := range 2 {
		u.types(".", fmt.Sprintf("promtool tsdb create-blocks-from openmetrics old.txt old-%d", i))
		u.types(".", fmt.Sprintf(`thanos tools bucket upload-blocks --path=old-%d --label='cluster="main"' --label='prometheus="monitoring/k8s"' `+
			`--label='prometheus_replica="prometheus-k8s-%d"' --objstore.config='{type: FILESYSTEM, config: {directory: %s}}'`, i, i, bucket))
	}
}

// besideThanos follows "Beside Thanos".
func (u user) besideThanos(manifests *realkubetest.Manifests) {
	u.types(".", "kubectl -n monitoring delete prometheus --all && helm -n monitoring uninstall spillway")
	u.serve("monitoring", 0)
	old := time.Now().Add(-18 * 24 * time.Hour).Truncate(time.Minute)
	bucket := filepath.Join(u.home, "bucket")
	u.oldBlocks(bucket, old)
	text, err := os.ReadFile("testdata/beside/thanos.yaml")
	if err != nil {
		u.t.Fatal(err)
	}
	u.write(".", "thanos.yaml", strings.ReplaceAll(string(text), "path: BUCKET", "path: "+bucket))
	manifests.Apply(u.t, filepath.Join(u.home, "thanos.yaml"))
	u.serve("monitoring", 2)
	u.types(".", "kubectl -n monitoring rollout status deployment/thanos-query && kubectl -n thanos rollout status statefulset/thanos-store")
	u.saves("spillway", "values.yaml", docstest.Section(u.t, "install.md", "## Beside Thanos"))
	for _, command := range commands(u.t, docstest.Section(u.t, "install.md", "## By Helm"), 2) {
		u.types("spillway", command)
	}
	u.finds("spillway")
	u.isWhole("2 groups, 2 shards, 3 replicas")
	u.answers("count("+targets+" offset 30s)", "12")
	u.besideBoundary(old)
}

// besideBoundary: the newest 14 days are the servers', what is older is Thanos Query's, and what
// needs both is refused.
func (u user) besideBoundary(old time.Time) {
	u.t.Helper()
	now := time.Now().Add(-5 * time.Second)
	crossing := now.Add(-14*24*time.Hour + time.Hour)
	const main, history, refused = `"shard":"main[0]"`, `"shard":"history[0]"`, http.StatusUnprocessableEntity
	for _, c := range []struct {
		query      string
		start, end time.Time
		want       int // series, or a status
		asked, not string
	}{
		{"count(" + targets + ")", now, now, 1, main, history},
		{targets, now, now, 12, main, history},
		{targets, old, old, 3, history, main},
		{"count(" + targets + ")", old, old, 1, history, main},
		{"max_over_time(up[1d])", old, old, 3, history, main},
		{targets, old.Add(-30 * time.Minute), old.Add(30 * time.Minute), 3, history, main},
		{targets, now.Add(-20 * time.Second), now, 12, main, history}, // they have been scraped for longer
		{targets, old, now, refused, "thanos_raw", ""},
		{"max_over_time(up[1d])", crossing, crossing, refused, "thanos_raw", ""},
	} {
		params := url.Values{"query": {c.query}, "time": {fmt.Sprint(c.end.Unix())}}
		path := "/api/v1/query?"
		if c.start != c.end {
			path = "/api/v1/query_range?"
			params.Set("start", fmt.Sprint(c.start.Unix()))
			params.Set("end", params.Get("time"))
			params.Set("step", "600")
			params.Del("time")
		}
		status, body, err := u.gets(path+params.Encode(), http.Header{"X-Spillway-Explain": {"1"}})
		if err != nil {
			u.t.Fatal(err)
		}
		got, err := series(status, body)
		if c.want >= http.StatusBadRequest {
			if status != c.want || !strings.Contains(body, c.asked) {
				u.t.Errorf("%s from %s to %s: %d %s", c.query, c.start, c.end, status, body)
			}
			continue
		}
		if err != nil || len(got) != c.want || !strings.Contains(body, c.asked) || strings.Contains(body, c.not) ||
			strings.Contains(body, `"prometheus":`) || strings.Contains(body, "prometheus_replica") {
			u.t.Errorf("%s from %s to %s: %d series, want %d, and %s asked: %v %s", c.query, c.start, c.end, len(got), c.want, c.asked, err, body)
		}
	}
	if got, err := u.asksAt(u.address, "count("+targets+")", old); err != nil || !strings.Contains(fmt.Sprint(got), `"3"`) {
		u.t.Errorf("of three targets with two copies each: %q %v", got, err)
	}
}
