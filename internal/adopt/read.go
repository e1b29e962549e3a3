package adopt

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Scope says where is looked; the zero value is everywhere.
type Scope struct {
	// Namespaces are the only ones that are looked into; empty is all.
	Namespaces []string
	// Only are workloads, "NAMESPACE/NAME": the others are left alone. Empty is all.
	Only []string
	// Home is where Spillway is put: who may reach pods there is looked at too. Empty is nowhere.
	Home string
}

// Found is what is in the cluster.
type Found struct {
	// Workloads are what runs Prometheus servers, by namespace and name.
	Workloads []*Workload
	// Rulers and Queries are the Thanos components beside them, "KIND NAMESPACE/NAME: …".
	Rulers, Queries []string
	// Sources are Grafana's data sources.
	Sources []Source
	// Remarks are what was seen and is not used, each with the reason.
	Remarks []string
	// policies are those of the namespaces in which servers are, and of Spillway's own.
	policies []networkingv1.NetworkPolicy
	// otherPolicies are of kinds that are not followed, and unknown is which could not be listed.
	otherPolicies []otherPolicy
	unknown       []string

	blind    string      // why those of Spillway's own could not be read; empty where they were
	unlisted error       // why Secrets with data sources could not be looked for; nil where they were
	grafanas []*grafana  // by kind
	sidecars []string    // selectors of its sidecars, beside sidecarLabel
	named    bool        // whoever asks has named each of Workloads
	others   []*Workload // that are left alone
}

// Workload is one object whose pods are Prometheus servers.
type Workload struct {
	// Kind is Prometheus (the operator's), StatefulSet or Deployment.
	Kind, Namespace, Name string
	// Shards and Replicas are what it asks for; Shards is 1 without the operator.
	Shards, Replicas int
	// ReplicaLabel and PrometheusLabel are external labels that the operator sets; empty for none.
	ReplicaLabel, PrometheusLabel string
	// External are the other external labels, where the object has them.
	External map[string]string
	// Retention is how long samples are kept, as the object says it.
	Retention string
	// Thanos tells whether the pods have a Thanos sidecar.
	Thanos bool
	// Service is that by which the pods are looked up, and Selector its selector.
	Service  string
	Selector map[string]string
	// PortName is what the service's slices call the port; empty where it has no name. Port is its
	// number.
	PortName string
	Port     int32
	// Scheme and Prefix are how the servers are asked: http or https, and what stands before /api.
	Scheme, Prefix string
	// Pods are its servers, by name.
	Pods []*Server
	// Problem is why its servers cannot be asked; empty where they can.
	Problem string

	services map[string][]int32   // those of the namespace that select all its pods, with the ports that lead to the servers
	partly   map[string]bool      // those that select any of its pods, where it is left alone
	marks    metav1.LabelSelector // of its pods
	template map[string]string    // the labels with which its pods are made, as far as they are known
	labels   []map[string]string  // all labels of each pod
	ports    map[string]int32     // of its containers that have names; 0 where pods differ
}

func (w *Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Server is one pod.
type Server struct {
	Workload *Workload
	Pod, IP  string
	Port     int32
	// External are the external labels that it says it has.
	External map[string]string
	// Shard and Replica are where it belongs; Shard is empty where that is not known.
	Shard, Replica string
	// Hash is its number under the group's hashmod.
	Hash int

	targets map[uint64]bool
	hashed  hashRule
	unasked string // why it could not be asked; empty where it was
}

// address is the pod's host and port, as it stands in URLs.
func (s *Server) address() string { return net.JoinHostPort(s.IP, strconv.Itoa(int(s.Port))) }

// custom is what is read of the operator's objects.
type custom struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Shards                      *int
		Replicas                    *int
		ReplicaExternalLabelName    *string
		PrometheusExternalLabelName *string
		ExternalLabels              map[string]string
		Retention                   string
		RoutePrefix                 string
		PortName                    string
		ServiceName                 *string
		Thanos                      any
		QueryEndpoints              []string
		Web                         *struct{ TLSConfig any }
		Paused                      bool
	}
}

