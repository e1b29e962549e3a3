package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/recording"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// oneBlock is longer than any past: one block holds all of a server's scrapes, and no server
// deletes it.
const oneBlock = 90 * 24 * time.Hour

// seenBy is on what each server makes of its own scrapes, up among it: kube-state-metrics is
// scraped by all shards, and an equal series on two of them would belong to neither.
const seenBy = "seen_by"

// Cluster is one cluster and how many servers scrape it.
type Cluster struct {
	// Model is the cluster; its Options name it.
	Model *cluster.Model
	// Shards is how many parts its series are divided into by node, Replicas how many servers each
	// part has; 0 means 1.
	Shards, Replicas int
}

func (c Cluster) name() string { return c.Model.Options().Cluster }

// Options say which past is written.
type Options struct {
	// Dir takes the blocks; it must exist. What is there stays until its owner removes it.
	Dir string
	// Clusters are behind the proxy.
	Clusters []Cluster
	// From (inclusive) and Until (exclusive) bound scrapes and recorded samples.
	From, Until time.Time
	// Interval is that of scrapes; 30 s where it is 0.
	Interval time.Duration
	// Jobs are those that are scraped; empty means JobsOfExperiments.
	Jobs []string
	// Rules are the files that are evaluated over all clusters, ShardRules those that each server
	// evaluates over what it scraped; nil is none.
	Rules, ShardRules fs.FS
	// Relabel is added to what deploy/exporters has for a job; nil adds nothing.
	Relabel func(job string) []*relabel.Config
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// JobsOfExperiments are those whose series the datasource and its recording rules read.
var JobsOfExperiments = []string{cluster.JobKubeStateMetrics, cluster.JobNode, cluster.JobDCGM}

// World is what Write wrote.
type World struct {
	// Series and Samples are what the first replicas of all shards have.
	Series, Samples int

	dir      string
	clusters []Cluster
	recorded bool
}

// Write writes the blocks of all servers.
func Write(ctx context.Context, o Options) (*World, error) {
	o.Interval = cmp.Or(o.Interval, 30*time.Second)
	if len(o.Jobs) == 0 {
		o.Jobs = JobsOfExperiments
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	w := &World{dir: o.Dir, clusters: slices.Clone(o.Clusters)}
	seen := map[string]bool{}
	for i := range w.clusters {
		c := &w.clusters[i]
		c.Shards, c.Replicas = max(1, c.Shards), max(1, c.Replicas)
		if seen[c.name()] {
			return nil, fmt.Errorf("two clusters are called %q; give each model's options a name of its own", c.name())
		}
		seen[c.name()] = true
		for shard := range c.Shards {
			for replica := range c.Replicas {
				st, err := w.writeServer(ctx, &o, *c, shard, replica)
				if err != nil {
					return nil, fmt.Errorf("write the past of %s: %w", folder(c.name(), shard, replica), err)
				}
				if o.ShardRules != nil {
					dir := w.path(folder(c.name(), shard, replica))
					if _, err := record(ctx, dir, map[string][]string{"": {dir}}, o.ShardRules, o.From, o.Until); err != nil {
						return nil, fmt.Errorf("record what %s records: %w", folder(c.name(), shard, replica), err)
					}
				}
				if replica == 0 {
					w.Series, w.Samples = w.Series+st.Series, w.Samples+st.Samples
				}
				o.Say("%s: %d series, %d samples", folder(c.name(), shard, replica), st.Series, st.Samples)
			}
		}
	}
	if o.Rules == nil {
		return w, nil
	}
	blocks := map[string][]string{}
	for _, c := range w.clusters {
		for shard := range c.Shards {
			blocks[c.name()] = append(blocks[c.name()], w.path(folder(c.name(), shard, 0)))
		}
	}
	st, err := record(ctx, w.path(recordedFolder), blocks, o.Rules, o.From, o.Until)
	if err != nil {
		return nil, fmt.Errorf("record what a ruler records: %w", err)
	}
	w.recorded = st.Samples > 0
	o.Say("%d rules recorded %d samples", st.Rules, st.Samples)
	return w, nil
}

func folder(cluster string, shard, replica int) string {
	return fmt.Sprintf("%s-%d-%c", cluster, shard, 'a'+replica)
}

func (w *World) path(name string) string { return filepath.Join(w.dir, name) }

// recordedFolder has what rules recorded.
const recordedFolder = "recorded"

func (w *World) writeServer(ctx context.Context, o *Options, c Cluster, shard, replica int) (all cluster.Stats, err error) {
	rules, err := exporters.Relabel(exporters.Options{
		Cluster: c.name(), Shard: shard, Shards: c.Shards,
		Replica: string(rune('a' + replica)),
	})
	if err != nil {
		return all, err
	}
	for _, shared := range []bool{false, true} {
		extra := labels.EmptyLabels()
		if shared {
			extra = labels.FromStrings(seenBy, fmt.Sprint(shard))
		}
		st, err := c.Model.Backfill(ctx, w.path(folder(c.name(), shard, replica)), cluster.BackfillOptions{
			From: o.From, Until: o.Until, Interval: o.Interval, Jitter: 20 * time.Millisecond, Replica: uint64(replica),
			BlockRange: oneBlock, ExternalTargetLabels: extra,
			MetricRelabel: func(job string) []*relabel.Config {
				if o.Relabel == nil {
					return rules[job]
				}
				return slices.Concat(rules[job], o.Relabel(job))
			},
			Keep: func(t cluster.Target) bool {
				switch {
				case !slices.Contains(o.Jobs, t.Job):
					return false
				case t.Job == cluster.JobKubeStateMetrics:
					return shared
				}
				return !shared && cluster.Shard(t, c.Shards) == shard
			},
		})
		if err != nil {
			return all, err
		}
		all.Series, all.Samples = all.Series+st.Series, all.Samples+st.Samples
	}
	return all, nil
}

// record evaluates rules over the blocks of clusters by name and writes what they record into the
// folder to. A cluster without a name has no label of it.
func record(ctx context.Context, to string, blocks map[string][]string, rules fs.FS, from, until time.Time) (st recording.Stats,
	err error,
) {
	var sources together
	var engine *localprom.Shard
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		s, failed := localprom.Start(ctx, localprom.Options{Blocks: blocks[name], DisableWAL: true, Retention: oneBlock})
		if failed != nil {
			return st, failed
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		engine = s
		if name == "" {
			sources = append(sources, s.Storage())
			continue
		}
		sources = append(sources, named{s.Storage(), name})
	}
	if engine == nil {
		return st, errors.New("there are no clusters")
	}
	return recording.Blocks(ctx, to, recording.Options{Rules: rules}, engine.Engine(), sources, from, until)
}
