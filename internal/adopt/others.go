package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Not only NetworkPolicies say who reaches pods. Those of Cilium, Calico, administrators and Istio
// are not followed, since adopt closes Spillway by NetworkPolicies alone: where one may be about
// servers of the plan, Spillway could be a way around it, so that is told, and nothing is applied
// until somebody says that it may be.

// verdict is whether a policy closes pods.
type verdict int

const (
	no verdict = iota
	perhaps
	yes
)

// policyKind is a kind of policies that adopt does not follow.
type policyKind struct {
	group, version, plural string
	// wide is that its objects are of the whole cluster.
	wide bool
	// closes tells whether one says who reaches a pod of a namespace that has these labels.
	closes func(o object, ns string, marks map[string]string) verdict
}

var policyKinds = []policyKind{
	{"cilium.io", "v2", "ciliumnetworkpolicies", false, ciliumCloses},
	{"cilium.io", "v2", "ciliumclusterwidenetworkpolicies", true, ciliumCloses},
	{"projectcalico.org", "v3", "networkpolicies", false, calicoCloses},
	{"projectcalico.org", "v3", "globalnetworkpolicies", true, calicoCloses},
	{"crd.projectcalico.org", "v1", "networkpolicies", false, calicoCloses},
	{"crd.projectcalico.org", "v1", "globalnetworkpolicies", true, calicoCloses},
	{"policy.networking.k8s.io", "v1alpha1", "adminnetworkpolicies", true, adminCloses},
	{"policy.networking.k8s.io", "v1alpha1", "baselineadminnetworkpolicies", true, adminCloses},
	{"policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies", true, adminCloses},
	{"security.istio.io", "v1", istioPlural, false, istioCloses},
	{"security.istio.io", "v1beta1", istioPlural, false, istioCloses},
}

const (
	istioPlural = "authorizationpolicies"
	// istioRoot is where those of Istio are about all namespaces, unless its mesh says another.
	istioRoot = "istio-system"
)

// otherPolicy is one of another kind.
type otherPolicy struct {
	kind   *policyKind
	object object
}

func (o otherPolicy) name() string {
	return strings.ReplaceAll(refOf(o.object).String(), " /", " ") // that of a cluster has no namespace
}

func (o otherPolicy) String() string { return o.name() + " of " + o.kind.group }

// readOthers reads the policies of other kinds that may be about pods of these namespaces.
func (c *Client) readOthers(ctx context.Context, namespaces []string, f *Found) error {
	seen := map[string]bool{}
	for i := range policyKinds {
		k := &policyKinds[i]
		root := "/apis/" + k.group + "/" + k.version
		paths := []string{root + "/" + k.plural}
		if !k.wide {
			paths = (&Scope{Namespaces: namespaces}).collections(root, k.plural)
			if at := root + "/namespaces/" + istioRoot + "/" + k.plural; k.plural == istioPlural && !slices.Contains(paths, at) {
				paths = append(paths, at)
			}
		}
		unknown := false
		for _, path := range paths {
			all, err := list[object](ctx, c, path, "", nil)
			var status *StatusError
			switch {
			case errors.As(err, &status):
				if !unknown && (status.Code != http.StatusForbidden || c.serves(ctx, root, k.plural)) {
					unknown = true
					f.unknown = append(f.unknown, fmt.Sprintf("the %s of %s cannot be listed (%s)", k.plural, k.group, err))
				}
				continue
			case err != nil:
				return err
			}
			for _, o := range all {
				o["apiVersion"] = k.group + "/" + k.version // a list leaves it out
				if o.text("kind") == "" {
					o["kind"] = strings.TrimSuffix(k.plural, "ies") + "y"
				}
				one := otherPolicy{k, o}
				if key := one.name(); !seen[key] && !calicoCopy.MatchString(o.text("metadata", "name")) {
					seen[key] = true
					f.otherPolicies = append(f.otherPolicies, one)
				}
			}
		}
	}
	return nil
}

