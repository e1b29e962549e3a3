package mix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Options say what is measured. Zero values take the defaults named.
type Options struct {
	// Spillway is the spillway binary, which is run as the proxies.
	Spillway string
	// Laboratory is the spillway-lab binary, which is run as Go's reverse proxy.
	Laboratory string
	// Mix is what is asked; Builtin.
	Mix Mix
	// Series is about how many the servers hold; 1,000,000.
	Series int
	// Rounds is how often every path gets its turn; 6. Requests is how many it is asked then, at
	// each concurrency; 150; one of each query at least.
	Rounds, Requests int
	// Concurrency are the numbers of requests at once; 1 and 2.
	Concurrency []int
	// BulkRuns is how often the great many series are asked for; 5.
	BulkRuns int
	// NoHints leaves out of Spillway's configuration which shard holds what (shard_by and hashmod).
	NoHints bool
	// Peers are other proxies, started by others, in front of the same servers.
	Peers []bench.Peer
	// Beside are other builds of spillway, by the names of the paths that they get, each with one
	// server and with four.
	Beside []Build
	// Port, if not 0, is where the servers listen too, one port after another, the whole one first:
	// so that peers can be configured beforehand.
	Port int
	// Pairs puts two further replicas beside each shard: whole pairs are measured, and pairs of
	// which one replica has a gap.
	Pairs bool
	// Profile is a folder for processor profiles of the Spillway processes under the mix, taken
	// after everything else; empty is none.
	Profile string
	// Seed chooses the simulated cluster.
	Seed uint64
	// Dir is where data is made, in a folder of its own that is removed; the temporary folder.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// Build is another program of spillway, which is measured with the same configurations.
type Build struct{ Name, Path string }

// one and four are the names of its paths.
func (b Build) one() string  { return b.Name + ", one server" }
func (b Build) four() string { return b.Name + ", four shards" }

// ParseBuilds reads builds as NAME=PATH.
func ParseBuilds(texts []string) ([]Build, error) {
	var out []Build
	for _, text := range texts {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, fmt.Errorf("%q is not NAME=PATH, of another build of spillway", text)
		}
		out = append(out, Build{name, path})
	}
	return out, nil
}

// shardCount is how many servers share the series.
const shardCount = 4

// Names of the paths.
const (
	Direct          = "direct"
	DirectShard     = "direct, the node's shard"
	Reverse         = "ReverseProxy"
	ReverseShard    = "ReverseProxy, the node's shard"
	SpillwayOne     = "Spillway, one server"
	SpillwayLabeled = "Spillway, one server, group labels"
	SpillwayFour    = "Spillway, four shards"
)

// paths are those that are always there.
var paths = []string{Direct, DirectShard, Reverse, ReverseShard, SpillwayOne, SpillwayLabeled, SpillwayFour}

// groupLabel is what SpillwayLabeled puts on every series.
const groupLabel, groupValue = "cluster", "jaguar"

func (o Options) withDefaults() Options {
	o.Series, o.Rounds, o.Requests, o.BulkRuns = cmp.Or(o.Series, 1_000_000), cmp.Or(o.Rounds, 6), cmp.Or(o.Requests, 150),
		cmp.Or(o.BulkRuns, 5)
	if len(o.Concurrency) == 0 {
		o.Concurrency = []int{1, 2}
	}
	if len(o.Mix.Queries) == 0 {
		o.Mix = Builtin()
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	return o
}

// Validate returns everything that is wrong with o.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems bench.Problems
	problems.Check(o.Spillway != "", "the path of the spillway binary is missing")
	problems.Check(o.Laboratory != "", "the path of the spillway-lab binary is missing")
	problems.Check(o.Series >= minSeries && o.Series <= maxSeries, "series: %d is outside %d to %d", o.Series, minSeries, maxSeries)
	problems.Check(o.Rounds >= 1 && o.Rounds <= 1000, "rounds: %d is outside 1 to 1,000", o.Rounds)
	problems.Check(o.Requests >= len(o.Mix.Queries) && o.Requests <= 1_000_000, "requests: %d is outside %d, which is one of each query, to 1,000,000", o.Requests, len(o.Mix.Queries))
	problems.Check(o.BulkRuns >= 1 && o.BulkRuns <= 1000, "bulk runs: %d is outside 1 to 1,000", o.BulkRuns)
	problems.CheckPorts(o.Port, 1+shardCount)
	for _, c := range o.Concurrency {
		problems.Check(c >= 1 && c <= 64, "concurrency: %d is outside 1 to 64", c)
	}
	taken := append([]string{SpillwayPairs, SpillwayGaps}, paths...)
	for _, b := range o.Beside {
		problems.Check(!slices.Contains(taken, b.one()), "the build %s: its name is taken", b.Name)
		taken = append(taken, b.one(), b.four())
	}
	problems.CheckPeers(o.Peers, taken...)
	return problems.Err()
}

