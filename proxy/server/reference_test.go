package server

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// reference evaluates over one storage that holds, for each shard, the samples of one replica in
// each segment: the segments that the proxy reports are its only input from there; labels, samples,
// merging and evaluation are done here again.
type reference struct {
	w        *world
	mu       sync.Mutex
	selected []raw.Selected
}

func (r *reference) observe(s raw.Selected) {
	r.mu.Lock()
	r.selected = append(r.selected, s)
	r.mu.Unlock()
}

func (r *reference) take() []raw.Selected {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.selected
	r.selected = nil
	return s
}

// expected is the label set of a stored series in one Prometheus that holds everything.
func expected(g *worldGroup, stored labels.Labels) labels.Labels {
	b := labels.NewBuilder(stored)
	b.Del("cluster", "prometheus_replica")
	g.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}

type refQuerier struct {
	*storage.MockQuerier
	r        *reference
	selected []raw.Selected
	problems *[]string
}

func (q *refQuerier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	var seen *raw.Selected
	for i := range q.selected {
		if s := &q.selected[i]; s.From == hints.Start && s.Until == hints.End && matchersText(s.Matchers) == matchersText(ms) {
			seen = s
		}
	}
	var out []storage.Series
	for _, g := range q.r.w.groups {
		for si, replicas := range g.shards {
			// All label sets that any replica holds in the window.
			merged := map[string]labels.Labels{}
			for _, d := range replicas {
				for _, s := range d.series {
					l := expected(g, s.lbls)
					if !matches(l, ms) || !slices.ContainsFunc(s.points,
						func(p point) bool { return p.t >= hints.Start && p.t <= hints.End }) {
						continue
					}
					merged[l.String()] = l
				}
			}
			for key, l := range merged {
				var samples []chunks.Sample
				if seen == nil { // passed through: the one replica's own samples
					if len(replicas) > 1 {
						*q.problems = append(*q.problems, "no segments were reported for "+key)
						continue
					}
					samples = take(g, replicas[0], key, hints.Start, hints.End)
				} else {
					segments, ok := seen.Series[key]
					if !ok {
						*q.problems = append(*q.problems, "the proxy did not read "+key)
						continue
					}
					last := int64(math.MinInt64)
					for _, seg := range segments {
						if seg.From <= last || seg.Until < seg.From {
							*q.problems = append(*q.problems, fmt.Sprintf("segments of %s overlap or go back: %v", key, segments))
						}
						last = seg.Until
						ri := slices.IndexFunc(g.names[si], func(name string) bool { return name == seg.Copy })
						if ri < 0 {
							*q.problems = append(*q.problems, "unknown copy "+seg.Copy)
							continue
						}
						samples = append(samples, take(g, replicas[ri], key, max(seg.From, hints.Start), min(seg.Until, hints.End))...)
					}
				}
				if len(samples) > 0 {
					out = append(out, storage.NewListSeries(l, samples))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &listSet{series: out, at: -1}
}

func (*refQuerier) Close() error { return nil }

type listSet struct {
	series []storage.Series
	at     int
}

func (s *listSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *listSet) At() storage.Series              { return s.series[s.at] }
func (*listSet) Err() error                        { return nil }
func (*listSet) Warnings() annotations.Annotations { return nil }

func take(g *worldGroup, d *replicaData, key string, from, until int64) []chunks.Sample {
	var out []chunks.Sample
	for _, s := range d.series {
		if expected(g, s.lbls).String() != key {
			continue
		}
		for _, p := range s.points {
			if p.t >= from && p.t <= until {
				out = append(out, p)
			}
		}
	}
	return out
}

func matches(l labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

func matchersText(ms []*labels.Matcher) string {
	texts := make([]string, len(ms))
	for i, m := range ms {
		texts[i] = m.String()
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}
