package adopt

import (
	"fmt"
	"slices"
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
			"and leaves the port of its metrics, 9092, as it is.", s.Namespace, asServers, plural(len(peers), "peer")))
		if wall != nil {
			out = append(out, fmt.Sprintf("NetworkPolicy %s/%s is about Spillway's pods as well, and whom that lets in reaches Spillway also: look whether they may see these series.", wall.Namespace, wall.Name))
		}
	}
	readers, unread := p.readers(s)
	for _, g := range readers {
		out = append(out, fmt.Sprintf("A NetworkPolicy closes Spillway. %s %s/%s, which reads these data sources, is let in.", g.kind, g.namespace, g.name))
	}
	for _, r := range unread {
		out = append(out, fmt.Sprintf("A NetworkPolicy closes Spillway, and which Grafana reads %s is not seen: nobody is let in for it. Make a policy for that one.", r))
	}
	return out
}