// path is one way to the data.
type path struct {
	name, url string
	// proxy is nil where nothing of ours stands in the way; servers are those that it asks.
	proxy   *realprom.Process
	admin   string
	servers []*realprom.Server
	labels  bool // its answers have groupLabel
	pid     int  // of the proxy; 0 where there is none or it is not on this machine
	// shards, where there are any, are asked themselves what names a node that they have: the
	// caller knows beforehand which one that is.
	shards []string
}

// at is where the path is asked this.
func (p *path) at(what string) string {
	if i := shardOfQuery(what, len(p.shards)); i >= 0 {
		return p.shards[i]
	}
	return p.url
}

// World is the servers and the proxies in front of them.
type World struct {
	o     Options
	dir   string
	Data  Data
	whole *realprom.Server
	parts []*realprom.Server
	pairs *pairs // nil where there are none
}

// serverFlags: the blocks stay as they are, so that no compaction falls into the measurement.
var serverFlags = []string{
	"--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h",
	"--storage.tsdb.retention.time=15d",
}

// Start makes the data and starts the servers. Close must be called where there was no error.
func Start(ctx context.Context, o Options) (_ *World, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	w := &World{o: o}
	if w.dir, err = os.MkdirTemp(o.Dir, "spillway-mix-"); err != nil {
		return nil, fmt.Errorf("the benchmark needs a folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	o.Say("making %d series", o.Series)
	began := time.Now()
	if w.Data, err = MakeData(ctx, filepath.Join(w.dir, "data"), o.Series, shardCount, o.Seed, began); err != nil {
		return nil, err
	}
	o.Say("made %d series (%d buckets) of %d nodes, %d samples, split into %v, in %s", w.Data.Series, w.Data.Buckets, w.Data.Nodes, w.Data.Samples, w.Data.ShardSeries, time.Since(began).Round(time.Second))
	if err := w.startServers(ctx); err != nil {
		return nil, err
	}
	if o.Pairs {
		if err := w.startPairs(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *World) startServers(ctx context.Context) error {
	servers := make([]*realprom.Server, 1+shardCount)
	defer func() { w.whole, w.parts = servers[0], servers[1:] }() // so that Close finds those that did start
	var g errgroup.Group
	g.SetLimit(2)
	for i, dir := range append([]string{w.Data.Whole}, w.Data.Shards...) {
		g.Go(func() (err error) {
			flags := serverFlags
			if w.o.Port > 0 {
				flags = append([]string{fmt.Sprintf("--web.listen-address=127.0.0.1:%d", w.o.Port+i)}, flags...)
			}
			servers[i], err = realprom.Start(ctx, realprom.Options{Dir: dir, Flags: flags})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("start the servers: %w", err)
	}
	return nil
}

// startPaths starts the proxies and returns the ways to the data, the direct one first.
func (w *World) startPaths(ctx context.Context) (paths []*path, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, stopPaths(paths))
		}
	}()
	one := []*realprom.Server{w.whole}
	all := append([]*realprom.Server{w.whole}, w.parts...)
	var shards []string
	for _, s := range w.parts {
		shards = append(shards, s.URL())
	}
	paths = []*path{{name: Direct, url: w.whole.URL(), servers: one}, {name: DirectShard, url: w.whole.URL(), servers: all, shards: shards}}
	type started struct {
		path *path
		args arguments
	}
	builds := map[string]string{} // programs, by the names of paths
	proxies := []started{
		{&path{name: Reverse, servers: one}, func(main, _ string) ([]string, error) {
			return []string{"loadtest", "mix", "--reverse-proxy.listen-address=" + main, "--reverse-proxy.upstream=" + w.whole.URL()}, nil
		}},
		{&path{name: ReverseShard, servers: all}, func(main, _ string) ([]string, error) {
			args := []string{"loadtest", "mix", "--reverse-proxy.listen-address=" + main, "--reverse-proxy.upstream=" + w.whole.URL()}
			for _, s := range shards {
				args = append(args, "--reverse-proxy.shard="+s)
			}
			return args, nil
		}},
		{&path{name: SpillwayOne, servers: one}, w.spillway("one", oneShard(w.whole.URL(), nil))},
		{
			&path{name: SpillwayLabeled, servers: one, labels: true},
			w.spillway("labels", oneShard(w.whole.URL(), map[string]string{groupLabel: groupValue})),
		},
		{&path{name: SpillwayFour, servers: w.parts}, w.spillway("four", w.fourShards())},
	}
	if w.pairs != nil {
		proxies = append(proxies,
			started{
				&path{name: SpillwayPairs, servers: append(w.parts, w.pairs.twins...)},
				w.spillway("pairs", w.pairsGroup(w.pairs.twins)),
			},
			started{&path{name: SpillwayGaps, servers: append(w.parts, w.pairs.away...)}, w.spillway("gaps", w.pairsGroup(w.pairs.away))})
	}
	for _, b := range w.o.Beside {
		builds[b.one()], builds[b.four()] = b.Path, b.Path
		proxies = append(proxies, started{&path{name: b.one(), servers: one}, w.spillway("one", oneShard(w.whole.URL(), nil))},
			started{&path{name: b.four(), servers: w.parts}, w.spillway("four", w.fourShards())})
	}
	for _, p := range proxies {
		program := cmp.Or(builds[p.path.name], w.o.Spillway)
		if p.path.name == Reverse || p.path.name == ReverseShard {
			program = w.o.Laboratory
		}
		if err := p.path.start(ctx, program, p.args); err != nil {
			return paths, err
		}
		paths = append(paths, p.path)
	}
	return paths, nil
}

func stopPaths(paths []*path) error {
	var errs []error
	for _, p := range paths {
		if p.proxy != nil {
			errs = append(errs, p.proxy.Stop())
		}
	}
	return errors.Join(errs...)
}

// arguments are a proxy's, given the addresses that it is to listen on.
type arguments func(main, admin string) ([]string, error)

// spillway are the arguments of a proxy over this group; all bounds have their defaults.
func (w *World) spillway(name string, group config.Group) arguments {
	return func(main, admin string) ([]string, error) {
		file := filepath.Join(w.dir, name+".yaml")
		if err := config.WriteFile(file, config.Of(group)); err != nil {
			return nil, err
		}
		return []string{"proxy", "--config.file=" + file, "--web.listen-address=" + main, "--web.admin-listen-address=" + admin}, nil
	}
}

// oneShard and fourShards are the groups that name the servers.
func oneShard(url string, labels map[string]string) config.Group {
	return config.Group{Name: "main", Labels: labels, Shards: []config.Shard{{Replicas: config.Replicas(url)}}}
}

func (w *World) fourShards() config.Group {
	g := config.Group{Name: "main"}
	if !w.o.NoHints {
		g.ShardBy, g.Hashmod = []string{"node"}, config.Hashmod{Labels: []string{"node"}, Modulus: shardCount}
	}
	for i, s := range w.parts {
		g.Shards = append(g.Shards, config.Shard{Hash: config.Hash{N: uint64(i), Set: !w.o.NoHints}, Replicas: config.Replicas(s.URL())})
	}
	return g
}

// start starts the path's proxy and waits until it is ready.
func (p *path) start(ctx context.Context, binary string, args arguments) error {
	var wrong error
	proc, at, err := realprom.StartOnPorts(ctx,
		realprom.PortOptions{Name: p.name, Path: binary, Ports: 2, Args: func(at []string) (a []string) {
			a, wrong = args(at[0], at[1])
			return a
		}})
	if err != nil {
		return errors.Join(wrong, err)
	}
	p.proxy, p.url, p.admin, p.pid = proc, "http://"+at[0], "http://"+at[1], proc.PID()
	return nil
}

// Close ends what Start has started and removes the data.
func (w *World) Close() error {
	var errs []error
	for _, s := range append(append([]*realprom.Server{w.whole}, w.parts...), w.pairs.all()...) {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// Servers are the URLs of the single server and of those that share its series, for whoever wants
// to put another proxy in front of them.
func (w *World) Servers() (whole string, shards []string) {
	address := func(i int, s *realprom.Server) string {
		if w.o.Port > 0 {
			return fmt.Sprintf("http://127.0.0.1:%d", w.o.Port+i)
		}
		return s.URL()
	}
	for i, s := range w.parts {
		shards = append(shards, address(i+1, s))
	}
	return address(0, w.whole), shards
}
