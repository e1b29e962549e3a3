package adopt

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spillwayproject/spillway/deploy/kubernetes"
	"github.com/spillwayproject/spillway/proxy/config"
)

// head is what a file that adopt wrote begins with.
const head = "# Written by spillway adopt."

const (
	targetName = "__meta_kubernetes_endpointslice_address_target_name"
	namespace  = "__meta_kubernetes_namespace"
	// maxLookups is how many lists of servers a group may have.
	maxLookups = 10
)

// Config is the configuration: the groups that were found, with what deploy/kubernetes says
// besides.
func (p *Plan) Config() (*config.Config, error) {
	cfg, err := config.Parse(kubernetes.Configuration, "/")
	if err != nil {
		return nil, fmt.Errorf("the configuration of deploy/kubernetes: %w", err)
	}
	cfg.Groups = nil
	for _, g := range p.Groups {
		out, err := g.config()
		if err != nil {
			return nil, err
		}
		cfg.Groups = append(cfg.Groups, out)
	}
	return cfg, nil
}

// relabels is a rule with the defaults of what it does not say.
func relabels(r config.Relabel) config.Relabel {
	if r.Separator == "" {
		r.Separator = ";"
	}
	if r.Replacement == "" {
		r.Replacement = "$1"
	}
	if r.Action == "" {
		r.Action = "replace"
	}
	return r
}

