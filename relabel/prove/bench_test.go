package prove

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// fleet is many series that are made while they are read: of 10 jobs with 300 metrics each, of
// which every third one is a histogram, and of as many instances as it takes.
type fleet struct {
	series int
}

const (
	fleetJobs    = 10
	fleetMetrics = 300
)

var fleetEdges = []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"}

func (f fleet) String() string { return "the fleet" }

func (f fleet) Scan(_ context.Context, call func(*inventory.Series) error) error {
	var b labels.ScratchBuilder
	s := inventory.Series{Interval: 30 * time.Second}
	n := 0
	names := [fleetJobs][fleetMetrics]string{}
	for j := range fleetJobs {
		for m := range fleetMetrics {
			names[j][m] = fleetMetric(j, m)
		}
	}
	for instance := 0; ; instance++ {
		node := fmt.Sprintf("node-%05d:9100", instance)
		for j := range fleetJobs {
			job := fmt.Sprintf("job-%d", j)
			for m := range fleetMetrics {
				of := 4
				if m%3 == 0 {
					of = len(fleetEdges)
				}
				for i := range of {
					b.Reset()
					b.Add(model.MetricNameLabel, names[j][m])
					b.Add("container", "main")
					b.Add("instance", node)
					b.Add("job", job)
					if m%3 == 0 {
						b.Add("le", fleetEdges[i])
					}
					b.Add("namespace", "a-namespace")
					b.Add("pod", fleetPods[i])
					b.Add("uid", node)
					b.Overwrite(&s.Labels)
					if err := call(&s); err != nil {
						return err
					}
					if n++; n == f.series {
						return nil
					}
				}
			}
		}
	}
}

var fleetPods = []string{"pod-0", "pod-1", "pod-2", "pod-3", "pod-4", "pod-5", "pod-6", "pod-7", "pod-8", "pod-9", "pod-10", "pod-11"}

func fleetMetric(j, m int) string {
	if m%3 == 0 {
		return fmt.Sprintf("job%d_subsystem_operation_%03d_seconds_bucket", j, m)
	}
	return fmt.Sprintf("job%d_subsystem_things_%03d_total", j, m)
}

// fleetRules are ten for each job: five that take 20 metrics each, three that thin histograms, one
// that takes a slice, and one that takes a label.
func fleetRules(b *testing.B) []propose.Rule {
	var out []propose.Rule
	for j := range fleetJobs {
		list := func(from, step, n int) (out []string) {
			for i := range n {
				out = append(out, fleetMetric(j, from+step*i))
			}
			return out
		}
		add := func(kind propose.Kind, metrics []string, label string, values ...string) {
			configs, err := propose.Configs(kind, metrics, label, values)
			if err != nil {
				b.Fatal(err)
			}
			id := fmt.Sprintf("job-%d/%d", j, len(out))
			out = append(out, propose.Rule{
				ID: id, Kind: kind, Job: fmt.Sprintf("job-%d", j), Metrics: metrics, Label: label,
				Values: values, Relabel: configs,
			})
		}
		for i := range 5 {
			add(propose.Names, list(1+60*i, 3, 20), "")
		}
		for i := range 3 {
			add(propose.Buckets, list(90*i, 3, 30), "le", "0.01", "0.05", "0.25", "1.0")
		}
		add(propose.Slice, list(2, 3, 50), "pod", "pod-3")
		add(propose.Label, list(152, 3, 40), "uid")
	}
	return out
}

// BenchmarkRules proves a hundred rules over series that are made while they are read (scan is that
// alone), with three uses for every histogram and for every other metric that stays.
func BenchmarkRules(b *testing.B) {
	set := new(uses.Set)
	for j := range fleetJobs {
		for m := range fleetMetrics {
			if m%3 == 1 {
				continue
			}
			for i := range 3 {
				query := fmt.Sprintf(`sum by (job, instance) (rate(%s{namespace="a-namespace",pod!="pod-3"}[%dm]))`, fleetMetric(j, m), i+1)
				if m%3 == 0 {
					query = fmt.Sprintf(`sum by (job) (rate(%s{namespace="a-namespace",le=~"0.1|10.0|\\+Inf",pod=~"pod-%d|.+"}[5m]))`, fleetMetric(j, m), i)
				}
				set.Add(&uses.Use{Kind: uses.Logged, Where: "ada", Query: query})
			}
		}
	}
	rules := fleetRules(b)
	for _, n := range []int{1_000_000, 10_000_000} {
		if testing.Short() && n > 1_000_000 {
			continue
		}
		src := fleet{series: n}
		b.Run(fmt.Sprintf("scan/series=%d", n), func(b *testing.B) {
			for b.Loop() {
				if err := src.Scan(b.Context(), func(*inventory.Series) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/series")
		})
		b.Run(fmt.Sprintf("prove/series=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				index := set.Index(nil, nil)
				proof, err := Rules(b.Context(), src, nil, index, rules, nil)
				if err != nil {
					b.Fatal(err)
				}
				for id, f := range proof.Failed {
					if f.Reason[:len("it claims to save")] != "it claims to save" { // nothing was counted before
						b.Fatalf("%s: %+v", id, f)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/series")
		})
	}
}

// Samples has one for each series.
func (f fleet) Samples(ctx context.Context, _ time.Duration, keep func(labels.Labels) bool,
	call func(*inventory.Series, []promql.FPoint, []promql.HPoint) error,
) error {
	n := 0
	return f.Scan(ctx, func(s *inventory.Series) error {
		n++
		if !keep(s.Labels) {
			return nil
		}
		return call(s, []promql.FPoint{{T: day, F: float64(n)}}, nil)
	})
}

// BenchmarkPlay replays a sample of a million series with 500 queries, 20 of which rules record.
func BenchmarkPlay(b *testing.B) {
	set := new(uses.Set)
	for i := range 500 {
		metric := fleetMetric(i%fleetJobs, i*3%fleetMetrics)
		u := &uses.Use{Kind: uses.Logged, Where: "ada", Query: fmt.Sprintf(`sum by (job, pod) (rate(%s{le=~"0.1|10.0"}[5m])) + %d`, metric, i)}
		if i < 20 {
			u.Records = fmt.Sprintf("job:number_%d:rate5m", i)
		}
		set.Add(u)
	}
	for b.Loop() {
		out, err := Play(b.Context(), fleet{series: 1_000_000}, set, fleetRules(b), ReplayOptions{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if out.Equal != out.Queries {
			b.Fatalf("%+v", out)
		}
		b.ReportMetric(float64(out.Series), "series")
		b.ReportMetric(float64(out.Queries), "queries")
	}
}
