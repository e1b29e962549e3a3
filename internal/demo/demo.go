package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/deploy/exporters"
	deployed "github.com/spillwayproject/spillway/deploy/ruler"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/server"
)

// Options are the size and the addresses of a demo.
type Options struct {
	// Groups, Shards and Replicas are how many groups there are, shards in each, replicas of each
	// shard; all at least 1.
	Groups, Shards, Replicas int
	// Nodes is how many nodes each group's cluster has; at least 1.
	Nodes int
	// Full gives the clusters nearly all that real exporters export, in place of what dashboards
	// and alerts look at.
	Full bool
	// History is how much past the shards hold.
	History time.Duration
	// ListenAddress and AdminListenAddress are the proxy's.
	ListenAddress, AdminListenAddress string
	// Seed chooses the clusters; 0 is as good as any.
	Seed uint64
	// Troubles, where set, stages troubles in a cluster: it is asked once for each, with the
	// cluster as it is without them and the moment at which history ends and live scrapes begin.
	Troubles func(m *cluster.Model, now time.Time) []cluster.Trouble
	// Called, where set, is asked before Troubles what the pods of a cluster's experiments say that
	// they are called, as cluster.Options has it; its error ends the demo's start.
	Called func(m *cluster.Model, now time.Time) (map[string]cluster.Called, error)
	// Flags and Version are shown by the proxy.
	Flags   map[string]string
	Version string
	// Program is how this program was called, for command lines to copy; "spillway" where it is
	// empty.
	Program string
	// Registry takes the proxy's metrics.
	Registry *prometheus.Registry
	// Logger is where the demo and the proxy log.
	Logger *slog.Logger
	// Say is told what happens, one line each, never two at once.
	Say func(format string, args ...any)
	// Ready, where set, is told the proxy's addresses once it can be asked.
	Ready func(main, admin net.Addr)

	// recent is how much history is filled in before the demo is ready, in tests; readyHistory
	// elsewhere.
	recent time.Duration
}

// names are the groups' names, as many as anybody wants to look at on one machine.
var names = []string{"jaguar", "ibis", "heron", "lynx", "otter", "puma", "raven", "tapir"}

const (
	scrapeInterval = 15 * time.Second
	// readyHistory is filled in before the demo is ready, older history behind.
	readyHistory = time.Hour
	// heartbeat counts the jobs that scrape every node. Where filled-in history meets live scrapes
	// each series has a sample more or less than another replica's, by the chance of its phase:
	// nothing in the sum over many targets, and everything in a job with one, which would keep
	// replicas from being whole for an hour.
	heartbeat = `up{job=~"node-exporter|kubelet|dcgm-exporter"}`
)

// Validate returns everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Groups >= 1 && o.Groups <= len(names), "--groups is %d; it can be 1 to %d", o.Groups, len(names))
	check(o.Shards >= 1 && o.Shards <= 16, "--shards is %d; it can be 1 to 16", o.Shards)
	check(o.Replicas >= 1 && o.Replicas <= 4, "--replicas is %d; it can be 1 to 4", o.Replicas)
	check(o.Nodes >= 1 && o.Nodes <= 2000, "--nodes is %d; it can be 1 to 2000 (one process holds all of it)", o.Nodes)
	check(o.History >= time.Minute && o.History <= 14*24*time.Hour, "--history is %s; it can be 1m to 14d", o.History)
	return errors.Join(errs...)
}

// Run serves the demo until ctx ends; the end of force ends it at once.
func Run(ctx, force context.Context, o Options) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	for _, address := range []string{o.ListenAddress, o.AdminListenAddress} {
		if err := free(address); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "spillway-demo-")
	if err != nil {
		return fmt.Errorf("the demo needs a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var saying sync.Mutex // the back-fill talks while the proxy gets ready
	say := o.Say
	o.Say = func(format string, args ...any) {
		saying.Lock()
		defer saying.Unlock()
		say(format, args...)
	}
	d := &demo{Options: o, dir: dir, filled: make(chan struct{})}
	d.back, d.backEnd = context.WithCancel(context.Background())
	defer func() { err = errors.Join(err, d.close()) }()
	began := time.Now()
	if err := d.build(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was told to stop while it was still starting
		}
		return err
	}
	return d.serve(ctx, force, began)
}

