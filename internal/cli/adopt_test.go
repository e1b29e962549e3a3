package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// lists are what the API server of TestAdopt has: one Prometheus of the operator with one pod.
var lists = map[string]string{
	"/apis/monitoring.coreos.com/v1/prometheuses": `{"metadata":{"name":"k8s","namespace":"monitoring"},"spec":{"replicas":1,"externalLabels":{"cluster":"jaguar"}}}`,
	"/api/v1/namespaces/monitoring/pods": `{"metadata":{"name":"prometheus-k8s-0","labels":{"app.kubernetes.io/name":"prometheus","operator.prometheus.io/name":"k8s"}},
		"status":{"phase":"Running","podIP":"10.0.0.1"}}`,
	"/api/v1/namespaces/monitoring/services": `{"metadata":{"name":"prometheus-operated"},"spec":{"clusterIP":"None","selector":{"app.kubernetes.io/name":"prometheus"}}}`,
	"/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices": `{"metadata":{"name":"a","labels":{"kubernetes.io/service-name":"prometheus-operated"}},
		"ports":[{"name":"web","port":9090}],"endpoints":[{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","name":"prometheus-k8s-0"}}]}`,
	"/api/v1/configmaps": `{"metadata":{"name":"sources","namespace":"monitoring","uid":"u",
			"managedFields":[{"manager":"helm","operation":"Apply","fieldsV1":{"f:data":{"f:a.yaml":{}}}}]},
		"data":{"a.yaml":"datasources:\n- {name: a, type: prometheus, url: 'http://prometheus-operated:9090'}\n"}}`,
}

// adopted is the command over an API server that only reads, with a fake shard as the pod.
type adopted struct {
	kubeconfig string
	pod        *fakeshard.Shard
	hidden     func(path string) bool // what is not there
	more       map[string]string      // what there is besides lists
}

