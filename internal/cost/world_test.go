package cost

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// kept are the families that a bill reads: what a server stores that drops all others.
var kept = []string{
	"up", "kube_pod_status_phase", "kube_pod_container_resource_requests", "kube_pod_labels", "kube_namespace_labels", "kube_node_labels",
	"kube_node_status_capacity",
	"kube_node_status_allocatable", "kube_node_spec_taint", "kube_node_status_condition",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_TEMP",
}

// dropping is a database behind metric relabelling: it keeps what a bill reads, and calls
// kube-state-metrics by the name of one of its replicas.
type dropping struct {
	storage.Appendable
	replica string
}

func (d dropping) Appender(ctx context.Context) storage.Appender {
	return droppingAppender{d.Appendable.Appender(ctx), d.replica}
}

type droppingAppender struct {
	storage.Appender
	replica string
}

func (d droppingAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if ref == 0 {
		if !slices.Contains(kept, l.Get("__name__")) {
			return 0, nil
		}
		if r := l.Get("resource"); r != "" && r != "nvidia_com_gpu" && !strings.HasPrefix(r, "nvidia_com_mig_") {
			return 0, nil
		}
		if l.Get("job") == cluster.JobKubeStateMetrics && d.replica != "" {
			l = labels.NewBuilder(l).Set("instance", d.replica).Labels()
		}
	}
	return d.Appender.Append(ref, l, t, v)
}

// month is a simulated cluster over a stretch of time and the servers that scraped it.
type month struct {
	t        testing.TB
	model    *cluster.Model
	from, to time.Time
	gap      cluster.Gap // in which no replica was scraped
	scrape   time.Duration
	gpus     time.Duration // between scrapes of the GPUs; 0 means 4 min
	external labels.Labels // on all series
}

// serve starts an empty server.
func (w *month) serve() *localprom.Shard {
	w.t.Helper()
	s, err := localprom.Start(w.t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 200 * 24 * time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

// fill scrapes both replicas of kube-state-metrics, each into its server, and the GPU exporters
// into the second one. The replicas miss stretches of their own, one after the other, and both miss
// gap.
func (w *month) fill(first, second *localprom.Shard) {
	w.t.Helper()
	third := w.to.Sub(w.from) / 3
	for i, name := range []string{"10.0.1.1:8080", "10.0.1.2:8080"} {
		own := w.from.Add(third + time.Duration(i)*20*time.Minute)
		w.scrapes([]*localprom.Shard{first, second}[i], name, cluster.BackfillOptions{
			Interval: w.scrape, Replica: uint64(i), Jitter: 100 * time.Millisecond,
			Keep: func(x cluster.Target) bool { return x.Job == cluster.JobKubeStateMetrics },
			Gaps: []cluster.Gap{w.gap, {From: own, Until: own.Add(20 * time.Minute)}}, ExternalTargetLabels: w.external,
		})
	}
	w.scrapes(second, "", cluster.BackfillOptions{
		Interval: cmp.Or(w.gpus, 4*time.Minute),
		Keep:     func(x cluster.Target) bool { return x.Job == cluster.JobDCGM }, ExternalTargetLabels: w.external,
	})
}

// scrapes appends in pieces: the model walks all series of a piece at every scrape.
func (w *month) scrapes(s *localprom.Shard, replica string, o cluster.BackfillOptions) {
	w.t.Helper()
	end := w.to.Add(time.Hour)
	for at := w.from.Add(-time.Hour); at.Before(end); at = o.Until {
		o.From, o.Until = at, at.Add(4*time.Hour)
		if o.Until.After(end) {
			o.Until = end
		}
		if _, err := w.model.BackfillHead(w.t.Context(), dropping{s.DB(), replica}, o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// modelOf is the GPU model of each node, from the page of the model itself.
func (w *month) modelOf() map[string]string {
	out := map[string]string{}
	for _, x := range w.model.Targets() {
		if x.Job != cluster.JobKubeStateMetrics {
			continue
		}
		err := w.model.Series(x, w.from, func(l labels.Labels, _ float64, _ model.MetricType) {
			if l.Get("__name__") == "kube_node_labels" {
				product, _, _ := strings.Cut(l.Get("label_nvidia_com_gpu_product"), "-MIG-")
				out[l.Get("node")] = strings.TrimSuffix(product, "-SHARED")
			}
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return out
}

// overlap is what [a, b) and [c, d) have in common.
func overlap(a, b, c, d time.Time) time.Duration {
	if c.After(a) {
		a = c
	}
	if d.Before(b) {
		b = d
	}
	return max(0, b.Sub(a))
}

// truth is the GPU hours of the model itself in [from, to), without the gap, by key.
func (w *month) truth(from, to time.Time, key func(x *cluster.Experiment, node string) string) map[string]float64 {
	out := map[string]float64{}
	xs := w.model.Experiments(from.Add(-time.Hour), to.Add(time.Hour))
	for i := range xs {
		x := &xs[i]
		for _, run := range x.Runs {
			d := overlap(run.From, run.Until, from, to)
			if !w.gap.From.IsZero() {
				// What a gap takes away, as far as it lies in the range and in the run.
				a, b := run.From, run.Until
				if from.After(a) {
					a = from
				}
				if to.Before(b) {
					b = to
				}
				if b.After(a) {
					d -= overlap(a, b, w.gap.From, w.gap.Until)
				}
			}
			if d <= 0 {
				continue
			}
			for _, n := range x.Nodes {
				out[key(x, n)] += float64(x.GPUs) * x.Share * d.Hours()
			}
		}
	}
	return out
}

// compare finds rows that are further from the truth than a GPU hour, and rows and truths without
// the other.
func compare(t *testing.T, what string, truth, billed map[string]float64) (worst float64) {
	t.Helper()
	for _, k := range sortedKeys(truth) {
		if d := math.Abs(billed[k] - truth[k]); d > 1 {
			t.Errorf("%s: %q is billed %.3f GPU hours, the truth is %.3f", what, k, billed[k], truth[k])
		} else {
			worst = max(worst, d)
		}
	}
	for _, k := range sortedKeys(billed) {
		if _, ok := truth[k]; !ok && billed[k] > 0.1 {
			t.Errorf("%s: %q is billed %.3f GPU hours and held none", what, k, billed[k])
		}
	}
	return worst
}

func sum(m map[string]float64) float64 {
	s := 0.0
	for _, k := range sortedKeys(m) {
		s += m[k]
	}
	return s
}