// calicoCopy are names under which Calico's API server shows what is of Kubernetes' own kinds.
var calicoCopy = regexp.MustCompile(`^(knp|kanp|kbanp|kcnp)\.`)

// serves tells whether a kind is there, which who may not list it may ask; true where that is not
// known either. Who may not list is refused whether there is such a kind or not.
func (c *Client) serves(ctx context.Context, root, plural string) bool {
	var all metav1.APIResourceList
	err := c.get(ctx, root, &all)
	if isStatus(err, http.StatusNotFound) {
		return false
	}
	return err != nil || slices.ContainsFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
}

// Unfollowed are the policies of other kinds that may keep somebody from servers of the plan, and
// what of them could not be listed, as sentences: adopt closes Spillway by NetworkPolicies only.
func (p *Plan) Unfollowed() (out []string) {
	for _, o := range p.Found.otherPolicies {
		for _, w := range p.workloads() {
			v := no
			for _, pod := range w.labels {
				v = max(v, o.kind.closes(o.object, w.Namespace, pod))
			}
			switch v {
			case yes:
				out = append(out, fmt.Sprintf("%s is about pods of %s", o, w))
			case perhaps:
				out = append(out, fmt.Sprintf("%s may be about pods of %s", o, w))
			}
		}
	}
	out = append(out, p.Found.unknown...)
	if more := len(out) - maxNamed; more > 0 {
		out = append(out[:maxNamed], fmt.Sprintf("and so are %d more", more))
	}
	return out
}

// as is a part of an object in another type; false where it is none.
func as[T any](v any) (out T, ok bool) {
	b, err := json.Marshal(v)
	return out, err == nil && json.Unmarshal(b, &out) == nil
}

// selected tells whether a selector is about labels of which only some are known.
func selected(v any, marks map[string]string, known func(key string) (string, bool)) verdict {
	s, ok := as[metav1.LabelSelector](v)
	if !ok {
		return perhaps
	}
	out := yes
	var sure metav1.LabelSelector
	for _, key := range sorted(s.MatchLabels) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]},
		})
	}
	for _, e := range s.MatchExpressions {
		if e.Key, ok = known(e.Key); ok {
			sure.MatchExpressions = append(sure.MatchExpressions, e)
		} else {
			out = perhaps
		}
	}
	sel, err := metav1.LabelSelectorAsSelector(&sure)
	switch {
	case err != nil:
		return perhaps
	case !sel.Matches(labels.Set(marks)):
		return no
	}
	return out
}

// isName tells that a label of a namespace is its name: nothing else is known of it.
func isName(key string) (string, bool) { return key, key == corev1.LabelMetadataName }

// nameOf are the labels of a namespace that are known.
func nameOf(ns string) map[string]string { return map[string]string{corev1.LabelMetadataName: ns} }

func rulesOf(o object, path ...string) []object {
	out, _ := as[[]object](o.at(path...))
	return out
}

func ciliumCloses(o object, ns string, marks map[string]string) verdict {
	const nsLabels = "io.cilium.k8s.namespace.labels."
	all := map[string]string{"io.kubernetes.pod.namespace": ns, nsLabels + corev1.LabelMetadataName: ns}
	for k, v := range marks {
		all[k] = v
	}
	known := func(key string) (string, bool) { // a key may begin with where the label is from
		if from, rest, ok := strings.Cut(key, ":"); ok {
			if key = rest; from != "k8s" && from != "any" {
				return key, false
			}
		}
		_, have := all[key]
		return key, have || !strings.HasPrefix(key, "io.cilium.") && !strings.HasPrefix(key, "io.kubernetes.")
	}
	rules := rulesOf(o, "specs")
	if spec, ok := o.at("spec").(map[string]any); ok {
		rules = append(rules, spec)
	}
	out := no
	for _, r := range rules {
		denies, allows := r.at("ingressDeny") != nil, r.at("ingress") != nil
		if r.at("enableDefaultDeny", "ingress") == false {
			allows = false
		}
		if sel := r.at("endpointSelector"); sel != nil && (denies || allows) { // or it is about nodes
			out = max(out, selected(sel, all, known))
		}
	}
	return out
}