func startAdopted(t *testing.T) *adopted {
	t.Helper()
	a := &adopted{hidden: func(string) bool { return false }}
	a.pod = fakeshard.Start(t, fakeshard.Config{
		ExternalLabels: map[string]string{"cluster": "jaguar", "prometheus": "monitoring/k8s", "prometheus_replica": "prometheus-k8s-0"},
		Series:         []map[string]string{{"__name__": "up", "job": "node", "instance": "a"}},
	})
	to, err := url.Parse(a.pod.URL())
	if err != nil {
		t.Fatal(err)
	}
	const proxy = "/api/v1/namespaces/monitoring/pods/prometheus-k8s-0:9090/proxy"
	behind := http.StripPrefix(proxy, &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{DisableKeepAlives: true},
	})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, proxy+"/"):
			behind.ServeHTTP(w, r)
		case r.Method != http.MethodGet:
			t.Errorf("%s %s", r.Method, r.URL.Path)
		case a.hidden(r.URL.Path):
			fmt.Fprint(w, `{"items":[]}`)
		default:
			all, ok := lists[r.URL.Path]
			if !ok { // with --look-in each kind is asked for in a namespace
				all = lists[strings.Replace(r.URL.Path, "/namespaces/monitoring/", "/", 1)]
			}
			fmt.Fprintf(w, `{"items":[%s]}`, all+a.more[r.URL.Path])
		}
	}))
	t.Cleanup(api.Close)
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}`, api.URL)
	if err := os.WriteFile(a.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// run is what it says; it must end with that code.
func (a *adopted) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	var b bytes.Buffer
	line := append([]string{"adopt", "--kubeconfig=" + a.kubeconfig}, args...)
	if got := Spillway.Run(t.Context(), t.Context(), line, &b, &b); got != code {
		t.Fatalf("adopt %v: exit code %d:\n%s", args, got, &b)
	}
	return b.String()
}

// TestAdopt: what is found is written and proven, and a file of somebody else stays.
func TestAdopt(t *testing.T) {
	a := startAdopted(t)
	out := filepath.Join(t.TempDir(), "spillway.yaml")
	run := func(code int, args ...string) string { t.Helper(); return a.run(t, code, args...) }
	for _, want := range []string{
		"wrote " + out, "1 group, 1 shard, 1 server: proven against the servers.",
		"@@ -2 +2 @@\n-… http://prometheus-operated:9090 …\n+… http://spillway.monitoring.svc:9090 …\n",
		"This field belongs to helm, from which", "The next server-side apply of helm, such as helm upgrade of Helm 4, is refused for that",
		"Nothing was changed. To do it",
	} {
		if said := run(0, "--out="+out); !strings.Contains(said, want) { // a second time it writes its own file anew
			t.Errorf("nothing says %q:\n%s", want, said)
		}
	}
	if _, err := config.Load(out); err != nil {
		t.Errorf("the file is refused: %v", err)
	}
	if said := run(0, "--objects", "--image=x:1"); strings.Count(said, "\n---\n")+1 != 8 || !strings.Contains(said, "image: x:1") {
		t.Errorf("the objects are\n%s", said)
	}
	said := run(0, "--objects", "--image=x:1", "--image-pull-secret=one", "--image-pull-secret=two")
	if !strings.Contains(said, "      imagePullSecrets:\n      - name: one\n      - name: two\n") {
		t.Errorf("the objects with secrets are\n%s", said)
	}
	if said := run(0, "--out=-", "--no-grafana"); !strings.Contains(said, "labels: {cluster: jaguar}") || strings.Contains(said, "+++") {
		t.Errorf("it prints\n%s", said)
	}
	if err := os.WriteFile(out, []byte("groups: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := run(1, "--out="+out); !strings.Contains(said, "is there already and says something else") {
		t.Errorf("over somebody else's file it says\n%s", said)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	a.pod.Close()
	if said := run(1, "--out="+out, "--apply", "--image=x:1"); !strings.Contains(said, "the server cannot be examined") ||
		!strings.Contains(said, " -n monitoring run spillway-adopt --rm") || !strings.Contains(said, "nothing was applied") {
		t.Errorf("without the server it says\n%s", said)
	}
	a.hidden = func(string) bool { return true }
	if said := run(1); !strings.Contains(said, "there is no Prometheus in what was looked at") {
		t.Errorf("of an empty cluster it says\n%s", said)
	}
}

// TestAdoptElsewhere: the command for who has to run it in the cluster asks for the same, in a pod
// that the restricted Pod Security Standard takes.
func TestAdoptElsewhere(t *testing.T) {
	a := startAdopted(t)
	a.pod.Close()
	said := a.run(t, 1, "--out=-", "--only=monitoring/k8s", "--look-in=monitoring", "--look-in=default", "--hashmod", "--no-grafana",
		"--image-pull-secret=mine")
	_, line, ok := strings.Cut(said, " -n monitoring run spillway-adopt")
	if line, _, _ = strings.Cut(line, "\n"); !ok {
		t.Fatalf("it says no command\n%s", said)
	}
	if !strings.Contains(said, "kubectl --kubeconfig=") {
		t.Errorf("it would run in whatever cluster is the current one\n%s", said)
	}
	_, command, _ := strings.Cut(line, " --command -- ")
	const want = "/spillway adopt --via=direct --out=- --namespace=monitoring --only=monitoring/k8s --look-in=monitoring --look-in=default --hashmod --no-grafana"
	if command != want {
		t.Errorf("it is to run\n%s\nnot\n%s", command, want)
	}
	_, overrides, _ := strings.Cut(line, "--overrides='")
	overrides, _, _ = strings.Cut(overrides, "'")
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "spillway-adopt"}}}} // as kubectl makes it
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, []byte(overrides), pod)
	if err != nil {
		t.Fatal(err)
	}
	pod = corev1.Pod{}
	if err := json.Unmarshal(after, &pod); err != nil {
		t.Fatal(err)
	}
	if p := pod.Spec.ImagePullSecrets; len(p) != 1 || p[0].Name != "mine" {
		t.Errorf("its image is pulled with %v", p)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, r := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			t.Errorf("it is refused: %s %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
}

// TestAdoptNoSource: where no data source is found that asks the servers, it says where it looked.
func TestAdoptNoSource(t *testing.T) {
	a := startAdopted(t)
	const want = "No data source is changed: none that was found asks these servers. Looked at were ConfigMaps and Secrets with the label grafana_datasource, " +
		"what Grafana mounts at /etc/grafana/provisioning/datasources, and GrafanaDatasources, of monitoring."
	if said := a.run(t, 0, "--out=-"); strings.Contains(said, "No data source is changed") {
		t.Errorf("with one it says\n%s", said)
	}
	a.hidden = func(path string) bool { return strings.HasSuffix(path, "/configmaps") }
	if said := a.run(t, 0, "--out=-", "--look-in=monitoring"); !strings.Contains(said, want) {
		t.Errorf("without one it says\n%s", said)
	}
	if said := a.run(t, 0, "--out=-", "--no-grafana"); strings.Contains(said, "No data source is changed") {
		t.Errorf("not asked for it says\n%s", said)
	}
}

// TestAdoptUnfollowed: a policy that adopt does not follow is named, and nothing is applied until
// it is accepted.
func TestAdoptUnfollowed(t *testing.T) {
	a := startAdopted(t)
	a.more = map[string]string{"/apis/cilium.io/v2/namespaces/monitoring/ciliumnetworkpolicies": `{"kind":"CiliumNetworkPolicy",
		"metadata":{"name":"deny","namespace":"monitoring"},"spec":{"endpointSelector":{},"ingress":[{}]}}`}
	const named = "CiliumNetworkPolicy monitoring/deny of cilium.io is about pods of Prometheus monitoring/k8s: who is kept from these servers"
	for want, args := range map[string][]string{
		"Nothing was changed, and --apply would not: policies that adopt": {},
		"nothing was applied: policies that adopt does not follow":        {"--apply", "--image=x:1"},
		"Secret monitoring/spillway-adopt has no record":                  {"--apply", "--image=x:1", "--even-if-closed"},
	} {
		said := a.run(t, min(1, len(args)), append(args, "--out=-")...)
		if !strings.Contains(said, want) || !strings.Contains(said, named) {
			t.Errorf("%q: it says\n%s", args, said)
		}
	}
}
