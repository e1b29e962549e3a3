package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/live"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/loadtest/bench"
)

// Options say what is measured. Zero values take the defaults named.
type Options struct {
	// Servers are those behind the proxy; Asking's window is the panels' time range.
	bench.Servers
	bench.Asking
	// Gang is how many nodes the experiment has, 2 to all of them; 500, or a third of Nodes where
	// that is less.
	Gang int
}

func (o Options) withDefaults() Options {
	o.Servers, o.Asking = o.Servers.WithDefaults(), o.Asking.WithDefaults()
	o.Gang = cmp.Or(o.Gang, min(500, o.Nodes/3))
	return o
}

// Validate returns everything that is wrong with o.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p bench.Problems
	o.Servers.Check(&p, 2*time.Minute)
	o.Asking.Check(&p, 10*time.Minute)
	p.Check(o.Gang >= 2 && o.Gang <= o.Nodes, "gang: %d is outside 2 to the number of nodes, %d", o.Gang, o.Nodes)
	return p.Err()
}

// View is one view and what it took.
type View struct {
	// Name is the query's type and what it was asked for.
	Name string
	// Queries is how many questions went to the proxy; Frames and Rows (points of the longest, for
	// lines) are what came of them.
	Queries, Frames, Rows int
	bench.Took
}

// Result is what was measured.
type Result struct {
	// Nodes, Shards and Series are those of the cluster; Experiment, ExperimentNodes and
	// ExperimentGPUs are what was looked at.
	Nodes, Shards, Series           int
	Experiment                      string
	ExperimentNodes, ExperimentGPUs int
	// SlowGPUs is how many of them do half of their work; Torn is how long before the last views it
	// was that the experiment lost its pods.
	SlowGPUs int
	Torn     time.Duration
	// Window and Bound are those of the options.
	Window, Bound time.Duration
	// Views are all of them, the slowest first.
	Views []View
	// ProxyPeak is the proxy's highest resident memory in bytes.
	ProxyPeak int64
}

// Err is what is wrong with the result: a view that was not answered, or took longer than the
// bound.
func (r *Result) Err() error {
	var errs []error
	if len(r.Views) == 0 {
		errs = append(errs, errors.New("no view was asked"))
	}
	for _, v := range r.Views {
		switch {
		case v.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", v.Name, v.Err))
		case v.Median > r.Bound:
			errs = append(errs, fmt.Errorf("%s takes %.2f s, over %s", v.Name, v.Median.Seconds(), r.Bound))
		}
	}
	return errors.Join(errs...)
}

// WriteMarkdown writes the table of the documentation.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "An experiment of %d GPUs on %d nodes, in %d series of %d nodes x 8 GPUs on %d servers; the last %s. Peak memory of the proxy: %d MiB.\n\n",
		r.ExperimentGPUs, r.ExperimentNodes, r.Series, r.Nodes, r.Shards, r.Window, r.ProxyPeak>>20)
	fmt.Fprintf(&b, "%d of its GPUs do half of their work, one has memory that waits for a reset, and one of its nodes was not ready for a while. Pods that wait and events are looked at "+
		"%s after it has lost its pods, when half of the new ones have no node. What is marked as empty has nothing to show: its time is that of finding out whether anything is not set up.\n\n",
		r.SlowGPUs, r.Torn)
	b.WriteString("| view | questions | frames | rows | median | longest |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, v := range r.Views {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %.2f s |\n", v.Name, v.Queries, v.Frames, v.Rows, v.Text(), v.Max.Seconds())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// before is what is written in front of the window, for rates and lookbacks, and after how far the
// window moves.
const before = 15 * time.Minute

