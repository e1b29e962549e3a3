package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
	rehearsal "github.com/spillwayproject/spillway/alerts/live"
	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/recording"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const (
	// big has the troubles, small is there to be told from it.
	big, small = "jaguar", "ibis"
	// shards and replicas are those of big.
	shards, replicas = 2, 2
	// smallNodes is how many nodes small has.
	smallNodes = 3

	// quiet is the first stretch, in which nothing is wrong, and before is what rules need to look
	// back on.
	quiet, before = time.Hour, 70 * time.Minute
	// lasts is how long a trouble is there, longer than most alerts wait, and lastsLong how long
	// one is whose alerts wait longer. apart is the time from the end of one to the next, in which
	// ranges forget it.
	lasts, lastsLong, apart = 20 * time.Minute, 50 * time.Minute, 15 * time.Minute
	// interval is that of scrapes.
	interval = 15 * time.Second
	// maxTries bounds the search for a cluster in which the troubles change nothing before they
	// begin.
	maxTries = 50
	// oneBlock is longer than any past: one block holds all of a server's scrapes.
	oneBlock = 90 * 24 * time.Hour
)

// Options say which past is made. The zero value of every field but Dir is usable.
type Options struct {
	// Dir takes the blocks; it must exist.
	Dir string
	// Nodes is how many nodes the big cluster has; 12 where it is 0.
	Nodes int
	// Troubles are staged one after the other.
	Troubles []cluster.Kind
	// Seed is where the search for a cluster begins whose own failures keep out of the quiet hour.
	Seed uint64
	// Drop makes drop rules by job from the folders of blocks that hold everything. Those of the
	// servers behind the proxy are written with them, the reference without. Nil is no rules.
	Drop func(blocks []string) (map[string][]*relabel.Config, error)
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// Past is what MakePast wrote.
type Past struct {
	// Quiet is the end of the hour in which nothing is wrong, End that of everything.
	Quiet, End time.Time
	// Staged are the troubles, by time; several have one kind where it needs them.
	Staged []Staged

	dir   string
	start time.Time
	big   *cluster.Model // with its troubles
	calm  *cluster.Model // without
	tiny  *cluster.Model
}

// Staged is one trouble of the past.
type Staged struct {
	Kind        cluster.Kind
	Target      string
	From, Until time.Time
}

// MakePast models the clusters and writes the blocks of all servers.
func MakePast(ctx context.Context, o Options) (*Past, error) {
	o.Nodes = cmp.Or(o.Nodes, 12)
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	p := &Past{dir: o.Dir, End: time.Now().Add(-time.Minute).Truncate(time.Minute)}
	start := p.End.Add(-quiet - before)
	for _, kind := range o.Troubles {
		start = start.Add(-lastsFor(kind) - apart)
	}
	p.start, p.Quiet = start, start.Add(before+quiet)
	built := start.Add(-20 * 24 * time.Hour).Truncate(time.Hour)
	var opts cluster.Options
	for seed, tries := o.Seed, 0; ; seed = opts.Seed + 1 {
		var err error
		if opts, err = p.model(o, seed, start, built); err != nil {
			return nil, err
		}
		same, err := p.untouched()
		if err != nil {
			return nil, err
		}
		if same {
			break
		}
		if tries++; tries == maxTries {
			o.Say("of %d clusters with these troubles none is the same without them until they begin; the last is taken", maxTries)
			break
		}
	}
	o.Say("past of %s: %d troubles on %d nodes, seed %d", p.End.Sub(start), len(o.Troubles), o.Nodes, opts.Seed)
	return p, p.write(ctx, start, o)
}

// model makes the clusters, the first from the seed on that has a quiet hour, and stages the
// troubles.
func (p *Past) model(o Options, seed uint64, start, built time.Time) (opts cluster.Options, err error) {
	w, err := rehearsal.NewWorld(cluster.Options{
		Seed: seed, Cluster: big, Nodes: o.Nodes, APIServers: 3, Start: built,
		Exporters: cluster.AllExporters,
	}, start.Add(before), quiet)
	if err != nil {
		return opts, err
	}
	p.calm, p.Staged = w.Model(), nil
	if p.tiny, err = cluster.New(cluster.Options{
		Seed: o.Seed, Cluster: small, Nodes: smallNodes, Start: built,
		Exporters: cluster.AllExporters,
	}); err != nil {
		return opts, err
	}
	opts = p.calm.Options()
	at := p.Quiet.Add(apart)
	for n, kind := range o.Troubles {
		until := at.Add(lastsFor(kind))
		troubles, err := stage(w, kind, n, at, until)
		if err != nil {
			return opts, err
		}
		opts.Troubles = append(opts.Troubles, troubles...)
		p.Staged = append(p.Staged, Staged{kind, troubles[0].Target, at, until})
		at = until.Add(apart)
	}
	p.big, err = cluster.New(opts)
	return opts, err
}

// untouched tells whether both models show the same at the end of the quiet hour, counters of all
// that was before included. A run that a trouble ends sooner can have had other restarts before.
func (p *Past) untouched() (bool, error) {
	for _, t := range p.calm.Targets() {
		var pages [2]bytes.Buffer
		for i, m := range []*cluster.Model{p.calm, p.big} {
			if err := m.WritePage(&pages[i], t, p.Quiet); err != nil {
				return false, err
			}
		}
		if !bytes.Equal(pages[0].Bytes(), pages[1].Bytes()) {
			return false, nil
		}
	}
	return true, nil
}

// server is one Prometheus whose blocks are made.
type server struct {
	model   *cluster.Model
	shard   int
	of      int
	replica uint64
	name    string // of the folder
	label   string // the cluster, where it is to stand on every series
	drop    map[string][]*relabel.Config
}

// path is the server's folder of blocks.
func (p *Past) path(name string) string { return filepath.Join(p.dir, name) }

// shardName and friends are folders.
func shardName(shard, replica int) string   { return fmt.Sprintf("%s-%d-%c", big, shard, 'a'+replica) }
func asReference(shard, replica int) string { return "reference-" + shardName(shard, replica) }
func asCalm(shard int) string               { return fmt.Sprintf("calm-%s-%d", big, shard) }

// whole is a server of the big cluster that has everything its replica scraped, as the reference
// keeps it.
func (p *Past) whole(shard, replica int) server {
	return server{p.big, shard, shards, uint64(replica), asReference(shard, replica), big, nil}
}

const referenceSmall = "reference-" + small

func (p *Past) write(ctx context.Context, start time.Time, o Options) error {
	whole := []server{{p.tiny, 0, 1, 0, referenceSmall, small, nil}}
	var parts []server
	reference, calm := []string{p.path(referenceSmall)}, []string(nil)
	for s := range shards {
		whole = append(whole, p.whole(s, 0), server{p.calm, s, shards, 0, asCalm(s), big, nil})
		reference, calm = append(reference, p.path(asReference(s, 0))), append(calm, p.path(asCalm(s)))
		for r := range replicas {
			parts = append(parts, server{p.big, s, shards, uint64(r), shardName(s, r), "", nil})
		}
	}
	parts = append(parts, server{p.tiny, 0, 1, 0, small, "", nil})
	began := time.Now()
	write := func(servers []server) error {
		for _, s := range servers {
			if err := p.writeServer(ctx, s, start); err != nil {
				return fmt.Errorf("write the past of %s: %w", s.name, err)
			}
		}
		return nil
	}
	if err := write(whole); err != nil {
		return err
	}
	if o.Drop != nil {
		drop, err := o.Drop(reference)
		if err != nil {
			return err
		}
		o.Say("drop rules made after %s", time.Since(began).Round(time.Second))
		for i := range parts {
			parts[i].drop = drop
		}
	}
	if err := write(parts); err != nil {
		return err
	}
	o.Say("%d servers' blocks after %s", len(whole)+len(parts), time.Since(began).Round(time.Second))
	err := errors.Join(record(ctx, p.path("rules"), reference, alerts.Global(), labels.EmptyLabels(), start, p.End),
		record(ctx, p.path("calm-rules"), calm, alerts.Global(), labels.EmptyLabels(), start, p.End))
	o.Say("rules recorded after %s", time.Since(began).Round(time.Second))
	return err
}

// shardRules are those that each shard evaluates: deploy/exporters leaves out the file that runs
// beside the rulers.
func shardRules() fs.FS { return recording.Without(alerts.Shard(), "spillway.yaml") }

// writeServer writes what one server scraped, and what its own rules recorded.
func (p *Past) writeServer(ctx context.Context, s server, start time.Time) error {
	rules, err := exporters.Relabel(exporters.Options{Cluster: big, Shard: s.shard, Shards: s.of, Replica: "a"})
	if err != nil {
		return err
	}
	if rules[cluster.JobNodeMesh], err = ofOwnNodes(s.shard, s.of); err != nil {
		return err
	}
	for job, configs := range s.drop {
		rules[job] = append(slices.Clone(rules[job]), configs...)
	}
	dir := p.path(s.name)
	set := labels.EmptyLabels()
	if s.label != "" {
		set = labels.FromStrings("cluster", s.label)
	}
	// What every shard scrapes has the label seen_by on what the server itself makes, up among it,
	// so that no series is on two shards.
	for _, shared := range []bool{false, true} {
		extra := labels.NewBuilder(set)
		if shared {
			extra.Set("seen_by", fmt.Sprint(s.shard))
		}
		_, err := s.model.Backfill(ctx, dir, cluster.BackfillOptions{
			From: start, Until: p.End, Interval: interval, Jitter: 20 * time.Millisecond, Replica: s.replica, BlockRange: oneBlock,
			ExternalTargetLabels: extra.Labels(),
			MetricRelabel:        func(job string) []*relabel.Config { return rules[job] },
			Keep: func(t cluster.Target) bool {
				if slices.Contains([]string{cluster.JobKubeStateMetrics, cluster.JobNodeMesh}, t.Job) {
					return shared
				}
				return !shared && cluster.Shard(t, s.of) == s.shard
			},
		})
		if err != nil {
			return err
		}
	}
	return record(ctx, dir, []string{dir}, shardRules(), set, start, p.End)
}

// ofOwnNodes keeps the series of nodes that belong to the shard, for a page about all of them.
func ofOwnNodes(shard, of int) ([]*relabel.Config, error) {
	var rules []*relabel.Config
	text := fmt.Sprintf(`
- {source_labels: [node], modulus: %d, target_label: __tmp_hash, action: hashmod}
- {source_labels: [__tmp_hash], regex: '%d', action: keep}
- {regex: __tmp_.+|seen_by, action: labeldrop}
`, of, shard)
	return rules, yaml.Unmarshal([]byte(text), &rules)
}

// record evaluates rules over the blocks of several folders.
func record(ctx context.Context, to string, from []string, rules fs.FS, set labels.Labels, start, end time.Time) (err error) {
	s, err := localprom.Start(ctx, localprom.Options{Blocks: from, DisableWAL: true, Retention: oneBlock})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = recording.Blocks(ctx, to, recording.Options{Rules: rules, Labels: set}, s.Engine(), s.Storage(), start, end)
	return err
}
