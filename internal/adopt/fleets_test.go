package adopt

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pod is one Prometheus of a fleet.
type pod struct {
	name     string
	labels   map[string]string // of the pod
	external map[string]string
	part     int // which slice of the targets it has
}

// fleet is one of those that are adopted.
type fleet struct {
	file, namespace string
	services        []string // those whose slices have the servers
	port            string   // what the slices call their port
	parts           int      // how many slices the targets are divided into
	rules           string   // relabel_configs of the servers, PART being theirs
	servers         []pod
	labels          string // what an answer has besides, as load text: cluster="jaguar",
	// config are texts that the configuration has, and lacks what it has not.
	config, lacks []string
	shards        int
	source        string   // the object whose data source changes
	only          []string // flags by which its several servers are named
	restart       string   // what --undo says is to be restarted before it goes on
}

func replicas(name string, parts, copies int, mark map[string]string, external func(part int, pod string) map[string]string) (all []pod) {
	for part := range parts {
		for n := range copies {
			shard := ""
			if part > 0 {
				shard = fmt.Sprint("-shard-", part)
			}
			full := fmt.Sprintf("prometheus-%s%s-%d", name, shard, n)
			m := map[string]string{
				"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": name,
				"operator.prometheus.io/shard": fmt.Sprint(part),
			}
			for k, v := range mark {
				m[k] = v
			}
			all = append(all, pod{full, m, external(part, full), part})
		}
	}
	return all
}

const operatorRules = `
      - {source_labels: [__address__, __tmp_hash], target_label: __tmp_hash, regex: (.+);, replacement: $1, action: replace}
      - {source_labels: [__tmp_hash], target_label: __tmp_hash, modulus: 2, action: hashmod}
      - {source_labels: [__tmp_hash, __tmp_disable_sharding], regex: PART;|.+;.+, action: keep}`

const handRules = `
      - {source_labels: [__address__], target_label: __tmp_part, modulus: 2, action: hashmod}
      - {source_labels: [__tmp_part], regex: PART, action: keep}`

var fleets = []fleet{
	{
		file: "kube-prometheus", namespace: "monitoring", services: []string{"prometheus-operated", "prometheus-k8s"}, port: "web",
		parts: 1,
		servers: replicas("k8s", 1, 2,
			map[string]string{"app.kubernetes.io/component": "prometheus", "app.kubernetes.io/part-of": "kube-prometheus"},
			func(_ int, pod string) map[string]string {
				return map[string]string{"prometheus": "monitoring/k8s", "prometheus_replica": pod}
			}),
		config: []string{"replica_labels: [prometheus, prometheus_replica]", "retention 24h", "have no external labels"},
		lacks:  []string{"hashmod:"},
		shards: 1, source: "Secret monitoring/grafana-datasources",
		restart: "kubectl -n monitoring rollout restart deployment/grafana",
	},
	{
		file: "sharded", namespace: "observe", services: []string{"prometheus-operated", "gpu"}, port: "web",
		parts: 2, rules: operatorRules,
		servers: replicas("gpu", 2, 2, nil, func(_ int, pod string) map[string]string {
			return map[string]string{"cluster": "jaguar", "replica": pod}
		}),
		labels: `cluster="jaguar",`, shards: 2, source: "GrafanaDatasource observe/metrics",
		config: []string{
			"labels: {cluster: jaguar}", "replica_labels: [replica]", "hashmod: {labels: [instance], modulus: 2}", "Thanos sidecars",
			"ThanosRuler observe/rules asks dnssrv+_http._tcp.thanos-query.observe.svc", "Thanos Query Deployment observe/thanos-query is not asked",
		},
	},
	{
		file: "handmade", namespace: "metrics", services: []string{"prom"}, port: "http", parts: 2, rules: handRules,
		servers: []pod{
			{"prom-a-0", map[string]string{"app": "prom", "part": "a"}, map[string]string{"region": "eu", "copy": "one", "shard": "a"}, 0},
			{"prom-a-1", map[string]string{"app": "prom", "part": "a"}, map[string]string{"region": "eu", "copy": "two", "shard": "a"}, 0},
			{"prom-b-0", map[string]string{"app": "prom", "part": "b"}, map[string]string{"region": "eu", "copy": "one", "shard": "b"}, 1},
			{"prom-b-1", map[string]string{"app": "prom", "part": "b"}, map[string]string{"region": "eu", "copy": "two", "shard": "b"}, 1},
		},
		labels: `region="eu",`, shards: 2, source: "ConfigMap metrics/datasources",
		only: []string{"--only=metrics/prom-a", "--only=metrics/prom-b"},
		config: []string{
			"labels: {region: eu}", "replica_labels: [copy, shard]", "hashmod: {labels: [instance], modulus: 2}", "retention 30d",
			"Shard prom-a: prom-a-0, prom-a-1, which scrape the same targets", "Deployment metrics/forwarder is an agent",
		},
	},
}

