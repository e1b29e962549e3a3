package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// fromGrafana is the name of the policy by which Grafana reaches Spillway.
const fromGrafana = "spillway-from-grafana"

// readers are the Grafanas that read data sources that ask Spillway, or are about to, and unread
// those of which nobody is seen to read them.
func (p *Plan) readers(s Settings) (readers []*grafana, unread []Ref) {
	var sources []*Source
	if s.Grafana {
		changes, _ := p.Grafana(s.Target())
		for i := range changes {
			sources = append(sources, &changes[i].Source)
		}
	}
	for i := range p.Found.Sources {
		source := &p.Found.Sources[i]
		if slices.ContainsFunc(slices.Concat(source.Entries, source.others), func(e Entry) bool {
			return p.Found.asks(e.URL, s.Target(), source)
		}) {
			sources = append(sources, source)
		}
	}
	for _, source := range sources {
		seen := false
		for _, g := range p.Found.grafanas {
			if !g.reads(source) {
				continue
			}
			if seen = true; !slices.Contains(readers, g) {
				readers = append(readers, g)
			}
		}
		if !seen && !slices.Contains(unread, source.Ref) {
			unread = append(unread, source.Ref)
		}
	}
	return readers, unread
}

// maxNamed is how many peers are named in a sentence.
const maxNamed = 8

// named says whom peers let in.
func named(peers []networkingv1.NetworkPolicyPeer) string {
	var out []string
	for _, p := range peers {
		if p.IPBlock != nil {
			out = append(out, "addresses in "+p.IPBlock.CIDR)
			continue
		}
		pods, in := "all pods", "all namespaces"
		if s := metav1.FormatLabelSelector(p.PodSelector); p.PodSelector != nil && s != "" {
			pods = "pods with " + s
		}
		if s := metav1.FormatLabelSelector(p.NamespaceSelector); p.NamespaceSelector != nil && s != "" {
			in = "namespaces with " + s
		}
		out = append(out, pods+" in "+in)
	}
	if more := len(out) - maxNamed; more > 0 {
		out = append(out[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(out, "; "), "nobody")
}

// divided are the readers by whether the policies of all closed servers let them in: who may not
// ask the servers is not to ask Spillway instead. Where those let in nobody at all, others of a
// kind that is not read here must, and all are let in.
func (p *Plan) divided(readers []*grafana) (in, out []*grafana) {
	peers, _ := p.admitted()
	for _, g := range readers {
		if len(peers) == 0 || p.servedTo(g) {
			in = append(in, g)
		} else {
			out = append(out, g)
		}
	}
	return in, out
}

// servedTo tells whether each server of the plan lets the pods of a Grafana in, as far as it is
// known: which addresses these have, and what labels their namespace has but for its name, is not,
// and counts as fitting.
func (p *Plan) servedTo(g *grafana) bool {
	fits := func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.IPBlock != nil || mayMatch(peer.NamespaceSelector, g.namespace) && matches(peer.PodSelector, g.labels)
	}
	for _, w := range p.workloads() {
		for _, pod := range w.labels {
			for _, server := range w.Pods {
				walls := p.Found.walls(w.Namespace, pod)
				let, everybody := letIn(walls, server.Port, w.ports)
				if len(walls) > 0 && !everybody && !slices.ContainsFunc(let, fits) {
					return false
				}
			}
		}
	}
	return true
}

// matches tells whether a selector is about a pod with these labels; nil selects all.
func matches(s *metav1.LabelSelector, marks map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return s == nil || err == nil && sel.Matches(labels.Set(marks))
}

// mayMatch tells whether a selector may be about a namespace of which the name alone is known.
func mayMatch(s *metav1.LabelSelector, ns string) bool {
	if s == nil {
		return true
	}
	named := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	if name, is := s.MatchLabels[corev1.LabelMetadataName]; is {
		named.MatchLabels[corev1.LabelMetadataName] = name
	}
	for _, e := range s.MatchExpressions {
		if e.Key == corev1.LabelMetadataName {
			named.MatchExpressions = append(named.MatchExpressions, e)
		}
	}
	return matches(named, map[string]string{corev1.LabelMetadataName: ns})
}

// peersOf are the pods of these Grafanas, as a policy names them.
func peersOf(readers []*grafana) (out []any) {
	for _, g := range readers {
		out = append(out, map[string]any{"namespaceSelector": inNamespace(g.namespace), "podSelector": g.marks})
	}
	return out
}

// Admitted says whom adopt's policies let in to Spillway, where one closes it; as sentences.
func (p *Plan) Admitted(s Settings) (out []string) {
	if !p.shut(s) {
		return nil
	}
	wall := p.Found.wall(s.Namespace, ownLabels)
	if peers, closed := p.admitted(); closed {
		out = append(out, fmt.Sprintf("A NetworkPolicy closes these servers: NetworkPolicy %s/%s closes Spillway too, but to those that all closed servers let in at their port (%s), "+
			"and leaves the port of its metrics, 9092, as it is. Whoever else asks Spillway, such as a ruler or an ingress that was pointed at it, does not reach it any more.",
			s.Namespace, asServers, named(peers)))
		if wall != nil {
			out = append(out, fmt.Sprintf("NetworkPolicy %s/%s is about Spillway's pods as well, and whom that lets in reaches Spillway also: look whether they may see these series.", wall.Namespace, wall.Name))
		}
	}
	readers, unread := p.readers(s)
	in, kept := p.divided(readers)
	for _, g := range kept {
		out = append(out, fmt.Sprintf("%s %s/%s reads these data sources, and is let in neither by the NetworkPolicies of the servers nor, therefore, by those of Spillway.", g.kind, g.namespace, g.name))
	}
	for _, g := range in {
		out = append(out, fmt.Sprintf("A NetworkPolicy closes Spillway. %s %s/%s, which reads these data sources, is let in.", g.kind, g.namespace, g.name))
	}
	for _, r := range unread {
		out = append(out, fmt.Sprintf("A NetworkPolicy closes Spillway, and which Grafana reads %s is not seen: nobody is let in for it. Make a policy for that one.", r))
	}
	return out
}
