package uses

import (
	"strings"
	"testing"
)

// pods is a Deployment with one container.
func pods(container string) string {
	return object("Deployment", "spec:\n  template:\n    spec:\n      containers:\n      - "+strings.ReplaceAll(container, "\n", "\n        ")+"\n")
}

// TestBuiltIn: what programs ask by themselves is known by their images, charts and arguments.
func TestBuiltIn(t *testing.T) {
	const vpa, cost = "container_cpu_usage_seconds_total container_memory_working_set_bytes", "node_cpu_hourly_cost kube_pod_labels"
	for name, c := range map[string]struct{ text, keeps string }{
		"the recommender": {pods("name: recommender\nargs: [--v=4, --storage=prometheus, '--prometheus-address=http://p']"), vpa},
		"its labels": {
			pods("args: [--storage=prometheus, --metric-for-pod-labels=used_a, '--history-cpu-metric=used_b']"), vpa + " used_a used_b",
		},
		"labels by a query":   {pods("args: ['--metric-for-pod-labels=used_a{job=\"x\"}[8d]']"), "used_a"},
		"labels by MetricsQL": {pods("args:\n- --metric-for-pod-labels=label_move(used_a, \"label_app\", \"app\")"), "used_a"},
		"two arguments":       {pods("command: [/recommender, --storage, prometheus, --metric-for-pod-labels, used_a]"), vpa + " used_a"},
		"by a shell":          {pods("command: [sh, -c, '/recommender --v=4 --storage=prometheus --metric-for-pod-labels=used_a --x']"), vpa + " used_a"},
		"a chart's values": {
			object("HelmRelease", "spec:\n  values:\n    recommender:\n      extraArgs: {storage: prometheus, prometheus-address: 'http://p', metric-for-pod-labels: used_a}\n"),
			vpa + " used_a",
		},
		"an image":             {pods("image: ghcr.io/opencost/opencost:1.108.0"), cost},
		"by a digest":          {pods("image: localhost:5000/opencost@sha256:00"), cost},
		"Kubecost":             {pods("image: gcr.io/kubecost1/cost-model:prod-1.100"), cost},
		"a chart of Flux":      {object("HelmRelease", "spec:\n  chart:\n    spec:\n      chart: opencost\n"), cost},
		"a chart of Argo CD":   {object("Application", "spec:\n  source: {repoURL: 'https://x', chart: cost-analyzer}\n"), cost},
		"a chart of Kustomize": {object("Kustomization", "helmCharts:\n- {name: opencost, repo: 'https://x'}\n"), cost},
		"a chart of a chart":   {"name: x\ndependencies:\n- {name: opencost, repository: 'https://x', version: 1.0.0}\n", cost},
		"values of its chart":  {"opencost:\n  prometheus: {internal: {enabled: true}}\n", cost},
		"Kiali":                {pods("image: quay.io/kiali/kiali:v2.1"), "istio_requests_total istio_request_bytes_bucket pilot_info go_goroutines"},
		"an object of Kiali":   {"apiVersion: kiali.io/v1alpha1\nkind: Kiali\nmetadata: {name: n}\nspec: {a: {b: c}}\n", "istio_request_duration_milliseconds_count"},
		"KRR":                  {pods("image: robustadev/krr:v1.17.0"), "kube_pod_owner machine_cpu_cores"},
		"Jaeger":               {pods("env:\n- {name: METRICS_STORAGE_TYPE, value: prometheus}"), "calls_total duration_milliseconds_bucket"},
		"Jaeger by Compose":    {"services: {j: {environment: [METRICS_STORAGE_TYPE=prometheus]}}\n", "traces_span_metrics_calls_total"},
		"Jaeger of a map":      {object("ConfigMap", "data: {METRICS_STORAGE_TYPE: prometheus}\n"), "calls_total"},
		"Jaeger 2": {
			"extensions: {jaeger_storage: {metric_backends: {m: {prometheus: {endpoint: 'http://p'}}}}}\n", "traces_span_metrics_duration_milliseconds_bucket",
		},
		"an image of its values": {"x: {image: {registry: ghcr.io, repository: opencost/opencost}}\n", cost},
	} {
		holds(t, name, "f.yaml", c.text, c.keeps)
	}
	for name, text := range map[string]string{
		"another storage": pods("args: [--storage=checkpoint]"),
		"its pages":       pods("image: ghcr.io/opencost/opencost-ui:1.108.0"),
		"a label":         object("ServiceMonitor", "spec: {selector: {matchLabels: {app: opencost}}}\n"),
		"a mode of else":  pods("args: [--storage=prometheus-local]"),
	} {
		set := new(Set)
		if err := Rules(set, folder(t, "f.yaml", text)); err != nil || len(set.Uses) > 0 {
			t.Errorf("%s: %v\n%s", name, err, strings.Join(set.lines(""), "\n"))
		}
	}
	set := new(Set)
	if err := Rules(set, folder(t, "f.yaml", pods("image: opencost/opencost\nenv: [{name: A, value: b}]"))); err != nil ||
		!strings.Contains(strings.Join(set.Warnings, "\n"), "OpenCost are built into it") {
		t.Errorf("%v: %q", err, set.Warnings)
	}
}

