package adopt

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

var update = flag.Bool("update", false, "write the configurations of testdata/golden, and the table of docs/adopt.md")

// TestFleets: of each fleet the configuration is the one in testdata/golden, comments and all.
func TestFleets(t *testing.T) {
	for i := range fleets {
		f := &fleets[i]
		t.Run(f.file, func(t *testing.T) {
			c := newCluster(t)
			c.populate(f)
			p := c.plan(Scope{})
			if len(p.Open) > 0 {
				t.Errorf("left open: %q", p.Open)
			}
			text, err := p.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata/golden", f.file+".yaml")
			if *update {
				if err := os.WriteFile(golden, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, want) {
				t.Errorf("the configuration is not that of %s (-update writes it):\n%s", golden, text)
			}
		})
	}
}

// TestHashmodOnDemand: that of the operator's shards is a remark, unless it is asked for.
func TestHashmodOnDemand(t *testing.T) {
	c := newCluster(t)
	c.populate(&fleets[1])
	found, err := c.Read(t.Context(), Scope{})
	if err != nil {
		t.Fatal(err)
	}
	reach, err := Through(c.Client)
	if err != nil {
		t.Fatal(err)
	}
	defer reach.Close()
	p, err := Make(t.Context(), found, reach, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "\n    hashmod:") || strings.Contains(string(text), "__spillway_hash__") ||
		!strings.Contains(string(text), "modulo 2, so that requests for one instance could go to one shard (--hashmod writes it)") {
		t.Errorf("the configuration is\n%s", text)
	}
}

// TestExpandedLabels: where the object's external labels are filled in by a server's environment,
// what the servers say is taken, of one that could not be asked what the others say; what differs
// between them tells copies or shards apart.
func TestExpandedLabels(t *testing.T) {
	f := fleets[1]
	f.servers = slices.Clone(f.servers)
	for i := range f.servers {
		s := &f.servers[i]
		s.external = maps.Clone(s.external)
		s.external["slice"], s.external["price"] = fmt.Sprint(s.part), "1$"
	}
	for name, lost := range map[string]string{"all are asked": "", "one is not": "observe/" + f.servers[0].name} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(&f)
			c.change("/apis/monitoring.coreos.com/v1/namespaces/observe/prometheuses/gpu", func(o object) {
				theirs := map[string]any{"cluster": "${CLUSTER}", "slice": "$(SHARD)", "price": "1$$", "empty": "$NONE"}
				o.set(theirs, "spec", "externalLabels")
			})
			delete(c.servers, lost)
			p := c.plan(Scope{})
			want := map[string]string{"cluster": "jaguar", "price": "1$"}
			others := []string{"replica", "slice"}
			if len(p.Groups) != 1 || !maps.Equal(p.Groups[0].Labels, want) || !slices.Equal(p.Groups[0].ReplicaLabels, others) {
				for _, g := range p.Groups {
					t.Errorf("group %s has the labels %v, replica_labels %v", g.Name, g.Labels, g.ReplicaLabels)
				}
			}
		})
	}
}

