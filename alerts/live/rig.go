package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/deploy/alertmanager"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/relabel"
)

// Rules are rule files by name.
type Rules struct {
	// Global are evaluated by the ruler through the proxy, Shard by each Prometheus.
	Global, Shard map[string][]byte
}

// Options says what to start. The zero value of every field but Dir, Spillway and Rules is usable.
type Options struct {
	// Dir takes configurations, logs and the ruler's data; it must exist.
	Dir string
	// Spillway is the path of the program.
	Spillway string
	// Rules are what is on trial.
	Rules Rules
	// Alertmanager is the deployed configuration, whose routes and inhibitions are kept; that of
	// deploy/alertmanager where it is nil.
	Alertmanager []byte
	// TimeScale is the mixin's, by which Alertmanager's waits are divided too; 30 where it is 0.
	TimeScale float64
	// Cluster is the simulated cluster: 12 nodes and 3 API servers where they are 0.
	Cluster cluster.Options
	// Site, where it is not nil, is scraped in place of the simulated cluster: it serves /sd,
	// Prometheus' HTTP discovery, and pages. The rig's World is nil then.
	Site http.Handler
	// Quiet is how long the model's own failures keep out; 20 minutes where it is 0.
	Quiet time.Duration
	// Interval is that of scrapes and of rule groups without one; a second where it is 0.
	Interval time.Duration
	// Drop makes drop rules from blocks of the simulated cluster's last minutes; every Prometheus
	// has them then, merged into its configuration as `spillway relabel emit` does. Nil is none.
	Drop func(blocks string) (*relabel.Plan, error)
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// Rig is the running servers. Start makes it, Stop ends it.
type Rig struct {
	// World is the simulated cluster, Record what Alertmanager has sent.
	World  *World
	Record *Record
	// Proxy, Admin, Ruler, Alertmanager and RulesStore are base URLs; Replicas those of the
	// Prometheus servers, by shard and replica.
	Proxy, Admin, Ruler, Alertmanager, RulesStore string
	Replicas                                      [shards][replicas]string

	opts  Options
	plan  *relabel.Plan // nil without drop rules
	meta  discovery
	logs  []*os.File
	site  *http.Server
	serve sync.WaitGroup

	mu        sync.Mutex
	processes []named
	servers   [shards][replicas]*realprom.Server
}

// named is a program that Stop ends.
type named struct {
	name string
	stop func() error
	log  func() string
}

func (r *Rig) keep(name string, p *realprom.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, named{name, p.Stop, p.Log})
}

