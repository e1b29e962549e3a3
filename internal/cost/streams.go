package cost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Several servers may scrape one kube-state-metrics, each keeping a part of its pods: then there
// are as many series of up, told apart by a label that the pods' series do not have (seen_by in
// deploy/exporters), and each pod has the samples of one of them. Two that both have all of it (a
// highly available pair) put their label on the pods' series too.

// stream is the scrapes of one replica by one server.
type stream struct {
	*replica
	labels string // what tells it apart
}

// inner is how much of [from, to) lies in the stream's life, and what of that it covers.
func (s *stream) inner(from, to, maxGap int64) (scrapes int, covered, life int64) {
	begin, end := s.times[0], s.end(len(s.times)-1, maxGap)
	scrapes, covered = s.cover(from, to, maxGap)
	return scrapes, covered, max(0, min(to, end)-max(from, begin))
}

// pauses are the stretches of [from, to) within its life that it does not cover.
func (s *stream) pauses(from, to, maxGap int64) (out [][2]int64) {
	for i := range s.times[:len(s.times)-1] {
		if a, b := max(from, s.end(i, maxGap)), min(to, s.times[i+1]); a < b {
			out = append(out, [2]int64{a, b})
		}
	}
	return out
}

// read is how many scrapes of a replica lie in a window, how much of it all of its servers covered,
// and how many scrapes there are in a millisecond of what each of them covered. A server that was
// not there yet, or no longer, is missed by nobody: its pods are another's.
func (r *replica) read(from, to, maxGap int64) (scrapes int, covered int64, rate float64) {
	scrapes, covered = r.cover(from, to, maxGap)
	if len(r.streams) < 2 {
		return scrapes, covered, float64(scrapes) / float64(max(1, covered))
	}
	n, together := 0, int64(0)
	for _, s := range r.streams {
		own, c, life := s.inner(from, to, maxGap)
		n, together = n+own, together+c
		if own > 0 || life == to-from { // what began or ended between two scrapes of a window has nothing in it
			covered = min(covered, to-from-life+c)
		}
	}
	return scrapes, covered, float64(n) / float64(max(1, together))
}

// lost are the stretches of [from, to) in which some server of each replica was silent, while it
// was there before and after.
func (s *source) lost(from, to, maxGap int64) [][2]int64 {
	var out [][2]int64
	for i, r := range s.replicas {
		own := (&source{union: r}).gaps(from, to, maxGap)
		for _, one := range r.streams {
			own = append(own, one.pauses(from, to, maxGap)...)
		}
		if own = joined(own); i == 0 {
			out = own
			continue
		}
		var both [][2]int64
		for _, a := range out {
			for _, b := range own {
				if from, to := max(a[0], b[0]), min(a[1], b[1]); from < to {
					both = append(both, [2]int64{from, to})
				}
			}
		}
		out = both
	}
	return out
}

// joined are stretches in order, those that overlap made one.
func joined(of [][2]int64) (out [][2]int64) {
	slices.SortFunc(of, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	for _, g := range of {
		if n := len(out); n > 0 && g[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], g[1])
			continue
		}
		out = append(out, g)
	}
	return out
}

// split reports whether several servers have parts of a replica's pods.
func (s *source) split() bool {
	return slices.ContainsFunc(s.replicas, func(r *replica) bool { return len(r.streams) > 1 })
}

// arrange makes sources of the series of up.
func (r *run) arrange(ctx context.Context, found []series) error {
	n := r.o.Names
	type replicaAt struct {
		sourceKey
		name string
	}
	place := func(m map[string]string) replicaAt {
		k := replicaAt{sourceKey{cluster: m[n.ClusterLabel]}, m[n.ReplicaLabel]}
		if n.ShardLabel != "" {
			k.shard = m[n.ShardLabel]
		}
		return k
	}
	first, differ := map[replicaAt]map[string]string{}, map[string]bool{}
	for _, s := range found {
		at := place(s.Metric)
		if first[at] == nil {
			first[at] = s.Metric
		}
		for _, m := range []map[string]string{s.Metric, first[at]} {
			for l := range m {
				if s.Metric[l] != first[at][l] {
					differ[l] = true
				}
			}
		}
	}
	apart, err := r.partsBy(ctx, sortedKeys(differ))
	if err != nil {
		return err
	}
	bySource, replicas := map[sourceKey]*source{}, map[replicaAt]*replica{}
	for _, s := range found {
		at := place(s.Metric)
		if bySource[at.sourceKey] == nil {
			bySource[at.sourceKey] = &source{sourceKey: at.sourceKey}
			r.sources = append(r.sources, bySource[at.sourceKey])
		}
		p := replicas[at]
		if p == nil {
			p = &replica{name: at.name}
			replicas[at] = p
			bySource[at.sourceKey].replicas = append(bySource[at.sourceKey].replicas, p)
		}
		p.add(s, apart)
	}
	r.silence()
	// Replicas that never answered say nothing where others did.
	for _, s := range r.sources {
		s.replicas = slices.DeleteFunc(s.replicas, func(p *replica) bool { return len(p.times) == 0 })
	}
	sortSources(r.sources)
	return r.oneSourceEach()
}