// TestTwoFleets: what is in one cluster is one file: groups by external labels, and what --only
// leaves out stands nowhere.
func TestTwoFleets(t *testing.T) {
	c := newCluster(t)
	for i := range fleets {
		c.populate(&fleets[i])
	}
	p := c.plan(Scope{})
	var names []string
	for _, g := range p.Groups {
		names = append(names, g.Name)
	}
	if got := strings.Join(names, " "); got != "eu main jaguar" {
		t.Errorf("the groups are %s", got)
	}
	roles, openings := 0, ""
	all, err := p.Objects(Settings{Namespace: "monitoring"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		switch o["kind"] {
		case "Role":
			roles++
		case "NetworkPolicy": // only where another one closes the servers
			openings += refOf(o).String() + "\n"
			if object(o).text("metadata", "name") == asServers {
				continue
			}
			to := object(o).text("spec", "podSelector", "matchLabels", "operator.prometheus.io/name")
			if from, _ := object(o).at("spec", "ingress").([]any); len(from) != 1 || to != "k8s" {
				t.Errorf("the policy is %v", o["spec"])
			}
		}
	}
	if roles != 3 {
		t.Errorf("%d Roles for servers in 3 namespaces", roles)
	}
	if openings != "NetworkPolicy monitoring/spillway-to-prometheus-k8s\nNetworkPolicy monitoring/spillway-as-servers\n" {
		t.Errorf("the policies are %s", openings)
	}
	if p = c.plan(Scope{Only: []string{"observe/gpu"}}); len(p.Groups) != 1 || p.Groups[0].Name != "jaguar" {
		t.Errorf("--only leaves %+v", p.Groups)
	}
	if _, err := c.Read(t.Context(), Scope{Only: []string{"observe/none"}}); err == nil || !strings.Contains(err.Error(), "found: monitoring/k8s, observe/gpu, metrics/prom-a, metrics/prom-b") {
		t.Errorf("a name that is none: %v", err)
	}
	if p = c.plan(Scope{Namespaces: []string{"metrics"}}); len(p.Groups) != 1 || p.Groups[0].Name != "eu" {
		t.Errorf("in one namespace there is %+v", p.Groups)
	}
}

// TestSelectorOfExpressions: a selector without matchLabels selects the same pods, and not all.
func TestSelectorOfExpressions(t *testing.T) {
	text := func(change bool) string {
		c := newCluster(t)
		c.populate(&fleets[2])
		for _, at := range slices.Collect(maps.Keys(c.objects)) {
			if !change || !strings.Contains(at, "/statefulsets/prom-") {
				continue
			}
			c.change(at, func(o object) {
				marks, _ := o.at("spec", "selector", "matchLabels").(map[string]any)
				var all []any
				for _, key := range sorted(marks) {
					all = append(all, map[string]any{"key": key, "operator": "In", "values": []any{marks[key]}})
				}
				o.set(map[string]any{"matchExpressions": all}, "spec", "selector")
			})
		}
		b, err := c.plan(Scope{}).YAML()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got, want := text(true), text(false); got != want {
		t.Errorf("with expressions:\n%s\nwith labels:\n%s", got, want)
	}
}

// TestRulesPlaceAsProven: the relabelling of the file puts every server where the proof had it, and
// takes no other pod and no other port. What is one group over two namespaces is among the fleets.
func TestRulesPlaceAsProven(t *testing.T) {
	moved := fleets[1] // another operator's pair with the same external labels
	moved.namespace = "observe-2"
	wide := newCluster(t)
	wide.populate(&fleets[1])
	wide.populate(&moved)
	for _, o := range fixture(t, "testdata/fleets/sharded.yaml") {
		object(o).set("observe-2", "metadata", "namespace")
		wide.put(o)
	}
	plans := map[string]*Plan{"wide": wide.plan(Scope{})}
	for i := range fleets {
		c := newCluster(t)
		c.populate(&fleets[i])
		plans[fleets[i].file] = c.plan(Scope{})
	}
	for name, p := range plans {
		cfg, err := p.Config()
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range p.Groups {
			var rules []*relabel.Config
			for _, r := range cfg.Groups[i].ShardsFrom.Relabel {
				rule, err := r.Rule()
				if err != nil {
					t.Fatal(err)
				}
				rules = append(rules, rule)
			}
			found := func(s *Server, pod, port string) (labels.Labels, bool) {
				b := labels.NewBuilder(labels.FromStrings(
					model.AddressLabel, s.IP+":9090", namespace, s.Workload.Namespace, targetName, pod,
					"__meta_kubernetes_endpointslice_port_name", port, "__meta_kubernetes_endpointslice_port", "9090"))
				keep := relabel.ProcessBuilder(b, rules...)
				return b.Labels(), keep
			}
			for _, s := range g.Servers {
				l, keep := found(s, s.Pod, s.Workload.PortName)
				hash := ""
				if g.Modulus > 0 {
					hash = fmt.Sprint(s.Hash)
				}
				if got, want := l.Get("__spillway_shard__")+" "+l.Get("__spillway_replica__")+" "+l.Get("__spillway_hash__"),
					s.Shard+" "+s.Replica+" "+hash; !keep || got != want {
					t.Errorf("%s: %s is placed at %q, and was proven at %q", name, s.Pod, got, want)
				}
				web := s.Workload.PortName
				for _, other := range [][2]string{{s.Pod, "reloader-web"}, {s.Pod, ""}, {"x" + s.Pod, web}, {s.Pod + "x", web}} {
					if _, keep := found(s, other[0], other[1]); keep {
						t.Errorf("%s: %s at port %q is taken", name, other[0], other[1])
					}
				}
			}
		}
	}
	if g := plans["wide"].Groups; len(g) != 1 || len(g[0].Servers) != 8 {
		t.Errorf("two pairs with equal labels are %d groups", len(g))
	}
}

// TestOpen: what cannot be known is said, and stands in no group.
func TestOpen(t *testing.T) {
	hand, pair := &fleets[2], &fleets[0]
	slice := func(f *fleet, service, pod string) string {
		return collection("discovery.k8s.io/v1", "EndpointSlice", f.namespace) + "/" + service + "-" + pod
	}
	set := func(name string) string { return collection("apps/v1", "StatefulSet", "metrics") + "/" + name }
	flags := func(flag string) func(o object) {
		return func(o object) {
			containers := o.at("spec", "template", "spec").(map[string]any)["containers"].([]any)
			k := containers[0].(map[string]any)
			k["args"] = append(k["args"].([]any), flag)
		}
	}
	last := hand.servers[3]
	for name, one := range map[string]struct {
		fleet *fleet
		with  func(c *cluster)
		want  string // in the file, as a comment
		open  int
	}{
		"neither replicas nor shards": {hand, func(c *cluster) {
			c.servers["metrics/prom-b-1"] = prometheus("", last.external, append(targetsOf(1, 2)[:3], "x:1", "y:1")...)
		}, "Pods prom-b-0 and prom-b-1 have 60 % of their targets in common: neither replicas nor shards, so prom-b-1 is left out", 1},
		"no targets": {hand, func(c *cluster) {
			c.servers["metrics/prom-b-1"] = prometheus(hand.conf(last), last.external)
		}, "Pod prom-b-1 scrapes nothing", 1},
		"cannot be asked": {hand, func(c *cluster) {
			delete(c.servers, "metrics/prom-b-0")
		}, "pod prom-b-0 could not be asked what it is", 1},
		"wants credentials": {hand, func(c *cluster) {
			c.change(set("prom-a"), flags("--web.config.file=/web.yml"))
		}, "it has --web.config.file=/web.yml", 1},
		"no service": {hand, func(c *cluster) {
			delete(c.objects, collection("v1", "Service", "metrics")+"/prom")
		}, "no Service selects all its pods", 2},
		"a pod of the operator's": {pair, func(c *cluster) {
			delete(c.objects, slice(pair, "prometheus-operated", "prometheus-k8s-1"))
		}, "it asks for 1 shard with 2 replicas each, and its Service has 1 pod: run this again", 1},
		"divided by another label": {hand, func(c *cluster) {
			conf := strings.ReplaceAll(hand.conf(last), "__address__", "zone")
			c.servers["metrics/prom-b-1"] = prometheus(conf, last.external, targetsOf(1, 2)...)
		}, "hashmod: not written, since prom-b-1 is divided by another rule", 0},
		"a name of replica's own": {pair, func(c *cluster) {
			c.change(collection("monitoring.coreos.com/v1", "Prometheus", "monitoring")+"/k8s", func(o object) {
				o.set("copy", "spec", "replicaExternalLabelName")
			})
		}, "replica_labels: [copy, prometheus]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(one.fleet)
			one.with(c)
			p := c.plan(Scope{})
			if len(p.Open) != one.open {
				t.Errorf("left open: %q, want %d", p.Open, one.open)
			}
			text := strings.Join(p.Open, "\n")
			if len(p.Groups) > 0 {
				b, err := p.YAML()
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
			if !strings.Contains(text, one.want) {
				t.Errorf("nothing says %q:\n%s", one.want, text)
			}
		})
	}
}

// TestHashRule: a rule is taken only where all that a server scrapes is divided by it, and by a
// label that is stored.
func TestHashRule(t *testing.T) {
	const hash, keep = "{source_labels: [__address__], target_label: __tmp, modulus: 4, action: hashmod}", "{source_labels: [__tmp], regex: 3, action: keep}"
	of := func(label string) string { return strings.ReplaceAll(hash, "__address__", label) }
	job := func(rules ...string) string {
		return "- {job_name: a, relabel_configs: [" + strings.Join(rules, ", ") + "]}"
	}
	operator := strings.NewReplacer("PART", "1", "      -", "    -").Replace(operatorRules)
	for rules, want := range map[string]string{
		job(hash, keep):         "instance 4 3",
		job(of("node"), keep):   "node 4 3",
		"- {job_name: a}":       " 0 0",
		job(of("__meta"), keep): "__meta is hashed, which is not stored",
		job(of("a, b"), keep):   "the hash is that of a, b together",
		job(hash, keep, "{target_label: instance, replacement: x}"):   "a rule beside the hashmod may write instance",
		job("{target_label: instance, replacement: x}", hash, keep):   "a rule beside the hashmod may write instance",
		job("{action: labelmap, regex: (.+)}", hash, keep):            "a rule beside the hashmod may write instance",
		job(of("node"), keep, "{target_label: node, replacement: x}"): "a rule beside the hashmod may write node",
		job("{target_label: node, replacement: x}", of("node"), keep): "node 4 3",
		job(hash): "what the hash keeps cannot be read",
		job(hash, "{source_labels: [__tmp], regex: 1|3, action: keep}"): "what the hash keeps cannot be read",
		job(hash, keep) + "\n- {job_name: b}":                           "job b is not divided",

		job(hash, keep) + "\n" + job(strings.Replace(hash, "4", "5", 1), keep):        "divided by different rules",
		strings.Replace(job(hash, keep), "relabel", "honor_labels: true, relabel", 1): "job a has honor_labels",

		strings.Replace(job(hash, keep), "relabel", "metric_relabel_configs: [{target_label: instance}], relabel", 1): "rewrites instance after the scrape",

		"- job_name: a\n  relabel_configs:" + operator:                                                         "instance 2 1",
		"- job_name: a\n  relabel_configs:\n    - {source_labels: [pod], target_label: __tmp_hash}" + operator: "a rule writes __tmp_hash",
	} {
		var o ownConfig
		if err := yaml.Unmarshal([]byte("scrape_configs:\n"+rules), &o); err != nil {
			t.Fatalf("%s: %v", rules, err)
		}
		h := o.rule()
		got := fmt.Sprint(h.label, " ", h.modulus, " ", h.n)
		if h.why != "" {
			got = h.why
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s\n%q, want %q", rules, got, want)
		}
	}
}

// TestGrafana: of each way of writing a data source only the URL changes, and only where it is that
// of a server of the plan.
func TestGrafana(t *testing.T) {
	doors := map[string][]int32{"prom": {80, 9090}, "front": {80}, "tenants": nil}
	w := &Workload{Namespace: "metrics", Name: "p", Service: "prom", services: doors}
	p := &Plan{Found: &Found{}, Groups: []*Group{{Workloads: []*Workload{w}}}}
	const target = "http://spillway.monitoring.svc:9090"
	for text, want := range map[string]string{
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom:9090'}\n":                                        "datasources:\n- {name: a, type: prometheus, url: '" + target + "'}\n",
		"datasources:\n- name: http://prom\n  type: prometheus\n  url: http://prom # é\n":                               "datasources:\n- name: http://prom\n  type: prometheus\n  url: " + target + " # é\n",
		"datasources: [{name: é, type: prometheus, url: http://prom/}, {name: b, type: prometheus, url: http://prom/}]": "datasources: [{name: é, type: prometheus, url: " + target + "}, {name: b, type: prometheus, url: " + target + "}]",
		`{"datasources":[{"name":"a","type":"prometheus","url":"http://front.metrics.svc.cluster.local:80/x"}]}`:        `{"datasources":[{"name":"a","type":"prometheus","url":"` + target + `"}]}`,
		"datasources:\n- {name: a, type: prometheus, url: 'http://p-0.prom.metrics.svc:9090'}\n":                        "which is not all of these servers and nothing else, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom', basicAuth: true}\n":                            "has credentials or TLS, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'https://prom'}\n":                                            "has credentials or TLS, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom.other.svc:9090'}\n":                              "which is none of these servers, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'http://u:secret@prom:9090'}\n":                               "has credentials in its URL, and stays",
		"datasources:\n- {name: a, type: prometheus, url: '" + target + "'}\n":                                          "asks Spillway already",
		"datasources:\n- {name: a, type: prometheus, url: \"http:\\x2f\\x2fprom\"}\n":                                   "cannot be replaced",
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom:8080'}\n":                                        "asks port 8080 of prom, which is not that of these servers themselves, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'http://tenants'}\n":                                          "asks port 80 of tenants, which is not that of these servers themselves, and stays",
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom', jsonData: {customQueryParameters: team=a}}\n":  "sends parameters, headers or tokens of its own",
		"datasources:\n- {name: a, type: prometheus, url: 'http://prom', jsonData: {oauthPassThru: true}}\n":            "sends parameters, headers or tokens of its own",
		"datasources:\n- {name: a, type: prometheus, url: 'http://front', jsonData: {httpMethod: POST}}\n":              "datasources:\n- {name: a, type: prometheus, url: '" + target + "', jsonData: {httpMethod: POST}}\n",
		"datasources:\n- {name: a, type: loki, url: 'http://prom'}\n":                                                   "",
	} {
		s := Source{Ref: Ref{"v1", "ConfigMap", "metrics", "g"}, Key: "a.yaml", Text: text, object: object{}}
		var err error
		if s.Entries, _, err = entriesOf(text); err != nil {
			t.Fatal(err)
		}
		p.Found.Sources = []Source{s}
		changes, remarks := p.Grafana(target)
		got := strings.Join(remarks, "\n")
		if len(changes) > 0 {
			got = changes[0].After
		}
		if len(changes) > 0 && got != want || len(changes) == 0 && (!strings.Contains(got, want) || want == "" && got != "") {
			t.Errorf("%s\nbecomes %s\nwant %s", text, got, want)
		}
		if strings.Contains(got, "secret@") {
			t.Errorf("a password is told: %s", got)
		}
	}
}

// TestServicesOfAll: a Service is the workload's only where it selects all pods, and only those of
// its ports are, by whatever number, that lead to the servers and not to what stands beside them.
func TestServicesOfAll(t *testing.T) {
	mark := map[string]string{"app": "prom"}
	var pods []corev1.Pod
	slice := discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{
		{Name: new("web"), Port: new(int32(9090))}, {Name: new("tenants"), Port: new(int32(8080))},
	}}
	for i, name := range []string{"p-0", "p-1", "p-2"} {
		labels := maps.Clone(mark)
		labels["pod"] = name
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name},
		})
	}
	service := func(name, address string, selector map[string]string, ports ...corev1.ServicePort) corev1.Service {
		return corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: address, Selector: selector, Ports: ports},
		}
	}
	var cut []discoveryv1.EndpointSlice
	services := []corev1.Service{
		service("prom", "10.1.0.1", mark, corev1.ServicePort{Name: "web", Port: 80}, corev1.ServicePort{Name: "tenants", Port: 9090}),
		service("each", corev1.ClusterIPNone, mark),
		service("first", "10.1.0.2", pods[0].Labels, corev1.ServicePort{Name: "web", Port: 80}),
		service("last", "10.1.0.3", pods[2].Labels, corev1.ServicePort{Name: "web", Port: 80}),
	}
	for _, s := range services {
		one := slice
		one.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
		cut = append(cut, one)
	}
	w := &Workload{Kind: "StatefulSet", Namespace: "metrics", Name: "p", Replicas: 3, Port: 9090}
	w.locate(services, cut, pods)
	want := map[string][]int32{"prom": {80}, "each": {9090}}
	if !reflect.DeepEqual(w.services, want) || w.Problem != "" {
		t.Errorf("its services are %v, want %v (%s)", w.services, want, w.Problem)
	}
	policy := func(name string, pod map[string]string) networkingv1.NetworkPolicy {
		return networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metrics", Name: name},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: pod}},
		}
	}
	p := &Plan{Groups: []*Group{{Workloads: []*Workload{w}}}, Found: &Found{
		policies: []networkingv1.NetworkPolicy{
			policy("a", pods[0].Labels), policy("b", pods[1].Labels), policy("c", pods[2].Labels),
		},
	}}
	var names []string
	for _, o := range p.openings(Settings{Namespace: "monitoring"}) {
		names = append(names, o.text("metadata", "name"))
	}
	const name = "spillway-to-statefulset-p"
	if want := []string{name, name + "-at-b", name + "-at-c", asServers}; !slices.Equal(names, want) {
		t.Errorf("openings %q, want %q", names, want)
	}
}

