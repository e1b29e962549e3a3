package helm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// somebody is a pod, as far as policies look at it.
type somebody struct {
	name, namespace string
	labels          map[string]string
}

// cluster says who reaches whom, by the semantics of networking.k8s.io/v1: a pod that no policy
// selects takes everything; one that is selected takes what any of its policies allows.
type cluster struct {
	policies   []*networkingv1.NetworkPolicy
	namespaces map[string]map[string]string // labels, by name
}

func selects(s *metav1.LabelSelector, of map[string]string) bool {
	l, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && l.Matches(kubelabels.Set(of))
}

// meets says whether a peer of a policy in the namespace is somebody. Blocks of addresses are never
// pods here.
func (c cluster) meets(p networkingv1.NetworkPolicyPeer, namespace string, who somebody) bool {
	switch {
	case p.IPBlock != nil:
		return false
	case p.NamespaceSelector == nil && who.namespace != namespace:
		return false
	case p.NamespaceSelector != nil && !selects(p.NamespaceSelector, c.namespaces[who.namespace]):
		return false
	}
	return p.PodSelector == nil || selects(p.PodSelector, who.labels)
}

func onPort(all []networkingv1.NetworkPolicyPort, port int) bool {
	return len(all) == 0 || slices.ContainsFunc(all, func(p networkingv1.NetworkPolicyPort) bool {
		return (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) && (p.Port == nil || p.Port.IntValue() == port)
	})
}

// reaches says whether a connection from one pod to a port of another is allowed.
func (c cluster) reaches(from, to somebody, port int) bool {
	selected := false
	for _, p := range c.policies {
		if p.Namespace != to.namespace || !selects(&p.Spec.PodSelector, to.labels) ||
			!slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		selected = true
		for _, r := range p.Spec.Ingress {
			meets := func(peer networkingv1.NetworkPolicyPeer) bool { return c.meets(peer, p.Namespace, from) }
			if onPort(r.Ports, port) && (len(r.From) == 0 || slices.ContainsFunc(r.From, meets)) {
				return true
			}
		}
	}
	return !selected
}

func app(name, namespace, of string) somebody {
	return somebody{name, namespace, map[string]string{"app.kubernetes.io/name": of, "app.kubernetes.io/instance": name}}
}

// The pods of a cluster with the chart's release `spillway` in it.
var (
	proxyPod   = app("spillway", "monitoring", "spillway")
	shardPod   = app("prometheus-0", "monitoring", "prometheus")
	janitor    = app("spillway", "monitoring", "remediator")
	otherShard = app("prometheus-1", "monitoring", "prometheus")
	grafana    = app("grafana", "monitoring", "grafana")
	rulerPod   = app("ruler", "monitoring", "ruler")
	sidecars   = app("thanos", "monitoring", "thanos-query")
	notebook   = app("notebook", "research", "notebook")
	stranger   = app("curl", "default", "curl")
	neighbour  = app("curl", "monitoring", "curl")
	// another is somebody who calls himself Spillway, elsewhere.
	another = app("spillway", "default", "spillway")
	thief   = app("grafana", "default", "grafana")
	// rulesProxy is the release of the ruler's own Spillway, beside the other; bills is the pod of
	// deploy/kubernetes/cost-cronjob.yaml.
	rulesProxy = app("spillway-rules", "monitoring", "spillway")
	bills      = app("spillway-cost", "monitoring", "spillway-cost")
)

// ways are who may reach whom in the values of ci/operator, ci/thanos: everything that is asked of
// the two, and true is yes.
type way struct {
	from, to somebody
	port     int
	may      bool
}

func (w way) String() string {
	return fmt.Sprintf("%s/%s to %s:%d", w.from.namespace, w.from.name, w.to.name, w.port)
}

