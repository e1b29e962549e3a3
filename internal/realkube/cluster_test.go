package realkube

import (
	"context"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var genuine = flag.Bool("genuine", false, "start real etcd, kube-apiserver and kube-state-metrics (./tools/build.sh kubernetes)")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestControlPlane: nodes and pods are as they were written, in kube-state-metrics too, and
// refusals are named.
func TestControlPlane(t *testing.T) {
	if !*genuine {
		t.Skip("real servers that take minutes to build: make test-full runs it, by -genuine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := Start(ctx, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	begun := time.Now()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(c.Nodes(ctx, 50, 8))
	check(c.NotReady(ctx, 3, 5, false))
	check(c.Namespace(ctx, "research", "vision"))
	check(c.Pods(ctx, []Pod{
		{Namespace: "research", Name: "running", Node: NodeName(0), GPUs: 4, Status: Running},
		{Namespace: "research", Name: "waiting", GPUs: 4, Status: Unschedulable},
		{Namespace: "research", Name: "crashing", Node: NodeName(1), Status: CrashLoop(7)},
	}))
	t.Logf("50 nodes and 3 pods in %s", time.Since(begun).Round(time.Millisecond))
	want := []string{
		`kube_node_status_condition{node="gpu-00003",condition="Ready",status="false"} 1`, `kube_node_status_condition{node="gpu-00005",condition="Ready",status="true"} 1`,
		`kube_node_status_capacity{node="gpu-00049",resource="nvidia_com_gpu",unit="integer"} 8`,
		`kube_pod_status_unschedulable{namespace="research",pod="waiting"`, `reason="CrashLoopBackOff"} 1`, `label_team="vision"`,
	}
	missing := ""
	for ctx.Err() == nil {
		page := read(t, "http://"+c.KSM()+"/metrics")
		missing = ""
		for _, w := range want {
			if !strings.Contains(page, w) {
				missing = w
			}
		}
		if missing == "" {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if missing != "" {
		t.Errorf("kube-state-metrics never showed %s", missing)
	}
	if page := read(t, "http://"+c.Etcd()+"/metrics"); !strings.Contains(page, "etcd_server_has_leader 1") {
		t.Error("etcd has no leader")
	}
	b, err := c.Do(ctx, PrometheusToken, http.MethodGet, "/metrics", nil)
	if err != nil || !strings.Contains(string(b), "apiserver_request_total{") {
		t.Errorf("the API server's page: %v", err)
	}
	if _, err := c.Do(ctx, PrometheusToken, http.MethodGet, "/api/v1/nodes", nil); err == nil ||
		!strings.Contains(err.Error(), "status 403") {
		t.Errorf("Prometheus may list nodes: %v", err)
	}
	check(c.Create(ctx, "flowcontrol.apiserver.k8s.io/v1", `{"kind":"FlowSchema","metadata":{"name":"noisy"},"spec":{"matchingPrecedence":100,"priorityLevelConfiguration":
	  {"name":"catch-all"},"rules":[{"subjects":[{"kind":"User","user":{"name":"noisy"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`))
	for singled := false; !singled; {
		_, err := c.Do(ctx, NoisyToken, http.MethodGet, "/api/v1/pods", nil)
		check(err)
		b, err := c.Do(ctx, PrometheusToken, http.MethodGet, "/metrics", nil)
		check(err)
		singled = strings.Contains(string(b), `apiserver_flowcontrol_dispatched_requests_total{flow_schema="noisy"`)
	}
	if err := c.DryRun(ctx, "v1", `{"kind":"ConfigMap","metadata":{"name":"a","namespace":"research"},"dataa":{}}`); err == nil || !strings.Contains(err.Error(), "dataa") {
		t.Errorf("an unknown field: %v", err)
	}
}

func read(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
