package adopt

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Who reaches Spillway reads the series of all its servers. Where policies close any of these, it
// must not be a way around them: it lets in only whom the policies of each closed server let in.
// Policies of one server add up; those of several servers are intersected, as far as that can be
// written down as policies: what cannot is left out.

// asServers is the name of the policy that lets in to Spillway whom the servers let in.
const asServers = "spillway-as-servers"

// maxPeers is how many peers an intersection may have; beyond it nobody is let in but Grafana.
const maxPeers = 1000

// admitted are whom all servers that policies close let in; closed is false where none is closed.
func (p *Plan) admitted() (peers []networkingv1.NetworkPolicyPeer, closed bool) {
	seen := map[string]bool{}
	for _, w := range p.workloads() {
		for _, pod := range w.labels {
			for _, server := range w.Pods {
				walls := p.Found.walls(w.Namespace, pod)
				key := fmt.Sprint(w.ports, server.Port)
				for _, wall := range walls {
					key += " " + wall.Namespace + "/" + wall.Name
				}
				if len(walls) == 0 || seen[key] {
					continue
				}
				seen[key] = true
				let, everybody := letIn(walls, server.Port, w.ports)
				switch {
				case everybody:
				case !closed:
					peers, closed = let, true
				default:
					peers = intersect(peers, let)
				}
			}
		}
	}
	return peers, closed
}

// letIn are whom policies of the same pods let in at a port; everybody tells whether that is all.
func letIn(walls []*networkingv1.NetworkPolicy, port int32, named map[string]int32) (out []networkingv1.NetworkPolicyPeer, everybody bool) {
	for _, wall := range walls {
		for _, rule := range wall.Spec.Ingress {
			here := func(at networkingv1.NetworkPolicyPort) bool { return covers(&at, port, named) }
			if len(rule.Ports) > 0 && !slices.ContainsFunc(rule.Ports, here) {
				continue
			}
			if len(rule.From) == 0 {
				return nil, true
			}
			for _, peer := range rule.From {
				if peer.IPBlock == nil && peer.NamespaceSelector == nil {
					own := map[string]string{"kubernetes.io/metadata.name": wall.Namespace}
					peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: own}
				}
				out = append(out, peer)
			}
		}
	}
	return out, false
}

// covers tells whether a rule is about a port of TCP.
func covers(at *networkingv1.NetworkPolicyPort, port int32, named map[string]int32) bool {
	switch {
	case otherwise(at.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP:
		return false
	case at.Port == nil:
		return true
	case at.Port.StrVal != "":
		return named[at.Port.StrVal] == port
	}
	return at.Port.IntVal <= port && port <= otherwise(at.EndPort, at.Port.IntVal)
}

// intersect are those that both lists have.
func intersect(a, b []networkingv1.NetworkPolicyPeer) (out []networkingv1.NetworkPolicyPeer) {
	for _, x := range a {
		for _, y := range b {
			both, ok := meet(x, y)
			if ok && !slices.ContainsFunc(out, func(o networkingv1.NetworkPolicyPeer) bool { return reflect.DeepEqual(o, both) }) {
				out = append(out, both)
			}
			if len(out) > maxPeers {
				return nil
			}
		}
	}
	return out
}

// meet is whom two peers have in common; false where that is nobody, or cannot be written: which
// pods have addresses of a block.
func meet(a, b networkingv1.NetworkPolicyPeer) (networkingv1.NetworkPolicyPeer, bool) {
	switch {
	case reflect.DeepEqual(a, b):
		return a, true
	case a.IPBlock != nil && b.IPBlock != nil:
		return meetBlocks(a.IPBlock, b.IPBlock)
	case a.IPBlock != nil || b.IPBlock != nil:
		return networkingv1.NetworkPolicyPeer{}, false
	}
	namespaces, ok := both(a.NamespaceSelector, b.NamespaceSelector)
	pods, too := both(a.PodSelector, b.PodSelector)
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: namespaces, PodSelector: pods}, ok && too
}

// both selects what both selectors do; nil selects all. False is that two labels differ.
func both(a, b *metav1.LabelSelector) (*metav1.LabelSelector, bool) {
	if a == nil || reflect.DeepEqual(a, b) {
		return b, true
	} else if b == nil {
		return a, true
	}
	out := a.DeepCopy()
	for k, v := range b.MatchLabels {
		if old, ok := out.MatchLabels[k]; ok && old != v {
			return nil, false
		}
		if out.MatchLabels == nil {
			out.MatchLabels = map[string]string{}
		}
		out.MatchLabels[k] = v
	}
	out.MatchExpressions = append(out.MatchExpressions, b.MatchExpressions...)
	return out, true
}

// meetBlocks is the narrower one of two blocks, without what either leaves out.
func meetBlocks(a, b *networkingv1.IPBlock) (networkingv1.NetworkPolicyPeer, bool) {
	wide, err := netip.ParsePrefix(a.CIDR)
	narrow, other := netip.ParsePrefix(b.CIDR)
	if err != nil || other != nil {
		return networkingv1.NetworkPolicyPeer{}, false
	}
	if wide.Bits() > narrow.Bits() {
		wide, narrow, a, b = narrow, wide, b, a
	}
	out := b.DeepCopy()
	for _, text := range a.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil || except.Bits() <= narrow.Bits() && except.Contains(narrow.Addr()) {
			return networkingv1.NetworkPolicyPeer{}, false
		}
		if narrow.Contains(except.Addr()) {
			out.Except = append(out.Except, text)
		}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: out}, wide.Contains(narrow.Addr())
}

// likeServers is the policy that lets in to Spillway whom its servers let in, and everybody to its
// metrics, which adopt asks for through the API server; nil where no server is closed.
func (p *Plan) likeServers(s Settings) object {
	peers, closed := p.admitted()
	wall := p.Found.wall(s.Namespace, ownLabels)
	if !closed || wall != nil && len(peers) == 0 {
		return nil
	}
	var rules []any
	port := func(n int) []any { return []any{map[string]any{"port": n, "protocol": "TCP"}} }
	if len(peers) > 0 {
		rules = append(rules, map[string]any{"from": peers, "ports": port(9090)})
	}
	if wall == nil {
		wall = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace}}
		rules = append(rules, map[string]any{"ports": port(9092)})
	}
	o := opening(wall, asServers, metav1.LabelSelector{MatchLabels: ownLabels}, nil)
	o.set(rules, "spec", "ingress")
	return o.copy()
}

// shut tells whether a policy closes Spillway: one of somebody else, or that which closes it as its
// servers are closed.
func (p *Plan) shut(s Settings) bool {
	_, closed := p.admitted()
	return closed || p.Found.wall(s.Namespace, ownLabels) != nil
}