// TestSettings: variables of containers, patches, flags for a metric, triggers of other programs
// and Kubernetes' own API name metrics, too.
func TestSettings(t *testing.T) {
	env := func(name, value string) string { return pods("env:\n- name: " + name + "\n  value: " + value) }
	script := func(text string) string { return object("ConfigMap", "data:\n  s.sh: |\n    "+text+"\n") }
	for name, c := range map[string]struct{ text, keeps string }{
		"a variable":               {env("PROM_QUERY", "used_a"), "used_a"},
		"a query in it":            {env("PROM_QUERY", "sum(used_a)"), "used_a"},
		"of a query for something": {env("PROM_QUERY_LOAD", "used_a"), "used_a"},
		"of any query":             {env("LOAD_QUERY", "used_a"), "used_a"},
		"MetricsQL in it":          {env("LOAD_QUERY", "rollup_rate(used_a[5m])"), "used_a"},
		"a name":                   {env("METRIC_NAME", "used_a"), "used_a"},
		"names":                    {env("METRICS", "'used_a, used_b'"), "used_a used_b"},
		"of Compose":               {"services:\n  a:\n    environment: [PROMETHEUS_QUERY=used_a, METRIC_NAME=used_b]\n", "used_a used_b"},
		"a flag":                   {pods("args: [--metric=used_a, --metric-name, used_b]"), "used_a used_b"},
		"a patch": {
			object("Kustomization", "patches:\n- target: {kind: PrometheusRule}\n  patch: |\n    - op: replace\n      path: /spec/groups/0/rules/0/expr\n      value: used_a\n"),
			"used_a",
		},
		"a patch of a query": {
			object("Kustomization", "patchesJson6902:\n- patch: |-\n    - {op: add, path: /spec/metrics/0/provider/prometheus/query, value: used_a}\n"), "used_a",
		},
		"Kubernetes' own API":         {script("kubectl get --raw \"/apis/custom.metrics.k8s.io/v1beta1/namespaces/${NS}/pods/*/used_a\" | jq ."), "used_a"},
		"a metric of a namespace":     {script("kubectl get --raw /apis/custom.metrics.k8s.io/v1beta2/namespaces/x/metrics/used_a"), "used_a"},
		"an external one":             {script("kubectl get --raw '/apis/external.metrics.k8s.io/v1beta1/namespaces/x/used_a?labelSelector=a'"), "used_a"},
		"an adapted name":             {script("kubectl get --raw /apis/custom.metrics.k8s.io/v1beta1/namespaces/x/pods/*/cpu_usage"), "container_cpu_usage_seconds_total"},
		"a variable of a shell in it": {script("for m in used_a used_b; do kubectl get --raw \"/apis/custom.metrics.k8s.io/v1beta1/namespaces/x/pods/*/${m}\"; done"), "used_a used_b"},
		"a trigger of another program": {
			"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec:\n  triggers:\n  - type: kedify-otel\n    metadata: {metricQuery: used_a, targetValue: '40'}\n",
			"used_a",
		},
	} {
		holds(t, name, "f.yaml", c.text, c.keeps)
	}
	for name, text := range map[string]string{
		"a word":                 env("METRICS", "enabled"),
		"words":                  pods("args: [--metric=cpu, --metric-name, memory, '--metric-allowlist=kube_a,kube_b']"),
		"a switch":               env("PROMETHEUS_QUERY_SUPPORT_SPANMETRICS_CONNECTOR", "'true'"),
		"SQL":                    env("DB_QUERY", "select a_b from c_d"),
		"a step's filling":       object("Workflow", "spec: {arguments: {parameters: [{name: promql, value: '{{inputs.parameters.q}}'}]}}\n"),
		"another filling":        env("DB_QUERY", "'${QUERY}'"),
		"KEDA's own":             script("kubectl get --raw /apis/external.metrics.k8s.io/v1beta1/namespaces/x/s0-prometheus"),
		"the list of all":        script("kubectl get --raw /apis/custom.metrics.k8s.io/v1beta1 | jq ."),
		"a trigger of no PromQL": "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec:\n  triggers:\n  - type: graphite\n    metadata: {query: a_b, threshold: '40'}\n",
	} {
		set := new(Set)
		err := Rules(set, folder(t, "f.yaml", text))
		if err != nil || set.keeps("a_b") || set.keeps("kube_a") || set.keeps("memory") || len(set.Uses) > 1 {
			t.Errorf("%s: %v\n%s", name, err, strings.Join(set.lines(""), "\n"))
		}
	}
}
