package mix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const (
	// dataSpan is what the servers hold: the range of a panel, five minutes before it for rates and
	// look-back, and movingSpan, over which the windows move.
	dataSpan   = 70 * time.Minute
	movingSpan = 4 * time.Minute
	// edge keeps every window away from the newest sample, which not every target has yet.
	edge           = 31 * time.Second
	scrapeInterval = 30 * time.Second
	apiServers     = 4
	minSeries      = 20_000
	maxSeries      = 20_000_000
	gpuMetric      = "DCGM_FI_DEV_GPU_UTIL"
)

// Data is what the servers hold: the same series once as a whole and once split.
type Data struct {
	// Whole is the directory with the one block of the single server, Shards those of the servers
	// that share the series.
	Whole  string
	Shards []string
	// Series, Buckets (with a label le) and Samples are those of the whole; ShardSeries those of
	// each part.
	Series, Buckets, Samples int
	ShardSeries              []int
	// Nodes is how many nodes the cluster has, named by nodeName. Namespace is the one in the
	// middle by the number of its GPUs.
	Nodes     int
	Namespace string
	// Until is when the newest sample was taken.
	Until time.Time
}

// MakeData writes blocks below dir: about this many series (within 5 %) of a simulated cluster's
// last 70 minutes, scraped every 30 s, every series with all its samples; once as a whole, and once
// split into so many shards as Shard says. A million series take half a minute and 0.7 GB.
func MakeData(ctx context.Context, dir string, series, shards int, seed uint64, now time.Time) (Data, error) {
	now = now.Truncate(time.Second)
	d := Data{Whole: filepath.Join(dir, "whole"), Until: now}
	if series < minSeries || series > maxSeries {
		return d, fmt.Errorf("series: %d is outside %d to %d", series, minSeries, maxSeries)
	}
	back := cluster.BackfillOptions{From: now.Add(-dataSpan), Until: now, Interval: scrapeInterval}
	back.BlockRange = oneBlock(back.From, back.Until)
	o, err := size(ctx, dir, series, seed, back)
	if err != nil {
		return d, err
	}
	m, err := cluster.New(o)
	if err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	d.Nodes = o.Nodes
	st, err := m.Backfill(ctx, d.Whole, back)
	if err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	d.Series, d.Buckets, d.Samples = st.Series, st.BucketSeries, st.Samples
	for i := range shards {
		d.Shards = append(d.Shards, filepath.Join(dir, fmt.Sprintf("shard-%d", i)))
	}
	d.ShardSeries = make([]int, shards)
	gpus := map[string]int{}
	for _, name := range st.Blocks {
		n, err := split(ctx, filepath.Join(d.Whole, name), d.Shards, asTheyAre, func(l labels.Labels, from, until int64) {
			// Those that are there in all moments that instant queries ask for.
			if l.Get("__name__") == gpuMetric && from <= now.Add(-2*movingSpan).UnixMilli() && until >= now.Add(-2*edge).UnixMilli() {
				gpus[l.Get("namespace")]++
			}
		})
		if err != nil {
			return d, fmt.Errorf("split the block into %d shards: %w", shards, err)
		}
		for i := range n {
			d.ShardSeries[i] += n[i]
		}
	}
	delete(gpus, "") // idle ones
	if len(gpus) == 0 {
		return d, errors.New("make data: no namespace of this small cluster uses a GPU all the time; ask for more series, or another seed")
	}
	names := slices.SortedFunc(maps.Keys(gpus), func(a, b string) int { return cmp.Or(gpus[a]-gpus[b], strings.Compare(a, b)) })
	d.Namespace = names[len(names)/2]
	debug.FreeOSMemory() // the servers need the room
	return d, nil
}

// asTheyAre edits no chunk.
func asTheyAre(metas []chunks.Meta) ([]chunks.Meta, error) { return metas, nil }

// oneBlock is a range of blocks, aligned as Prometheus aligns them, of which one holds the whole
// time: at midnight that is not a day.
func oneBlock(from, until time.Time) time.Duration {
	for hours := int64(24); ; hours++ {
		span := (time.Duration(hours) * time.Hour).Milliseconds()
		if from.UnixMilli()/span == until.UnixMilli()/span {
			return time.Duration(hours) * time.Hour
		}
	}
}

// size chooses the cluster: one node for each 600 series (so a million series have 1,667 of them,
// with eight GPUs each), and as many kinds of custom resources as make up the number, which widens
// the API servers' histograms. Both parts are straight lines, so small clusters tell how steep they
// are.
func size(ctx context.Context, dir string, series int, seed uint64, back cluster.BackfillOptions) (cluster.Options, error) {
	// The cluster is always as old as this, so that a seed means the same pods and GPUs whenever it
	// is run.
	o := cluster.Options{Seed: seed, Cluster: "jaguar", Start: back.Until.Add(-30 * 24 * time.Hour), APIServers: apiServers}
	try := filepath.Join(dir, "size")
	measure := func(nodes, custom int) (float64, error) {
		o := o
		o.Nodes, o.CustomResources = nodes, custom
		m, err := cluster.New(o)
		if err != nil {
			return 0, err
		}
		st, err := m.Backfill(ctx, try, back)
		return float64(st.Series), errors.Join(err, os.RemoveAll(try))
	}
	var found [3]float64
	for i, of := range [3][2]int{{16, 0}, {416, 0}, {16, 8}} {
		n, err := measure(of[0], of[1])
		if err != nil {
			return o, fmt.Errorf("measure a small cluster: %w", err)
		}
		found[i] = n
	}
	perNode, perCustom := (found[1]-found[0])/400, (found[2]-found[0])/8
	o.Nodes = int(math.Round(float64(series) / 600))
	rest := float64(series) - found[0] - float64(o.Nodes-16)*perNode
	if rest < 0 { // the control plane alone takes up much of a small number
		o.Nodes = max(8, o.Nodes+int(rest/perNode))
		rest = 0
	}
	o.CustomResources = int(rest / perCustom)
	return o, nil
}

// nodeName is the name of one of a cluster's nodes.
func nodeName(n int) string { return fmt.Sprintf("gpu-%05d", n) }
