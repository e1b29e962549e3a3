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
	// PullSecrets are the names of the Secrets with which that is pulled.
	PullSecrets []string
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
		pod := o.at("spec", "template", "spec").(map[string]any)
		for _, name := range s.PullSecrets {
			all, _ := pod["imagePullSecrets"].([]any)
			pod["imagePullSecrets"] = append(all, map[string]any{"name": name})
		}
		if s.Image != "" {
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

// ownLabels select Spillway's pods, as deploy/kubernetes does.
var ownLabels = map[string]string{"app.kubernetes.io/name": "spillway", "app.kubernetes.io/instance": "spillway"}

// openings are policies by which Spillway's pods reach servers that a policy of others closes to
// them, by which it is closed to whom they are, and by which Grafana reaches it where it is closed.
func (p *Plan) openings(s Settings) []object {
	var out []object
	for _, w := range p.workloads() {
		ports := map[int32]bool{}
		for _, pod := range w.Pods {
			ports[pod.Port] = true
		}
		name := "spillway-to-" + strings.ToLower(w.Kind) + "-" + w.Name
		var walls []*networkingv1.NetworkPolicy
		for _, pod := range w.labels { // a policy may be about some of them
			wall := p.Found.wall(w.Namespace, pod)
			if wall == nil || slices.Contains(walls, wall) {
				continue
			}
			own := name
			if walls = append(walls, wall); len(walls) > 1 {
				own += "-at-" + wall.Name
			}
			out = append(out, opening(wall, own, w.marks, slices.Sorted(maps.Keys(ports)),
				map[string]any{"namespaceSelector": inNamespace(s.Namespace), "podSelector": map[string]any{"matchLabels": ownLabels}}))
		}
	}
	if o := p.likeServers(s); o != nil {
		out = append(out, o)
	}
	readers, _ := p.readers(s)
	if readers, _ = p.divided(readers); p.shut(s) && len(readers) > 0 {
		wall := p.Found.wall(s.Namespace, ownLabels)
		if wall == nil { // it is closed by adopt's own
			wall = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace}}
		}
		out = append(out, opening(wall, fromGrafana, metav1.LabelSelector{MatchLabels: ownLabels}, []int32{9090}, peersOf(readers)...))
	}
	return out
}

func inNamespace(ns string) map[string]any {
	return map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns}}
}

// opening is a policy beside wall that lets some in to pods with these marks. A policy closes the
// pods that it selects to all others, so it selects none that wall does not.
func opening(wall *networkingv1.NetworkPolicy, name string, marks metav1.LabelSelector, ports []int32, from ...any) object {
	pods := wall.Spec.PodSelector.DeepCopy()
	if pods.MatchLabels == nil {
		pods.MatchLabels = map[string]string{}
	}
	maps.Copy(pods.MatchLabels, marks.MatchLabels) // the pods have both, so no two differ
	pods.MatchExpressions = append(pods.MatchExpressions, marks.MatchExpressions...)
	var open []any
	for _, port := range ports {
		open = append(open, map[string]any{"port": int64(port), "protocol": "TCP"})
	}
	o := object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
	o.set(name, "metadata", "name")
	o.set(wall.Namespace, "metadata", "namespace")
	o.set(map[string]any{
		"podSelector": pods, "policyTypes": []any{"Ingress"}, "ingress": []any{map[string]any{"from": from, "ports": open}},
	}, "spec")
	return o.copy()
}

// wall is a policy that limits who reaches pods with these labels; nil where none does.
func (f *Found) wall(ns string, marks map[string]string) *networkingv1.NetworkPolicy {
	if all := f.walls(ns, marks); len(all) > 0 {
		return all[0]
	}
	return nil
}

// walls are all of these.
func (f *Found) walls(ns string, marks map[string]string) (out []*networkingv1.NetworkPolicy) {
	for i := range f.policies {
		n := &f.policies[i]
		types := n.Spec.PolicyTypes // none is Ingress
		sel, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
		if n.Namespace == ns && (len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)) &&
			err == nil && sel.Matches(labels.Set(marks)) {
			out = append(out, n)
		}
	}
	return out
}
