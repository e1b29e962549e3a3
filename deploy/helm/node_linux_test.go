package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/docstest"
	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
	"github.com/spillwayproject/spillway/internal/realprom"
)

// servers are those that the pages speak of: two Prometheus servers by hand behind the service
// prometheus, and two as the operator names them behind prometheus-operated. All four scrape all.
const servers = `
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus, namespace: monitoring}
data:
  prometheus.yml: |
    global: {scrape_interval: 1s, external_labels: {cluster: main, prometheus_replica: '${POD}'}}
    scrape_configs:
      - job_name: prometheus
        static_configs: [{targets: ['prometheus-0.prometheus:9090', 'prometheus-1.prometheus:9090']}]
`

// server is one of the two services and its servers.
const server = `
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: monitoring}
spec: {clusterIP: None, publishNotReadyAddresses: true, selector: {app.kubernetes.io/name: prometheus, app: %[1]s}, ports: [{name: web, port: 9090}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[2]s, namespace: monitoring}
spec:
  serviceName: %[1]s
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app.kubernetes.io/name: prometheus, app: %[1]s}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      securityContext: {runAsNonRoot: true, runAsUser: 65534, fsGroup: 65534, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: prometheus
          image: example.org/prometheus:3.15
          args: [--config.file=/etc/prometheus/prometheus.yml, --storage.tsdb.path=/prometheus, --web.enable-lifecycle]
          env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
          ports: [{name: web, containerPort: 9090}]
          readinessProbe: {httpGet: {path: /-/ready, port: web}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: data, mountPath: /prometheus}, {name: config, mountPath: /etc/prometheus}]
      volumes: [{name: data, emptyDir: {}}, {name: config, configMap: {name: prometheus}}]
`

