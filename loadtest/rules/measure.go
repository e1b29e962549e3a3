package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/tsdb"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Options say what is measured. Zero values take the defaults named.
type Options struct {
	// Servers are those that the ruler asks.
	bench.Servers
	// Files are the rule files by name; ShardFiles those that each server evaluates itself. What
	// these record is there from when the servers start.
	Files, ShardFiles map[string][]byte
	// Past is what the servers hold when the ruler starts, 65 minutes; Run is how long the ruler
	// runs, 6 minutes.
	Past, Run time.Duration
	// Spread, 1 to 4, is how many times as seldom groups with an interval of up to a minute are
	// evaluated; 0 means 1. Here all servers share what processors there are, where each has a
	// machine of its own in a fleet: without it, groups would be measured in each other's queue.
	// Shares are of the interval that the file has.
	Spread int
	// Troubles, where set, says what goes wrong in the cluster whose data is made at now; now lies
	// Past after the beginning of the data.
	Troubles func(m *cluster.Model, now time.Time) []cluster.Trouble
	// Then, where set, is called once the ruler has run and ended, while the servers still run.
	// groups are those of a proxy's configuration; what was recorded ends at until.
	Then func(ctx context.Context, groups []config.Group, until time.Time) error
}

func (o Options) withDefaults() Options {
	o.Servers = o.Servers.WithDefaults()
	o.Past, o.Run, o.Spread = cmp.Or(o.Past, 65*time.Minute), cmp.Or(o.Run, 6*time.Minute), cmp.Or(o.Spread, 1)
	return o
}

// Validate returns everything that is wrong with o.
func (o Options) Validate() error {
	o = o.withDefaults()
	var p bench.Problems
	o.Servers.Check(&p, 5*time.Minute)
	p.Check(len(o.Files) > 0, "there are no rule files")
	p.Check(o.Past >= 0 && o.Past <= 24*time.Hour, "past: %s is outside 0 to 24h", o.Past)
	p.Check(o.Spread >= 1 && o.Spread <= maxSpread, "spread: %d is outside 1 to %d", o.Spread, maxSpread)
	p.Check(o.Run >= 5*time.Second && o.Run <= time.Hour, "run: %s is outside 5s to 1h", o.Run)
	return p.Err()
}

// Group is one rule group and what the ruler says of it.
type Group struct {
	// File and Name are where it is. Shard says that the servers evaluate it, and all figures are
	// those of the one on which it takes longest.
	File, Name string
	Shard      bool
	// Rules is how many it has; Interval how often it is evaluated.
	Rules    int
	Interval time.Duration
	// First is the time of the first evaluation seen, Typical the median and Max the longest of the
	// others; 0 where there were none.
	First, Typical, Max time.Duration
	// Seen is how many evaluations were seen, Failures how many of its rules' evaluations failed,
	// Missed how many evaluations of the group did not take place in time.
	Seen, Failures, Missed int
}

// Share is what part of its interval the longest evaluation took, the first one aside where there
// are others.
func (g Group) Share() float64 {
	return cmp.Or(g.Max, g.First).Seconds() / g.Interval.Seconds()
}

func (g Group) where() string {
	if g.Shard {
		return "shard/" + g.File
	}
	return g.File
}

// Result is what was measured.
type Result struct {
	Nodes, Shards, Series, Samples int
	ShardSeries                    []int
	Interval                       time.Duration
	// Spread is that of the options.
	Spread int
	Groups []Group
	// ProxyPeakRSS is the proxy's highest resident memory in bytes.
	ProxyPeakRSS int64
}

// maxShare is what part of its interval a group may take.
const maxShare = 1.0 / 3

// Err is what is wrong with the result: a group over a third of its interval, one with failures or
// missed evaluations, or one that was never evaluated.
func (r *Result) Err() error {
	var errs []error
	for _, g := range r.Groups {
		at := g.where() + ": " + g.Name
		switch {
		case g.Seen == 0:
			errs = append(errs, fmt.Errorf("%s was not evaluated while it was looked at; let the ruler run longer than its interval, %s", at, g.Interval))
		case g.Failures > 0 || g.Missed > 0:
			errs = append(errs, fmt.Errorf("%s: %d evaluations of rules failed, %d of the group were missed", at, g.Failures, g.Missed))
		case g.Share() > maxShare:
			errs = append(errs, fmt.Errorf("%s takes %.0f %% of its interval, %s", at, 100*g.Share(), g.Interval))
		}
	}
	return errors.Join(errs...)
}

