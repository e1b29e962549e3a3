package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/proxy/config"
)

// member is one process of a run.
type member struct {
	name string
	role report.Role
	url  string
	proc process
}

// process is a realprom.Process, or one that was not started here.
type process interface {
	PID() int
	RSS() (int64, error)
	PeakRSS() (int64, error)
	OutOfMemory() bool
	Done() <-chan struct{}
}

// fleet is the processes of one run.
type fleet struct {
	servers []*realprom.Server
	proxy   *realprom.Process
	admin   string // the proxy's admin listener
	members []member
	dir     string
}

// serverFlags: blocks stay as they are, as behind a Thanos sidecar, so that no compaction falls
// into the measurement.
var serverFlags = []string{
	"--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h",
	"--storage.tsdb.retention.time=15d",
}

// goMemLimit is the share of its memory limit that Prometheus gives to Go's collector by default
// (--auto-gomemlimit.ratio). The limit here is watched from outside, where Prometheus does not see
// it, so it is told.
const goMemLimit = 0.9

// servers are the servers of a run: how many, the memory in bytes at which each is killed, and
// whether it knows that. port is where the first one listens too, the others on the next ones; 0 is
// nowhere.
type servers struct {
	n, port     int
	memoryLimit int64
	told        bool
}

// start starts them on copies of the data in dir, two at a time: they replay their logs.
func (o servers) start(ctx context.Context, d Data, dir string) (_ *fleet, err error) {
	f := &fleet{dir: dir, servers: make([]*realprom.Server, o.n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	var env []string
	if o.told {
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%d", int64(float64(o.memoryLimit)*goMemLimit)))
	}
	var g errgroup.Group
	g.SetLimit(2)
	for i := range o.n {
		g.Go(func() error {
			data := filepath.Join(dir, fmt.Sprintf("server-%d", i+1))
			if err := d.copyTo(ctx, data); err != nil {
				return err
			}
			flags := serverFlags
			if o.port > 0 {
				flags = append([]string{fmt.Sprintf("--web.listen-address=127.0.0.1:%d", o.port+i)}, flags...)
			}
			s, err := realprom.Start(ctx, realprom.Options{
				Dir: data, Flags: flags, MaxRSS: o.memoryLimit, Env: env,
				ExternalLabels: labels.FromStrings("cluster", clusterName(i)), // Thanos tells servers apart by them
			})
			f.servers[i] = s
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	for i, s := range f.servers {
		f.members = append(f.members, member{name: fmt.Sprintf("prometheus-%d", i+1), role: report.Server, url: s.URL(), proc: s.Process})
	}
	return f, nil
}

// urls are those of the servers.
func (f *fleet) urls() (all []string) {
	for _, s := range f.servers {
		all = append(all, s.URL())
	}
	return all
}

// clusterName is the cluster of a server.
func clusterName(server int) string { return fmt.Sprintf("cluster-%d", server+1) }

// clusters are those of the servers, sorted.
func (f *fleet) clusters() (all []string) {
	for i := range f.servers {
		all = append(all, clusterName(i))
	}
	slices.Sort(all)
	return all
}

// startProxy starts the spillway binary in front of the servers.
func (f *fleet) startProxy(ctx context.Context, binary string, c *config.Config) error {
	file := filepath.Join(f.dir, "spillway.yaml")
	if err := config.WriteFile(file, c); err != nil {
		return err
	}
	p, url, admin, err := realprom.StartProxy(ctx, binary, file, nil)
	if err != nil {
		return err
	}
	f.proxy, f.admin = p, admin
	f.members = append(f.members, member{name: "spillway", role: report.Proxy, url: url, proc: p})
	return nil
}

// proxyConfig names the servers, each a group of its own, and how much memory each may hold if not
// 0; all bounds have their defaults.
func proxyConfig(urls []string, memoryLimit int64) *config.Config {
	groups := make([]config.Group, len(urls))
	for i, url := range urls {
		name := clusterName(i)
		groups[i] = config.Group{
			Name: name, Labels: map[string]string{"cluster": name},
			Shards: []config.Shard{{Replicas: config.Replicas(url)}},
		}
		groups[i].Shards[0].Replicas[0].MemoryLimit = config.Bytes(memoryLimit)
	}
	return config.Of(groups...)
}

// stop ends everything, the proxy first, and removes the servers' directories. A server that was
// killed for its memory is no error.
func (f *fleet) stop() error {
	var errs []error
	if f.proxy != nil {
		errs = append(errs, f.proxy.Stop())
	}
	for _, s := range f.servers {
		if s == nil {
			continue
		}
		s.Kill() // a server in a storm would take half a minute to close its database, and the data is a copy
		if err := s.Stop(); err != nil && !s.OutOfMemory() {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}