// free tells whether the address can be listened on, before half a minute is spent on the shards
// behind it.
func free(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return l.Close()
}

type demo struct {
	Options
	dir     string
	groups  []*group
	ruler   *ruler
	began   time.Time          // when the newest history ends
	filled  chan struct{}      // closed when older history is there
	behind  sync.WaitGroup     // fills older history in, and what rules record
	back    context.Context    // theirs
	backEnd context.CancelFunc // ends that
}

type group struct {
	name      string
	model     *cluster.Model
	relabel   map[string][]*relabel.Config // by job, what becomes of series before they are stored
	exporters *http.Server
	address   string
	shards    [][]*localprom.Shard // by shard, by replica
}

// close ends what build began: first the back-fill, which writes into the shards, then the shards,
// which scrape the exporters, then the exporters.
func (d *demo) close() error {
	d.backEnd()
	d.behind.Wait()
	var closing errgroup.Group // each waits for its own scrapes to end
	for _, g := range d.groups {
		for _, replicas := range g.shards {
			for _, s := range replicas {
				if s != nil {
					closing.Go(s.Close)
				}
			}
		}
	}
	if d.ruler != nil {
		closing.Go(d.ruler.close)
	}
	errs := []error{closing.Wait()}
	for _, g := range d.groups {
		if g.exporters != nil {
			errs = append(errs, g.exporters.Close())
		}
	}
	return errors.Join(errs...)
}

// build makes the clusters, writes their recent past as blocks and starts the shards on them. When
// it returns, with an error too, nothing of it runs any more but the back-fill of older history,
// which close ends.
func (d *demo) build(ctx context.Context) error {
	now := time.Now()
	d.began = now
	recent := d.newest()
	var err error
	if d.ruler, err = newRuler(filepath.Join(d.dir, "ruler"), d.History); err != nil {
		return err
	}
	for i := range d.Groups {
		g := &group{name: names[i], shards: make([][]*localprom.Shard, d.Shards)}
		for s := range g.shards {
			g.shards[s] = make([]*localprom.Shard, d.Replicas)
		}
		d.groups = append(d.groups, g)
		o := cluster.Options{
			Seed: d.Seed + uint64(i), Cluster: g.name, Nodes: d.Nodes, Start: now.Add(-30 * 24 * time.Hour).Truncate(time.Hour),
			Exporters: cluster.AllExporters,
		}
		if i == 1 { // of another sort: GPUs are given by ResourceClaims, most systems are immutable, and one row has an old DCGM
			o.Claims = true
			o.NodeKinds = []cluster.NodeKind{{System: cluster.Bottlerocket}, {Microseconds: true}, {System: cluster.Talos}}
		}
		if d.Full {
			o.Detail = cluster.Full
		}
		m, err := cluster.New(o)
		if err == nil && d.Called != nil {
			if o.Called, err = d.Called(m, now); err != nil {
				return err
			}
			m, err = cluster.New(o)
		}
		if err == nil && d.Troubles != nil {
			o.Troubles = d.Troubles(m, now)
			m, err = cluster.New(o)
		}
		if err != nil {
			return err
		}
		g.model = m
		// One slice: pages about all nodes stay whole on the shard that scrapes them.
		if g.relabel, err = exporters.Relabel(exporters.Options{Cluster: g.name, Shards: 1, Replica: "a"}); err != nil {
			return err
		}
		if err := g.export(); err != nil {
			return err
		}
	}
	d.Say("writing %s of history of %d clusters of %d nodes for %d shards", model.Duration(recent), d.Groups, d.Nodes, d.Groups*d.Shards)
	work, wctx := errgroup.WithContext(ctx) // the first failure ends the others, which would take long
	work.SetLimit(2)
	for _, g := range d.groups {
		for s := range g.shards {
			work.Go(func() error { return d.shard(wctx, g, s, now.Add(-recent), now) })
		}
	}
	if err := errors.Join(work.Wait(), d.ruler.start(ctx)); err != nil {
		return err
	}
	d.behind.Go(func() { // one shard after the other: the demo is being looked at by now
		defer close(d.filled)
		for s := range d.Shards {
			for _, g := range d.groups {
				if d.History > recent {
					d.older(d.back, g, s, now.Add(-d.History), now.Add(-recent))
				}
			}
		}
	})
	return nil
}

