package adopt

import (
	"net/http"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestUnfollowed: policies of kinds that adopt does not follow are told of where they may be about
// pods of the servers, and not where they are about others, or keep nobody out.
func TestUnfollowed(t *testing.T) {
	const cnp, ccnp = "/apis/cilium.io/v2/namespaces/metrics/ciliumnetworkpolicies", "/apis/cilium.io/v2/ciliumclusterwidenetworkpolicies"
	const calico, global = "/apis/projectcalico.org/v3/namespaces/metrics/networkpolicies", "/apis/crd.projectcalico.org/v1/globalnetworkpolicies"
	const anp, banp = "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies", "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies"
	const istio, root = "/apis/security.istio.io/v1/namespaces/metrics/authorizationpolicies", "/apis/security.istio.io/v1/namespaces/istio-system/authorizationpolicies"
	const is, may = " is about pods of StatefulSet metrics/prom", " may be about pods of StatefulSet metrics/prom"
	const prom, web = "{matchLabels: {app: prom}}", "{matchLabels: {app: web}}"
	const deny = "ingress: [{action: Deny, from: []}]"
	for _, one := range []struct{ at, spec, want string }{
		{cnp, "{endpointSelector: " + prom + ", ingress: [{}]}", is},
		{cnp, "{endpointSelector: {}, ingress: [{fromEndpoints: [{}]}]}", is},
		{cnp, "{endpointSelector: " + web + ", ingress: [{}]}", ""},
		{cnp, "{endpointSelector: {matchLabels: {'k8s:app': prom, 'any:io.kubernetes.pod.namespace': metrics}}, ingress: [{}]}", is},
		{cnp, "{endpointSelector: {matchLabels: {'k8s:io.cilium.k8s.policy.serviceaccount': x}}, ingress: [{}]}", may},
		{cnp, "{endpointSelector: {}, egress: [{}]}", ""},
		{cnp, "{endpointSelector: {}, ingress: [{}], enableDefaultDeny: {ingress: false}}", ""},
		{cnp, "{endpointSelector: {}, ingressDeny: [{}], enableDefaultDeny: {ingress: false}}", is},
		{cnp, "{endpointSelector: 7, ingress: [{}]}", may},
		{ccnp, "{endpointSelector: {}, ingress: [{}]}", is},
		{ccnp, "{endpointSelector: {matchLabels: {io.kubernetes.pod.namespace: other}}, ingress: [{}]}", ""},
		{ccnp, "{nodeSelector: {}, ingress: [{}]}", ""},
		{calico, "{selector: \"app == 'prom'\"}", is},
		{calico, "{selector: \"app == 'web' && has(app)\"}", ""},
		{calico, "{selector: \"app == 'web' || has(app)\"}", may},
		{calico, "{selector: \"app != 'web' && !has(tier) && all()\"}", is},
		{calico, "{selector: \"projectcalico.org/serviceaccount == 'x'\"}", may},
		{calico, "{selector: all(), types: [Egress]}", ""},
		{calico, "{egress: [{action: Deny}]}", ""},
		{calico, "{serviceAccountSelector: \"a == 'b'\"}", may},
		{global, "{}", is},
		{global, "{namespaceSelector: \"kubernetes.io/metadata.name == 'other'\"}", ""},
		{global, "{namespaceSelector: \"team == 'other'\"}", may},
		{anp, "{subject: {namespaces: {}}, " + deny + "}", is},
		{anp, "{subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: other}}}, " + deny + "}", ""},
		{anp, "{subject: {pods: {namespaceSelector: {matchLabels: {team: x}}, podSelector: " + prom + "}}, " + deny + "}", may},
		{anp, "{subject: {pods: {namespaceSelector: {}, podSelector: " + web + "}}, " + deny + "}", ""},
		{anp, "{subject: {namespaces: {}}, ingress: [{action: Allow, from: []}]}", ""},
		{anp, "{subject: {namespaces: {}}, egress: [{action: Deny}]}", ""},
		{banp, "{subject: {namespaces: {}}, " + deny + "}", is},
		{istio, "{}", is},
		{istio, "{selector: " + prom + ", action: DENY}", is},
		{istio, "{selector: " + web + "}", ""},
		{istio, "{action: AUDIT}", ""},
		{istio, "{targetRefs: [{kind: Gateway, name: x}]}", may},
		{root, "{}", is},
		{root, "{selector: " + web + "}", ""},
	} {
		c := newCluster(t)
		c.populate(ordinals("", 2, 0, 0))
		var spec any
		if err := yaml.Unmarshal([]byte(one.spec), &spec); err != nil {
			t.Fatal(one.spec, err)
		}
		o := object{"kind": "Theirs", "spec": spec}
		o.set("one", "metadata", "name")
		for _, ns := range []string{"metrics", istioRoot} {
			if strings.Contains(one.at, "/namespaces/"+ns+"/") {
				o.set(ns, "metadata", "namespace")
			}
		}
		c.also = append(c.also, path.Base(one.at))
		c.store(one.at+"/one", o)
		got := strings.Join(c.plan(Scope{}).Unfollowed(), "\n")
		if (got == "") != (one.want == "") || !strings.Contains(got, one.want) {
			t.Errorf("%s %s: it says %q, want %q", one.at, one.spec, got, one.want)
		}
	}
}

// TestUnlistedPolicies: a kind that may not be listed is told of, unless there is no such kind,
// which the API server tells everybody.
func TestUnlistedPolicies(t *testing.T) {
	for name, one := range map[string]struct {
		list   int
		kinds  int // what is said of which kinds there are
		answer string
		want   int
	}{
		"there is none":         {http.StatusForbidden, http.StatusNotFound, "", 0},
		"none of the kind":      {http.StatusForbidden, http.StatusOK, `{"resources":[{"name":"other"}]}`, 0},
		"may not be listed":     {http.StatusForbidden, http.StatusOK, `{"resources":[{"name":"ciliumnetworkpolicies"}]}`, 1},
		"nothing is known":      {http.StatusForbidden, http.StatusForbidden, "", 1},
		"who has them is away":  {http.StatusServiceUnavailable, 0, "", 1},
		"they are not there":    {http.StatusNotFound, 0, "", 0},
		"the API server wavers": {http.StatusInternalServerError, 0, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(&fleets[2])
			c.seen = nil // which kinds there are is no object
			c.kinds = map[string]string{}
			if one.kinds == http.StatusOK {
				c.kinds["/apis/cilium.io/v2"] = one.answer
			}
			c.refuse = func(r *http.Request) (int, string) {
				switch {
				case path.Base(r.URL.Path) == "ciliumnetworkpolicies":
					return one.list, "no"
				case r.URL.Path == "/apis/cilium.io/v2" && one.kinds != http.StatusOK:
					return one.kinds, "no"
				}
				return 0, ""
			}
			said := c.plan(Scope{}).Unfollowed()
			if len(said) != one.want || one.want > 0 && !strings.Contains(said[0], "the ciliumnetworkpolicies of cilium.io cannot be listed (") {
				t.Errorf("it says %q", said)
			}
		})
	}
}
