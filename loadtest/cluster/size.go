package cluster

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
)

// Size is a number of series, and how many of them are buckets (have le).
type Size struct{ Targets, Series, Buckets int }

func (s *Size) add(o Size) {
	s.Targets += o.Targets
	s.Series += o.Series
	s.Buckets += o.Buckets
}

// Sizes counts the series of each job at a moment, those that the scraping
// server makes not included. every says how many nodes stand for one: 1 counts
// all, 50 counts each fiftieth node's pages and multiplies; pages that are not
// a node's are always counted as they are. Targets that are down count 0 series.
func (m *Model) Sizes(at time.Time, every int) (map[string]Size, error) {
	if every < 1 {
		every = 1
	}
	out := map[string]Size{}
	counted := (m.o.Nodes + every - 1) / every
	for _, t := range m.targets {
		if t.node >= 0 && t.node%every != 0 {
			continue
		}
		one := Size{Targets: 1}
		ms := at.UnixMilli()
		p, err := m.pageAt(t, ms)
		if err == nil {
			p.collect(familiesOf(t.Job, m.o.Detail), func(s *series) {
				if ms >= s.from && ms < s.until {
					one.Series++
					if n := len(s.pairs); n >= 2 && s.pairs[n-2] == model.BucketLabel {
						one.Buckets++
					}
				}
			})
		} else if ms < m.start {
			return nil, err
		}
		s := out[t.Job]
		s.add(one)
		out[t.Job] = s
	}
	if every > 1 {
		for _, job := range []string{JobNode, JobDCGM, JobKubelet, JobCadvisor, JobIPTables, JobProblemDetector} {
			if out[job].Targets == 0 {
				continue // this cluster has none of them
			}
			s := out[job]
			f := float64(m.o.Nodes) / float64(counted)
			out[job] = Size{int(float64(s.Targets) * f), int(float64(s.Series) * f), int(float64(s.Buckets) * f)}
		}
	}
	return out, nil
}

// Jobs lists the jobs in the order of Targets.
func Jobs() []string {
	return []string{
		JobAPIServer, JobEtcd, JobEtcdEvents, JobControllerManager, JobScheduler, JobKubeStateMetrics, JobCoreDNS,
		JobPrometheus, JobAPIServerSLIs, JobAutoscaler, JobNode, JobDCGM, JobKubelet, JobCadvisor,
	}
}

// NodesForSeries is the number of nodes of a default (Lean) cluster of about
// want series; at least 1.
func NodesForSeries(want int) int {
	const plane, perNode = 7800, 464 // TestSizes prints the real figures
	return max(1, (want-plane)/perNode)
}

// SizeForSeries returns o with Detail, Nodes and CustomResources set so that a
// back-fill of b writes about want series, of which about bucketShare (0 to 0.9)
// have a label le: nodes bring the others, custom resources widen the API
// servers. It measures small clusters and then the real one; the answer is
// within 2 % of want, or an error says what is possible. The share is met within
// a few percent from about 90,000 series up; below that the control plane alone
// decides it.
func SizeForSeries(ctx context.Context, o Options, b BackfillOptions, want int, bucketShare float64) (Options, error) {
	if !(bucketShare >= 0 && bucketShare <= 0.9) {
		return o, fmt.Errorf("bucket share %v is outside 0 to 0.9", bucketShare)
	}
	o.Detail = Full
	measure := func(nodes, custom int) (Size, error) {
		o := o
		o.Nodes, o.CustomResources = nodes, custom
		m, err := New(o)
		if err != nil {
			return Size{}, err
		}
		return m.survey(ctx, b)
	}
	// Two unknowns, two equations: series = c + n*node + r*custom, and the same
	// for buckets. The constants come from three small clusters.
	zero, err := measure(16, 0)
	if err != nil {
		return o, err
	}
	more, err := measure(48, 0)
	if err != nil {
		return o, err
	}
	wide, err := measure(16, 20)
	if err != nil {
		return o, err
	}
	node := [2]float64{float64(more.Series-zero.Series) / 32, float64(more.Buckets-zero.Buckets) / 32}
	custom := [2]float64{float64(wide.Series-zero.Series) / 20, float64(wide.Buckets-zero.Buckets) / 20}
	rest := [2]float64{
		float64(want) - float64(zero.Series) + 16*node[0],
		bucketShare*float64(want) - float64(zero.Buckets) + 16*node[1],
	}
	det := node[0]*custom[1] - node[1]*custom[0]
	n := (rest[0]*custom[1] - rest[1]*custom[0]) / det
	nodes := max(1, int(n+0.5))
	got := Size{}
	for range 4 {
		// The number of nodes fixed, custom resources take up what is missing.
		r := max(0, int((rest[0]-float64(nodes)*node[0])/custom[0]+0.5))
		o.Nodes, o.CustomResources = nodes, r
		if got, err = measure(nodes, r); err != nil {
			return o, err
		}
		miss := float64(want - got.Series)
		if miss < 0.004*float64(want) && -miss < 0.004*float64(want) {
			return o, nil
		}
		// From here on relative to what was measured: the constants came from
		// clusters of other sizes.
		rest[0] = float64(nodes)*node[0] + float64(r)*custom[0] + miss
		if r == 0 && miss < 0 {
			nodes = max(1, nodes+int(math.Floor(miss/node[0])))
		}
	}
	if d := got.Series - want; d > want/50 || -d > want/50 {
		return o, fmt.Errorf("no cluster of about %d series with %.0f %% buckets: the nearest has %d (%d nodes, %d custom resources); ask for more series or fewer API servers",
			want, 100*bucketShare, got.Series, o.Nodes, o.CustomResources)
	}
	return o, nil
}

// survey counts what a back-fill would write. Series that return after a pause
// are counted once for each life, so it may be a few too many.
func (m *Model) survey(ctx context.Context, b BackfillOptions) (Size, error) {
	j, err := m.newJob(b)
	if err != nil {
		return Size{}, err
	}
	sz := Size{Targets: len(j.targets)}
	for i := range j.targets {
		if err := context.Cause(ctx); err != nil {
			return sz, err
		}
		j.walk(i, func(s *series, _ made) {
			sz.Series++
			if n := len(s.pairs); n >= 2 && s.pairs[n-2] == model.BucketLabel {
				sz.Buckets++
			}
		})
	}
	return sz, nil
}

// BackfillSeries writes blocks of about want series (within 2 %), 60 % of them
// buckets as on a server that scrapes API servers, from a cluster chosen by
// SizeForSeries out of o. It returns the model too, so that the caller can serve
// it on. Copy the directory to give several servers the same load.
func BackfillSeries(ctx context.Context, dir string, want int, o Options, b BackfillOptions) (*Model, Stats, error) {
	o, err := SizeForSeries(ctx, o, b, want, 0.6)
	if err != nil {
		return nil, Stats{}, err
	}
	m, err := New(o)
	if err != nil {
		return nil, Stats{}, err
	}
	st, err := m.Backfill(ctx, dir, b)
	return m, st, err
}