// collections is the path of a kind in each namespace of the scope.
func (s *Scope) collections(group, plural string) []string {
	if len(s.Namespaces) == 0 {
		return []string{group + "/" + plural}
	}
	var out []string
	for _, ns := range s.Namespaces {
		out = append(out, group+"/namespaces/"+ns+"/"+plural)
	}
	return out
}

const operator = "/apis/monitoring.coreos.com/v1"

// everywhere lists a kind in the scope.
func everywhere[T any](ctx context.Context, c *Client, s Scope, group, plural, selector string, keep func(*T) bool) (all []T, err error) {
	for _, p := range s.collections(group, plural) {
		some, err := list(ctx, c, p, selector, keep)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Read looks at the cluster: it gets and lists, and nothing else.
func (c *Client) Read(ctx context.Context, s Scope) (*Found, error) {
	f := &Found{}
	if err := c.readOperator(ctx, s, f); err != nil {
		return nil, err
	}
	if err := c.readPlain(ctx, s, f); err != nil {
		return nil, err
	}
	for _, want := range s.Only {
		if !slices.ContainsFunc(f.Workloads, func(w *Workload) bool { return want == w.Namespace+"/"+w.Name }) {
			return nil, fmt.Errorf("--only=%s: there is no Prometheus of that name; found: %s", want, names(f.Workloads))
		}
	}
	f.named = len(s.Only) > 0
	f.Workloads = slices.DeleteFunc(f.Workloads, func(w *Workload) bool {
		out := len(s.Only) > 0 && !slices.Contains(s.Only, w.Namespace+"/"+w.Name)
		if out {
			f.others = append(f.others, w)
			f.Remarks = append(f.Remarks, w.String()+" is left alone: --only does not name it")
		}
		return out
	})
	slices.SortFunc(f.Workloads, func(a, b *Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, ns := range namespacesOf(f.Workloads) {
		if err := c.readPods(ctx, ns, f); err != nil {
			return nil, err
		}
	}
	if err := c.readOthers(ctx, namespacesOf(f.Workloads), f); err != nil {
		return nil, err
	}
	if s.Home != "" && !slices.Contains(namespacesOf(f.Workloads), s.Home) {
		if err := c.readPolicies(ctx, s.Home, f); isStatus(err, http.StatusForbidden) {
			f.blind = err.Error() // looking needs no right there
		} else if err != nil {
			return nil, err
		}
	}
	return f, c.readGrafana(ctx, s, f)
}

// readPolicies reads those of a namespace that are not adopt's own.
func (c *Client) readPolicies(ctx context.Context, ns string, f *Found) error {
	foreign := func(n *networkingv1.NetworkPolicy) bool { return n.Labels[managedBy] != Manager }
	policies, err := list(ctx, c, "/apis/networking.k8s.io/v1/namespaces/"+ns+"/networkpolicies", "", foreign)
	f.policies = append(f.policies, policies...)
	return err
}

func names(all []*Workload) string {
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, w := range all {
		out = append(out, w.Namespace+"/"+w.Name)
	}
	return strings.Join(out, ", ")
}

func namespacesOf(all []*Workload) []string {
	seen := map[string]bool{}
	for _, w := range all {
		seen[w.Namespace] = true
	}
	return sorted(seen)
}

// otherwise is what a pointer has, or what holds where it has nothing.
func otherwise[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}

func (c *Client) readOperator(ctx context.Context, s Scope, f *Found) error {
	servers, err := everywhere[custom](ctx, c, s, operator, "prometheuses", "", nil)
	if err != nil {
		return err
	}
	for _, p := range servers {
		w := &Workload{
			Kind: "Prometheus", Namespace: p.Namespace, Name: p.Name, Shards: max(1, otherwise(p.Spec.Shards, 1)),
			Replicas: otherwise(p.Spec.Replicas, 1), ReplicaLabel: otherwise(p.Spec.ReplicaExternalLabelName, "prometheus_replica"),
			PrometheusLabel: otherwise(p.Spec.PrometheusExternalLabelName, "prometheus"), External: p.Spec.ExternalLabels,
			Retention: cmp.Or(p.Spec.Retention, "24h"), Thanos: p.Spec.Thanos != nil, Scheme: "http",
			Prefix: prefixOf(p.Spec.RoutePrefix), PortName: cmp.Or(p.Spec.PortName, "web"),
			Service: otherwise(p.Spec.ServiceName, "prometheus-operated"),
			marks: metav1.LabelSelector{MatchLabels: map[string]string{
				"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": p.Name,
			}},
		}
		w.template = w.marks.MatchLabels
		if p.Spec.Web != nil && p.Spec.Web.TLSConfig != nil {
			w.Scheme = "https"
		}
		f.Workloads = append(f.Workloads, w)
	}
	rulers, err := everywhere[custom](ctx, c, s, operator, "thanosrulers", "", nil)
	if err != nil {
		return err
	}
	for _, r := range rulers {
		f.Rulers = append(f.Rulers, fmt.Sprintf("ThanosRuler %s/%s asks %s", r.Namespace, r.Name,
			cmp.Or(strings.Join(r.Spec.QueryEndpoints, ", "), "what its queryConfig says")))
	}
	return nil
}

// prefixOf is a route prefix as it stands in URLs: empty or /x.
func prefixOf(s string) string {
	if s = strings.Trim(s, "/"); s == "" {
		return ""
	}
	return "/" + s
}

var plainPrefix = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)

// runs is what a StatefulSet and a Deployment have in common.
type runs struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int
		Selector metav1.LabelSelector
		Template corev1.PodTemplateSpec
	}
}

var (
	prometheusImage = regexp.MustCompile(`(^|/)prometheus(:|@|$)`)
	thanosImage     = regexp.MustCompile(`(^|/)thanos(:|@|$)`)
	grafanaImage    = regexp.MustCompile(`(^|/)grafana(-enterprise)?(:|@|$)`)
)

// flag is the value of a flag on a command line; false where it is not there.
func flagOf(args []string, name string) (string, bool) {
	for i, a := range args {
		key, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-"), "=")
		if key != name || !strings.HasPrefix(a, "-") {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		return value, true
	}
	return "", false
}

// looksLikePrometheus tells whether a container is a Prometheus server: by the name of its image,
// or by flags that only that program has.
func looksLikePrometheus(k *corev1.Container) bool {
	if thanosImage.MatchString(k.Image) {
		return false
	}
	_, tsdb := flagOf(argsOf(k), "storage.tsdb.path")
	return tsdb || prometheusImage.MatchString(k.Image)
}

func argsOf(k *corev1.Container) []string { return append(slices.Clone(k.Command), k.Args...) }

func (c *Client) readPlain(ctx context.Context, s Scope, f *Found) error {
	for _, kind := range []struct{ name, plural string }{{"StatefulSet", "statefulsets"}, {"Deployment", "deployments"}} {
		all, err := everywhere(ctx, c, s, "/apis/apps/v1", kind.plural, "", func(r *runs) bool {
			return slices.ContainsFunc(r.Spec.Template.Spec.Containers, func(k corev1.Container) bool {
				return looksLikePrometheus(&k) || thanosImage.MatchString(k.Image) || grafanaImage.MatchString(k.Image)
			})
		})
		if err != nil {
			return err
		}
		for i := range all {
			f.plain(kind.name, &all[i])
		}
	}
	return nil
}

// plain takes one StatefulSet or Deployment for what it is.
func (f *Found) plain(kind string, r *runs) {
	for _, o := range r.OwnerReferences {
		if strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/") {
			return // the operator's object says more
		}
	}
	var w *Workload
	thanos := false
	for i := range r.Spec.Template.Spec.Containers {
		k := &r.Spec.Template.Spec.Containers[i]
		switch args := argsOf(k); {
		case thanosImage.MatchString(k.Image):
			thanos = true
			f.thanos(kind, r, args)
		case grafanaImage.MatchString(k.Image):
			g := &grafana{kind: kind, namespace: r.Namespace, name: r.Name, marks: r.Spec.Selector, labels: r.Spec.Template.Labels}
			g.operated = slices.ContainsFunc(r.OwnerReferences, func(o metav1.OwnerReference) bool {
				return strings.HasPrefix(o.APIVersion, "grafana.integreatly.org/")
			})
			f.grafanas = append(f.grafanas, g)
			f.mounts(g, r, k)
			f.sidecar(g, r)
		case looksLikePrometheus(k):
			if _, agent := flagOf(args, "agent"); agent || slices.Contains(args, "--enable-feature=agent") {
				f.Remarks = append(f.Remarks, fmt.Sprintf("%s %s/%s is an agent, which answers no queries", kind, r.Namespace, r.Name))
				continue
			}
			w = plainWorkload(kind, r, args)
		}
	}
	if w != nil {
		w.Thanos = thanos
		f.Workloads = append(f.Workloads, w)
	}
}

func plainWorkload(kind string, r *runs, args []string) *Workload {
	w := &Workload{
		Kind: kind, Namespace: r.Namespace, Name: r.Name, Shards: 1, Replicas: otherwise(r.Spec.Replicas, 1),
		Retention: "15d", Scheme: "http", Port: 9090, marks: r.Spec.Selector,
		template: r.Spec.Template.Labels,
	}
	if v, ok := flagOf(args, "storage.tsdb.retention.time"); ok {
		w.Retention = v
	}
	if v, ok := flagOf(args, "web.listen-address"); ok {
		if n, err := strconv.ParseInt(v[strings.LastIndexByte(v, ':')+1:], 10, 32); err == nil {
			w.Port = int32(n)
		}
	}
	if v, ok := flagOf(args, "web.route-prefix"); ok {
		w.Prefix = prefixOf(v)
	} else if v, ok := flagOf(args, "web.external-url"); ok {
		if _, rest, ok := strings.Cut(v, "://"); ok {
			_, p, _ := strings.Cut(rest, "/")
			v = p
		}
		w.Prefix = prefixOf(path.Clean("/" + v))
	}
	if v, ok := flagOf(args, "web.config.file"); ok {
		w.Problem = "it has --web.config.file=" + v + ", so it wants TLS or credentials that its object does not tell: write its group by hand"
	}
	return w
}

// thanos remembers a Thanos component that answers queries or evaluates rules.
func (f *Found) thanos(kind string, r *runs, args []string) {
	switch {
	case slices.Contains(args, "query"):
		f.Queries = append(f.Queries, fmt.Sprintf("%s %s/%s", kind, r.Namespace, r.Name))
	case slices.Contains(args, "rule"):
		v, _ := flagOf(args, "query")
		f.Rulers = append(f.Rulers, fmt.Sprintf("%s %s/%s (thanos rule) asks %s",
			kind, r.Namespace, r.Name, cmp.Or(v, "what its file says")))
	}
}

// readPods finds the pods of a namespace's workloads, by the slices of their services.
func (c *Client) readPods(ctx context.Context, ns string, f *Found) error {
	core, discovery := "/api/v1/namespaces/"+ns, "/apis/discovery.k8s.io/v1/namespaces/"+ns
	services, err := list[corev1.Service](ctx, c, core+"/services", "", nil)
	if err != nil {
		return err
	}
	cut, err := list[discoveryv1.EndpointSlice](ctx, c, discovery+"/endpointslices", "", nil)
	if err != nil {
		return err
	}
	if err := c.readPolicies(ctx, ns, f); err != nil {
		return err
	}
	for i, w := range slices.Concat(f.Workloads, f.others) {
		if w.Namespace != ns {
			continue
		}
		pods, err := list(ctx, c, core+"/pods", metav1.FormatLabelSelector(&w.marks), func(p *corev1.Pod) bool {
			return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
		})
		if err != nil {
			return err
		}
		if i < len(f.Workloads) {
			w.locate(services, cut, pods)
		} else {
			w.shares(services, pods)
		}
	}
	return nil
}

// locate finds the workload's servers: the pods that slices of its service name.
func (w *Workload) locate(services []corev1.Service, cut []discoveryv1.EndpointSlice, pods []corev1.Pod) {
	own := map[string]bool{}
	for _, p := range pods {
		if w.Kind != "Prometheus" || w.operates(p.Name) {
			own[p.Name], w.labels = true, append(w.labels, p.Labels)
			w.names(&p)
		}
	}
	// A headless service names pods one by one; of several the first by name.
	slices.SortFunc(services, func(a, b corev1.Service) int {
		headless := func(s corev1.Service) int {
			if s.Spec.ClusterIP == corev1.ClusterIPNone {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(headless(a), headless(b)), cmp.Compare(a.Name, b.Name))
	})
	w.services = map[string][]int32{}
	for _, s := range services {
		sel := labels.SelectorFromSet(s.Spec.Selector)
		other := func(pod map[string]string) bool { return !sel.Matches(labels.Set(pod)) }
		if len(s.Spec.Selector) > 0 && len(own) > 0 && !slices.ContainsFunc(w.labels, other) {
			w.services[s.Name] = nil
		}
	}
	for _, takes := range []func(name string, port int32) bool{w.asks, w.calls} {
		for _, s := range services {
			ours := s.Name == w.Service
			if w.Kind != "Prometheus" {
				_, ours = w.services[s.Name]
			}
			if len(w.Pods) > 0 || !ours {
				continue
			}
			for _, e := range cut {
				if e.Labels[discoveryv1.LabelServiceName] == s.Name {
					w.take(&e, own, takes)
				}
			}
			if len(w.Pods) > 0 {
				w.Service, w.Selector = s.Name, s.Spec.Selector
			}
		}
	}
	// Of the addresses of a pod that of IPv4 comes first, as in discovery.
	slices.SortFunc(w.Pods, func(a, b *Server) int {
		return cmp.Or(compareOrdinals(a.Pod, b.Pod), cmp.Compare(a.address(), b.address()))
	})
	w.Pods = slices.CompactFunc(w.Pods, func(a, b *Server) bool { return a.Pod == b.Pod })
	for _, s := range services {
		if _, ours := w.services[s.Name]; ours {
			w.services[s.Name] = w.doors(&s, cut)
		}
	}
	switch {
	case w.Problem != "":
	case !plainPrefix.MatchString(w.Prefix): // it becomes a part of the path that the API server is asked for
		w.Problem = "its route prefix is none that can be asked for"
	case len(own) == 0:
		w.Problem = "it has no pods"
	case len(w.services) == 0:
		w.Problem = "no Service selects all its pods, so that they cannot be looked up: make a headless one (clusterIP: None)"
	case len(w.Pods) == 0:
		w.Problem = fmt.Sprintf("no EndpointSlice of %s has its pods at the port of the server (%d)", strings.Join(sorted(w.services), ", "), w.Port)
	case w.Kind != "Prometheus" && len(w.Pods) != w.Replicas:
		w.Problem = fmt.Sprintf("it asks for %s, and its Service has %s: run this again when it has as many as are asked for",
			plural(w.Replicas, "pod"), plural(len(w.Pods), "pod"))
	case w.Kind == "Prometheus" && len(w.Pods) != w.Shards*w.Replicas:
		w.Problem = fmt.Sprintf("it asks for %s with %s each, and its Service has %s: run this again when it has as many as are asked for",
			plural(w.Shards, "shard"), plural(w.Replicas, "replica"), plural(len(w.Pods), "pod"))
	}
}

var podName = regexp.MustCompile(`^(?:(-shard-)(\d+))?-(\d+)$`)

// operates tells whether a pod has the name that the operator gives to those of the object.
func (w *Workload) operates(pod string) bool {
	rest, ok := strings.CutPrefix(pod, "prometheus-"+w.Name)
	return ok && podName.MatchString(rest)
}

// compareOrdinals orders prometheus-2 before prometheus-10.
func compareOrdinals(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