// recorded are the series of the mixin's rules that the datasource reads, besides experiment:…;
// sound checks that there are no others.
var recorded = []string{
	"cluster:gpu_allocated:sum", "cluster:nodes:count", "cluster:nodes_measured:count",
	"cluster:nodes_measured_usual:count", "cluster:nodes_usual:count",
	"cluster_job:targets:count", "cluster_job:targets_usual:count",
	"gpu:ecc_dbe:max", "gpu:nvlink_replays:rate5m", "gpu:pcie_replays:rate5m",
	"gpu:row_remap_failure:max", "gpu:row_remap_pending:max",
	"gpu:xid_errors:count5m", "gpu:xid_last:info", "node:ethernet_received_bytes:rate5m", "node:ethernet_transmitted_bytes:rate5m",
	"node:gpu_capacity:max", "node:gpu_missing:count",
	"node:gpu_model:info", "node:gpu_seen:count", "node:gpu_slowed:sum_rate5m", "node:gpu_temp_celsius:max", "node:gpu_unmeasured:count",
	"node:infiniband_received_bytes:rate5m",
	"node:infiniband_transmitted_bytes:rate5m", "node:ready:max", "node_model:gpu_util_percent:count", "pod:gpu_allocated:sum",
}

func isRecorded(name string) bool {
	return strings.HasPrefix(name, "experiment:") || slices.Contains(recorded, name)
}

// Measure makes the data, starts the servers and asks every view. It ends early, with an error,
// when ctx does; what is wrong with views is in the result.
func Measure(ctx context.Context, o Options) (_ *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	dir, err := os.MkdirTemp(o.Dir, "spillway-plugin-")
	if err != nil {
		return nil, fmt.Errorf("the benchmark needs a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := o.findPast(time.Now().Truncate(time.Minute))
	if err != nil {
		return nil, err
	}
	wide := p.runs[0]
	r := &Result{
		Nodes: o.Nodes, Shards: o.Shards, Window: o.Window, Bound: o.Bound, Experiment: wide.Name, ExperimentNodes: len(wide.Nodes),
		ExperimentGPUs: len(wide.Nodes) * wide.GPUs,
		SlowGPUs:       p.slow, Torn: p.torn.Sub(p.whole),
	}
	o.Say("experiment %s of %d GPUs on %d nodes, until %s", r.Experiment, r.ExperimentGPUs, r.ExperimentNodes,
		p.whole.UTC().Format(time.RFC3339))
	rules, err := live.Needed(filepath.Join(dir, "rules"), isRecorded, alerts.Global(), alerts.Shard())
	if err != nil {
		return nil, fmt.Errorf("choose the rules: %w", err)
	}
	world, err := o.write(ctx, dir, p, rules)
	if err != nil {
		return nil, err
	}
	r.Series = world.Series
	servers, err := world.Serve(ctx, o.Spillway)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	client, err := prom.New(servers.URL, &http.Client{Transport: transport, Timeout: time.Minute}, "")
	if err != nil {
		return nil, err
	}
	for _, q := range questions(p.runs) {
		at := p.whole
		if q.torn {
			at = p.torn
		}
		v := o.ask(ctx, client, q, at)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		o.Say("%-40s %6.2f s, %d questions", v.Name, v.Median.Seconds(), v.Queries)
		r.Views = append(r.Views, v)
	}
	slices.SortStableFunc(r.Views, func(a, b View) int { return a.Took.Compare(b.Took) })
	r.ProxyPeak, err = servers.ProxyPeak()
	return r, err
}

func (o *Options) write(ctx context.Context, dir string, p *past, rules []fs.FS) (*live.World, error) {
	began := time.Now()
	return live.Write(ctx, live.Options{
		Dir: dir, Clusters: []live.Cluster{{Model: p.model, Shards: o.Shards}}, From: p.whole.Add(-o.Window - before),
		Until: p.torn.Add(time.Minute), Interval: o.Interval,
		Rules: rules[0], ShardRules: rules[1], Say: func(format string, args ...any) {
			o.Say("%5.0fs  "+format, append([]any{time.Since(began).Seconds()}, args...)...)
		},
	})
}

// sound says which recorded series the queries read that nobody recorded here.
func sound(executed string) error {
	for _, query := range strings.Split(executed, "\n") {
		e, err := parser.NewParser(parser.Options{ExperimentalDurationExpr: true}).ParseExpr(query)
		if err != nil {
			return fmt.Errorf("the datasource asks what is no PromQL: %s: %w", query, err)
		}
		var missing string
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && strings.Contains(v.Name, ":") && !isRecorded(v.Name) {
				missing = v.Name
			}
			return nil
		})
		if missing != "" {
			return fmt.Errorf("%s is read and was not recorded; add it to recorded in loadtest/plugin", missing)
		}
	}
	return nil
}
