package operation

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

var genuine = flag.Bool("genuine", false, "look shards up in a genuine API server too (./tools/build.sh kubernetes)")

// plane is a control plane whose endpointslices stand for the servers of a test.
type plane struct {
	*realkube.Cluster
	t   *testing.T
	ctx context.Context
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices"

// slice writes an endpointslice with one pod: its port is that of the server, since addresses of
// this machine are refused there, and relabelling makes an address of it.
func (p plane) slice(name, pod, server string, ready bool) {
	p.t.Helper()
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		p.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":%q,"namespace":"monitoring",
	  "labels":{"kubernetes.io/service-name":"prometheus-operated"}},"addressType":"IPv4","ports":[{"name":"web","port":%s}],
	  "endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":%v},"targetRef":{"kind":"Pod","namespace":"monitoring","name":%q}}]}`,
		name, port, ready, pod)
	_, err = p.Do(p.ctx, realkube.AdminToken, http.MethodPut, slicesPath+"/"+name, []byte(body))
	var said *realkube.StatusError
	if errors.As(err, &said) && said.Code == http.StatusNotFound {
		_, err = p.Do(p.ctx, realkube.AdminToken, http.MethodPost, slicesPath, []byte(body))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// drop deletes an endpointslice that may be there.
func (p plane) drop(name string) {
	p.t.Helper()
	var said *realkube.StatusError
	if err := p.Delete(p.ctx, slicesPath+"/"+name); err != nil && (!errors.As(err, &said) || said.Code != http.StatusNotFound) {
		p.t.Fatal(err)
	}
}

// grant makes the Role that docs/discovery.md shows, and its binding.
func (p plane) grant() {
	p.t.Helper()
	page, err := os.ReadFile("../../docs/discovery.md")
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	n := 0
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; n++ {
		var object map[string]any
		if err := dec.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			p.t.Fatal(err)
		}
		b, err := json.Marshal(object)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.Create(p.ctx, fmt.Sprint(object["apiVersion"]), string(b)); err != nil {
			p.t.Fatal(err)
		}
	}
	if n != 2 {
		p.t.Fatalf("docs/discovery.md shows %d objects, want a Role and a RoleBinding", n)
	}
}

// slicesFile is a configuration that looks the pods s-N up.
func slicesFile(api, cert, token string) string {
	return fmt.Sprintf(`groups:
  - name: heron
    labels: {cluster: heron}
    shards_from:
      keep: 1s
      kubernetes_sd_configs:
        - role: endpointslice
          api_server: %s
          namespaces: {names: [monitoring]}
          selectors: [{role: endpointslice, label: kubernetes.io/service-name=prometheus-operated}]
          http_client: {authorization: {credentials_file: %q}, tls_config: {ca_file: %q}}
      relabel_configs:
        - {source_labels: [__meta_kubernetes_endpointslice_port], target_label: __address__, replacement: "127.0.0.1:$1"}
        - {source_labels: [__meta_kubernetes_endpointslice_address_target_name], regex: (s-\d+), target_label: __spillway_shard__}
        - {target_label: __spillway_replica__, replacement: r}