// add takes over the scrapes of a series, whose labels of some names tell its server.
func (r *replica) add(s series, apart []string) {
	var labels []string
	for _, l := range apart {
		labels = append(labels, l+"="+s.Metric[l])
	}
	name, own := strings.Join(labels, ","), []int64(nil)
	for _, v := range s.Values {
		if v.v == 1 {
			own = append(own, v.t)
		}
	}
	if len(own) == 0 {
		if r.tried == nil {
			r.tried = map[string]bool{}
		}
		r.tried[name] = true
		return
	}
	r.times = append(r.times, own...)
	at := slices.IndexFunc(r.streams, func(o *stream) bool { return o.labels == name })
	if at < 0 {
		at = len(r.streams)
		r.streams = append(r.streams, &stream{&replica{name: r.name}, name})
	}
	r.streams[at].times = append(r.streams[at].times, own...)
}

// partsBy are those of some labels of up that tell apart servers of which each pod has one: the
// pods' series have no such label, or each pod's one value of it. Where pods have several values
// each server has all pods.
func (r *run) partsBy(ctx context.Context, names []string) (parts []string, err error) {
	n := r.o.Names
	pod := strings.Join([]string{n.ClusterLabel, "namespace", "pod", "uid", n.ReplicaLabel}, ", ")
	for _, l := range names {
		q := query{name: "servers by " + l, text: func(string, string) string {
			return "avg (count by (" + pod + ") (group by (" + pod + ", " + l + ") (kube_pod_status_phase{" +
				join(n.Selector, `phase="Running"`) + "})))"
		}}
		whole := false
		for _, day := range r.o.Range.Days() { // one of two may be down for some hours
			ws := windows([]Day{day})
			for at := 0; at < len(ws) && !whole; at += 6 {
				err := r.ask(ctx, q, ws[at:at+1], nil, func(_ map[string]string, _ int, v float64) error {
					whole = whole || v > 1.5 // a pod has two for a moment where it moves to another server
					return nil
				})
				if err != nil {
					return nil, err
				}
			}
		}
		if !whole {
			parts = append(parts, l)
		}
	}
	return parts, nil
}

// oneSourceEach refuses where a replica is of several sources at once: the pods' series do not say
// of which.
func (r *run) oneSourceEach() error {
	type life struct {
		*source
		from, to int64
	}
	lives := map[replicaKey][]life{}
	for _, s := range r.sources {
		for _, p := range s.replicas {
			k, own := replicaKey{s.cluster, p.name}, life{s, slices.Min(p.times), slices.Max(p.times)}
			for _, o := range lives[k] {
				if o.from < own.to && own.from < o.to {
					return fmt.Errorf("kube-state-metrics at %s is of the shards %q and %q of --shard-label=%s at once: "+
						"where that label tells apart the servers that scrape it, leave the flag out; "+
						"else name with --replica-label what tells their pods' series apart",
						p.name, o.shard, s.shard, r.o.Names.ShardLabel)
				}
			}
			lives[k] = append(lives[k], own)
		}
	}
	return nil
}

// gone are sentences about servers whose scrapes began late or ended early: they may have been
// added and taken away, and may have been dead.
func (r *run) gone() (said []string) {
	for _, s := range r.sources {
		first, last := map[string]int64{}, map[string]int64{}
		for _, p := range s.replicas {
			if len(p.streams) < 2 {
				continue
			}
			for _, one := range p.streams {
				if v, ok := first[one.labels]; !ok || one.times[0] < v {
					first[one.labels] = one.times[0]
				}
				last[one.labels] = max(last[one.labels], one.times[len(one.times)-1])
			}
		}
		if len(first) == 0 {
			continue
		}
		begin := slices.Min(slices.Collect(maps.Values(first)))
		end := slices.Max(slices.Collect(maps.Values(last)))
		when := func(ms int64) string { return time.UnixMilli(ms).In(r.o.Range.Location).Format(time.RFC3339) }
		for _, l := range sortedKeys(first) {
			if first[l] > begin+2*r.gap {
				said = append(said, fmt.Sprintf("The server %s scraped %s from %s on only, others before: unless it was new then, its pods are missing.",
					visible(l), s.what(), when(first[l])))
			}
			if last[l] < end-2*r.gap {
				said = append(said, fmt.Sprintf("The server %s scraped %s until %s only, others for longer: unless it was taken away then, its pods are missing.",
					visible(l), s.what(), when(last[l])))
			}
		}
	}
	return said
}

func (s *source) what() string {
	if s.cluster == "" {
		return "kube-state-metrics"
	}
	return "the kube-state-metrics of " + visible(s.cluster)
}

// settleAll settles all sources, and tells of all that cannot be.
func (r *run) settleAll() error {
	var errs []error
	for _, s := range r.sources {
		errs = append(errs, s.settle(r.gap))
	}
	return errors.Join(errs...)
}