// Start starts everything and returns when every server is ready. ctx bounds the start, not the
// servers: they end with Stop, which must be called where Start returned no error.
func Start(ctx context.Context, o Options) (_ *Rig, err error) {
	o.Cluster.Nodes = cmp.Or(o.Cluster.Nodes, 12)
	o.Cluster.APIServers = cmp.Or(o.Cluster.APIServers, 3)
	o.Cluster.Cluster = clusterName
	o.Quiet = cmp.Or(o.Quiet, 20*time.Minute)
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.TimeScale = cmp.Or(o.TimeScale, 30)
	if o.Alertmanager == nil {
		o.Alertmanager = alertmanager.Config
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	r := &Rig{opts: o, Record: NewRecord()}
	// What is missing is told before anything runs.
	thanos, thanosErr := realprom.Find("thanos")
	_, promErr := realprom.Find("prometheus")
	_, amErr := alertmanager.Find("prometheus-alertmanager", "alertmanager")
	if err := errors.Join(thanosErr, promErr, amErr); err != nil {
		return nil, err
	}
	if o.Site == nil {
		if r.World, err = NewWorld(o.Cluster, time.Now(), o.Quiet); err != nil {
			return nil, err
		}
		o.Site = r.World
		if err := r.makePlan(ctx); err != nil {
			return nil, err
		}
		o.Say("live: seed %d, %d nodes", r.World.Options().Seed, r.World.Options().Nodes)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	site, err := r.listen(o.Site)
	if err != nil {
		return nil, err
	}
	global, err := r.writeRules("global", o.Rules.Global)
	if err != nil {
		return nil, err
	}
	shard, err := r.writeRules("shard", o.Rules.Shard)
	if err != nil {
		return nil, err
	}
	amConfig, err := alertmanager.Rehearsal(o.Alertmanager, "http://"+site+"/webhook", o.TimeScale)
	if err != nil {
		return nil, err
	}
	amServer, err := alertmanager.Start(ctx, amConfig)
	if err != nil {
		return nil, err
	}
	r.processes = append(r.processes, named{"alertmanager", amServer.Stop, amServer.Log})
	am := strings.TrimPrefix(amServer.URL(), "http://")
	r.Alertmanager = "http://" + am
	r.meta.add(watched{job: "alertmanager", instance: am, address: am})
	if err := r.startPrometheus(ctx, site, am, shard); err != nil {
		return nil, err
	}
	proxyFile := filepath.Join(r.opts.Dir, "spillway.yaml")
	if err := config.WriteFile(proxyFile, spillwayConfig(r.Replicas, r.RulesStore)); err != nil {
		return nil, err
	}
	if r.Proxy, r.Admin, err = r.startSpillway(ctx, proxyFile); err != nil {
		return nil, err
	}
	admin := strings.TrimPrefix(r.Admin, "http://")
	r.meta.add(watched{job: "spillway", instance: admin, address: admin})
	if err := r.startRuler(ctx, thanos, global); err != nil {
		return nil, err
	}
	o.Say("live: proxy %s, ruler %s, alertmanager %s; logs in %s", r.Proxy, r.Ruler, r.Alertmanager, o.Dir)
	return r, nil
}

// listen serves the cluster's pages, both discoveries and the webhook on one port.
func (r *Rig) listen(cluster http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("serve the simulated cluster: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", cluster)
	mux.Handle("GET /sd/meta", &r.meta)
	mux.Handle("POST /webhook/{receiver}", r.Record)
	r.site = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	r.serve.Go(func() { _ = r.site.Serve(l) }) // ended by Stop
	return l.Addr().String(), nil
}

func (r *Rig) write(name, text string) (string, error) {
	path := filepath.Join(r.opts.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return path, nil
}

// writeRules returns the pattern that matches the files.
func (r *Rig) writeRules(scope string, files map[string][]byte) (string, error) {
	dir := filepath.Join(r.opts.Dir, "rules", scope)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("write rules: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			return "", fmt.Errorf("write rules: %w", err)
		}
	}
	return filepath.Join(dir, "*.yaml"), nil
}

// startPrometheus starts the shards' replicas and the ruler's store, all at once.
func (r *Rig) startPrometheus(ctx context.Context, site, am, rules string) error {
	start := func(ctx context.Context, name, shard, config string, flags ...string) (*realprom.Server, error) {
		r.mu.Lock()
		log, err := r.logFile(name)
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		s, err := realprom.Start(ctx, realprom.Options{
			Config: config,
			Flags:  append([]string{"--storage.tsdb.retention.time=2h"}, flags...), Log: log,
		})
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.processes = append(r.processes, named{name, s.Stop, s.Log})
		at := strings.TrimPrefix(s.URL(), "http://")
		r.meta.add(watched{job: cluster.JobPrometheus, instance: at, address: at, labels: map[string]string{"prometheus_shard": shard}})
		return s, nil
	}
	work, wctx := errgroup.WithContext(ctx)
	for s := range shards {
		for i := range replicas {
			work.Go(func() (err error) {
				config, err := r.prometheusConfig(s, i, site, am, rules)
				if err != nil {
					return err
				}
				srv, err := start(wctx, fmt.Sprintf("prometheus-%d-%s", s, replicaName(i)), strconv.Itoa(s), config)
				if err != nil {
					return err
				}
				r.servers[s][i], r.Replicas[s][i] = srv, srv.URL()
				return nil
			})
		}
	}
	work.Go(func() error {
		srv, err := start(wctx, "prometheus-rules", "rules", rulesConfig(r.opts.Interval), "--web.enable-remote-write-receiver")
		if err != nil {
			return err
		}
		r.RulesStore = srv.URL()
		return nil
	})
	return work.Wait()
}

// startRuler starts Thanos' ruler without a store of its own: what it finds goes to the rules'
// Prometheus, and what a rule asks of earlier results comes from there through the proxy.
func (r *Rig) startRuler(ctx context.Context, thanos, rules string) error {
	remote, err := r.write("ruler-remote-write.yml", remoteWriteConfig(r.RulesStore))
	if err != nil {
		return err
	}
	interval := r.opts.Interval.String()
	log, err := r.logFile("ruler")
	if err != nil {
		return err
	}
	p, addrs, err := realprom.StartOnPorts(ctx,
		realprom.PortOptions{Name: "ruler", Path: thanos, Log: log, Ports: 2, Timeout: startPatience, Args: func(at []string) []string {
			return []string{
				"rule", "--data-dir=" + filepath.Join(r.opts.Dir, "ruler"), "--rule-file=" + rules, "--eval-interval=" + interval,
				"--resend-delay=" + interval,
				"--query=" + r.Proxy, "--alertmanagers.url=" + r.Alertmanager, "--remote-write.config-file=" + remote,
				`--label=ruler_replica="0"`, "--alert.label-drop=ruler_replica", "--rule-concurrent-evaluation=4", "--http-grace-period=1s",
				"--grpc-grace-period=1s",
				"--http-address=" + at[0], "--grpc-address=" + at[1],
			}
		}})
	if err != nil {
		return err
	}
	r.keep("ruler", p)
	at := addrs[0]
	r.Ruler = "http://" + at
	r.meta.add(watched{job: "thanos-rule", instance: at, address: at})
	return nil
}

// KillReplica ends one Prometheus as a power cut would. It does not come back.
func (r *Rig) KillReplica(shard, replica int) {
	r.opts.Say("live: replica %s of shard %d is killed", replicaName(replica), shard)
	r.servers[shard][replica].Kill()
}

// Stop ends every process, the last started first, and then what they scraped and wrote to.
func (r *Rig) Stop() error {
	r.mu.Lock()
	processes := slices.Clone(r.processes)
	r.processes = nil
	r.mu.Unlock()
	var errs []error
	// Who asks ends before who is asked: the ruler, the proxy, then Prometheus, all five at once,
	// then Alertmanager.
	slices.Reverse(processes)
	var closing sync.WaitGroup
	var mu sync.Mutex
	end := func(p named) {
		err := p.stop()
		if p.name == "alertmanager" { // it was started by another package, which has no file for it
			_, logErr := r.write("alertmanager.log", p.log())
			err = errors.Join(err, logErr)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}
	for _, p := range processes {
		if strings.HasPrefix(p.name, "prometheus-") {
			closing.Go(func() { end(p) })
			continue
		}
		closing.Wait()
		end(p)
	}
	closing.Wait()
	if r.site != nil {
		errs = append(errs, r.site.Close())
	}
	r.serve.Wait()
	for _, f := range r.logs {
		errs = append(errs, f.Close())
	}
	r.logs = nil
	return errors.Join(errs...)
}

// Tail is the end of every log, for a test that failed.
func (r *Rig) Tail(lines int) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(r.opts.Dir, "*.log"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
			continue
		}
		all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		fmt.Fprintf(&b, "--- %s, the last %d of %d lines\n%s\n", filepath.Base(f), min(lines, len(all)), len(all),
			strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return b.String()
}