limits: {timeout: 50s}
`, api, token, cert)
}

// TestGenuineSlices: the endpointslices of a genuine API server change, to what is of no use at
// times, and the API server itself is killed and comes again. Shards come and go, and their pods
// move: within a slice, to another one that has them before the old one is gone, and with a moment
// in which they are nowhere.
func TestGenuineSlices(t *testing.T) {
	if !*genuine {
		t.Skip("real servers that take minutes to build: make test-full runs it, by -genuine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	dir := t.TempDir()
	cluster, err := realkube.Start(ctx, realkube.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	k := plane{cluster, t, ctx}
	if err := k.Namespace(ctx, "monitoring", ""); err != nil {
		t.Fatal(err)
	}
	token, err := k.ServiceAccount(ctx, "monitoring", "spillway")
	if err != nil {
		t.Fatal(err)
	}
	credentials, file := filepath.Join(dir, "token"), filepath.Join(dir, "spillway.yaml")
	replace(t, credentials, token)
	replace(t, file, slicesFile(k.API(), k.CertFile(), credentials))
	check := func() string {
		b, _ := exec.Command(realpromtest.Spillway(t), "check", "config", "--online", file).CombinedOutput() // it ends with 1
		return string(b)
	}
	if said := check(); !strings.Contains(said, "grant list and watch on endpointslices, services, pods by a Role in that namespace and a RoleBinding") {
		t.Errorf("without a Role it says: %s", said)
	}
	k.grant()
	if !eventually(func() bool {
		return strings.Contains(check(), "0 targets, looked for in endpointslices in the namespace monitoring")
	}) {
		t.Errorf("with the Role of the page, and without endpointslices, it says: %s", check())
	}
	k.comeAndGo(file)
}

// comeAndGo makes the changes and holds the program to them.
func (k plane) comeAndGo(file string) {
	const most = 4 // shards; the first is always there
	t := k.t
	var homes [most][2]*fakeshard.Shard
	for i := range homes {
		for j := range homes[i] {
			homes[i][j] = fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{
				"__name__": "up", "instance": fmt.Sprint("node-", i), "job": "fake",
			}}})
		}
	}
	at := [most]int{}
	name := func(i int) string { return fmt.Sprintf("prometheus-%d-%d", i, at[i]) }
	pod := func(i int) string { return fmt.Sprint("s-", i) }
	k.slice(name(0), pod(0), homes[0][0].Addr(), true)
	p := start(t, file, "", nil)
	served, end := p.load()
	defer end()
	n, restarts := 1, 0
	for change := 1; change <= *changes; change++ {
		if change%10 == 9 {
			k.slice("nowhere", "other", "127.0.0.1:1", true)
			k.is(p, change, func(m map[string]float64) bool { return m[refusedMetric] == 1 })
			k.drop("nowhere")
		}
		if change%max(10, *changes/4) == 0 {
			if err := k.RestartAPIServer(k.ctx); err != nil {
				t.Fatal(err)
			}
			restarts++
		}
		want := 1 + (change*7+change/4)%most
		for i := range max(n, want) {
			old := name(i)
			switch home := homes[i][(change/2+i)%2].Addr(); {
			case i >= want:
				k.drop(old)
				continue
			case i >= n:
				k.slice(old, pod(i), home, true)
			case (change+i)%4 == 0: // it moves within its slice, and is not ready
				k.slice(old, pod(i), home, false)
			case (change+i)%4 == 1: // it is in two slices for a moment
				at[i]++
				k.slice(name(i), pod(i), home, true)
				k.drop(old)
			case (change+i)%4 == 2: // it is nowhere for a moment
				k.drop(old)
				k.slice(old, pod(i), home, true)
			}
		}
		n = want
		k.is(p, change, func(m map[string]float64) bool {
			return m[foundMetric] == float64(n) && m[keptMetric] == 0 && m[refusedMetric] == 0 && shown(p, "127.0.0.1:") == n
		})
	}
	end()
	_, log, _ := strings.Cut(p.Log(), "\n") // its first line may be cut
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "reflector.go") {
			t.Errorf("client-go writes to the log: %s", line)
		}
	}
	t.Logf("%d changes, %d restarts of the API server, %d requests", *changes, restarts, served.Load())
}

const (
	foundMetric   = `spillway_discovery_servers{group="heron",state="found"}`
	keptMetric    = `spillway_discovery_servers{group="heron",state="kept"}`
	refusedMetric = `spillway_discovery_refused{group="heron"}`
)

func (k plane) is(p *program, change int, ok func(map[string]float64) bool) {
	k.t.Helper()
	if !eventually(func() bool { return ok(p.metrics()) }) {
		m := p.metrics()
		k.t.Fatalf("change %d: it does not come about; %v found, %v kept, refused %v", change, m[foundMetric], m[keptMetric], m[refusedMetric])
	}
}