// builds makes, where Go's modules can be had, what the node runs, and the image by the command of
// docs/image.md; and more of what tools/build.sh builds.
func builds(t *testing.T, more ...string) func(dir string) {
	return func(dir string) {
		t.Helper()
		out, err := exec.Command("../../tools/build.sh", append(more, "helm", "kubernetes", "coredns", "prometheus")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		realkubetest.BuildSpillway(t, dir)
	}
}

// imports gives the node the images: Prometheus', and the one that was built.
func imports(t *testing.T, n *realkube.Node) {
	t.Helper()
	prometheus, err := realprom.Find("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	realkubetest.Import(t, n, realkube.Image{Name: "example.org/prometheus:3.15", Program: prometheus})
	realkubetest.ImportSpillway(t, n)
}

// asks asks the service of Spillway, as a pod would, by a connection of its own.
func (u user) asks(path string, params url.Values) (int, string, error) {
	u.t.Helper()
	return u.gets(path+"?"+params.Encode(), http.Header{})
}

// gets is asks with a header.
func (u user) gets(path string, header http.Header) (int, string, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+u.address+path, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header = header
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// answers waits until an instant query has the value.
func (u user) answers(query, want string) {
	u.t.Helper()
	u.becomes(query, func() (string, bool) {
		code, body, err := u.asks("/api/v1/query", url.Values{"query": {query}})
		return fmt.Sprint(code, " ", body, " ", err), err == nil && code == http.StatusOK && strings.Contains(body, `,"`+want+`"]`)
	})
}

// finds looks for the service's address.
func (u *user) finds(service string) {
	u.address = strings.TrimSpace(u.types(".", "kubectl -n monitoring get service "+service+" -o 'jsonpath={.spec.clusterIP}'")) + ":9090"
}

// whileAsked asks all the time while something is done, and wants an answer to each question.
func (u user) whileAsked(during func()) {
	u.t.Helper()
	var asked, failed atomic.Int64
	var first atomic.Pointer[string]
	ctx, cancel := context.WithCancel(u.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			code, body, err := u.asks("/api/v1/query", url.Values{"query": {"count(up)"}})
			asked.Add(1)
			if err != nil || code != http.StatusOK {
				failed.Add(1)
				said := fmt.Sprint(code, " ", body, " ", err)
				first.CompareAndSwap(nil, &said)
			}
		}
	}()
	func() {
		defer func() { cancel(); <-done }()
		during()
	}()
	u.t.Logf("%d questions meanwhile, %d without an answer", asked.Load(), failed.Load())
	if failed.Load() > 0 || asked.Load() < 20 {
		u.t.Errorf("of %d questions %d had no answer, the first: %s", asked.Load(), failed.Load(), *first.Load())
	}
}

// pod is one of Spillway's.
type pod struct {
	restarts  int
	container string
}

// pods are those of Spillway that are not about to end, by name.
func (u user) pods() map[string]pod {
	u.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Status   struct {
				ContainerStatuses []struct {
					RestartCount int
					ContainerID  string
					Ready        bool
				}
			}
		}
	}
	text, err := u.tries(".", "kubectl -n monitoring get pods -l app.kubernetes.io/name=spillway -o json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	out := map[string]pod{}
	for _, p := range list.Items {
		for _, s := range p.Status.ContainerStatuses {
			if p.Metadata.DeletionTimestamp == "" && s.Ready {
				out[p.Metadata.Name] = pod{s.RestartCount, strings.TrimPrefix(s.ContainerID, "containerd://")}
			}
		}
	}
	return out
}

// takesUp: a change of the configuration arrives in the running pods, and restarts none.
func (u user) takesUp() {
	u.t.Helper()
	now := time.Now()
	wide := url.Values{
		"query": {"up"}, "step": {"60"}, "start": {fmt.Sprint(now.Add(-2 * time.Hour).Unix())}, "end": {fmt.Sprint(now.Unix())},
	}
	if code, body, err := u.asks("/api/v1/query_range", wide); err != nil || code != http.StatusOK {
		u.t.Fatal(code, body, err)
	}
	before := u.pods()
	values, err := os.ReadFile(filepath.Join(u.home, "spillway/values.yaml"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.write("spillway", "values.yaml", strings.Replace(string(values), "config:\n", "config:\n  limits: {max_range: 1h}\n", 1))
	begun := time.Now()
	u.whileAsked(func() {
		u.types("spillway", commands(u.t, docstest.Section(u.t, "upgrade.md", "## Reload or restart"), 2)[0])
		refused := 0 // in a row: both pods know
		u.becomes("the new bound", func() (string, bool) {
			code, body, err := u.asks("/api/v1/query_range", wide)
			if refused++; err != nil || code != http.StatusUnprocessableEntity || !strings.Contains(body, "max_range") {
				refused = 0
			}
			return fmt.Sprint(code, " ", body, " ", err), refused == 12
		})
	})
	u.t.Logf("a change of the configuration was in both pods after %s", time.Since(begun).Round(time.Second))
	if after := u.pods(); !maps.Equal(before, after) {
		u.t.Errorf("the pods were %v, they are %v", before, after)
	}
}

// rollsOver: where pods are replaced, as by another image, nobody notices, until the last of the
// old ones is gone.
func (u user) rollsOver(upgrade []string) {
	u.t.Helper()
	before := u.pods()
	values, err := os.ReadFile(filepath.Join(u.home, "spillway/values.yaml"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.write("spillway", "values.yaml", string(values)+"\nlog: {level: debug}\n")
	u.whileAsked(func() {
		for _, command := range upgrade {
			u.types("spillway", command)
		}
		u.becomes("the pods", func() (string, bool) {
			out, err := u.tries(".", "kubectl -n monitoring get pods -l app.kubernetes.io/name=spillway -o name")
			return out, err == nil && strings.Count(out, "\n") == len(before)
		})
	})
	for name := range u.pods() {
		if _, ok := before[name]; ok {
			u.t.Errorf("the pod %s is still there", name)
		}
	}
}

// comesBack: a pod whose program is killed runs again, and what it keeps in memory for that is
// still there.
func (u user) comesBack() {
	u.t.Helper()
	all := u.pods()
	for name, p := range all {
		if err := u.node.Kill(u.ctx, p.container); err != nil {
			u.t.Fatal(err)
		}
		u.becomes("the killed pod", func() (string, bool) {
			now := u.pods()
			return fmt.Sprint(now), now[name].restarts == p.restarts+1 && len(now) == len(all)
		})
		out := u.types(".", "kubectl -n monitoring logs --tail=20 "+name)
		if strings.Contains(out, "read-only") || strings.Contains(out, "denied") {
			u.t.Errorf("its log: %s", out)
		}
		return
	}
	u.t.Error("there is no pod")
}