// calicoTerm is a part of Calico's selectors of which it is easily said what it selects; they are
// joined by &&.
var calicoTerm = regexp.MustCompile(`^\s*(?:(all\(\))|(!?)has\(\s*([\w./-]+)\s*\)|([\w./-]+)\s*(==|!=)\s*(?:'([^'&]*)'|"([^"&]*)"))\s*(?:&&|$)`)

// calicoSelected is what a selector of Calico says of labels; keys of which that is not known are
// given.
func calicoSelected(text string, marks map[string]string, unknown func(key string) bool) verdict {
	out := yes
	for rest := strings.TrimSpace(text); rest != ""; {
		m := calicoTerm.FindStringSubmatch(rest)
		if m == nil {
			return perhaps // whatever was said before: an || may follow
		}
		rest = rest[len(m[0]):]
		key := m[3] + m[4]
		value, have := marks[key]
		var matched bool
		switch {
		case m[1] != "":
			matched = true
		case !have && unknown(key):
			out = min(out, perhaps)
			continue
		case m[3] != "":
			matched = have == (m[2] == "")
		default:
			matched = (have && value == m[6]+m[7]) == (m[5] == "==")
		}
		if !matched {
			out = no
		}
	}
	return out
}

func calicoCloses(o object, ns string, marks map[string]string) verdict {
	types, _ := as[[]string](o.at("spec", "types"))
	egressOnly := o.at("spec", "egress") != nil && o.at("spec", "ingress") == nil
	if len(types) == 0 && egressOnly || len(types) > 0 && !slices.Contains(types, "Ingress") {
		return no
	}
	all := map[string]string{"projectcalico.org/namespace": ns}
	for k, v := range marks {
		all[k] = v
	}
	out := calicoSelected(o.text("spec", "selector"), all, func(key string) bool {
		return strings.HasPrefix(key, "projectcalico.org/") || strings.HasPrefix(key, "pcns.") || strings.HasPrefix(key, "pcsa.")
	})
	if text := o.text("spec", "namespaceSelector"); text != "" {
		theirs := map[string]string{corev1.LabelMetadataName: ns, "projectcalico.org/name": ns}
		out = min(out, calicoSelected(text, theirs, func(string) bool { return true }))
	}
	if o.text("spec", "serviceAccountSelector") != "" {
		out = min(out, perhaps)
	}
	return out
}

// adminCloses is about AdminNetworkPolicy and its kin. One that only lets somebody in closes
// nothing.
func adminCloses(o object, ns string, marks map[string]string) verdict {
	opens := func(r object) bool { return slices.Contains([]string{"Allow", "Accept", "Pass"}, r.text("action")) }
	rules := rulesOf(o, "spec", "ingress")
	if o.at("spec", "ingress") == nil || len(rules) > 0 && !slices.ContainsFunc(rules, func(r object) bool { return !opens(r) }) {
		return no
	}
	if sel := o.at("spec", "subject", "namespaces"); sel != nil {
		return selected(sel, nameOf(ns), isName)
	}
	all := func(key string) (string, bool) { return key, true }
	return min(selected(o.at("spec", "subject", "pods", "namespaceSelector"), nameOf(ns), isName),
		selected(o.at("spec", "subject", "pods", "podSelector"), marks, all))
}

func istioCloses(o object, ns string, marks map[string]string) verdict {
	at := o.text("metadata", "namespace")
	switch {
	case at != ns && at != istioRoot, o.text("spec", "action") == "AUDIT":
		return no
	case o.at("spec", "targetRef") != nil || o.at("spec", "targetRefs") != nil: // what stands before pods
		return perhaps
	}
	return selected(o.at("spec", "selector"), marks, func(key string) (string, bool) { return key, true })
}
