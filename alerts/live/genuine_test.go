//go:build linux

package live

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
	mixin "github.com/spillwayproject/spillway/jsonnet"
)

var (
	genuine     = flag.Bool("genuine", false, "holds the alerts against a genuine control plane (./tools/build.sh kubernetes exporters iptables, root, iproute2, iptables)")
	genuineStep = flag.String("genuine.step", "", "only those steps of TestGenuine whose names contain this")
)

const (
	genuineNodes = 2000
	genuinePods  = 1000
	// genuineScale divides the rules' durations. A page of kube-state-metrics has 13 MB here: it is
	// scraped each four seconds, so that a range of five minutes, twenty seconds, has five samples.
	genuineScale, genuineInterval = 15, 4 * time.Second
	// firstWait is how long an alert may take: half an hour are two minutes, ranges come before
	// that, then the ruler's remote write and Alertmanager.
	firstWait = 6 * time.Minute
	// unmeasured fires all the time: nothing here has a GPU to measure, so that no node has a
	// dcgm-exporter.
	unmeasured = "FleetGPUExporterMissing"
)

// site is a genuine cluster's pages and their discovery.
type site struct {
	mux     *http.ServeMux
	targets []watched
}

// add makes a server's page a target. transport is what asks it, header what is sent along.
func (s *site) add(t *testing.T, job, instance, page string, transport http.RoundTripper, header http.Header, labels map[string]string) {
	t.Helper()
	u, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	s.mux.Handle("GET /page/"+job, &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL, r.Out.Host = u, u.Host
		for name, values := range header {
			r.Out.Header[name] = values
		}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}})
	all := map[string]string{"__metrics_path__": "/page/" + job}
	for k, v := range labels {
		all[k] = v
	}
	s.targets = append(s.targets, watched{job: job, instance: instance, labels: all})
}

// ServeHTTP serves the pages, and /sd with its own address.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/sd" {
		s.mux.ServeHTTP(w, r)
		return
	}
	var d discovery
	for _, t := range s.targets {
		t.address = r.Host
		d.add(t)
	}
	d.ServeHTTP(w, r)
}