// WriteMarkdown writes the table of the documentation.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d nodes x 8 GPUs: %d series on %d servers %v, scraped each %s; peak memory of the proxy %d MiB.", r.Nodes, r.Series, r.Shards, r.ShardSeries, r.Interval, r.ProxyPeakRSS>>20)
	if r.Spread > 1 {
		fmt.Fprintf(&b, " Groups with an interval of up to a minute were evaluated %d times as seldom.", r.Spread)
	}
	b.WriteString("\n\n")
	b.WriteString("| file | group | rules | interval | first, cold | typical | longest | of its interval |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	groups := slices.SortedFunc(slices.Values(r.Groups), func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Share(), a.Share()), strings.Compare(a.Name, b.Name))
	})
	for _, g := range groups {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %.2f s | %.2f s | %.2f s | %.1f %% |\n", g.where(), g.Name, g.Rules, prommodel.Duration(g.Interval), g.First.Seconds(), g.Typical.Seconds(), g.Max.Seconds(), 100*g.Share())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ofAllNodes are the jobs whose series name nodes that are not the target's: each shard keeps those
// whose node hashes to it.
var ofAllNodes = []string{cluster.JobKubeStateMetrics, "node-mesh"}

// seenBy is on each server's `up` and nowhere else: several scrape the same kube-state-metrics, and
// equal series on two shards would make Spillway trust none of them.
const seenBy = "seen_by"

// shardOf keeps the series of shard n of so many, of a page about all nodes; of any other it only
// takes the label seenBy away.
func shardOf(n, shards int, allNodes bool) []*relabel.Config {
	step := func(f func(c *relabel.Config)) *relabel.Config {
		c := relabel.DefaultRelabelConfig
		c.NameValidationScheme = prommodel.UTF8Validation
		f(&c)
		return &c
	}
	const hash = "__tmp_hash"
	drop := step(func(c *relabel.Config) {
		c.Action, c.Regex = relabel.LabelDrop, relabel.MustNewRegexp(hash+"|"+seenBy)
	})
	if !allNodes {
		return []*relabel.Config{drop}
	}
	return []*relabel.Config{
		step(func(c *relabel.Config) {
			c.Action, c.SourceLabels, c.Modulus, c.TargetLabel = relabel.HashMod, prommodel.LabelNames{"node"}, uint64(shards), hash
		}),
		step(func(c *relabel.Config) {
			c.Action, c.SourceLabels, c.Regex = relabel.Keep, prommodel.LabelNames{hash}, relabel.MustNewRegexp(strconv.Itoa(n))
		}),
		drop,
	}
}

// Measure makes the data, starts the servers and lets the ruler run.
func Measure(ctx context.Context, o Options) (_ *Result, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	dir, err := os.MkdirTemp(o.Dir, "spillway-rules-")
	if err != nil {
		return nil, fmt.Errorf("the benchmark needs a folder: %w", err)
	}
	var stops []func() error
	defer func() {
		for _, stop := range slices.Backward(stops) {
			err = errors.Join(err, stop())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	r := &Result{Nodes: o.Nodes, Shards: o.Shards, Interval: o.Interval, Spread: o.Spread}
	var told intervals
	if o.Files, o.ShardFiles, told, err = o.spread(); err != nil {
		return nil, err
	}
	if err := o.data(ctx, dir, r); err != nil {
		return nil, err
	}
	at, err := o.servers(ctx, dir, &stops)
	if err != nil {
		return nil, err
	}
	proxy, api, admin, err := o.proxy(ctx, dir, at)
	if err != nil {
		return nil, err
	}
	stops = append(stops, proxy.Stop)
	ruler, stop, err := o.ruler(ctx, dir, api, at.recorded)
	if err != nil {
		return nil, err
	}
	err = o.watch(ctx, ruler, at.shards, r)
	for i := range r.Groups {
		told.restore(&r.Groups[i])
	}
	until := time.Now()
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	if err := sound(ctx, admin); err != nil {
		return nil, err
	}
	if r.ProxyPeakRSS, err = proxy.PeakRSS(); err != nil || o.Then == nil {
		return r, err
	}
	return r, o.Then(ctx, o.groups(at), until)
}

// lead is how far ahead of the end of the making of the data the series go, beyond the ruler's run.
const lead = 10 * time.Minute

// data writes one block for each shard, from Past ago to the end of the ruler's run and the time
// that writing takes.
func (o *Options) data(ctx context.Context, dir string, r *Result) error {
	now := time.Now().Truncate(time.Second)
	// Exporters beside the usual ones: the rules are about them too.
	of := cluster.Options{
		Seed: o.Seed, Cluster: "jaguar", Nodes: o.Nodes, Start: now.Add(-30 * 24 * time.Hour),
		APIServers: 5, Exporters: cluster.AllExporters,
	}
	m, err := cluster.New(of)
	if err == nil && o.Troubles != nil {
		of.Troubles = o.Troubles(m, now)
		m, err = cluster.New(of)
	}
	if err != nil {
		return fmt.Errorf("make data: %w", err)
	}
	// As deployed: what makes a label of an iptables rule's comment, and what is never stored.
	// Which server has what is seen to below.
	deployed, err := exporters.Relabel(exporters.Options{Cluster: of.Cluster, Shards: 1, Replica: "a"})
	if err != nil {
		return fmt.Errorf("make data: %w", err)
	}
	o.Say("making the series of %d nodes for %d servers", o.Nodes, o.Shards)
	for n := range o.Shards {
		st, err := m.Backfill(ctx, shardDir(dir, n), cluster.BackfillOptions{
			From: now.Add(-o.Past), Until: now.Add(o.Run + time.Duration(o.Shards)*lead), Interval: o.Interval, BlockRange: 48 * time.Hour,
			Keep: func(t cluster.Target) bool {
				return slices.Contains(ofAllNodes, t.Job) || cluster.Shard(t, o.Shards) == n
			},
			ExternalTargetLabels: labels.FromStrings(seenBy, strconv.Itoa(n)),
			MetricRelabel: func(job string) []*relabel.Config {
				return slices.Concat(deployed[job], shardOf(n, o.Shards, slices.Contains(ofAllNodes, job)))
			},
		})
		if err = errors.Join(err, ahead(shardDir(dir, n))); err != nil {
			return fmt.Errorf("make data: %w", err)
		}
		r.Series, r.Samples, r.ShardSeries = r.Series+st.Series, r.Samples+st.Samples, append(r.ShardSeries, st.Series)
		o.Say("shard %d: %d series, %d samples", n, st.Series, st.Samples)
	}
	debug.FreeOSMemory() // the servers need the room
	return nil
}

// ahead marks blocks as made of samples that came out of order: a server takes nothing that is
// older than its newest block, and so nothing that its rules record now where the block goes on
// into the time to come. Such blocks it leaves aside.
func ahead(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("there is no block below %s", dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return err
		}
		var meta tsdb.BlockMeta
		if err := json.Unmarshal(text, &meta); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		meta.Compaction.SetOutOfOrder()
		if text, err = json.Marshal(meta); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func shardDir(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("shard-%d", n)) }

// places are the URLs of the servers.
type places struct {
	shards   []string
	recorded string
}

func (o *Options) servers(ctx context.Context, dir string, stops *[]func() error) (*places, error) {
	p := &places{shards: make([]string, o.Shards)}
	const own = "global: {evaluation_interval: 1m}\n"
	configs := make([]string, o.Shards)
	for n := range configs {
		if configs[n] = own; len(o.ShardFiles) == 0 {
			continue
		}
		// Where in its interval a group is evaluated follows from the file's path: on one machine
		// all servers would evaluate the same one at the same time.
		folder, err := rulesFolder(dir, fmt.Sprintf("shard-%d-rules", n), o.ShardFiles)
		if err != nil {
			return nil, err
		}
		configs[n] += fmt.Sprintf("rule_files: [%q]\n", folder)
	}
	started := make([]*realprom.Server, o.Shards+1)
	var g errgroup.Group
	g.SetLimit(2)
	for n := range o.Shards {
		g.Go(func() (err error) {
			started[n], err = realprom.Start(ctx,
				realprom.Options{Dir: shardDir(dir, n), Config: configs[n], Flags: []string{"--storage.tsdb.retention.time=15d"}})
			return err
		})
	}
	g.Go(func() (err error) {
		started[o.Shards], err = realprom.Start(ctx,
			realprom.Options{Config: own, Flags: []string{"--web.enable-remote-write-receiver"}})
		return err
	})
	err := g.Wait()
	for n, s := range started {
		switch {
		case s == nil:
			continue
		case n == o.Shards:
			p.recorded = s.URL()
		default:
			p.shards[n] = s.URL()
		}
		*stops = append(*stops, s.Stop)
	}
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	return p, nil
}

// groups are the shards and what is recorded, as a proxy's configuration has them.
func (o *Options) groups(p *places) []config.Group {
	main := config.Group{
		Name: "jaguar", Labels: map[string]string{"cluster": "jaguar"}, ShardBy: []string{"node"},
		Hashmod: config.Hashmod{Labels: []string{"node"}, Modulus: o.Shards},
	}
	for n, u := range p.shards {
		main.Shards = append(main.Shards, config.Shard{Hash: config.Hash{N: uint64(n), Set: true}, Replicas: config.Replicas(u)})
	}
	return []config.Group{main, {Name: "recorded", Names: ruler.Names(), Shards: []config.Shard{{Replicas: config.Replicas(p.recorded)}}}}
}

// proxy starts it, with the limits of the ruler's own proxy, as deploy/ruler has them; api and
// admin are the URLs of its two listeners.
func (o *Options) proxy(ctx context.Context, dir string, p *places) (_ *realprom.Process, api, admin string, err error) {
	file, c := filepath.Join(dir, "spillway.yaml"), config.Of(o.groups(p)...)
	c.Limits.MaxSeries, c.Limits.MaxResponseBytes, c.Limits.MaxRange, c.Memory.Budget = 250_000, 256<<20, 32*24*time.Hour, 2<<30
	if err := config.WriteFile(file, c); err != nil {
		return nil, "", "", err
	}
	return realprom.StartProxy(ctx, o.Spillway, file, nil)
}

// sound is an error where the proxy does not trust what the configuration says of the servers: it
// would answer everything the slow way, and the figures would be of that.
func sound(ctx context.Context, admin string) error {
	page, err := scrape(ctx, admin+"/metrics")
	if err != nil {
		return fmt.Errorf("read the proxy's page: %w", err)
	}
	groups := page["spillway_group_sick"].GetMetric()
	if len(groups) == 0 {
		return errors.New("the proxy does not say whether its servers fit together (spillway_group_sick): is the binary another release than this benchmark?")
	}
	var sick []string
	for _, m := range groups {
		if m.GetGauge().GetValue() == 0 {
			continue
		}
		var what []string
		for _, l := range m.GetLabel() {
			what = append(what, fmt.Sprintf("%s %q", l.GetName(), l.GetValue()))
		}
		sick = append(sick, strings.Join(what, ", "))
	}
	for _, rule := range []string{"spillway_shard_hashmod_trusted", "spillway_shard_names_trusted"} {
		for _, m := range page[rule].GetMetric() {
			if m.GetGauge().GetValue() == 0 {
				sick = append(sick, rule+" is 0")
			}
		}
	}
	if len(sick) > 0 {
		return fmt.Errorf("the servers do not fit together (%s), so nothing is evaluated on them; this is a fault of the benchmark's data", strings.Join(sick, "; "))
	}
	return nil
}

// rulesFolder writes files into a folder of their own and is the pattern that finds them.
func rulesFolder(dir, name string, files map[string][]byte) (string, error) {
	folder := filepath.Join(dir, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", fmt.Errorf("write the rules: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o600); err != nil {
			return "", fmt.Errorf("write the rules: %w", err)
		}
	}
	return filepath.Join(folder, "*.yaml"), nil
}

func (o *Options) ruler(ctx context.Context, dir, proxyURL, recorded string) (url string, stop func() error, err error) {
	files, err := rulesFolder(dir, "rules", o.Files)
	if err != nil {
		return "", nil, err
	}
	remote := filepath.Join(dir, "remote-write.yml")
	text := fmt.Sprintf("remote_write:\n  - {url: %q, name: recorded, queue_config: {batch_send_deadline: 1s}}\n", recorded+"/api/v1/write")
	if err := os.WriteFile(remote, []byte(text), 0o600); err != nil {
		return "", nil, fmt.Errorf("write the ruler's configuration: %w", err)
	}
	thanos, err := realprom.Find("thanos")
	if err != nil {
		return "", nil, err
	}
	proc, at, err := realprom.StartOnPorts(ctx, realprom.PortOptions{Path: thanos, Ports: 2, Args: func(at []string) []string {
		return []string{
			"rule", "--data-dir=" + filepath.Join(dir, "ruler"), "--rule-file=" + files, "--eval-interval=1m",
			"--query=" + proxyURL,
			"--remote-write.config-file=" + remote, `--label=ruler_replica="0"`, "--http-grace-period=1s", "--grpc-grace-period=1s",
			"--http-address=" + at[0], "--grpc-address=" + at[1],
		}
	}})
	if err != nil {
		return "", nil, err
	}
	return "http://" + at[0], proc.Stop, nil
}