var ways = map[string][]way{
	"operator": {
		{proxyPod, shardPod, 9090, true},
		{rulerPod, shardPod, 9090, true},
		{shardPod, shardPod, 9090, true},
		{otherShard, shardPod, 9090, true},
		{otherShard, shardPod, 8080, true},
		{grafana, shardPod, 9090, false},
		{notebook, shardPod, 9090, false},
		{stranger, shardPod, 9090, false},
		{another, shardPod, 9090, false},
		{sidecars, shardPod, 10901, false},
		{proxyPod, shardPod, 8080, false},
		{rulerPod, shardPod, 8080, false},
		{grafana, proxyPod, 9090, true},
		{notebook, proxyPod, 9090, true},
		{stranger, proxyPod, 9090, false},
		{thief, proxyPod, 9090, false},
		{shardPod, proxyPod, 9092, true},
		{grafana, proxyPod, 9092, false},
		{notebook, proxyPod, 9092, false},
		{grafana, proxyPod, 9091, false},
		{shardPod, proxyPod, 9091, false},
		{neighbour, proxyPod, 9090, false},
		{neighbour, shardPod, 9090, false},
		{app("prometheus", "research", "prometheus"), proxyPod, 9092, false},
		{app("ruler", "default", "ruler"), shardPod, 9090, false},
		{app("prometheus", "default", "prometheus"), shardPod, 8080, false},
		{stranger, grafana, 3000, true}, // nobody's policy
		{rulesProxy, shardPod, 9090, true},
		{rulesProxy, shardPod, 8080, false},
		{rulesProxy, proxyPod, 9090, false},
		{app("spillway-rules", "default", "spillway"), shardPod, 9090, false},
		{rulerPod, proxyPod, 9092, true},
		{app("ruler", "default", "ruler"), proxyPod, 9092, false},
		{bills, proxyPod, 9090, true},
		{bills, proxyPod, 9092, false},
		{bills, shardPod, 9090, false},
		{app("spillway-cost", "default", "spillway-cost"), proxyPod, 9090, false},
	},
	"thanos": {
		{proxyPod, shardPod, 9090, true},
		{otherShard, shardPod, 9090, true},
		{sidecars, shardPod, 10911, true},
		{sidecars, shardPod, 10901, false},
		{sidecars, shardPod, 9090, false},
		{stranger, shardPod, 9090, false},
		{stranger, shardPod, 10911, false},
		{another, shardPod, 9090, false},
		{app("scraper", "meta-monitoring", "prometheus"), shardPod, 10902, true},
		{app("scraper", "meta-monitoring", "prometheus"), shardPod, 9090, false},
		{app("scraper", "research", "prometheus"), shardPod, 10902, false},
		{proxyPod, shardPod, 10911, false},
		{neighbour, shardPod, 10911, false},
		{app("thanos", "default", "thanos-query"), shardPod, 10911, false},
		{grafana, proxyPod, 9090, true}, // nobody was named
		{stranger, proxyPod, 9092, true},
		{stranger, proxyPod, 9091, false},
	},
	"remediator": {
		{app("alertmanager", "monitoring", "alertmanager"), janitor, 8080, true},
		{app("alertmanager", "default", "alertmanager"), janitor, 8080, false},
		{app("prometheus", "monitoring", "prometheus"), janitor, 8080, true}, // scrapes it
		{app("prometheus", "monitoring", "prometheus"), janitor, 22, false},
		{proxyPod, janitor, 8080, false},
		{neighbour, janitor, 8080, false},
		{stranger, janitor, 8080, false},
		{stranger, proxyPod, 9090, true}, // nobody was named
		{app("prometheus", "monitoring", "prometheus"), proxyPod, 9092, true},
		{app("prometheus", "monitoring", "prometheus"), proxyPod, 9091, false},
		{app("prometheus", "default", "prometheus"), proxyPod, 9092, false},
		{app("prometheus", "default", "prometheus"), janitor, 8080, false},
		{neighbour, proxyPod, 9092, false},
		{neighbour, proxyPod, 9091, false},
	},
}

func policiesOf(t *testing.T, ci string) cluster {
	t.Helper()
	return clusterOf(t, valuesOf(t, ciFiles(t)[ci]))
}

func clusterOf(t *testing.T, values map[string]any) cluster {
	t.Helper()
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{namespaces: map[string]map[string]string{}}
	for _, ns := range []string{"monitoring", "research", "default", "meta-monitoring"} {
		c.namespaces[ns] = map[string]string{"kubernetes.io/metadata.name": ns}
	}
	for _, o := range all {
		if p, ok := o.in.(*networkingv1.NetworkPolicy); ok {
			c.policies = append(c.policies, p)
		}
	}
	if len(c.policies) != 2 {
		t.Fatalf("%d policies", len(c.policies))
	}
	// The proxy's labels are those of the Deployment, not what this test believes.
	d := deployment(all).Spec
	if got := d.Template.Labels; !selects(&c.policies[0].Spec.PodSelector, got) || !selects(d.Selector, proxyPod.labels) {
		t.Fatalf("the policy does not select pods with %v", got)
	}
	return c
}

