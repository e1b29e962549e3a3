package adopt

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/spillwayproject/spillway/deploy/kubernetes"
)

// managedBy is the label by which adopt knows an object as its own.
const managedBy = "app.kubernetes.io/managed-by"

// Settings say where Spillway is put.
type Settings struct {
	// Namespace must exist.
	Namespace string
	// Image is what its pods run; empty is what deploy/kubernetes names.
	Image string
	// Grafana tells whether Grafana's data sources are changed.
	Grafana bool
}

// Target is the URL at which Grafana will ask Spillway.
func (s *Settings) Target() string { return "http://spillway." + s.Namespace + ".svc:9090" }

// Objects are those of deploy/kubernetes with the plan's configuration, in the order in which they
// are applied, and besides them the policies without which Spillway would not reach its servers.
func (p *Plan) Objects(s Settings) ([]map[string]any, error) {
	all, err := p.objects(s)
	out := make([]map[string]any, len(all))
	for i, o := range all {
		out[i] = o
	}
	return out, err
}

func (p *Plan) objects(s Settings) ([]object, error) {
	var all []object
	err := fs.WalkDir(kubernetes.Objects, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := kubernetes.Objects.ReadFile(path)
		if err != nil {
			return err
		}
		r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			doc, err := r.Read()
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			var o object
			if err := yaml.Unmarshal(doc, &o); err != nil {
				return fmt.Errorf("deploy/kubernetes/%s: %w", path, err)
			}
			if len(o) > 0 {
				all = append(all, p.placed(o, s)...)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	text, err := p.YAML()
	if err != nil {
		return nil, err
	}
	secret := object{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": map[string]any{
		"spillway.yaml": base64.StdEncoding.EncodeToString(text),
	}}
	secret.set("spillway", "metadata", "name")
	secret.set(s.Namespace, "metadata", "namespace")
	all = append(all, secret)
	all = append(all, p.openings(s)...)
	for _, o := range all {
		o.set(Manager, "metadata", "labels", managedBy)
		o.set("spillway", "metadata", "labels", "app.kubernetes.io/part-of")
	}
	slices.SortStableFunc(all, func(a, b object) int { return turn(a) - turn(b) }) // pods come last
	return all, nil
}

// turn is the place of a kind in the order of applying.
func turn(o object) int {
	return slices.Index([]string{
		"ServiceAccount", "Role", "RoleBinding", "Secret", "NetworkPolicy", "Service", "PodDisruptionBudget", "Deployment",
	}, o.text("kind"))
}

// placed is an object of deploy/kubernetes where it belongs: a Role and its binding in each
// namespace in which servers are looked up, everything else in that of Spillway.
func (p *Plan) placed(o object, s Settings) []object {
	places := []string{s.Namespace}
	switch o.text("kind") {
	case "Role", "RoleBinding":
		places = nil
		for _, g := range p.Groups {
			places = append(places, namespacesOf(g.Workloads)...)
		}
		slices.Sort(places)
		places = slices.Compact(places)
	case "Deployment":
		if s.Image != "" {
			pod := o.at("spec", "template", "spec").(map[string]any)
			pod["containers"].([]any)[0].(map[string]any)["image"] = s.Image
		}
	}
	var out []object
	for _, ns := range places {
		one := o.copy()
		one.set(ns, "metadata", "namespace")
		if subjects, ok := one["subjects"].([]any); ok {
			for _, who := range subjects {
				who.(map[string]any)["namespace"] = s.Namespace
			}
		}
		out = append(out, one)
	}
	return out
}

func (o object) copy() object {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // it came from there
	}
	var out object
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// openings are policies by which Spillway's pods reach servers that a policy of others closes to
// them. Where no policy selects a server none is made: it would close it.
func (p *Plan) openings(s Settings) []object {
	var out []object
	for _, g := range p.Groups {
		for _, w := range g.Workloads {
			marks := maps.Clone(w.Selector)
			if w.Kind == "Prometheus" {
				marks = map[string]string{"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": w.Name}
			}
			if len(marks) == 0 || !p.Found.closed(w.Namespace, w.mark) {
				continue
			}
			ports := map[int32]bool{}
			for _, pod := range w.Pods {
				ports[pod.Port] = true
			}
			var open []any
			for _, port := range slices.Sorted(maps.Keys(ports)) {
				open = append(open, map[string]any{"port": int64(port), "protocol": "TCP"})
			}
			o := object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
			o.set("spillway-to-"+strings.ToLower(w.Kind)+"-"+w.Name, "metadata", "name")
			o.set(w.Namespace, "metadata", "namespace")
			o.set(map[string]any{
				"podSelector": map[string]any{"matchLabels": marks}, "policyTypes": []any{"Ingress"},
				"ingress": []any{map[string]any{
					"from": []any{map[string]any{
						"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": s.Namespace}},
						"podSelector":       map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": "spillway"}},
					}},
					"ports": open,
				}},
			}, "spec")
			out = append(out, o.copy())
		}
	}
	return out
}

// closed tells whether a policy limits who reaches pods with these labels.
func (f *Found) closed(ns string, marks map[string]string) bool {
	return slices.ContainsFunc(f.policies, func(n networkingv1.NetworkPolicy) bool {
		if n.Namespace != ns || !slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) && len(n.Spec.PolicyTypes) > 0 {
			return false
		}
		sel, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
		return err == nil && sel.Matches(labels.Set(marks))
	})
}