// partOf is what the relabel action hashmod makes of a value.
func partOf(value string, parts int) int {
	sum := md5.Sum([]byte(value))
	return int(binary.BigEndian.Uint64(sum[8:]) % uint64(parts))
}

// load is half an hour of samples of the targets that one part of parts has; part -1 is all. Each
// series also has more.
func load(part, parts int, more string) string {
	var b strings.Builder
	b.WriteString("load 15s\n")
	for i := range 12 {
		instance := fmt.Sprintf("10.0.0.%d:9100", i)
		if part >= 0 && partOf(instance, parts) != part {
			continue
		}
		l := fmt.Sprintf(`%sjob="node",instance="%s"`, more, instance)
		fmt.Fprintf(&b, "  up{%s} 1x120\n", l)
		fmt.Fprintf(&b, "  node_load1{%s} %d+0.25x120\n", l, i)
		fmt.Fprintf(&b, "  gpu_temperature{%s,gpu=\"%d\"} %d-0.125x120\n", l, i%4, 60+i)
		for _, code := range []string{"200", "500"} {
			fmt.Fprintf(&b, "  http_requests_total{%s,code=\"%s\"} 0+%dx120\n", l, code, i+len(code))
		}
		for n, le := range []string{"0.1", "1", "+Inf"} {
			fmt.Fprintf(&b, "  latency_seconds_bucket{%s,le=\"%s\"} 0+%dx120\n", l, le, (n+1)*(i+1))
		}
	}
	return b.String()
}

// conf is the scrape configuration of one server.
func (f *fleet) conf(s pod) string {
	conf := "scrape_configs:\n  - job_name: node\n    static_configs: [{targets: []}]\n"
	if f.rules != "" {
		conf += "    relabel_configs:" + strings.ReplaceAll(f.rules, "PART", fmt.Sprint(s.part)) + "\n"
	}
	return conf
}

// placed is a server's pod, and its slices.
func (f *fleet) placed(s pod, addr string, port int) []map[string]any {
	out := []map[string]any{{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": s.name, "namespace": f.namespace, "labels": s.labels},
		"spec": map[string]any{
			"nodeName": "node-0", "automountServiceAccountToken": false,
			"containers": []any{map[string]any{
				"name": "prometheus", "image": "prom/prometheus", "ports": []any{map[string]any{"name": f.port, "containerPort": port}},
			}},
		},
		"status": map[string]any{"phase": "Running", "podIP": addr, "podIPs": []any{map[string]any{"ip": addr}}},
	}}
	for _, service := range f.services {
		out = append(out, map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
			"metadata": map[string]any{
				"name": service + "-" + s.name, "namespace": f.namespace, "labels": map[string]any{"kubernetes.io/service-name": service},
			},
			"ports": []any{map[string]any{"name": f.port, "port": port, "protocol": "TCP"}},
			"endpoints": []any{map[string]any{
				"addresses": []any{addr}, "conditions": map[string]any{"ready": true},
				"targetRef": map[string]any{"kind": "Pod", "namespace": f.namespace, "name": s.name},
			}},
		})
	}
	return out
}

// fixture is the objects of a file.
func fixture(t *testing.T, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, o)
	}
	return out
}