// TestDiff: of a file only what changes is shown, and no password that stands beside it.
func TestDiff(t *testing.T) {
	const text = `datasources:
  - name: a
    type: prometheus
    basicAuthPassword: secret
    url: "http://prom" # here
  - {name: b, type: prometheus, url: http://prom:9090, basicAuthPassword: secret}
`
	entries, _, err := entriesOf(text)
	if err != nil {
		t.Fatal(err)
	}
	w := &Workload{Namespace: "metrics", Name: "p", Service: "prom", services: map[string][]int32{"prom": {80, 9090}}}
	p := &Plan{Groups: []*Group{{Workloads: []*Workload{w}}}, Found: &Found{Sources: []Source{
		{Ref: Ref{"v1", "Secret", "metrics", "g"}, Key: "a.yaml", Text: text, Entries: entries, object: object{}},
	}}}
	changes, _ := p.Grafana("http://spillway")
	const want = `--- Secret metrics/g a.yaml
+++ Secret metrics/g a.yaml
@@ -5 +5 @@
-    url: "http://prom" # here
+    url: "http://spillway" # here
@@ -6 +6 @@
-… http://prom:9090 …
+… http://spillway …
`
	if got := changes[0].Diff(); got != want {
		t.Errorf("the change is shown as\n%s", got)
	}
}