func (g *Group) config() (config.Group, error) {
	out := config.Group{Name: g.Name, Labels: g.Labels, ReplicaLabels: g.ReplicaLabels, Heartbeat: "up"}
	if g.Modulus > 0 {
		out.Hashmod = config.Hashmod{Labels: []string{g.HashLabel}, Modulus: g.Modulus}
	}
	f := &out.ShardsFrom
	var ports []string
	for _, w := range g.Workloads {
		sd := lookup(w)
		if !slices.ContainsFunc(f.Kubernetes, func(k config.KubernetesSD) bool { return fmt.Sprint(k) == fmt.Sprint(sd) }) {
			f.Kubernetes = append(f.Kubernetes, sd)
		}
		port := regexp.QuoteMeta(w.PortName) + ";.*"
		if w.PortName == "" {
			port = ";" + strconv.Itoa(int(w.Port))
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	if len(f.Kubernetes) > maxLookups {
		return out, fmt.Errorf("group %s: its servers are behind %d Services, and a group looks up %d: adopt some of them (--only)", g.Name, len(f.Kubernetes), maxLookups)
	}
	f.Relabel = append(f.Relabel, relabels(config.Relabel{
		SourceLabels: []string{"__meta_kubernetes_endpointslice_port_name", "__meta_kubernetes_endpointslice_port"},
		Regex:        strings.Join(ports, "|"), Action: "keep",
	}))
	take, leave := g.taken()
	f.Relabel = append(f.Relabel, relabels(config.Relabel{SourceLabels: g.sources(), Regex: strings.Join(take, "|"), Action: "keep"}))
	if len(leave) > 0 {
		f.Relabel = append(f.Relabel, relabels(config.Relabel{SourceLabels: g.sources(), Regex: strings.Join(leave, "|"), Action: "drop"}))
	}
	f.Relabel = append(f.Relabel, g.rules()...)
	prefixes := map[string]bool{}
	for _, w := range g.Workloads {
		prefixes[w.Scheme+" "+w.Prefix] = true
	}
	if len(prefixes) > 1 {
		return out, fmt.Errorf("group %s: its servers differ in scheme or path (%s): adopt them one by one (--only)", g.Name, strings.Join(sorted(prefixes), ", "))
	}
	if w := g.Workloads[0]; w.Prefix != "" {
		f.Relabel = append(f.Relabel, relabels(config.Relabel{Regex: "(.*)", TargetLabel: "__spillway_path__", Replacement: w.Prefix}))
	}
	if g.Workloads[0].Scheme == "https" {
		f.Relabel = append(f.Relabel, relabels(config.Relabel{Regex: "(.*)", TargetLabel: "__scheme__", Replacement: "https"}))
	}
	return out, nil
}

// lookup is where the pods of a workload are found.
func lookup(w *Workload) config.KubernetesSD {
	var sd config.KubernetesSD
	sd.Role = config.RoleEndpointSlice
	sd.HTTPClient = config.Replicas("http://unused")[0].HTTPClient // the defaults
	sd.Namespaces.Names = config.Paths{w.Namespace}
	sd.Selectors = []config.KubernetesSelector{
		{Role: config.RoleEndpointSlice, Label: "kubernetes.io/service-name=" + w.Service},
		{Role: config.RoleService, Field: "metadata.name=" + w.Service},
	}
	selector := w.Selector
	if w.Kind == "Prometheus" {
		selector = map[string]string{"app.kubernetes.io/name": "prometheus"}
	}
	if len(selector) > 0 {
		sd.Selectors = append(sd.Selectors, config.KubernetesSelector{Role: config.RolePod, Label: labels.Set(selector).String()})
	}
	return sd
}

// sources are the labels by which a server's place is told.
func (g *Group) sources() []string {
	if g.wide() {
		return []string{namespace, targetName}
	}
	return []string{targetName}
}

// at is a pattern of pods' names as one of the sources.
func (g *Group) at(w *Workload, pods string) string {
	if g.wide() {
		return regexp.QuoteMeta(w.Namespace) + ";" + pods
	}
	return pods
}

// front is what stands before the names of a workload's pods and shards.
func (g *Group) front(w *Workload) string {
	if g.wide() {
		return w.Namespace + "/"
	}
	return ""
}

// podNames is a pattern of the names that pods of the workload have, also those of later ones.
func (w *Workload) podNames() string {
	name := regexp.QuoteMeta(w.Name)
	switch w.Kind {
	case "Prometheus":
		return `(prometheus-` + name + `(?:-shard-\d+)?)-\d+` // and its shard
	case "Deployment":
		return name + `-[a-z0-9]+-[a-z0-9]+`
	}
	return name + `-\d+`
}

// taken are patterns of the pods that are taken, and those of them that are left out. All that
// workloads have are taken, also later: one that no rule places is refused aloud, while one that is
// not taken would be missing in answers, and nobody would know.
func (g *Group) taken() (take, leave []string) {
	for _, w := range g.Workloads {
		ours := map[string]bool{}
		for _, s := range g.Servers {
			ours[s.Pod] = ours[s.Pod] || s.Workload == w
		}
		if w.Kind != "Prometheus" && !slices.ContainsFunc(w.Pods, func(s *Server) bool { return ours[s.Pod] }) {
			continue
		}
		take = append(take, g.at(w, w.podNames()))
		for _, s := range w.Pods {
			if w.Kind != "Prometheus" && !ours[s.Pod] {
				leave = append(leave, g.at(w, regexp.QuoteMeta(s.Pod)))
			}
		}
	}
	return take, leave
}

// shardsOf are a workload's servers by their shards.
func (g *Group) shardsOf(w *Workload) map[string][]*Server {
	shards := map[string][]*Server{}
	for _, s := range g.Servers {
		if s.Workload == w {
			shards[s.Shard] = append(shards[s.Shard], s)
		}
	}
	return shards
}

// placing says how pods of a workload without the operator get their places: alike, since all hold
// the same; alone, since each is a shard of its own, as later ones are then; or by their names,
// where nobody can know the place of a later one.
func (g *Group) placing(w *Workload) (alike, alone bool) {
	shards := g.shardsOf(w)
	ours := 0
	alone = g.Modulus == 0 && len(shards) > 1
	for _, s := range g.Servers {
		if s.Workload == w {
			ours++
		} else if shards[s.Shard] != nil {
			alone = false
		}
	}
	whole := ours == len(w.Pods)
	return whole && len(shards) == 1, whole && alone && len(shards) == ours
}

// scaling remarks what becomes of pods that a workload of several shards has later.
func (g *Group) scaling() {
	for _, w := range g.Workloads {
		if alike, alone := g.placing(w); w.Kind == "Prometheus" || alike || len(g.shardsOf(w)) == 0 {
			continue
		} else if alone {
			g.remark("%s: a pod that it has later is a shard of its own.", w)
			continue
		}
		g.remark("%s: its pods are placed by their names, so run adopt again when it is scaled. Until then what was found before is asked on, "+
			"the log has the new pod's address, and spillway_discovery_refused is 1 (ProxyDiscoveryRefused). "+
			"A Spillway that is started meanwhile does not come up.", w)
	}
}

// rules are those that say of each pod where it belongs, also of pods that come later: another
// replica of a shard, another shard of the operator.
func (g *Group) rules() []config.Relabel {
	var out []config.Relabel
	add := func(w *Workload, regex, label, value string) {
		rule := config.Relabel{SourceLabels: g.sources(), Regex: g.at(w, regex), TargetLabel: label, Replacement: value}
		out = append(out, relabels(rule))
	}
	for _, w := range g.Workloads {
		name, front := regexp.QuoteMeta(w.Name), g.front(w)
		if w.Kind == "Prometheus" {
			add(w, w.podNames(), "__spillway_shard__", front+"$1")
			add(w, `prometheus-`+name+`(?:-shard-\d+)?-(\d+)`, "__spillway_replica__", "$1")
			if g.Modulus > 0 {
				add(w, `prometheus-`+name+`-\d+`, "__spillway_hash__", "0")
				add(w, `prometheus-`+name+`-shard-(\d+)-\d+`, "__spillway_hash__", "$1")
			}
			continue
		}
		shards := g.shardsOf(w)
		pods := w.podNames()
		alike, alone := g.placing(w)
		if alone {
			add(w, `(`+pods+`)`, "__spillway_shard__", front+"$1")
		}
		for _, shard := range sorted(shards) {
			if alone {
				break
			}
			regex := pods
			if !alike {
				regex = ""
				for _, s := range shards[shard] {
					regex += "|" + regexp.QuoteMeta(s.Pod)
				}
				regex = regex[1:]
			}
			add(w, regex, "__spillway_shard__", shard)
			if g.Modulus > 0 {
				add(w, regex, "__spillway_hash__", strconv.Itoa(shards[shard][0].Hash))
			}
		}
		if len(shards) > 0 {
			add(w, `(`+pods+`)`, "__spillway_replica__", front+"$1")
		}
	}
	return out
}

// YAML is the configuration's text, with what was found and what is not known as comments.
func (p *Plan) YAML() ([]byte, error) {
	cfg, err := p.Config()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := config.Write(&text, cfg); err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text.Bytes(), &doc); err != nil {
		return nil, err
	}
	root := doc.Content[0]
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != "groups" {
			continue
		}
		for j, g := range root.Content[i+1].Content {
			g.HeadComment = comment(p.Groups[j].Remarks)
		}
	}
	var out bytes.Buffer
	fmt.Fprintln(&out, head, "docs/configuration.md has all keys; a change needs no restart.")
	if c := comment(p.Remarks()); c != "" {
		fmt.Fprintf(&out, "%s\n", c)
	}
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	if _, err := config.Parse(out.Bytes(), "/"); err != nil {
		return nil, fmt.Errorf("a configuration that would be refused: %w", err)
	}
	return out.Bytes(), nil
}

// Remarks are what was found and concerns no group.
func (p *Plan) Remarks() []string {
	var out []string
	for _, o := range p.Open {
		out = append(out, "Not in this file: "+o+".")
	}
	for _, r := range p.Found.Remarks {
		out = append(out, r+".")
	}
	for _, q := range p.Found.Queries {
		out = append(out, "Thanos Query "+q+" is not asked: from when on its bucket has what the servers have no more cannot be seen here (docs/thanos.md).")
	}
	for _, r := range p.Found.Rulers {
		out = append(out, r+". It goes on so: to have it ask Spillway, change that (docs/ruler.md). What it records is in its own store, which is no server of this file.")
	}
	return out
}

// Printable is a text in which what is no character to be seen is a question mark, but for ends of
// lines and tabs: names and messages of others can have anything.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return '?'
	}, s)
}

// comment is sentences as lines that begin with #. No name of an object can end a comment.
func comment(sentences []string) string {
	var out []string
	for _, s := range sentences {
		out = append(out, "# "+Printable(strings.Join(strings.Fields(s), " ")))
	}
	return strings.Join(out, "\n")
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
