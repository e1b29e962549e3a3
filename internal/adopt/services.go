package adopt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// shares finds the services that select any of its pods, or would where it has none now.
func (w *Workload) shares(services []corev1.Service, pods []corev1.Pod) {
	w.partly = map[string]bool{}
	all := []map[string]string{w.template}
	for i := range pods {
		if w.Kind != "Prometheus" || w.operates(pods[i].Name) {
			all = append(all, pods[i].Labels)
		}
	}
	for _, s := range services {
		sel := labels.SelectorFromSet(s.Spec.Selector)
		w.partly[s.Name] = len(s.Spec.Selector) > 0 &&
			slices.ContainsFunc(all, func(pod map[string]string) bool { return sel.Matches(labels.Set(pod)) })
	}
}

// doors are the ports at which who asks the service reaches the servers themselves, and nothing
// that stands before them in their pods, such as a proxy that enforces a label. A headless service
// has none of its own: its name leads to the pods.
func (w *Workload) doors(s *corev1.Service, cut []discoveryv1.EndpointSlice) (out []int32) {
	isServer := func(port int32) bool {
		return slices.ContainsFunc(w.Pods, func(p *Server) bool { return p.Port == port })
	}
	for _, e := range cut {
		if e.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, at := range e.Ports {
			port := otherwise(at.Port, 0)
			if !isServer(port) {
				continue
			}
			if s.Spec.ClusterIP == corev1.ClusterIPNone {
				out = append(out, port)
				continue
			}
			for _, front := range s.Spec.Ports { // a slice has its names
				if front.Name == otherwise(at.Name, "") {
					out = append(out, front.Port)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// asks tells whether a slice's port is that of the servers: by its name with the operator, which
// names it, and else by its number, which is on the server's command line.
func (w *Workload) asks(name string, port int32) bool {
	if w.Kind == "Prometheus" {
		return name == w.PortName || name == "http-web"
	}
	return port == w.Port
}

// calls is asks for a server whose command line does not say it all: by the names that people give
// to such a port.
func (w *Workload) calls(name string, _ int32) bool {
	return slices.Contains([]string{"web", "http-web", "http", "prometheus"}, name)
}

// take adds the servers of one slice.
func (w *Workload) take(e *discoveryv1.EndpointSlice, own map[string]bool, takes func(name string, port int32) bool) {
	for _, port := range e.Ports {
		name, number := otherwise(port.Name, ""), otherwise(port.Port, 0)
		if !takes(name, number) {
			continue
		}
		for _, ep := range e.Endpoints {
			if ep.TargetRef != nil && ep.TargetRef.Kind == "Pod" && len(ep.Addresses) > 0 && own[ep.TargetRef.Name] {
				w.PortName = name
				w.Pods = append(w.Pods, &Server{Workload: w, Pod: ep.TargetRef.Name, IP: ep.Addresses[0], Port: number})
			}
		}
		return
	}
}

// names remembers what the ports of a pod are called.
func (w *Workload) names(p *corev1.Pod) {
	if w.ports == nil {
		w.ports = map[string]int32{}
	}
	for _, k := range p.Spec.Containers {
		for _, port := range k.Ports {
			if old, ok := w.ports[port.Name]; ok && old != port.ContainerPort {
				port.ContainerPort = 0
			}
			w.ports[port.Name] = port.ContainerPort
		}
	}
}