// TestProve: servers that are not what the configuration says are named by their pods.
func TestProve(t *testing.T) {
	f := &fleets[1] // the operator's word is that these are two shards
	for name, one := range map[string]struct {
		last func(c *cluster) http.Handler // the last server
		want string
	}{
		"as they should be": {nil, ""},
		"an external label that the object does not have": {func(*cluster) http.Handler {
			return shardHandler(t, map[string]string{"cluster": "heron", "replica": "x"}, targetsOf(1, 2))
		}, `its external label cluster is "heron"`},
		"the other shard's targets": {func(*cluster) http.Handler {
			return shardHandler(t, f.servers[3].external, targetsOf(0, 2))
		}, "jaguar/prometheus-gpu-shard-1-1.observe:9090: holds the same targets as prometheus-gpu-0.observe:9090 of shard 0"},
		"gone": {func(*cluster) http.Handler { return nil }, "the server cannot be examined"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(f)
			for i, s := range f.servers {
				h := shardHandler(t, s.external, targetsOf(s.part, f.parts))
				if i == len(f.servers)-1 && one.last != nil {
					h = one.last(c)
				}
				c.servers[f.namespace+"/"+s.name] = h
			}
			found, err := c.Read(t.Context(), Scope{})
			if err != nil {
				t.Fatal(err)
			}
			reach, err := Through(c.Client)
			if err != nil {
				t.Fatal(err)
			}
			defer reach.Close()
			p, err := Make(t.Context(), found, reach, true)
			if err != nil {
				t.Fatal(err)
			}
			problems, err := p.Prove(t.Context(), reach)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(problems, "\n")
			if one.want == "" && said != "" || !strings.Contains(said, one.want) {
				t.Errorf("it says %q, want %q", said, one.want)
			}
			if strings.Contains(said, "127.0.0.1") {
				t.Errorf("an address of this process is told: %s", said)
			}
		})
	}
}

// shardHandler passes on to a fake shard.
func shardHandler(t *testing.T, external map[string]string, targets []string) http.Handler {
	cfg := fakeshard.Config{ExternalLabels: external}
	for _, instance := range targets {
		cfg.Series = append(cfg.Series, map[string]string{"__name__": "up", "job": "node", "instance": instance})
	}
	s := fakeshard.Start(t, cfg)
	return passOn(t, s.URL())
}
