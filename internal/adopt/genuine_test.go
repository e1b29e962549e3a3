package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/config"
)

var genuine = flag.Bool("genuine", false, "adopt three fleets of a genuine API server (./tools/build.sh kubernetes)")

func TestMain(m *testing.M) { realpromtest.Main(m) }

// definitions are the operator's own, and those of Grafana's.
var definitions = []struct{ module, files string }{
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd/*.yaml"},
	{"github.com/grafana/grafana-operator/v5@v5.18.0", "config/crd/bases/*_grafanadatasources.yaml"},
}

// collections are the plurals of what the test writes and compares.
var collections = map[string]string{
	"Prometheus": "prometheuses", "ThanosRuler": "thanosrulers", "GrafanaDatasource": "grafanadatasources", "StatefulSet": "statefulsets",
	"Deployment": "deployments", "Service": "services", "ConfigMap": "configmaps", "Secret": "secrets", "NetworkPolicy": "networkpolicies",
	"Pod": "pods", "EndpointSlice": "endpointslices", "ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings",
	"PodDisruptionBudget": "poddisruptionbudgets", "CustomResourceDefinition": "customresourcedefinitions",
}

// plane is the control plane with what the tests ask of it.
type plane struct {
	*realkube.Cluster
	t    *testing.T
	ctx  context.Context
	addr string // of this machine: one of the loopback is refused in slices
}

// post creates an object as kubectl would.
func (p *plane) post(o map[string]any) {
	p.t.Helper()
	meta := o["metadata"].(map[string]any)
	path := collection(fmt.Sprint(o["apiVersion"]), fmt.Sprint(o["kind"]), meta["namespace"])
	b, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Do(p.ctx, realkube.AdminToken, http.MethodPost, path+"?fieldManager=kubectl-client-side-apply&fieldValidation=Strict", b); err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	status, ok := o["status"]
	if !ok {
		return
	}
	if b, err = json.Marshal(map[string]any{"status": status}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Do(p.ctx, realkube.AdminToken, http.MethodPatch, fmt.Sprintf("%s/%s/status", path, meta["name"]), b); err != nil {
		p.t.Fatal(err)
	}
}

func collection(apiVersion, kind string, namespace any) string {
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	if namespace != nil {
		path += fmt.Sprint("/namespaces/", namespace)
	}
	return path + "/" + collections[kind]
}

// define has the API server know the operators' kinds.
func (p *plane) define() {
	p.t.Helper()
	for _, d := range definitions {
		out, err := exec.CommandContext(p.ctx, "go", "mod", "download", "-json", d.module).Output()
		if err != nil {
			p.t.Fatalf("an operator's definitions, which its module has: go mod download %s: %v", d.module, err)
		}
		var module struct{ Dir string }
		if err := json.Unmarshal(out, &module); err != nil {
			p.t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(module.Dir, filepath.FromSlash(d.files)))
		if err != nil || len(files) == 0 {
			p.t.Fatalf("no definitions in %s: %v", module.Dir, err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				p.t.Fatal(err)
			}
			var o map[string]any
			if err := yaml.Unmarshal(text, &o); err != nil {
				p.t.Fatal(err)
			}
			delete(o, "status")
			p.post(o)
		}
	}
	for _, path := range []string{
		"/apis/monitoring.coreos.com/v1/prometheuses", "/apis/monitoring.coreos.com/v1/thanosrulers", "/apis/grafana.integreatly.org/v1beta1/grafanadatasources",
	} {
		for served := false; !served; time.Sleep(100 * time.Millisecond) {
			_, err := p.Do(p.ctx, realkube.AdminToken, http.MethodGet, path, nil)
			if served = err == nil; !served && p.ctx.Err() != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// dump is every object of the kinds that are compared, but for its resourceVersion, and of a
// GrafanaDatasource its generation, which the API server counts up at each write.
func (p *plane) dump() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, k := range []struct{ apiVersion, kind string }{
		{"v1", "ConfigMap"},
		{"v1", "Secret"},
		{"v1", "Service"},
		{"v1", "ServiceAccount"},
		{"v1", "Pod"},
		{"apps/v1", "Deployment"},
		{"apps/v1", "StatefulSet"},
		{"discovery.k8s.io/v1", "EndpointSlice"},
		{"networking.k8s.io/v1", "NetworkPolicy"},
		{"policy/v1", "PodDisruptionBudget"},
		{"rbac.authorization.k8s.io/v1", "Role"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding"},
		{"monitoring.coreos.com/v1", "Prometheus"},
		{"monitoring.coreos.com/v1", "ThanosRuler"},
		{"grafana.integreatly.org/v1beta1", "GrafanaDatasource"},
	} {
		b, err := p.Do(p.ctx, realkube.AdminToken, http.MethodGet, collection(k.apiVersion, k.kind, nil), nil)
		if err != nil {
			p.t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(b, &list); err != nil {
			p.t.Fatal(err)
		}
		for _, o := range list.Items {
			meta := o["metadata"].(map[string]any)
			delete(meta, "resourceVersion")
			if k.kind == "GrafanaDatasource" {
				delete(meta, "generation")
			}
			b, err := json.MarshalIndent(o, "", " ")
			if err != nil {
				p.t.Fatal(err)
			}
			out[fmt.Sprint(k.kind, " ", meta["namespace"], "/", meta["name"])] = string(b)
		}
	}
	return out
}

// blocks are the TSDB blocks of a load.
func blocks(t *testing.T, text string, begin time.Time) string {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.LoadAt(text, begin); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.DB().Snapshot(dir, true); err != nil {
		t.Fatal(err)
	}
	return dir
}

// machineAddress is an address of this machine that slices and the API server's proxy take.
func machineAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but those of the loopback, which an API server takes for no pod's")
	return ""
}

// populate writes the fleet's objects, and starts its servers as their pods.
func (p *plane) populate(f *fleet, begin time.Time) {
	t := p.t
	t.Helper()
	if err := p.Namespace(p.ctx, f.namespace, ""); err != nil {
		t.Fatal(err)
	}
	for _, o := range fixture(t, filepath.Join("testdata/fleets", f.file+".yaml")) {
		p.post(o)
	}
	parts := make([]string, f.parts)
	for i := range parts {
		parts[i] = blocks(t, load(i, f.parts, ""), begin)
	}
	for _, s := range f.servers {
		port, err := realprom.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		realpromtest.Start(t, realprom.Options{
			Config: f.conf(s), ExternalLabels: labels.FromMap(s.external), Blocks: []string{parts[s.part]},
			Flags: []string{fmt.Sprintf("--web.listen-address=%s:%d", p.addr, port)},
		})
		for _, o := range f.placed(s, p.addr, port) {
			p.post(o)
		}
	}
}

// node stands for a kubelet: as soon as Spillway's Deployment is there it runs Spillway with the
// configuration of its Secret, as a pod that is ready, until the Deployment is gone or stop.
type node struct {
	api, admin string        // where it listens
	listens    chan struct{} // is closed once it does
	stop       func()        // may be called again
}

func (p *plane) node(namespace string) *node {
	n := &node{listens: make(chan struct{})}
	ctx, cancel := context.WithCancel(p.ctx)
	done := make(chan struct{})
	n.stop = func() { cancel(); <-done }
	path := collection("apps/v1", "Deployment", namespace) + "/spillway"
	there := func() bool {
		_, err := p.Do(ctx, realkube.AdminToken, http.MethodGet, path, nil)
		return err == nil
	}
	go func() {
		defer close(done)
		for ; !there(); time.Sleep(100 * time.Millisecond) {
			if ctx.Err() != nil {
				return
			}
		}
		end := p.pod(namespace, n)
		defer end()
		for ctx.Err() == nil && there() {
			_, _ = p.Do(ctx, realkube.AdminToken, http.MethodPatch, path+"/status",
				[]byte(`{"status":{"observedGeneration":9,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`)) // tried again
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return n
}

// pod runs Spillway from the configuration that was applied, which only lacks the account of a pod.
func (p *plane) pod(namespace string, n *node) (end func()) {
	port, err := realprom.FreePort()
	if err != nil {
		p.t.Error(err)
		return func() {}
	}
	proxy, at, err := realprom.StartOnPorts(p.ctx, realprom.PortOptions{
		Path: realpromtest.Spillway(p.t), Ports: 2, Args: func(at []string) []string {
			return []string{
				"proxy", "--config.file=" + p.configured(namespace), "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1],
				fmt.Sprintf("--web.metrics-listen-address=%s:%d", p.addr, port),
			}
		},
	})
	if err != nil {
		p.t.Error(err)
		return func() {}
	}
	n.api, n.admin = "http://"+at[0], "http://"+at[1]
	close(n.listens)
	p.post(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "spillway-x", "namespace": namespace, "labels": ownLabels},
		"spec": map[string]any{"nodeName": "node-0", "automountServiceAccountToken": false, "containers": []any{map[string]any{
			"name": "spillway", "image": "spillway", "ports": []any{map[string]any{"name": "metrics", "containerPort": port}},
		}}},
		"status": map[string]any{
			"phase": "Running", "podIP": p.addr, "podIPs": []any{map[string]any{"ip": p.addr}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	})
	return func() {
		if err := proxy.Stop(); err != nil {
			p.t.Errorf("%v\n%s", err, proxy.Log())
		}
		at := collection("v1", "Pod", namespace) + "/spillway-x?gracePeriodSeconds=0"
		if _, err := p.Do(p.ctx, realkube.AdminToken, http.MethodDelete, at, nil); err != nil {
			p.t.Error(err)
		}
	}
}

// configured is a file with the configuration that was applied, and how this process asks the API
// server.
func (p *plane) configured(namespace string) string {
	cfg, err := config.Parse([]byte(p.applied(namespace)), "/")
	if err != nil {
		p.t.Error(err)
		return ""
	}
	for i := range cfg.Groups {
		for j := range cfg.Groups[i].ShardsFrom.Kubernetes {
			cfg.Groups[i].ShardsFrom.Kubernetes[j].KubeconfigFile = p.Kubeconfig()
		}
	}
	cfg.StateDir = ""
	file := filepath.Join(p.t.TempDir(), "spillway.yaml")
	if err := config.WriteFile(file, cfg); err != nil {
		p.t.Error(err)
	}
	return file
}

// least makes a service account with the rights that adopt says it needs and no others, and returns
// a kubeconfig of it.
func (p *plane) least() string {
	p.t.Helper()
	var rules []any
	for _, r := range append(slices.Clone(Reads), Writes...) {
		rules = append(rules, map[string]any{"apiGroups": []any{r.Group}, "resources": []any{r.Resource}, "verbs": r.Verbs})
	}
	role, err := json.Marshal(map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": "adopt"}, "rules": rules})
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := p.ServiceAccount(p.ctx, "default", "adopt")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, o := range []string{string(role), `{"kind":"ClusterRoleBinding","metadata":{"name":"adopt"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
	  "name":"adopt"},"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"adopt"}]}`} {
		if err := p.Create(p.ctx, "rbac.authorization.k8s.io/v1", o); err != nil {
			p.t.Fatal(err)
		}
	}
	cfg := api.NewConfig()
	cfg.Clusters["c"] = &api.Cluster{Server: p.API(), CertificateAuthority: p.CertFile()}
	cfg.AuthInfos["u"] = &api.AuthInfo{Token: token}
	cfg.Contexts["c"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "c"
	file := filepath.Join(p.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// TestGenuineFleets: three fleets, each in a genuine API server with real Prometheus servers behind
// it, are adopted by the built program with no more rights than the page lists; Spillway, started
// from the configuration that was applied, answers as one Prometheus that has everything; and after
// --undo the API server's objects are what they were.
func TestGenuineFleets(t *testing.T) {
	if !*genuine {
		t.Skip("a real API server that takes minutes to build: make test-full runs it, by -genuine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cluster, err := realkube.Start(ctx, realkube.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	p := &plane{cluster, t, ctx, machineAddress(t)}
	p.define()
	kubeconfig := p.least()
	for i := range fleets {
		f := &fleets[i]
		t.Run(f.file, func(t *testing.T) {
			one := *p
			one.t = t
			one.adopts(f, kubeconfig)
		})
	}
}

// run runs the program and returns what it printed.
func (p *plane) run(code int, args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(p.ctx, realpromtest.Spillway(p.t), append([]string{"adopt"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		p.t.Fatal(err)
	}
	if got != code {
		p.t.Fatalf("adopt %v: exit code %d:\n%s", args, got, &out)
	}
	return out.String()
}

func (p *plane) adopts(f *fleet, kubeconfig string) {
	t := p.t
	end := time.Now().Add(-30 * time.Second).Truncate(15 * time.Second)
	begin := end.Add(-30 * time.Minute)
	p.populate(f, begin)
	realpromtest.Spillway(t) // built before time is taken
	before := p.dump()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	args := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + f.namespace, "--look-in=" + f.namespace, "--out=" + file, "--hashmod"}

	said := p.run(0, args...)
	t.Logf("%s", said)
	if after := p.dump(); !equal(t, before, after) {
		t.Fatal("without --apply something has changed")
	}
	if said := p.run(0, append(args, "--via=direct")...); !strings.Contains(said, "proven against the servers") {
		t.Errorf("at the pods' own addresses: %s", said)
	}
	node := p.node(f.namespace)
	defer node.stop()
	if len(f.only) > 0 {
		said := p.run(1, append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
		if after := p.dump(); !strings.Contains(said, "name those that belong behind one, each by --only") || !equal(t, before, after) {
			t.Errorf("several servers without their names: %s", said)
		}
	}
	args = append(args, f.only...)
	begun := time.Now()
	said = p.run(0, append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
	took := time.Since(begun)
	t.Logf("--apply took %s", took.Round(10*time.Millisecond))
	if took > time.Minute {
		t.Errorf("--apply took %s, at most a minute is promised", took)
	}
	if !strings.Contains(said, "changed "+f.source) {
		t.Errorf("no change of %s in:\n%s", f.source, said)
	}
	if !strings.Contains(said, "its pods (1) reach all servers") {
		t.Errorf("whether Spillway reaches the servers was not asked:\n%s", said)
	}
	text := p.applied(f.namespace)
	for _, want := range f.config {
		if !strings.Contains(text, want) {
			t.Errorf("the configuration lacks %q:\n%s", want, text)
		}
	}
	for _, no := range f.lacks {
		if strings.Contains(text, no) {
			t.Errorf("the configuration has %q:\n%s", no, text)
		}
	}
	p.compare(f, node, begin)

	p.run(0, append(args, "--apply", "--image=registry.example.org/spillway:0.1.1")...) // again, which is an upgrade
	undo := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + f.namespace, "--undo"}
	if f.restart != "" {
		if said := p.run(1, undo...); !strings.Contains(said, f.restart) {
			t.Errorf("what reads its data source at its start is not to be restarted:\n%s", said)
		}
	}
	t.Logf("%s", p.run(0, undo...))
	node.stop()
	if after := p.dump(); !equal(t, before, after) {
		t.Error("--undo has not left the objects as they were")
	}
	said = p.run(1, undo...)
	if !strings.Contains(said, "adopt has changed nothing") {
		t.Errorf("a second --undo says: %s", said)
	}
}

// equal compares two dumps.
func equal(t *testing.T, before, after map[string]string) bool {
	t.Helper()
	same := true
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s\nbefore: %s\nafter: %s", name, text, after[name])
			same = false
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
			same = false
		}
	}
	return same
}

// applied is the configuration that the pods would read.
func (p *plane) applied(namespace string) string {
	p.t.Helper()
	b, err := p.Do(p.ctx, realkube.AdminToken, http.MethodGet, collection("v1", "Secret", namespace)+"/spillway", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	var secret struct{ Data map[string][]byte }
	if err := json.Unmarshal(b, &secret); err != nil {
		p.t.Fatal(err)
	}
	return string(secret.Data["spillway.yaml"])
}

// compare compares the answers of Spillway's pod with those of one Prometheus that has everything.
func (p *plane) compare(f *fleet, node *node, begin time.Time) {
	t := p.t
	t.Helper()
	<-node.listens
	if shards := bytes.Count(fetch(t, node.admin+"/api/spillway/v1/shards"), []byte(`"url":`)); shards != len(f.servers) {
		t.Errorf("Spillway has found %d servers of %d", shards, len(f.servers))
	}
	whole := realpromtest.Start(t, realprom.Options{Blocks: []string{blocks(t, load(-1, 1, f.labels), begin)}})
	at := func(d time.Duration) string { return fmt.Sprint(begin.Add(d).Unix()) }
	asked := 0
	for _, q := range []string{
		"up", "count(up)", "sum by (job) (rate(http_requests_total[5m]))", "sum(rate(http_requests_total[5m])) by (code)",
		`sum(rate(http_requests_total{code="500"}[5m])) / sum(rate(http_requests_total[5m]))`, "topk(3, node_load1)",
		"avg by (gpu) (gpu_temperature)", "max_over_time(gpu_temperature[10m])", "quantile(0.9, node_load1)", "stddev(node_load1)",
		"histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))", `node_load1{instance="10.0.0.3:9100"}`,
		`count by (gpu) (gpu_temperature > 50)`, "node_load1 * on (instance) group_left () up", "absent(nothing_of_that_name)",
		"sort_desc(node_load1)", "predict_linear(node_load1[10m], 3600)", "max(max_over_time(gpu_temperature[10m:1m]))",
		`sum by (instance) (increase(http_requests_total[10m])) > bool 100`, "count_values(\"v\", up)",
	} {
		for _, path := range []string{
			"/api/v1/query?" + url.Values{"query": {q}, "time": {at(20 * time.Minute)}}.Encode(),
			"/api/v1/query_range?" + url.Values{
				"query": {q}, "start": {at(5 * time.Minute)}, "end": {at(25 * time.Minute)}, "step": {"37"},
			}.Encode(),
		} {
			asked++
			if got, want := answer(t, node.api+path), answer(t, whole.URL()+path); got != want {
				t.Errorf("%s %s\nSpillway: %s\none Prometheus: %s", q, path, got, want)
			} else if strings.HasSuffix(want, " []") {
				t.Errorf("%s compares nothing: %s", path, want)
			}
		}
	}
	t.Logf("%d answers are those of one Prometheus", asked)
}

func fetch(t *testing.T, address string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// number is a sample's value that is not whole.
var number = regexp.MustCompile(`"-?[0-9]+\.[0-9]+(e[+-]?[0-9]+)?"`)

// answer is the result of a query; the order of an instant vector is not defined, but for that of
// sort, and numbers have 12 digits: sums over two shards are added in another order
// (docs/exactness.md).
func answer(t *testing.T, address string) string {
	t.Helper()
	b := fetch(t, address)
	var a struct {
		Status string
		Data   struct{ Result []json.RawMessage }
		Error  string
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return string(b)
	}
	if !strings.Contains(address, "sort_desc") {
		slices.SortFunc(a.Data.Result, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	}
	out, err := json.Marshal(a.Data.Result)
	if err != nil {
		t.Fatal(err)
	}
	return a.Status + a.Error + " " + number.ReplaceAllStringFunc(string(out), func(s string) string {
		f, err := strconv.ParseFloat(strings.Trim(s, `"`), 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatFloat(f, 'g', 12, 64)
	})
}
