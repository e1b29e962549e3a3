package adopt

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
)

var kubePrometheus = flag.String("kube-prometheus", "", "a checkout of kube-prometheus, whose manifests TestGenuineKubePrometheus applies")

// operated is a cluster with a real node on which the operator makes servers of its objects.
type operated struct {
	*realkube.Cluster
	*realkubetest.Manifests
	t    *testing.T
	home string // where adopt writes its file
}

// made makes outside what the node runs: the operator's own manifest, Spillway and its image.
func made(t *testing.T) func(dir string) {
	return func(dir string) {
		t.Helper()
		for _, args := range [][]string{
			{"../../tools/build.sh", "kubernetes", "coredns", "operator", "exporters", "old-prometheus", "thanos"},
			{"go", "build", "-o", filepath.Join(dir, "spillway"), "../../cmd/spillway"},
		} {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", args, err, out)
			}
		}
		realkubetest.BuildSpillway(t, dir)
		realkubetest.BuildOperator(t, dir)
	}
}

// startOperated starts the cluster, with the image of Spillway.
func startOperated(t *testing.T) *operated {
	t.Helper()
	c, n := realkubetest.Node(t)
	realkubetest.ImportSpillway(t, n)
	return &operated{Cluster: c, Manifests: realkubetest.NewManifests(c, n), t: t, home: t.TempDir()}
}

// tries runs the program.
func (o *operated) tries(args ...string) (string, error) {
	args = append([]string{"adopt", "--kubeconfig=" + o.Kubeconfig()}, args...)
	cmd := exec.CommandContext(o.t.Context(), filepath.Join(realkubetest.Dir(), "spillway"), args...)
	cmd.Dir = o.home
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// adopt is tries of what must not fail.
func (o *operated) adopt(args ...string) string {
	o.t.Helper()
	out, err := o.tries(args...)
	if err != nil {
		o.t.Fatalf("spillway adopt %v: %v\n%s\n%s", args, err, out, realkubetest.Events(o.t, o.Cluster))
	}
	o.t.Logf("$ spillway adopt %s\n%s", strings.Join(args, " "), out)
	return out
}

// proves runs the program without --apply until the servers have scraped what they will: as long as
// they are young it may find that they do not agree, and then says so.
func (o *operated) proves(args ...string) {
	o.t.Helper()
	o.within(3*time.Minute, "the proof", func() (string, bool) {
		out, err := o.tries(args...)
		if err != nil && !strings.Contains(out, "may not have scraped everything yet: try again in two minutes") {
			o.t.Fatalf("%v\n%s", err, out)
		}
		return out, err == nil
	})
}

// objects are what people write, as they stand, but for what controllers write into them.
func (o *operated) objects() map[string]string {
	o.t.Helper()
	var list struct{ Items []map[string]any }
	text := realkubetest.Kubectl(o.t, o.Cluster, "get", "-A", "-o", "json",
		"configmaps,secrets,services,serviceaccounts,deployments,statefulsets,roles,rolebindings,networkpolicies,poddisruptionbudgets,prometheuses")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		o.t.Fatal(err)
	}
	out := map[string]string{}
	for _, item := range list.Items {
		meta := item["metadata"].(map[string]any)
		delete(item, "status")
		for _, key := range []string{"resourceVersion", "generation", "managedFields"} {
			delete(meta, key)
		}
		b, err := json.Marshal(item)
		if err != nil {
			o.t.Fatal(err)
		}
		out[fmt.Sprint(item["kind"], " ", meta["namespace"], "/", meta["name"])] = string(b)
	}
	return out
}

// words are those that kubectl prints.
func (o *operated) words(args ...string) []string {
	o.t.Helper()
	return strings.Fields(realkubetest.Kubectl(o.t, o.Cluster, args...))
}

// service is the URL of a service that listens: kube-proxy hears of its pods later than adopt does.
func (o *operated) service(namespace, name string) string {
	o.t.Helper()
	addr := o.words("-n", namespace, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")[0] + ":9090"
	o.within(time.Minute, name, func() (string, bool) {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err.Error(), false
		}
		return "", conn.Close() == nil
	})
	return "http://" + addr
}

