package discovery

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// slicesOf and podsOf are groups that look for the pods of a fake API server.
func slicesOf(k *kube, more string) string {
	return `
      kubernetes_sd_configs: [{role: endpointslice, api_server: '` + k.URL + `', namespaces: {names: [monitoring]}` + more + `}]
      keep: 500ms
      relabel_configs:
        - {source_labels: [__meta_kubernetes_endpointslice_port_name], regex: web, action: keep}
        - {source_labels: [__meta_kubernetes_endpointslice_address_target_name], regex: 's-(\d+)-\d+', target_label: __spillway_shard__, replacement: 's-$1'}
        - {source_labels: [__meta_kubernetes_endpointslice_address_target_name], regex: 's-\d+-(\d+)', target_label: __spillway_replica__}`
}

func podsOf(k *kube, more string) string {
	return `
      kubernetes_sd_configs: [{role: pod, api_server: '` + k.URL + `'` + more + `}]
      keep: 500ms
      relabel_configs:
        - {source_labels: [__meta_kubernetes_pod_container_port_name], regex: web, action: keep}
        - {source_labels: [__meta_kubernetes_pod_name], regex: 's-(\d+)-\d+', target_label: __spillway_shard__, replacement: 's-$1'}
        - {source_labels: [__meta_kubernetes_pod_name], regex: 's-\d+-(\d+)', target_label: __spillway_replica__}`
}

// logbook is a log that can be read while it is written.
type logbook struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logbook) has(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		found := strings.Contains(l.all.String(), text)
		l.mu.Unlock()
		if found {
			return
		}
	}
	t.Errorf("the log never says %q", text)
}

func logged(t *testing.T, from string) (*rig, *logbook) {
	t.Helper()
	book := &logbook{}
	r := &rig{t: t, cfg: parse(t, from), reg: prometheus.NewRegistry()}
	r.Watch = New(t.Context(), Options{
		Registerer: r.reg, Changed: func() { r.changes.Add(1) }, Patience: patience,
		Logger: slog.New(slog.NewTextHandler(book, nil)),
	})
	r.there = answers
	t.Cleanup(r.Close)
	return r, book
}

func (r *rig) state(state string) float64 {
	return testutil.ToFloat64(r.metrics.servers.WithLabelValues("jaguar", state))
}

// TestClusterWhole: of a hundred slices, which the API server's client tells one by one, a group
// has all from its first moment; so it has of pods.
func TestClusterWhole(t *testing.T) {
	k := startKube(t)
	var want []string
	for i := range 100 {
		ip := fmt.Sprintf("10.0.%d.1", i)
		k.slice(fmt.Sprint("prometheus-", i), endpoint{pod: fmt.Sprintf("s-%d-0", i), ip: ip})
		want = append(want, ip+":9090")
	}
	none := map[string]any{}
	k.put("pods", "monitoring", "s-100-0", map[string]any{"metadata": none, "spec": none, "status": none}) // no address yet
	for _, from := range []string{slicesOf(k, ""), podsOf(k, "")} {
		if got := newRig(t, from).shape(); got != strings.Join(want, " ") {
			t.Errorf("the first answer has %d shards of 100: %s", len(strings.Fields(got)), got)
		}
	}
}

