package adopt

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/clip"
)

// examined is how many servers are asked at once.
const examined = 8

// The share of targets, of the larger set, by which two servers are replicas of one shard, and
// below which they are shards; what is between is not known. Replicas that have just seen a change
// differ in a few targets, and shards may have a few in common.
const (
	alike = 0.8
	apart = 0.2
)

// Group is a group of the configuration that will be written.
type Group struct {
	Name string
	// Labels are on every series: the external labels that all servers have with one value.
	Labels map[string]string
	// ReplicaLabels are the other external labels.
	ReplicaLabels []string
	// Workloads are those whose servers it has, and Servers all of these.
	Workloads []*Workload
	Servers   []*Server
	// HashLabel and Modulus are its hashmod; Modulus is 0 where there is none.
	HashLabel string
	Modulus   int
	// Remarks are what was seen and what could not be known, as sentences.
	Remarks []string
}

func (g *Group) remark(format string, args ...any) {
	g.Remarks = append(g.Remarks, fmt.Sprintf(format, args...))
}

// Plan is what adopt would do.
type Plan struct {
	Found  *Found
	Groups []*Group
	// Open are what keeps the configuration from being whole, as sentences: servers that were found
	// and stand in no group.
	Open []string

	hashmod bool
}

// Make asks the servers and decides which of them hold what. With hashmod the rule by which the
// operator divides targets is written too, where it can be: it holds until the number of shards
// changes.
func Make(ctx context.Context, f *Found, r *Reach, hashmod bool) (*Plan, error) {
	p := &Plan{Found: f, hashmod: hashmod}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(examined)
	for _, w := range f.Workloads {
		if w.Problem != "" {
			continue
		}
		for _, s := range w.Pods {
			g.Go(func() error {
				r.examine(gctx, s)
				return gctx.Err()
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, context.Cause(ctx)
	}
	p.group()
	return p, nil
}

// group divides the servers into groups, by the external labels that do not tell copies apart.
func (p *Plan) group() {
	byLabels := map[string]*Group{}
	for _, w := range p.Found.Workloads {
		if w.Problem == "" {
			w.Problem = w.unusable()
		}
		if w.Problem != "" {
			p.Open = append(p.Open, w.String()+": "+w.Problem)
			continue
		}
		for _, s := range w.Pods {
			labels, others := w.split(s)
			key := fmt.Sprint(labels)
			g := byLabels[key]
			if g == nil {
				g = &Group{Labels: labels}
				byLabels[key] = g
				p.Groups = append(p.Groups, g)
			}
			if !slices.Contains(g.Workloads, w) {
				g.Workloads = append(g.Workloads, w)
			}
			g.Servers = append(g.Servers, s)
			for _, name := range others {
				if !slices.Contains(g.ReplicaLabels, name) {
					g.ReplicaLabels = append(g.ReplicaLabels, name)
				}
			}
		}
	}
	taken := map[string]bool{}
	for _, g := range p.Groups {
		slices.Sort(g.ReplicaLabels)
		g.Name = g.name(taken)
		g.describe()
		g.place()
		for _, s := range g.Servers {
			if s.Shard == "" {
				p.Open = append(p.Open, fmt.Sprintf("%s pod %s: which part of the series it holds is not known, and it stands in no group", s.Workload, s.Pod))
			}
		}
		g.Servers = slices.DeleteFunc(g.Servers, func(s *Server) bool { return s.Shard == "" })
		g.divided(p.hashmod)
		g.scaling()
	}
	p.Groups = slices.DeleteFunc(p.Groups, func(g *Group) bool { return len(g.Servers) == 0 })
	for i, o := range p.Open {
		p.Open[i] = clip.Text(o, 1000)
	}
}

// Unsure is why the plan must not be applied as it is, beside what is open; empty where it may.
// That servers have the same external labels, or none, does not show that they belong together, and
// anybody who may run a pod can run one that says so: more than one are put behind one Spillway
// only where whoever applies it has named each.
func (p *Plan) Unsure() string {
	for _, w := range p.Found.Workloads {
		if w.Scheme == "https" {
			return w.String() + " wants TLS, by an authority that nobody here knows: write http_client into the file, and apply it as docs/install.md says"
		}
	}
	if len(p.Found.Workloads) > 1 && !p.Found.named {
		return "several Prometheus servers were found, and whoever may ask Spillway sees the series of all: name those that belong behind one, each by --only; found: " + names(p.Found.Workloads)
	}
	return ""
}

// unusable is why a workload cannot be used for what its servers said; empty where it can.
func (w *Workload) unusable() string {
	for _, s := range w.Pods {
		if s.unasked == "" {
			continue
		}
		if w.Kind == "Prometheus" {
			continue // its object says what it is; the proof names the server
		}
		return fmt.Sprintf("pod %s could not be asked what it is (%s): run this where it can be reached, such as in the cluster (--via=direct)", s.Pod, s.unasked)
	}
	return ""
}

var (
	replicaName = regexp.MustCompile(`(?i)replica|^pod$|^pod_name$`)
	shardName   = regexp.MustCompile(`(?i)shard`)
)

// split is the external labels of a server that all servers of its group have, and the names of
// those that tell copies or shards apart.
func (w *Workload) split(s *Server) (labels map[string]string, others []string) {
	labels = map[string]string{}
	if w.Kind == "Prometheus" {
		maps.Copy(labels, w.External)
		for _, name := range w.filledIn() {
			values := w.said(name)
			if len(values) == 0 {
				continue
			}
			delete(labels, name)
			if len(values) > 1 {
				others = append(others, name)
			} else if values[0] != "" { // an empty one is none
				labels[name] = values[0]
			}
		}
		for _, name := range []string{w.PrometheusLabel, w.ReplicaLabel} {
			if name != "" {
				delete(labels, name)
				others = append(others, name)
			}
		}
		return labels, others
	}
	for name, value := range s.External {
		if replicaName.MatchString(name) || shardName.MatchString(name) || w.varies(name) {
			others = append(others, name)
		} else {
			labels[name] = value
		}
	}
	return labels, others
}

// filledIn are the external labels whose values the servers fill in from their environment.
func (w *Workload) filledIn() (names []string) {
	for _, name := range sorted(w.External) {
		if strings.Contains(w.External[name], "$") {
			names = append(names, name)
		}
	}
	return names
}

// said are the different values of an external label that the servers say; none where nobody could
// be asked.
func (w *Workload) said(name string) (values []string) {
	for _, s := range w.Pods {
		if v := s.External[name]; (s.unasked == "" || s.External != nil) && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// varies tells whether the workload's servers have different values of an external label.
func (w *Workload) varies(name string) bool {
	return slices.ContainsFunc(w.Pods, func(s *Server) bool { return s.External[name] != w.Pods[0].External[name] })
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// name is the group's: the cluster's, or that of its first label, or main.
func (g *Group) name(taken map[string]bool) string {
	name := g.Labels["cluster"]
	if name == "" && len(g.Labels) > 0 {
		name = g.Labels[sorted(g.Labels)[0]]
	}
	name = strings.Trim(notInName.ReplaceAllString(name, "-"), "-.")
	name = name[:min(len(name), 60)]
	if name == "" {
		name = "main"
	}
	for n, base := 2, name; taken[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	taken[name] = true
	return name
}

// describe remarks what was found.
func (g *Group) describe() {
	for _, w := range g.Workloads {
		switch w.Kind {
		case "Prometheus":
			g.remark("%s: spec.shards %d, replicas %d, retention %s.", w, w.Shards, w.Replicas, w.Retention)
		default:
			g.remark("%s: %s, retention %s.", w, plural(len(w.Pods), "pod"), w.Retention)
		}
		if w.Thanos {
			g.remark("It has Thanos sidecars: what is older than %s is in their bucket, and not asked here (docs/thanos.md has the group for it).", w.Retention)
		}
		if w.Scheme == "https" {
			g.remark("It wants TLS, by an authority that its object does not tell: write http_client.tls_config.ca_file below shards_from.")
		}
	}
	if len(g.Labels) == 0 {
		g.remark("These servers have no external labels that are equal everywhere, such as cluster, so the group has no labels.")
	}
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// place says of each server which shard it holds a copy of.
func (g *Group) place() {
	var plain []*Server
	for _, s := range g.Servers {
		w := s.Workload
		if w.Kind != "Prometheus" {
			plain = append(plain, s)
			continue
		}
		m := podName.FindStringSubmatch(strings.TrimPrefix(s.Pod, "prometheus-"+w.Name))
		s.Shard, s.Replica = "prometheus-"+w.Name+m[1]+m[2], m[3]
		if g.wide() {
			s.Shard = w.Namespace + "/" + s.Shard
		}
	}
	g.placePlain(plain)
}

// wide tells whether the group's servers are in several namespaces, so that names of pods alone do
// not tell them apart.
func (g *Group) wide() bool { return len(namespacesOf(g.Workloads)) > 1 }

// placePlain finds replicas and shards among servers by what they scrape.
func (g *Group) placePlain(servers []*Server) {
	unclear := map[*Server]bool{}
	for i, a := range servers {
		if len(a.targets) == 0 {
			g.remark("Pod %s scrapes nothing, so that it cannot be told whose replica it is: it is left out.", a.Pod)
			unclear[a] = true
			continue
		}
		for _, b := range servers[:i] {
			if len(b.targets) == 0 || unclear[b] {
				continue
			}
			if share := common(a, b); share > apart && share < alike {
				g.remark("Pods %s and %s have %.0f %% of their targets in common: neither replicas nor shards, so %s is left out.",
					b.Pod, a.Pod, 100*share, a.Pod)
				unclear[a] = true
			}
		}
	}
	sets := [][]*Server{}
	for _, s := range servers {
		if unclear[s] {
			continue
		}
		i := slices.IndexFunc(sets, func(set []*Server) bool { return common(set[0], s) >= alike })
		if i < 0 {
			sets = append(sets, nil)
			i = len(sets) - 1
		}
		sets[i] = append(sets[i], s)
	}
	for _, set := range sets {
		first := set[0]
		name := first.Pod
		if w := first.Workload; len(w.Pods) == len(set) && !slices.ContainsFunc(set, func(s *Server) bool { return s.Workload != w }) {
			name = w.Name
		}
		if g.wide() {
			name = first.Workload.Namespace + "/" + name
		}
		for _, s := range set {
			s.Shard, s.Replica = name, s.Pod
			if g.wide() {
				s.Replica = s.Workload.Namespace + "/" + s.Pod
			}
		}
		g.remark("Shard %s: %s, which scrape the same targets (%d).", name, strings.Join(podsOf(set), ", "), len(first.targets))
	}
}

func podsOf(set []*Server) []string {
	var out []string
	for _, s := range set {
		out = append(out, s.Pod)
	}
	return out
}

// common is the share of targets that two servers have in common, of those of the larger one: who
// scrapes a few of another one's targets is no copy of it.
func common(a, b *Server) float64 {
	both := 0
	for t := range a.targets {
		if b.targets[t] {
			both++
		}
	}
	return float64(both) / float64(max(1, len(a.targets), len(b.targets)))
}

// divided finds the rule by which the group's shards were made, where it can be said. That of the
// operator's is written on demand only.
func (g *Group) divided(operators bool) {
	shards := map[string]int{}
	var rule hashRule
	for i, s := range g.Servers {
		h := s.hashed
		n, seen := shards[s.Shard]
		switch {
		case s.unasked != "":
			g.remark("hashmod: not written, since %s could not be asked.", s.Pod)
			return
		case h.why != "":
			g.remark("hashmod: not written, since of %s %s.", s.Pod, h.why)
			return
		case h.modulus == 0 || i > 0 && rule.modulus == 0:
			return
		case rule.modulus != 0 && (h.label != rule.label || h.modulus != rule.modulus), seen && n != h.n:
			g.remark("hashmod: not written, since %s is divided by another rule than the others.", s.Pod)
			return
		}
		rule = h
		shards[s.Shard] = h.n
	}
	if rule.modulus == 0 {
		return
	}
	held := map[int]bool{}
	for _, n := range shards {
		held[n] = true
	}
	for _, s := range g.Servers {
		if m := podName.FindStringSubmatch(strings.TrimPrefix(s.Pod, "prometheus-"+s.Workload.Name)); s.Workload.Kind == "Prometheus" &&
			(len(m) == 0 || strconv.Itoa(s.hashed.n) != cmp.Or(m[2], "0")) {
			g.remark("hashmod: not written, since %s keeps the remainder %d, which is not the number of its shard.", s.Pod, s.hashed.n)
			return
		}
	}
	if len(held) != len(shards) || len(held) != rule.modulus {
		g.remark("hashmod: not written, since %d shards hold %d of %d remainders.", len(shards), len(held), rule.modulus)
		return
	}
	if !operators && slices.ContainsFunc(g.Workloads, func(w *Workload) bool { return w.Kind == "Prometheus" }) {
		g.remark("hashmod: every job of every server keeps what %s hashes to, modulo %d, so that requests for one %s could go to one shard (--hashmod writes it). "+
			"It is not written, since a shard that the operator adds would be refused until the file is written anew.", rule.label, rule.modulus, rule.label)
		return
	}
	g.HashLabel, g.Modulus = rule.label, rule.modulus
	for _, s := range g.Servers {
		s.Hash = s.hashed.n
	}
	g.remark("hashmod: every job of every server keeps what %s hashes to, modulo %d. The servers are seen to keep it before it is believed. Where the number of shards changes, change modulus.", rule.label, rule.modulus)
}