// within asks again until something is so.
func (o *operated) within(d time.Duration, what string, so func() (string, bool)) {
	o.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(500 * time.Millisecond) {
		said, ok := so()
		if ok {
			return
		}
		if time.Now().After(end) {
			o.t.Fatalf("%s: %s\n%s", what, said, realkubetest.Events(o.t, o.Cluster))
		}
	}
}

// undone takes everything back, and wants the objects to be those of before.
func (o *operated) undone(before map[string]string, args ...string) {
	o.t.Helper()
	o.adopt(append(args, "--undo")...)
	o.within(time.Minute, "after --undo", func() (string, bool) {
		after := o.objects()
		for name := range after {
			if before[name] != after[name] {
				return fmt.Sprintf("%s was\n%s\nit is\n%s", name, before[name], after[name]), false
			}
		}
		return fmt.Sprintf("%d objects were there, %d are", len(before), len(after)), maps.Equal(before, after)
	})
}

// TestGenuineOperator: of two shards of two replicas with sidecars that the real operator makes,
// adopt makes a Spillway whose pods answer as one Prometheus that scrapes everything, in less than
// a minute, and leaves nothing behind.
func TestGenuineOperator(t *testing.T) {
	if !*genuine {
		t.Skip("a real node and operator, which take minutes to build: make test-full runs it, by -genuine")
	}
	if !realkubetest.Inside(t, 10*time.Minute, made(t)) {
		return
	}
	o := startOperated(t)
	o.Apply(t, realkubetest.OperatorManifest())
	o.Apply(t, "testdata/operator/sharded.yaml")
	o.within(3*time.Minute, "the operator's servers", func() (string, bool) {
		out := realkubetest.Kubectl(t, o.Cluster, "-n", "observe", "get", "pods", "-l", "app.kubernetes.io/name=prometheus", "--no-headers")
		return out, strings.Count(out, "3/3") == 5
	})
	whole := o.service("observe", "whole")
	o.within(time.Minute, "the targets", func() (string, bool) {
		got := answer(t, whole+"/api/v1/query?query="+url.QueryEscape("count(up == 1)"))
		return got, strings.HasSuffix(got, `,12]}]`)
	})
	// A whole minute: a query looks at these, and in those before it not all servers have scraped.
	begin := time.Now().Add(5 * time.Second).Truncate(time.Minute).Add(time.Minute)
	before := o.objects()
	args := []string{"--namespace=observe", "--look-in=observe", "--only=observe/gpu"}
	o.proves(args...)
	if now := o.objects(); !maps.Equal(before, now) {
		t.Error("without --apply something has changed")
	}
	begun := time.Now()
	said := o.adopt(append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
	took := time.Since(begun)
	t.Logf("--apply took %s, its pods' start included", took.Round(10*time.Millisecond))
	if took > time.Minute || !strings.Contains(said, "changed ConfigMap observe/datasources") {
		t.Errorf("--apply took %s, at most a minute is promised; it says: %s", took, said)
	}
	spillway := o.service("observe", "spillway")
	time.Sleep(time.Until(begin.Add(15 * time.Second))) // of which all servers have samples
	asked, empty := 0, 0
	for _, q := range queries {
		for _, path := range []string{
			"/api/v1/query?" + url.Values{"query": {q}, "time": {fmt.Sprint(begin.Add(10 * time.Second).Unix())}}.Encode(),
			"/api/v1/query_range?" + url.Values{
				"query": {q}, "start": {fmt.Sprint(begin.Unix())}, "end": {fmt.Sprint(begin.Add(12 * time.Second).Unix())}, "step": {"4"},
			}.Encode(),
		} {
			asked++
			// An external label is on what leaves a server, and so on what Spillway answers.
			got, want := strings.ReplaceAll(answer(t, spillway+path), `"cluster":"jaguar",`, ""), answer(t, whole+path)
			if got != want {
				t.Errorf("%s\nSpillway: %s\none Prometheus: %s", path, got, want)
			} else if strings.HasSuffix(want, " []") {
				empty++
			}
		}
	}
	t.Logf("%d answers of the pods compared with those of one Prometheus, %d of them empty", asked, empty)
	if empty > 4 { // two queries name what is in another fleet
		t.Error("too many answers compare nothing")
	}
	o.undone(before, "--namespace=observe")
}

// TestGenuineKubePrometheus: the manifests of kube-prometheus, as its repository has them, on a
// real node. Programs that are not here do nothing in their pods: Grafana is one of them.
func TestGenuineKubePrometheus(t *testing.T) {
	if !*genuine || *kubePrometheus == "" {
		t.Skip("a checkout of kube-prometheus, which is no Go module: -genuine -kube-prometheus=DIR")
	}
	if !realkubetest.Inside(t, 10*time.Minute, made(t)) {
		return
	}
	o := startOperated(t)
	for _, dir := range []string{"manifests/setup", "manifests"} {
		files, err := filepath.Glob(filepath.Join(*kubePrometheus, dir, "*.yaml"))
		if err != nil || len(files) < 10 {
			t.Fatalf("%d files in %s of %s: %v", len(files), dir, *kubePrometheus, err)
		}
		slices.Sort(files)
		for _, f := range files {
			o.Apply(t, f)
		}
		if dir == "manifests/setup" {
			realkubetest.Kubectl(t, o.Cluster, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
		}
	}
	monitoring := []string{"-n", "monitoring"}
	o.within(4*time.Minute, "the servers", func() (string, bool) {
		out := realkubetest.Kubectl(t, o.Cluster, append(monitoring, "get", "pods", "--no-headers")...)
		return out, len(regexp.MustCompile(`prometheus-k8s-\d +2/2`).FindAllString(out, -1)) == 2
	})
	servers := o.words(append(monitoring, "get", "pods", "-l", "app.kubernetes.io/name=prometheus",
		"-o", "jsonpath={.items[*].status.podIP}")...)
	const steady = "min_over_time(count(up)[70s:5s]) == max_over_time(count(up)[70s:5s])" // each is scraped twice a minute
	o.within(5*time.Minute, "what is scraped", func() (string, bool) {
		var all []string
		now := fmt.Sprint(time.Now().Unix())
		for _, s := range servers {
			ask := "http://" + s + ":9090/api/v1/query?time=" + now + "&query="
			if got := answer(t, ask+url.QueryEscape(steady)); strings.HasSuffix(got, " []") {
				return s + " still finds targets", false
			}
			all = append(all, answer(t, ask+url.QueryEscape("count by (job) (up)")))
		}
		first := all[0]
		return fmt.Sprint(all), first == all[1] && strings.Contains(first, "prometheus-k8s") && strings.Contains(first, `"kubelet"`)
	})
	before := o.objects()
	args := []string{"--namespace=monitoring"}
	o.proves(args...)
	begun := time.Now()
	o.adopt(append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("--apply took %s, at most a minute is promised", took)
	}
	spillway := o.service("monitoring", "spillway")
	at := fmt.Sprint(time.Now().Add(-5 * time.Second).Unix())
	for _, q := range []string{
		"up", "count(up)", "sum by (job) (up)", "prometheus_tsdb_head_series", `rate(prometheus_http_requests_total[1m])`,
		`histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket[1m])))`,
		`sum by (namespace) (rate(container_cpu_usage_seconds_total[2m]))`, `topk(3, scrape_duration_seconds)`,
	} {
		path := "/api/v1/query?" + url.Values{"query": {q}, "time": {at}}.Encode()
		got := strings.ReplaceAll(answer(t, spillway+path), `"cluster":"main",`, "")
		var want []string
		for _, s := range servers {
			want = append(want, answer(t, "http://"+s+":9090"+path))
		}
		if !slices.Contains(want, got) {
			t.Errorf("%s: Spillway: %.1000s\nits servers: %.1000s", q, got, want)
		}
	}
	said, err := o.tries(append(args, "--undo")...)
	if err == nil || !strings.Contains(said, "kubectl -n monitoring rollout restart deployment/grafana") {
		t.Errorf("Grafana, which reads its data source at its start, is not to be restarted: %v %s", err, said)
	}
	realkubetest.Kubectl(t, o.Cluster, append(monitoring, "delete", "pods", "-l", "app.kubernetes.io/name=grafana")...)
	o.undone(before, args...)
}