// TestTwoReleases: the ruler's own Spillway beside the one of people, as docs/ruler.md has it:
// rules reach the servers, each Spillway is reached by its own clients, and the small Prometheus of
// the ruler scrapes both.
func TestTwoReleases(t *testing.T) {
	both := policiesOf(t, "operator")
	rules, err := renderIn("monitoring", "spillway-rules", valuesOf(t, ciFiles(t)["ruler"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rules {
		if p, ok := o.in.(*networkingv1.NetworkPolicy); ok {
			both.policies = append(both.policies, p)
		}
	}
	if d := deployment(rules).Spec; len(both.policies) != 3 || !selects(d.Selector, rulesProxy.labels) {
		t.Fatalf("%d policies; the Deployment selects %v", len(both.policies), d.Selector)
	}
	all := append(slices.Clone(ways["operator"]),
		way{rulerPod, rulesProxy, 9090, true}, way{rulerPod, rulesProxy, 9092, true},
		way{grafana, rulesProxy, 9090, false}, way{stranger, rulesProxy, 9090, false}, way{proxyPod, rulesProxy, 9090, false})
	if wrong := both.wrong(all); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}

func (c cluster) wrong(all []way) (out []string) {
	for _, w := range all {
		if c.reaches(w.from, w.to, w.port) != w.may {
			out = append(out, fmt.Sprintf("%s: %v", w, !w.may))
		}
	}
	return out
}

// TestWhoReachesWhom: nobody but Spillway, the ruler and the servers themselves reaches a server;
// whom the values name reaches Spillway, and nobody its admin listener.
func TestWhoReachesWhom(t *testing.T) {
	for ci, all := range ways {
		if wrong := policiesOf(t, ci).wrong(all); len(wrong) > 0 {
			t.Errorf("%s:\n%s", ci, strings.Join(wrong, "\n"))
		}
	}
}

// TestEveryRuleMatters breaks the policies in every place, by which somebody reaches too much or
// too little each time.
func TestEveryRuleMatters(t *testing.T) {
	n := 0
	for ci, all := range ways {
		for i := 0; ; i++ {
			c := policiesOf(t, ci)
			what := mutate(c, i)
			if what == "" {
				break
			}
			n++
			if len(c.wrong(all)) == 0 {
				t.Errorf("%s: %s changes nothing that is looked at", ci, what)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d mutations", n)
	}
	t.Logf("%d mutations seen", n)
}

// mutate makes the i-th change to the policies and says which, or nothing where there are no more.
func mutate(c cluster, i int) (what string) {
	try := func(format string, a ...any) bool { i--; what = fmt.Sprintf(format, a...); return i < 0 }
	for j, p := range c.policies {
		s := &p.Spec
		if try("%s does not select", p.Name) {
			s.PodSelector.MatchLabels = map[string]string{"a": "b"}
			return what
		}
		if try("%s is in another namespace", p.Name) {
			c.policies[j].Namespace = "default"
			return what
		}
		if try("%s lets everybody in", p.Name) {
			s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{})
			return what
		}
		for r := range s.Ingress {
			rule := &s.Ingress[r]
			if try("%s lacks rule %d", p.Name, r) {
				s.Ingress = slices.Delete(s.Ingress, r, r+1)
				return what
			}
			anybody := len(rule.From) == 1 && rule.From[0].PodSelector == nil && rule.From[0].NamespaceSelector != nil &&
				len(rule.From[0].NamespaceSelector.MatchLabels) == 0
			if !anybody && try("%s, rule %d: from everybody", p.Name, r) {
				rule.From = nil
				return what
			}
			if len(rule.Ports) > 0 && try("%s, rule %d: on all ports", p.Name, r) {
				rule.Ports = nil
				return what
			}
			if len(rule.Ports) > 0 && try("%s, rule %d: on another port", p.Name, r) {
				rule.Ports[0].Port = &intstr.IntOrString{IntVal: 1}
				return what
			}
			for f := range rule.From {
				peer := &rule.From[f]
				if len(rule.From) > 1 && try("%s, rule %d lacks peer %d", p.Name, r, f) {
					rule.From = slices.Delete(rule.From, f, f+1)
					return what
				}
				if peer.PodSelector != nil && try("%s, rule %d, peer %d: any pod", p.Name, r, f) {
					peer.PodSelector = nil
					if peer.NamespaceSelector == nil {
						peer.PodSelector = &metav1.LabelSelector{}
					}
					return what
				}
				if !anybody && try("%s, rule %d, peer %d: any namespace", p.Name, r, f) {
					peer.NamespaceSelector = &metav1.LabelSelector{}
					return what
				}
			}
		}
	}
	return ""
}

// leaves says which rules of egress bind a pod; bound is false where no policy has any for it.
func (c cluster) leaves(who somebody) (rules []networkingv1.NetworkPolicyEgressRule, bound bool) {
	for _, p := range c.policies {
		if p.Namespace == who.namespace && selects(&p.Spec.PodSelector, who.labels) &&
			slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			rules, bound = append(rules, p.Spec.Egress...), true
		}
	}
	return rules, bound
}

// egressTo is a rule of egress in a file of values.
func egressTo(cidr string) []any {
	return []any{obj{"to": []any{obj{"ipBlock": obj{"cidr": cidr}}}}}
}

// TestEgress: each of the chart's pods has rules of egress of its own, which bind it and not the
// other one, and none where none are given.
func TestEgress(t *testing.T) {
	for _, has := range []struct{ proxy, janitor bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		values := valuesOf(t, ciFiles(t)["remediator"])
		delete(values["networkPolicy"].(obj), "egress")
		delete(values["remediator"].(obj), "egress")
		if has.proxy {
			values["networkPolicy"].(obj)["egress"] = egressTo("10.0.0.1/32")
		}
		if has.janitor {
			values["remediator"].(obj)["egress"] = egressTo("10.0.0.2/32")
		}
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		c := cluster{}
		for _, o := range all {
			if p, ok := o.in.(*networkingv1.NetworkPolicy); ok {
				c.policies = append(c.policies, p)
			}
		}
		for _, w := range []struct {
			who  somebody
			has  bool
			cidr string
		}{{proxyPod, has.proxy, "10.0.0.1/32"}, {janitor, has.janitor, "10.0.0.2/32"}} {
			rules, bound := c.leaves(w.who)
			if bound != w.has || bound && (len(rules) != 1 || rules[0].To[0].IPBlock.CIDR != w.cidr) {
				t.Errorf("%+v: %v is bound: %v, by %v", has, w.who.labels, bound, rules)
			}
		}
		values["networkPolicy"].(obj)["enabled"] = false
		if all, err = render(values); err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.kind() == "NetworkPolicy" {
				t.Errorf("%+v: there is the policy %s, though they are off", has, o.meta.GetName())
			}
		}
	}
}

// TestFlows: docs/install.md has a table of all that is connected: each pod that the chart makes is
// in it, with the ports on which it is reached and the values that open them.
func TestFlows(t *testing.T) {
	b, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n## All that is connected\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, want := range []string{
		"`networkPolicy.clients`", "`networkPolicy.metricsFrom`", "`networkPolicy.egress`", "`networkPolicy.shards`",
		"`remediator.clients`", "`remediator.egress`", "cost-cronjob.yaml", "deploy/ruler", "53, UDP and TCP", "`jwt.jwks_url`", "OTLP",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not have %s", want)
		}
	}
	for name, pod := range map[string]string{"spillway": "proxy", "spillway-remediator": "remediator"} {
		values := valuesOf(t, ciFiles(t)["remediator"])
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			d, ok := o.in.(*appsv1.Deployment)
			if !ok || o.meta.GetName() != name {
				continue
			}
			for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
				row := fmt.Sprintf("| %s | %d |", pod, p.ContainerPort)
				if !strings.Contains(table, row) {
					t.Errorf("the table has no row with %q", row)
				}
			}
		}
		if !strings.Contains(table, "\n| "+pod+" | ") {
			t.Errorf("the table does not say whom the %s reaches", pod)
		}
	}
}
