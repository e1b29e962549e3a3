package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/realkube"
)

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
