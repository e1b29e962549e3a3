package config

import (
	"strings"
	"testing"
)

// kubernetesRows are what has a rule of its own below kubernetes_sd_configs.
func kubernetesRows() []problemRow {
	const at = "groups[0].shards_from.kubernetes_sd_configs[0]"
	one := func(rest string) string {
		return "groups: [{name: a, shards_from: {kubernetes_sd_configs: [{" + rest + "}]}}]\n"
	}
	return []problemRow{
		{"kubernetes without role", one("api_server: 'https://h'"), at + ".role", `"" is no role; write endpointslice or pod`},
		{"kubernetes endpoints", one("role: endpoints"), at + ".role", "cut at 1,000 addresses without a word; write endpointslice"},
		{"kubernetes service", one("role: service"), at + ".role", "a replica is one server; write endpointslice"},
		{"kubernetes ingress", one("role: ingress"), at + ".role", "a replica is one server; write endpointslice"},
		{"kubernetes node", one("role: node"), at + ".role", "write pod"},
		{"kubernetes role", one("role: pods"), at + ".role", `"pods" is no role`},
		{"kubernetes server", one("role: pod, api_server: 'https://u:p@h'"), at + ".api_server", "without credentials"},
		{"kubernetes two servers", one("role: pod, api_server: 'https://h', kubeconfig_file: k"), at + ".kubeconfig_file", "keep one"},
		{"kubernetes client of the pod", one("role: pod, http_client: {bearer_token: a}"), at + ".http_client", "it is for api_server"},
		{"kubernetes client of a kubeconfig", one("role: pod, kubeconfig_file: k, http_client: {bearer_token: a}"), at + ".http_client", "it is for api_server"},
		{
			"kubernetes oauth2", one("role: pod, api_server: 'https://h', http_client: {" +
				"oauth2: {client_id: a, client_secret: b, token_url: 'https://h'}}"),
			at + ".http_client.oauth2", "credentials_file",
		},
		{"kubernetes client as in Prometheus", one("role: pod, api_server: 'https://h', bearer_token: a"), at + ".bearer_token", "unknown key"},
		{
			"kubernetes own namespace of another", one("role: pod, api_server: 'https://h', namespaces: {own_namespace: true}"),
			at + ".namespaces.own_namespace", "write its name under names",
		},
		{"kubernetes namespace", one("role: pod, namespaces: {names: [a, a]}"), at + ".namespaces.names[1]", "stands twice"},
		{
			"kubernetes selector of another", one("role: pod, selectors: [{role: service, label: a}]"),
			at + ".selectors[0].role", "selectors are of [pod]",
		},
		{"kubernetes selector twice", one("role: pod, selectors: [{role: pod, label: a}, {role: pod, field: b=c}]"), at + ".selectors[1].role", "join their terms"},
		{"kubernetes selector of nothing", one("role: pod, selectors: [{role: pod}]"), at + ".selectors[0]", "give label or field"},
		{"kubernetes label", one("role: pod, selectors: [{role: pod, label: 'a in ('}]"), at + ".selectors[0].label", "pars"},
		{"kubernetes field", one("role: pod, selectors: [{role: pod, field: a}]"), at + ".selectors[0].field", "invalid selector"},
		{"kubernetes many", "groups: [{name: a, shards_from: {kubernetes_sd_configs: [" + strings.Repeat("{role: pod},", 11) + "]}}]\n", "groups[0].shards_from.kubernetes_sd_configs", "11 are more than are looked up (10)"},
		{"kubernetes and files", "groups: [{name: a, shards_from: {files: [f], kubernetes_sd_configs: [{role: pod}]}}]\n", "groups[0].shards_from", "2 ways of looking up"},
	}
}

// TestKubernetes: what Prometheus' documentation shows is read, paths start from the file's folder,
// and files that are named there are looked at.
func TestKubernetes(t *testing.T) {
	cfg, err := parseAt([]byte(`groups:
  - name: a
    shards_from:
      kubernetes_sd_configs:
        - {role: pod, kubeconfig_file: k.yaml, namespaces: {names: monitoring}, selectors: [{role: pod, label: 'app in (a, b)', field: 'status.phase=Running'}]}
        - {role: endpointslice, api_server: 'https://10.0.0.1:6443', http_client: {authorization: {credentials_file: token}, tls_config: {ca_file: ca}}}
        - {role: endpointslice, namespaces: {own_namespace: true}}
`), "dir", testNow)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	cfg.files(func(path, file string) {
		if file != "" {
			files = append(files, path[len("groups[0].shards_from.kubernetes_sd_configs"):]+" "+file)
		}
	})
	got := strings.Join(files, "\n")
	want := "[0].kubeconfig_file dir/k.yaml\n[1].http_client.tls_config.ca_file dir/ca\n" +
		"[1].http_client.authorization.credentials_file dir/token"
	if got != want {
		t.Errorf("files are\n%s\nwant\n%s", got, want)
	}
	again := string(cfg.Redacted())
	if !strings.Contains(again, "own_namespace: true") || !strings.Contains(again, "status.phase=Running") {
		t.Errorf("printed:\n%s", again)
	}
}