// TestClusterSelects: namespaces and selectors are the API server's business, two API servers may
// have objects of one name, and a kubeconfig is read.
func TestClusterSelects(t *testing.T) {
	k, other := startKube(t), startKube(t)
	k.pod("s-0-0", "10.0.0.1", true)
	other.pod("s-0-0", "10.0.0.2", true)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	replace(t, kubeconfig, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  users: [{name: u, user: {token: secret}}], clusters: [{name: c, cluster: {server: '`+other.URL+`'}}]}`)
	from := strings.Replace(podsOf(k, ", namespaces: {names: [monitoring]}, selectors: [{role: pod, label: app=prometheus, field: status.phase=Running}]"),
		"}]\n", "}, {role: pod, kubeconfig_file: '"+kubeconfig+"'}]\n", 1)
	from = strings.Replace(from, "regex: 's-\\d+-(\\d+)', target_label: __spillway_replica__", "regex: 'none', target_label: __spillway_replica__", 1)
	if got := newRig(t, from).shape(); got != "10.0.0.1:9090+10.0.0.2:9090" {
		t.Errorf("found %q", got)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.asked, "list monitoring/pods app=prometheus status.phase=Running") ||
		!slices.Contains(k.asked, "watch monitoring/pods app=prometheus status.phase=Running") {
		t.Errorf("asked %q", k.asked)
	}
}

// TestKubeconfigIsRotated: a kubeconfig with other contents is taken up by the next Fill, which a
// reload calls; one that cannot be used is an error and changes nothing, nor does one that is away.
func TestKubeconfigIsRotated(t *testing.T) {
	k, other := startKube(t), startKube(t)
	k.pod("s-0-0", "10.0.0.1", true)
	k.pod("s-0-1", "10.0.0.9", true) // which the other cluster does not have
	other.pod("s-0-0", "10.0.0.2", true)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(url string) {
		replace(t, file, "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: '"+url+"'}}]}")
	}
	write(k.URL)
	r := newRig(t, strings.Replace(podsOf(k, ""), "api_server: '"+k.URL+"'", "kubeconfig_file: '"+file+"'", 1))
	is := func(want string) {
		t.Helper()
		if got := r.shape(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		r.Retain(r.cfg)
		if len(r.sources) != 1 {
			t.Errorf("%d sources are left", len(r.sources))
		}
	}
	is("10.0.0.1:9090+10.0.0.9:9090")
	write(other.URL)
	r.Retain(r.cfg)
	if len(r.sources) != 1 {
		t.Fatal("the old one was ended before there was another")
	}
	is("10.0.0.2:9090")
	is("10.0.0.2:9090")
	replace(t, file, "{")
	if _, err := r.Fill(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "kubeconfig_file") {
		t.Errorf("one that is cut off: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	is("10.0.0.2:9090")
}

// TestClusterTwoFamilies: a pod with an address of IPv4 and one of IPv6 is one server, whichever
// slice is told first; pods of equal names in two API servers are two, as are two ports of a pod.
func TestClusterTwoFamilies(t *testing.T) {
	k := startKube(t)
	families := func(name, family, format string) {
		list := []any{}
		for i := range 2 {
			list = append(list, map[string]any{
				"addresses": []any{fmt.Sprintf(format, i)},
				"targetRef": map[string]any{"kind": "Pod", "name": fmt.Sprint("s-0-", i), "namespace": "monitoring"},
			})
		}
		k.put("endpointslices", "monitoring", name, map[string]any{
			"metadata":    map[string]any{"labels": map[string]any{"kubernetes.io/service-name": "prometheus-operated"}},
			"addressType": family, "endpoints": list, "ports": []any{map[string]any{"name": "web", "port": 9090}},
		})
	}
	families("a", "IPv6", "fd00::a%d")
	families("b", "IPv4", "10.0.0.%d")
	r := newRig(t, slicesOf(k, ""))
	if got := r.shape(); got != "10.0.0.0:9090+10.0.0.1:9090" {
		t.Errorf("found %q", got)
	}
	k.put("endpointslices", "monitoring", "b", nil)
	r.becomes("[fd00::a0]:9090+[fd00::a1]:9090")
	families("c", "IPv4", "10.0.0.%d")
	r.becomes("10.0.0.0:9090+10.0.0.1:9090")

	one, other := startKube(t), startKube(t)
	one.pod("s-0-0", "10.0.0.2", true)
	other.pod("s-0-0", "10.0.0.1", true)
	from := strings.Replace(podsOf(one, ""), "}]\n", "}, {role: pod, api_server: '"+other.URL+"'}]\n", 1)
	if got := newRig(t, from).shape(); got != "10.0.0.1:9090+10.0.0.2:9090" {
		t.Errorf("of two API servers it is %q", got)
	}
	if got := newRig(t, strings.Replace(podsOf(one, ""), "regex: web", "regex: .*", 1)).shape(); got != "10.0.0.2:8080+10.0.0.2:9090" {
		t.Errorf("of two ports it is %q", got)
	}
}

// TestClusterRefuses: where an API server does not let Spillway look, or has nothing, it says so,
// and what to do, and is no empty group.
func TestClusterRefuses(t *testing.T) {
	elsewhere := startKube(t)
	for _, c := range []struct {
		rules, want string
		pods        bool
	}{
		{"list endpointslices 403", "does not let Spillway list and watch endpointslices in the namespace monitoring; grant list and watch on endpointslices by a Role in that namespace", false},
		{"list services 403", "grant list and watch on services by a Role", false},
		{"list pods 403", "grant list and watch on pods by a Role", false},
		{"watch endpointslices 403", "grant list and watch on endpointslices", false},
		{"list pods 403", "list and watch pods in all namespaces; grant list and watch on pods by a ClusterRole and a ClusterRoleBinding", true},
		{"* * 403", "list and watch endpointslices in the namespace monitoring, services in the namespace monitoring, pods in the namespace monitoring; grant list and watch on endpointslices, services, pods by a Role", false},
		{"* * 401", "does not know who Spillway is", false},
		{"* * away", "no servers yet from endpointslices in the namespace monitoring, services in the namespace monitoring, pods in the namespace monitoring of 127.0.0.1:", false},
		{"list services 500", "no servers yet from services in the namespace monitoring", false},
		{"* * to " + elsewhere.URL, "is not followed", false},
		{"", "no server is found; a group has at least one; before relabel_configs there are 0 targets, looked for in endpointslices in the namespace monitoring", false},
	} {
		t.Run(c.rules, func(t *testing.T) {
			t.Parallel()
			k := startKube(t)
			if c.rules != "" {
				k.rule(c.rules)
				k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"})
			}
			from := slicesOf(k, "")
			if c.pods {
				from = podsOf(k, "")
			}
			w := New(t.Context(), Options{Patience: patience / 2})
			defer w.Close()
			_, err := w.Fill(t.Context(), parse(t, from))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if strings.HasSuffix(c.rules, " 403") && !strings.Contains(fmt.Sprint(err), `User "spillway" cannot`) {
				t.Errorf("the API server's own words are missing: %v", err)
			}
			elsewhere.mu.Lock()
			defer elsewhere.mu.Unlock()
			if len(elsewhere.asked) > 0 {
				t.Errorf("a redirect was followed: %q", elsewhere.asked)
			}
		})
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		w := New(t.Context(), Options{})
		defer w.Close()
		if _, err := w.Fill(t.Context(), parse(t, "{kubernetes_sd_configs: [{role: pod}]}")); err == nil || !strings.Contains(err.Error(), "this is no pod of a cluster; give api_server or kubeconfig_file") {
			t.Errorf("outside of a cluster: %v", err)
		}
	}
}

// TestClusterChanges: a pod that moves is asked at its new address at once, and no longer at the
// old one; who is not ready stays; and that after a watch was cut, or is too old to be taken up
// again.
func TestClusterChanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(k *kube)
	}{
		{"nothing wrong", func(*kube) {}},
		{"watches cut", func(k *kube) { k.rule() }},
		{"410 Gone", func(k *kube) { k.forget() }},
		{"no list by a watch, then none at all", func(k *kube) { k.rule("watch * 500"); time.Sleep(300 * time.Millisecond); k.rule() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := startKube(t)
			k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"}, endpoint{pod: "s-1-0", ip: "10.0.1.1"})
			r := newRig(t, strings.Replace(slicesOf(k, ""), "keep: 500ms", "keep: 1h", 1))
			if got := r.shape(); got != "10.0.0.1:9090 10.0.1.1:9090" {
				t.Fatalf("found %q", got)
			}
			c.fault(k)
			// A rolling restart: gone, kept, there again under another address and not ready yet.
			k.slice("prometheus", endpoint{pod: "s-1-0", ip: "10.0.1.1"})
			for end := time.Now().Add(patience); r.state("kept") != 1; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("who has gone is not kept")
				}
			}
			if got := r.shape(); got != "10.0.0.1:9090 10.0.1.1:9090" {
				t.Fatalf("while it is away there is %q", got)
			}
			k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.2", notReady: true}, endpoint{pod: "s-1-0", ip: "10.0.1.1"})
			r.becomes("10.0.0.2:9090 10.0.1.1:9090")
			k.slice("prometheus-2", endpoint{pod: "s-2-0", ip: "10.0.2.1"})
			r.becomes("10.0.0.2:9090 10.0.1.1:9090 10.0.2.1:9090")
			// A slice may have in it for a moment what is in another one already.
			k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.2"}, endpoint{pod: "s-1-0", ip: "10.0.1.1"},
				endpoint{pod: "s-2-0", ip: "10.0.2.1"})
			k.put("endpointslices", "monitoring", "prometheus-2", nil)
			k.slice("prometheus-3", endpoint{pod: "s-3-0", ip: "10.0.3.1"})
			r.becomes("10.0.0.2:9090 10.0.1.1:9090 10.0.2.1:9090 10.0.3.1:9090")
			if r.state("kept") != 0 {
				t.Errorf("%v are kept, of whom all are found", r.state("kept"))
			}
		})
	}
}

// TestClusterAway: while an API server does not answer, those whom it told last are asked on, which
// metrics and log tell; after keep it counts as refused; and it is over when it answers again.
func TestClusterAway(t *testing.T) {
	for _, rules := range []string{"* * away", "* * 403", "watch * 403"} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			k := startKube(t)
			k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"}, endpoint{pod: "s-1-0", ip: "10.0.1.1"})
			r, book := logged(t, slicesOf(k, ""))
			if got := r.shape(); got != "10.0.0.1:9090 10.0.1.1:9090" || r.state("found") != 2 {
				t.Fatalf("found %q", got)
			}
			k.rule(rules)
			book.has(t, "what was found last is asked on, since it cannot be looked up")
			book.has(t, "in the namespace monitoring")
			book.has(t, "127.0.0.1:")
			for end := time.Now().Add(patience); r.state("found") != 0 || r.state("kept") != 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%v servers are found and %v kept, want 0 and 2", r.state("found"), r.state("kept"))
				}
			}
			r.refused(1)
			book.has(t, "nothing could be looked up for longer than keep (500ms)")
			if got := r.shape(); got != "10.0.0.1:9090 10.0.1.1:9090" {
				t.Errorf("after keep there is %q", got)
			}
			k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.2"}, endpoint{pod: "s-1-0", ip: "10.0.1.1"})
			k.rule()
			r.becomes("10.0.0.2:9090 10.0.1.1:9090")
			r.refused(0)
			book.has(t, "it can be looked up again")
			for end := time.Now().Add(patience); r.state("found") != 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%v servers are found again, want 2", r.state("found"))
				}
			}
		})
	}
}

// TestAddressGivenAway: the address of a pod that has gone may be another's before its successor is
// there. Its shard does not vanish from answers; whoever needs it is refused.
func TestAddressGivenAway(t *testing.T) {
	k := startKube(t)
	k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"}, endpoint{pod: "s-1-0", ip: "10.0.1.1"})
	r := newRig(t, strings.Replace(slicesOf(k, ""), "keep: 500ms", "keep: 1h", 1))
	if got := r.shape(); got != "10.0.0.1:9090 10.0.1.1:9090" {
		t.Fatalf("found %q", got)
	}
	k.slice("prometheus", endpoint{pod: "s-1-0", ip: "10.0.0.1"})
	r.becomes("10.0.0.1-af056558.moved.invalid:9090 10.0.0.1:9090")
	k.slice("prometheus", endpoint{pod: "s-1-0", ip: "10.0.0.1"}, endpoint{pod: "s-0-0", ip: "10.0.1.1"})
	r.becomes("10.0.1.1:9090 10.0.0.1:9090")
}

// TestClusterEnds: while an API server refuses connections, what looks there ends at once
// nevertheless.
func TestClusterEnds(t *testing.T) {
	t.Parallel()
	var took time.Duration
	for range 3 { // what takes too long each time is no busy machine's doing
		if took = clusterEnds(t); took <= time.Second {
			return
		}
	}
	t.Errorf("it took %s each time", took)
}

// clusterEnds is how long it takes to end.
func clusterEnds(t *testing.T) time.Duration {
	k := startKube(t)
	k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"})
	r, book := logged(t, slicesOf(k, ""))
	r.shape()
	k.rule() // no watch is left that Close would wait for
	k.Server.Close()
	book.has(t, "connection refused")
	time.Sleep(4 * time.Second) // it waits longer after each try
	began := time.Now()
	r.Close()
	return time.Since(began)
}

// TestClusterWarms: an API server that has just been started refuses for a moment whom it has not
// read of yet; a refusal that stays is told long before patience ends.
func TestClusterWarms(t *testing.T) {
	t.Parallel()
	k, shut := startKube(t), startKube(t)
	k.slice("prometheus", endpoint{pod: "s-0-0", ip: "10.0.0.1"})
	k.rule("list * 403")
	shut.rule("list * 403")
	time.AfterFunc(time.Second, func() { k.rule() })
	if got := newRig(t, slicesOf(k, "")).shape(); got != "10.0.0.1:9090" {
		t.Errorf("found %q", got)
	}
	r := newRig(t, slicesOf(shut, ""))
	began := time.Now()
	_, err := r.Fill(t.Context(), r.cfg)
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "grant list and watch") || took > patience*3/4 {
		t.Errorf("after %s: %v", took, err)
	}
}
