package discovery

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/proxy/config"
)

// MaxServers is how many servers a group may have, those that are kept among them.
const MaxServers = 10_000

// The labels that say where a target belongs, once it is relabelled. A target without a shard is
// refused, unless it was found under a DNS name, which is then its shard.
const (
	// ShardLabel names the slice that the server holds a copy of.
	ShardLabel = "__spillway_shard__"
	// ReplicaLabel names the copy: another address under the same name replaces the one before. It
	// also gives the order of the replicas.
	ReplicaLabel = "__spillway_replica__"
	// HashLabel is the shard's number under the group's hashmod.
	HashLabel = "__spillway_hash__"
	// FromLabel and UntilLabel are the shard's span, as from and until in the file.
	FromLabel, UntilLabel = "__spillway_from__", "__spillway_until__"
	// PathLabel is the path prefix before /api/v1.
	PathLabel = "__spillway_path__"
)

const dnsName = model.MetaLabelPrefix + "dns_name"

// The labels that name the pod of a target: its own, or those of the slice, which come first.
const (
	kubernetesLabel = model.MetaLabelPrefix + "kubernetes_"
	namespaceLabel  = kubernetesLabel + "namespace"
	podLabel        = kubernetesLabel + "pod_name"
	refersToLabel   = kubernetesLabel + "endpointslice_address_target_kind"
	refersLabel     = kubernetesLabel + "endpointslice_address_target_name"
)

// found is one server and where it belongs.
type found struct {
	url, shard, replica, hash, from, until string
}

// servers are those of the targets that relabelling keeps; s.origins has who told of them. A pod
// that has addresses of two families is one server, at the first of them: IPv4's.
func (s *source) servers(groups []*targetgroup.Group) ([]found, error) {
	var out []found
	at, origins := map[string]found{}, map[string][]string{}
	doors, first := map[string]string{}, map[string]string{} // by address, and the first address of each
	for _, g := range groups {
		for _, t := range g.Targets {
			f, keep, err := s.server(t, g.Labels)
			if err != nil {
				return nil, err
			}
			if !keep {
				continue
			}
			origins[f.url] = append(origins[f.url], s.origin(g))
			if before, twice := at[f.url]; twice {
				if before != f {
					return nil, fmt.Errorf("the server %s stands in two places, shard %s and shard %s; it holds one slice", f.url, before.shard, f.shard)
				}
				continue
			}
			at[f.url] = f
			out = append(out, f)
			door := f.url
			if pod := s.podOf(g, t); pod != "" {
				door = f.door(pod)
			}
			doors[f.url] = door
			if known := first[door]; known == "" || f.url < known {
				first[door] = f.url
			}
			if len(first) > MaxServers {
				return nil, fmt.Errorf("more than %d servers are found; drop those of others by relabel_configs", MaxServers)
			}
		}
	}
	s.origins = origins
	return slices.DeleteFunc(out, func(f found) bool { return first[doors[f.url]] != f.url }), nil
}

// podOf names the pod of a target, and the API server that has it; empty where it is none's.
func (s *source) podOf(g *targetgroup.Group, t model.LabelSet) string {
	get := func(name model.LabelName) string { return string(cmp.Or(t[name], g.Labels[name])) }
	name := get(podLabel)
	if name == "" && get(refersToLabel) == "Pod" {
		name = get(refersLabel)
	}
	for _, c := range s.clusters {
		if name != "" && strings.HasPrefix(g.Source, c.prefix) {
			return c.host + "\x00" + get(namespaceLabel) + "\x00" + name
		}
	}
	return ""
}

// door is what a server has in common with the same port of its pod at another address.
func (f found) door(pod string) string {
	u, err := url.Parse(f.url)
	if err != nil {
		return f.url
	}
	u.Host = ":" + u.Port()
	f.url = u.String()
	return fmt.Sprintf("%q %q", pod, f)
}

func (s *source) server(target, common model.LabelSet) (f found, keep bool, err error) {
	lb := labels.NewBuilder(labels.EmptyLabels())
	for _, set := range []model.LabelSet{common, target} {
		for name, v := range set {
			lb.Set(string(name), string(v))
		}
	}
	if lb.Get(ShardLabel) == "" {
		lb.Set(ShardLabel, lb.Get(dnsName))
	}
	if !relabel.ProcessBuilder(lb, s.rules...) {
		return found{}, false, nil
	}
	address := lb.Get(model.AddressLabel)
	if address == "" {
		return found{}, false, fmt.Errorf("a target has no %s", model.AddressLabel)
	}
	f = found{
		shard: lb.Get(ShardLabel), replica: lb.Get(ReplicaLabel), hash: lb.Get(HashLabel), from: lb.Get(FromLabel),
		until: lb.Get(UntilLabel),
		url:   cmp.Or(lb.Get(model.SchemeLabel), "http") + "://" + address + lb.Get(PathLabel),
	}
	if f.shard == "" {
		return found{}, false, fmt.Errorf("the target %s has no label %s, which says what slice it holds; give it one in the file, or by relabel_configs", address, ShardLabel)
	}
	r := s.from.Replica(f.url)
	base, err := r.Base()
	if err != nil {
		return found{}, false, fmt.Errorf("the target %s: %w", address, err)
	}
	f.url = base.String()
	return f, true, nil
}

// assemble makes shards of servers, by the names of the shards, their replicas in order.
func (s *source) assemble(known map[string]*server) ([]config.Shard, error) {
	if len(known) == 0 {
		return nil, errNoServer
	}
	all := sortedValues(known)
	slices.SortStableFunc(all, func(a, b *server) int {
		return cmp.Or(natural(a.shard, b.shard), natural(a.replica, b.replica), strings.Compare(a.url, b.url))
	})
	var out []config.Shard
	var last *server
	for _, k := range all {
		if last == nil || last.shard != k.shard {
			shard := config.Shard{}
			var err error
			if k.hash != "" {
				n, err := strconv.ParseUint(k.hash, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("shard %s: %s is %q and no number", k.shard, HashLabel, k.hash)
				}
				shard.Hash = config.Hash{N: n, Set: true}
			}
			if shard.From, err = moment(k.from); err != nil {
				return nil, fmt.Errorf("shard %s: %s: %w", k.shard, FromLabel, err)
			}
			if shard.Until, err = moment(k.until); err != nil {
				return nil, fmt.Errorf("shard %s: %s: %w", k.shard, UntilLabel, err)
			}
			out = append(out, shard)
		} else if last.hash != k.hash || last.from != k.from || last.until != k.until {
			return nil, fmt.Errorf("the servers %s and %s of shard %s differ in %s, %s or %s; copies of a slice hold the same", last.url, k.url, k.shard, HashLabel, FromLabel, UntilLabel)
		}
		shard := &out[len(out)-1]
		shard.Replicas = append(shard.Replicas, s.from.Replica(k.url))
		last = k
	}
	return out, nil
}

func moment(text string) (config.Moment, error) {
	if text == "" {
		return config.Moment{}, nil
	}
	return config.ParseMoment(text)
}

// natural compares names so that shard-10 follows shard-9: by length where what stands before the
// number is the same.
func natural(a, b string) int {
	const digits = "0123456789"
	x, y := strings.TrimRight(a, digits), strings.TrimRight(b, digits)
	if x != y {
		return strings.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