// TestGenuine: real 429s, 500s, a hung etcd, nodes that are not ready, pods that wait, a Prometheus
// that is killed again and again and an overflow of the neighbour table, each on real servers,
// raise their alerts and no other page. 2,000 nodes and 1,000 pods.
func TestGenuine(t *testing.T) {
	if !*genuine {
		t.Skip("a genuine control plane, which takes minutes to build: make test-full runs it, by -genuine")
	}
	if os.Getuid() != 0 {
		t.Skip("the network namespace of iptables_exporter and the neighbour table need root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Minute)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Where everything is one process, a hung etcd must be seen as the API server sees it: scrapes
	// end after a second here, in 10 s outside.
	kube, err := realkube.Start(ctx, realkube.Options{Dir: t.TempDir()})
	check(err)
	defer func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s := &site{mux: http.NewServeMux()}
	netns := genuineTargets(t, ctx, kube, s)
	check(kube.Namespace(ctx, "research", "vision"))
	check(kube.Namespace(ctx, "monitoring", "platform"))
	check(kube.Nodes(ctx, genuineNodes, 8))
	var pods []realkube.Pod
	for i := range genuinePods {
		pods = append(pods, realkube.Pod{
			Namespace: "research", Name: fmt.Sprintf("worker-%04d", i), Node: realkube.NodeName(i), GPUs: 8,
			Status: realkube.Running, Labels: map[string]string{"app": "trainer"},
		})
	}
	pods = append(pods, realkube.Pod{
		Namespace: "monitoring", Name: "prometheus-0", Container: "prometheus", Node: realkube.NodeName(1500),
		Status: realkube.Running,
	})
	check(kube.Pods(ctx, pods))

	began := time.Now()
	r := start(t, Options{
		Rules: rendered(t, map[string]any{"timeScale": genuineScale}), TimeScale: genuineScale, Interval: genuineInterval,
		Site: s,
	})
	time.Sleep(2 * settle)
	allUnmeasured(t, ctx, r, began)

	step := func(name string, want, beside []string, begin func() (end func())) {
		t.Helper()
		if !strings.Contains(name, *genuineStep) {
			t.Logf("left out: %s", name)
			return
		}
		from := time.Now()
		end := begin()
		judge := &Judge{record: r.Record}
		wctx, cancel := context.WithTimeout(ctx, firstWait)
		defer cancel()
		on := []staged{{Case: Case{Name: name, Want: want}, target: "genuine", from: from}}
		err := judge.wait(wctx, on)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			for _, alert := range on[0].missing(r.Record.Since(from)) {
				t.Logf("%s:\n%s", alert, r.tell(alert))
			}
		}
		time.Sleep(afterwards)
		report(t, r, name, from)
		for _, n := range r.Record.Since(from) {
			if n.Severity() == "critical" && n.Name() != unmeasured && !slices.Contains(want, n.Name()) &&
				!slices.Contains(beside, n.Name()) {
				t.Errorf("%s: a page that nobody expected: %s", name, n)
			}
		}
		end()
		time.Sleep(2 * lasting) // until ranges have forgotten it
	}

	step("429 by priority and fairness", []string{"KubeAPIThrottlingSevere", "KubeAPIFlowSchemaRejected"}, nil, func() func() {
		const group = "flowcontrol.apiserver.k8s.io/v1"
		check(kube.Create(ctx, group, `{"kind":"PriorityLevelConfiguration","metadata":{"name":"tight"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,
		  "lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`))
		check(kube.Create(ctx, group, `{"kind":"FlowSchema","metadata":{"name":"noisy"},"spec":{"matchingPrecedence":100,"priorityLevelConfiguration":{"name":"tight"},
		  "rules":[{"subjects":[{"kind":"User","user":{"name":"noisy"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`))
		return storm(ctx, 16, func() { _, _ = kube.Do(ctx, realkube.NoisyToken, http.MethodGet, "/api/v1/pods", nil) })
	})
	step("500 by a webhook", []string{"KubeAPIServerErrors"}, []string{"KubeAPIErrorBudgetBurnErrors", "KubeAPIErrorBudgetBurnSlow"},
		func() func() {
			check(kube.Create(ctx, "admissionregistration.k8s.io/v1", `{"kind":"ValidatingWebhookConfiguration","metadata":{"name":"broken"},"webhooks":[{"name":"broken.example.org",
		  "clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,
		  "rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`))
			end := storm(ctx, 4, func() {
				_ = kube.Create(ctx, "v1", `{"kind":"ConfigMap","metadata":{"generateName":"a-","namespace":"research"}}`)
			})
			return func() {
				end()
				check(kube.Delete(ctx, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/broken"))
			}
		})
	step("an aggregated API without a backend", []string{"KubeAPIAggregatorUnavailable"}, nil, func() func() {
		check(kube.Create(ctx, "v1", `{"kind":"Service","metadata":{"name":"metrics","namespace":"monitoring"},"spec":{"ports":[{"port":443}],"selector":{"app":"none"}}}`))
		check(kube.Create(ctx, "apiregistration.k8s.io/v1", `{"kind":"APIService","metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":"metrics.k8s.io","version":"v1beta1",
		  "groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"metrics","namespace":"monitoring"}}}`))
		return func() { check(kube.Delete(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io")) }
	})
	step("nodes not ready", []string{"FleetNodesNotReady"}, []string{"FleetGPUUnhealthy"}, func() func() {
		check(kube.NotReady(ctx, 0, genuineNodes/20, false))
		return func() { check(kube.NotReady(ctx, 0, genuineNodes/20, true)) }
	})
	step("GPU pods wait", []string{"GPUPodsPendingLong", "PendingWhileGPUsFree"}, nil, func() func() {
		var waiting []realkube.Pod
		for i := range 20 {
			waiting = append(waiting, realkube.Pod{
				Namespace: "research", Name: fmt.Sprintf("waiting-%d", i), GPUs: 8,
				Status: realkube.Unschedulable,
			})
		}
		check(kube.Pods(ctx, waiting))
		return func() {
			for _, p := range waiting {
				check(kube.Delete(ctx, "/api/v1/namespaces/research/pods/"+p.Name))
			}
		}
	})
	step("a Prometheus out of memory, again and again", []string{"PrometheusOOMLoop"}, nil, func() func() {
		for restarts := range 6 {
			check(kube.PodStatus(ctx, "monitoring", "prometheus-0", "prometheus", realkube.CrashLoop(restarts)))
			time.Sleep(5 * time.Second)
		}
		return func() { check(kube.PodStatus(ctx, "monitoring", "prometheus-0", "prometheus", realkube.Running)) }
	})
	if netns != nil {
		step("the neighbour table overflows", []string{"NodeARPTableOverflow"}, nil, func() func() {
			check(netns.OverflowNeighbours(ctx, func() { time.Sleep(time.Second) }))
			return func() {}
		})
	}
	step("etcd hangs", []string{"KubeAPIServerNotMeasured"}, []string{
		"EtcdMembersDown", "EtcdNoLeader", "KubeAPIServerErrors",
		"TargetDown", "KubeAPIErrorBudgetBurnErrors", "KubeAPIErrorBudgetBurnSlow",
	}, func() func() {
		check(kube.HangEtcd())
		return func() { check(kube.ResumeEtcd()) }
	})
	noneByItself(t, r, began)
	manifests(t, ctx, kube)
}

// allUnmeasured: the GPUs of 2,000 nodes that nobody measures are one page. It returns when each
// node's own alert has been due.
func allUnmeasured(t *testing.T, ctx context.Context, r *Rig, began time.Time) {
	t.Helper()
	wctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	judge := &Judge{record: r.Record}
	if err := judge.wait(wctx, []staged{{
		Case: Case{Name: "no GPU exporter", Want: []string{unmeasured}}, target: "genuine",
		from: began,
	}}); err != nil {
		t.Errorf("%v\n%s", err, r.tell(unmeasured))
	}
	time.Sleep(20 * time.Minute / genuineScale)
	report(t, r, "no GPU exporter", began)
	noneByItself(t, r, began)
}

// noneByItself: Alertmanager has held back what each of the nodes without a GPU exporter raises.
func noneByItself(t *testing.T, r *Rig, began time.Time) {
	t.Helper()
	const each = "GPUExporterMissing"
	nodes := map[string]bool{}
	for _, n := range r.Record.Since(began) {
		if n.Name() == each {
			nodes[n.Labels["node"]] = true
		}
	}
	if len(nodes) > 0 {
		t.Errorf("%s reached its receiver for %d nodes beside %s", each, len(nodes), unmeasured)
	}
}

// storm calls f from so many goroutines, over and over, each some twenty times a second: more would
// leave the API server no processor to serve its own page with.
func storm(ctx context.Context, n int, f func()) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				f()
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// genuineTargets adds what is scraped. The namespace is nil, with the reason in the log, where it
// cannot be had.
func genuineTargets(t *testing.T, ctx context.Context, kube *realkube.Cluster, s *site) *realkube.NetNS {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cert, err := os.ReadFile(kube.CertFile())
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	secure := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(secure.CloseIdleConnections)
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	token := http.Header{"Authorization": {"Bearer " + realkube.PrometheusToken}}
	s.add(t, "kube-apiserver", "10.0.0.10:6443", kube.API()+"/metrics", secure, token, nil)
	s.add(t, "apiserver-slis", "10.0.0.10:6443", kube.API()+"/metrics/slis", secure, token, nil)
	s.add(t, "etcd", "10.0.0.10:2381", "http://"+kube.Etcd()+"/metrics", plain, nil, nil)
	s.add(t, "kube-state-metrics", kube.KSM(), "http://"+kube.KSM()+"/metrics", plain, nil, nil)

	run := func(name string, start func(path string) (*realprom.Process, error), page func() string) {
		t.Helper()
		path, err := realprom.Find(name)
		if err != nil {
			t.Fatalf("%v (./tools/build.sh exporters iptables makes it)", err)
		}
		p, err := start(path)
		check(err)
		t.Cleanup(func() { _ = p.Stop() }) // these have no way to end but the signal
		check(p.WaitReady(ctx, page()))
	}
	port, err := realprom.FreePort()
	check(err)
	nodePage := fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
	run("node_exporter", func(path string) (*realprom.Process, error) {
		return realprom.StartProcess(realprom.ProcessOptions{Path: path, Args: []string{
			fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port), "--collector.lnstat", "--collector.sysctl", "--collector.sysctl.include=net.ipv4.neigh.default.gc_thresh3",
		}})
	}, func() string { return nodePage })
	s.add(t, "node-exporter", "10.0.1.0:9100", nodePage, plain, nil, map[string]string{"node": realkube.NodeName(0)})

	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("left out: iptables_exporter and the neighbour table, since there is no %s (apt-get install iproute2 iptables)", tool)
			return nil
		}
	}
	n, err := realkube.NewNetNS(ctx, fmt.Sprintf("spillway-%d", os.Getpid()))
	if err != nil {
		t.Logf("left out: iptables_exporter and the neighbour table, since no network namespace can be made here: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, traffic := range []string{"internet-in", "internet-out"} {
		check(n.Run(ctx, "iptables", "-A", "OUTPUT", "-d", "10.0.0.0/8", "-m", "comment", "--comment", "traffic="+traffic, "-j", "ACCEPT"))
	}
	inner := 9455
	addr := ""
	run("iptables_exporter", func(path string) (*realprom.Process, error) {
		p, err := n.Start(nil, path, fmt.Sprintf("--web.listen-address=127.0.0.1:%d", inner))
		if err != nil {
			return nil, err
		}
		var stop func()
		addr, stop, err = n.Forward(inner)
		if err == nil {
			t.Cleanup(stop)
		}
		return p, err
	}, func() string { return "http://" + addr + "/metrics" })
	s.add(t, "iptables-exporter", "10.0.1.0:9455", "http://"+addr+"/metrics", plain, nil, map[string]string{"node": realkube.NodeName(0)})
	return n
}

// manifests: what the mixin renders for Kubernetes is taken by an API server that knows the
// operator's definitions, every unknown field being an error.
func manifests(t *testing.T, ctx context.Context, kube *realkube.Cluster) {
	t.Helper()
	var files []string
	for _, d := range definitions {
		out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", d.module).Output()
		if err != nil {
			t.Fatalf("an operator's definitions, which its module has: go mod download %s: %v", d.module, err)
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(module.Dir, filepath.FromSlash(d.files)))
		if err != nil || len(found) == 0 {
			t.Fatalf("no definitions in %s: %v", module.Dir, err)
		}
		files = append(files, found...)
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("left out: the manifests against the operator's definitions, since there is no kubectl")
		return
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", kube.Kubeconfig()}, args...)...)
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	for _, f := range files {
		if out, err := run("apply", "--server-side", "-f", f); err != nil {
			t.Fatalf("%s: %v\n%s", filepath.Base(f), err, out)
		}
	}
	objects := t.TempDir()
	for name, b := range renderedKubernetes(t) {
		if err := os.WriteFile(filepath.Join(objects, strings.ReplaceAll(name, "/", "-")), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(time.Minute) // the definitions are served a moment after they were taken
	for {
		out, err := run("apply", "--dry-run=server", "--validate=strict", "-n", "monitoring", "-f", objects)
		if err == nil {
			t.Logf("%d objects passed", strings.Count(out, "(server dry run)"))
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rendered objects are not taken: %v\n%s", err, out)
		}
		time.Sleep(2 * time.Second)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: bad}\nspec: {groups: [{name: a, intervall: 1m}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("apply", "--dry-run=server", "--validate=strict", "-n", "monitoring", "-f", bad); err == nil {
		t.Errorf("an unknown field was taken, so the proof proves nothing: %s", out)
	}
}

// definitions are those of PrometheusRule and ServiceMonitor, and of GrafanaDashboard.
var definitions = []struct{ module, files string }{
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd/*.yaml"},
	{"github.com/grafana/grafana-operator/v5@v5.18.0", "config/crd/bases/*_grafanadashboards.yaml"},
}

// renderedKubernetes is the mixin as Kubernetes objects.
func renderedKubernetes(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := mixin.Render(mixin.Options{Format: mixin.FormatK8s})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
