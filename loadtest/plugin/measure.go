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
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Options say what is measured. Zero values take the defaults named.
type Options struct {
	// Spillway is the spillway binary, which is run as the proxy.
	Spillway string
	// Nodes is the number of nodes, of 8 GPUs each; 7,500. Gang is how many of them the experiment has; 500, or a third of Nodes where that is less. Shards is how many servers share the series; 4.
	Nodes, Gang, Shards int
	// Window is the panels' time range, 1 hour; Interval that of scrapes, 1 minute.
	Window, Interval time.Duration
	// Times is how often each view is asked, 3; Bound what it may take, 2 s.
	Times int
	Bound time.Duration
	// Seed chooses the simulated cluster.
	Seed uint64
	// Dir is where data is made, in a folder of its own that is removed; the temporary folder.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

func (o Options) withDefaults() Options {
	o.Nodes, o.Shards = cmp.Or(o.Nodes, 7500), cmp.Or(o.Shards, 4)
	o.Gang = cmp.Or(o.Gang, min(500, o.Nodes/3))
	o.Window, o.Interval = cmp.Or(o.Window, time.Hour), cmp.Or(o.Interval, time.Minute)
	o.Times, o.Bound = cmp.Or(o.Times, 3), cmp.Or(o.Bound, 2*time.Second)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// Validate returns everything that is wrong with o.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Spillway != "", "the path of the spillway binary is missing")
	check(o.Nodes >= 8 && o.Nodes <= 100_000, "nodes: %d is outside 8 to 100,000", o.Nodes)
	check(o.Gang >= 1 && o.Gang <= o.Nodes, "gang: %d is outside 1 to the number of nodes, %d", o.Gang, o.Nodes)
	check(o.Shards >= 1 && o.Shards <= 64, "shards: %d is outside 1 to 64", o.Shards)
	check(o.Window >= 10*time.Minute && o.Window <= 24*time.Hour, "window: %s is outside 10m to 24h", o.Window)
	check(o.Interval >= time.Second && o.Interval <= 2*time.Minute, "interval: %s is outside 1s to 2m", o.Interval)
	check(o.Times >= 1 && o.Times <= 100, "times: %d is outside 1 to 100", o.Times)
	check(o.Bound > 0, "bound: %s is not above 0", o.Bound)
	return errors.Join(errs...)
}

// View is one view and what it took.
type View struct {
	// Name is the query's type and what it was asked for.
	Name string
	// Queries is how many questions went to the proxy; Frames and Rows (points of the longest, for lines) are what came of them.
	Queries, Frames, Rows int
	// Median and Max are over all times that it was asked.
	Median, Max time.Duration
	// Err is why it was not answered; nil if it was each time.
	Err error
}

// Result is what was measured.
type Result struct {
	// Nodes, Shards and Series are those of the cluster; Experiment, ExperimentNodes and ExperimentGPUs are what was looked at.
	Nodes, Shards, Series           int
	Experiment                      string
	ExperimentNodes, ExperimentGPUs int
	// Window and Bound are those of the options.
	Window, Bound time.Duration
	// Views are all of them, the slowest first.
	Views []View
	// ProxyPeak is the proxy's highest resident memory in bytes.
	ProxyPeak int64
}

// Err is what is wrong with the result: a view that was not answered, or took longer than the bound.
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
	b.WriteString("| view | questions | frames | rows | median | longest |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, v := range r.Views {
		median := fmt.Sprintf("%.2f s", v.Median.Seconds())
		if v.Err != nil {
			median = "not answered"
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s | %.2f s |\n", v.Name, v.Queries, v.Frames, v.Rows, median, v.Max.Seconds())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// before is what is written in front of the window, for rates and lookbacks, and after how far the window moves.
const before = 15 * time.Minute

// recorded are the series of the mixin's rules that the datasource reads, besides experiment:…; sound checks that there are no others.
var recorded = []string{
	"cluster:gpu_seen:sum", "cluster:nodes:count", "gpu:ecc_dbe:max", "gpu:nvlink_replays:rate5m", "gpu:pcie_replays:rate5m", "gpu:row_remap_failure:max", "gpu:row_remap_pending:max",
	"gpu:xid_errors:count5m", "gpu:xid_last:info", "node:ethernet_received_bytes:rate5m", "node:ethernet_transmitted_bytes:rate5m", "node:gpu_capacity:max", "node:gpu_missing:count",
	"node:gpu_model:info", "node:gpu_slowed:sum_rate5m", "node:gpu_temp_celsius:max", "node:gpu_unmeasured:count", "node:infiniband_received_bytes:rate5m",
	"node:infiniband_transmitted_bytes:rate5m", "node:ready:max", "node_model:gpu_util_percent:count", "pod:gpu_allocated:sum",
}

func isRecorded(name string) bool {
	return strings.HasPrefix(name, "experiment:") || slices.Contains(recorded, name)
}

// Measure makes the data, starts the servers and asks every view. It ends early, with an error, when ctx does; what is wrong with views is in the result.
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
	m, runs, until, err := o.model()
	if err != nil {
		return nil, err
	}
	gpus := len(runs[0].Nodes) * runs[0].GPUs
	r := &Result{Nodes: o.Nodes, Shards: o.Shards, Window: o.Window, Bound: o.Bound, Experiment: runs[0].Name, ExperimentNodes: len(runs[0].Nodes), ExperimentGPUs: gpus}
	o.Say("experiment %s of %d GPUs on %d nodes, until %s", r.Experiment, gpus, r.ExperimentNodes, until.UTC().Format(time.RFC3339))
	rules, err := live.Needed(filepath.Join(dir, "rules"), isRecorded, alerts.Global(), alerts.Shard())
	if err != nil {
		return nil, fmt.Errorf("choose the rules: %w", err)
	}
	world, err := o.write(ctx, dir, m, until, rules)
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
	for _, q := range questions(runs) {
		v, err := o.ask(ctx, client, q, until)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		v.Err = err
		o.Say("%-40s %6.2f s, %d questions", v.Name, v.Median.Seconds(), v.Queries)
		r.Views = append(r.Views, v)
	}
	slices.SortStableFunc(r.Views, func(a, b View) int {
		if a.Err != nil != (b.Err != nil) { // the worst of all
			if a.Err != nil {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Median, a.Median)
	})
	r.ProxyPeak, err = servers.ProxyPeak()
	return r, err
}

// model makes the cluster and finds a moment at which its widest experiment has run for a while; runs are that and the next widest ones that run beside it.
func (o *Options) model() (m *cluster.Model, runs []cluster.Experiment, until time.Time, err error) {
	now := time.Now().Truncate(time.Minute)
	m, err = cluster.New(cluster.Options{Seed: o.Seed, Cluster: "jaguar", Nodes: o.Nodes, FirstGang: o.Gang, Detail: cluster.Lean, Start: now.Add(-20 * 24 * time.Hour), APIServers: 2})
	if err != nil {
		return nil, nil, until, fmt.Errorf("make the cluster: %w", err)
	}
	for k := range 10 * 24 * 4 {
		until = now.Add(-time.Duration(k) * 15 * time.Minute)
		runs = slices.DeleteFunc(m.Experiments(until.Add(-o.Window), until), func(e cluster.Experiment) bool {
			return !slices.ContainsFunc(e.Runs, func(s cluster.Span) bool { return s.Until.After(until) && s.From.Before(until.Add(-o.Window/4)) })
		})
		slices.SortStableFunc(runs, func(a, b cluster.Experiment) int { return cmp.Compare(len(b.Nodes), len(a.Nodes)) })
		if len(runs) > 1 && len(runs[0].Nodes) == o.Gang {
			return m, runs, until, nil
		}
	}
	return nil, nil, until, fmt.Errorf("the experiment of %d nodes runs at no time of ten days; choose another seed", o.Gang)
}

func (o *Options) write(ctx context.Context, dir string, m *cluster.Model, until time.Time, rules []fs.FS) (*live.World, error) {
	began := time.Now()
	return live.Write(ctx, live.Options{
		Dir: dir, Clusters: []live.Cluster{{Model: m, Shards: o.Shards}}, From: until.Add(-o.Window - before), Until: until.Add(time.Minute), Interval: o.Interval,
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