// newest is how much history is there when the demo is ready.
func (d *demo) newest() time.Duration { return min(d.History, cmp.Or(d.recent, readyHistory)) }

// export serves the cluster's exporter pages on a free loopback port.
func (g *group) export() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve the exporters of %s: %w", g.name, err)
	}
	g.address = l.Addr().String()
	g.exporters = &http.Server{Handler: g.model.Handler(time.Now), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = g.exporters.Serve(l) }() // ends with Close
	return nil
}

// shard writes one shard's blocks and starts its replicas on copies of them.
func (d *demo) shard(ctx context.Context, g *group, s int, from, until time.Time) error {
	blocks := filepath.Join(d.dir, fmt.Sprintf("%s-%d", g.name, s))
	if err := d.fill(ctx, g, s, blocks, from, until); err != nil {
		return err
	}
	text, err := g.scrapeConfig(s, d.Shards, d.ruler.files("shard"))
	if err != nil {
		return err
	}
	// All at once: one that began to scrape half an interval after another would lack what a whole
	// one has.
	var starting errgroup.Group
	for r := range d.Replicas {
		starting.Go(func() error {
			p, err := localprom.Start(ctx, localprom.Options{
				Dir: filepath.Join(d.dir, fmt.Sprintf("%s-%d-%c", g.name, s, 'a'+r)), Blocks: []string{blocks}, DisableWAL: true,
				Config:         text,
				ExternalLabels: labels.FromStrings("cluster", g.name, "prometheus_replica", string(rune('a'+r))),
				Retention:      30 * 24 * time.Hour, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return fmt.Errorf("start replica %c of shard %d of %s: %w", 'a'+r, s, g.name, err)
			}
			g.shards[s][r] = p
			return nil
		})
	}
	return starting.Wait()
}

func (d *demo) fill(ctx context.Context, g *group, s int, dir string, from, until time.Time) error {
	_, err := g.model.Backfill(ctx, dir, cluster.BackfillOptions{
		From: from, Until: until, Interval: scrapeInterval, Jitter: 20 * time.Millisecond,
		Keep:          func(t cluster.Target) bool { return cluster.Shard(t, d.Shards) == s },
		MetricRelabel: func(job string) []*relabel.Config { return g.relabel[job] },
	})
	if err != nil {
		return fmt.Errorf("write the history of shard %d of %s: %w", s, g.name, err)
	}
	return nil
}

// older fills older history into the running replicas of one shard. The demo goes on without it
// where that fails.
func (d *demo) older(ctx context.Context, g *group, s int, from, until time.Time) {
	blocks := filepath.Join(d.dir, fmt.Sprintf("%s-%d-older", g.name, s))
	err := d.fill(ctx, g, s, blocks, from, until)
	for _, p := range g.shards[s] {
		if err == nil {
			err = p.AddBlocks(ctx, blocks)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.Logger.Warn("older history is missing", "group", g.name, "shard", s, "err", err)
	default:
		d.Say("%s of older history is there for shard %d of %s", model.Duration(until.Sub(from).Round(time.Minute)), s, g.name)
	}
}

// scrapeConfig is the prometheus.yml of one shard: its targets by job, as service discovery would
// have found them.
func (g *group) scrapeConfig(shard, of int, rules string) (string, error) {
	type static struct {
		Targets []string          `yaml:"targets"`
		Labels  map[string]string `yaml:"labels"`
	}
	type job struct {
		Name    string            `yaml:"job_name"`
		Honor   bool              `yaml:"honor_timestamps"`
		Statics []static          `yaml:"static_configs"`
		Relabel []*relabel.Config `yaml:"metric_relabel_configs,omitempty"`
	}
	var jobs []*job
	byName := map[string]*job{}
	for _, t := range g.model.Targets() {
		if cluster.Shard(t, of) != shard {
			continue
		}
		j := byName[t.Job]
		if j == nil {
			j = &job{Name: t.Job, Honor: true, Relabel: g.relabel[t.Job]}
			byName[t.Job] = j
			jobs = append(jobs, j)
		}
		ls := map[string]string{"instance": t.Instance, "__metrics_path__": cluster.ScrapePath(t)}
		t.Labels.Range(func(l labels.Label) { ls[l.Name] = l.Value })
		j.Statics = append(j.Statics, static{[]string{g.address}, ls})
	}
	out, err := yaml.Marshal(map[string]any{
		"global": map[string]string{
			"scrape_interval": scrapeInterval.String(), "scrape_timeout": "10s",
			"evaluation_interval": evaluationInterval.String(),
		},
		"rule_files":     []string{rules},
		"scrape_configs": jobs,
	})
	return string(out), err
}

// config is the proxy's configuration for the demo.
func (d *demo) config() *config.Config {
	var groups []config.Group
	for _, g := range d.groups {
		group := config.Group{
			Name: g.name, Labels: map[string]string{"cluster": g.name}, ReplicaLabels: []string{"prometheus_replica"},
			Heartbeat: heartbeat,
		}
		for _, replicas := range g.shards {
			var shard config.Shard
			for _, p := range replicas {
				shard.Replicas = append(shard.Replicas, config.Replicas(p.URL())...)
			}
			group.Shards = append(group.Shards, shard)
		}
		groups = append(groups, group)
	}
	// No labels: what is recorded brings its own cluster.
	return config.Of(append(groups,
		config.Group{Name: "rules", Names: deployed.Names(), Shards: []config.Shard{{Replicas: config.Replicas(d.ruler.store.URL())}}})...)
}

// programOf is how a program that was called so can be called again from anywhere; one that go run
// built, and takes away at its end, from the folder of its source.
func programOf(called string) string {
	if called == "" {
		return "spillway"
	}
	at, err := filepath.Abs(called)
	switch {
	case err != nil || !strings.ContainsRune(called, filepath.Separator):
		return called
	case strings.Contains(at, "/go-build"):
		return "go run ./cmd/spillway"
	}
	return at
}

// serve runs the proxy over the shards.
func (d *demo) serve(ctx, force context.Context, began time.Time) error {
	file := filepath.Join(d.dir, "spillway.yaml")
	if err := config.WriteFile(file, d.config()); err != nil {
		return err
	}
	cfg, err := config.Load(file)
	if err != nil {
		return fmt.Errorf("the demo's own configuration: %w", err)
	}
	s, err := server.New(server.Options{
		Config: cfg, ConfigFile: file, ListenAddress: d.ListenAddress, AdminListenAddress: d.AdminListenAddress, Flags: d.Flags,
		Version:    d.Version,
		Registerer: d.Registry, Gatherer: d.Registry, Logger: d.Logger,
		Ready: func(main, admin net.Addr) {
			d.Say("ready after %s: %d groups x %d shards x %d replicas", time.Since(began).Round(100*time.Millisecond), d.Groups, d.Shards, d.Replicas)
			d.Say("")
			d.Say("  Prometheus API   http://%s      (a Grafana data source of type Prometheus; promtool query instant http://%s up)", main, main)
			d.Say("  admin console    http://%s      (what is under way, what it costs, what was refused and why)", admin)
			d.Say("  configuration    %s", file)
			d.Say("")
			d.Say("  explain a query: %s explain --config.file=%s 'sum by (cluster) (up)'", programOf(d.Program), file)
			d.Say("  try the killer:  curl -g 'http://%s/api/v1/series?match[]={le!=\"\"}'", main)
			d.Say("  Ctrl-C ends it.")
			if err := d.ruler.meet(main, admin); err != nil {
				d.Logger.Warn("there will be no recorded series nor alerts of whole clusters", "err", err)
			} else {
				d.behind.Go(func() { d.record(d.back, d.began.Add(-d.History), d.began.Add(-d.newest()), time.Now(), d.filled) })
			}
			if d.Options.Ready != nil {
				d.Options.Ready(main, admin)
			}
		},
	})
	if err != nil {
		return err
	}
	return s.Run(ctx, force)
}
