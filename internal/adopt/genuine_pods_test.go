package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/config"
)

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
