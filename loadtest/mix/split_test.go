package mix

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// TestShardIsHashmod holds Shard against Prometheus' own relabel action, both ways that it takes.
func TestShardIsHashmod(t *testing.T) {
	seed := randseed.Of(t, 0)
	rnd := rand.New(rand.NewPCG(seed, 0))
	config := func(source ...model.LabelName) *relabel.Config {
		return &relabel.Config{
			SourceLabels: source, Separator: ";", Modulus: 4, TargetLabel: "hash", Action: relabel.HashMod,
			NameValidationScheme: model.UTF8Validation,
		}
	}
	word := func() string { return string([]byte{byte('a' + rnd.IntN(26)), byte('a' + rnd.IntN(26))}) }
	for range 200 {
		l := labels.FromStrings("instance", word(), "namespace", word(), "pod", word())
		rule := config("instance", "namespace", "pod")
		if rnd.IntN(2) == 0 {
			l, rule = labels.NewBuilder(l).Set("node", word()).Labels(), config("node")
		}
		b := labels.NewBuilder(l)
		relabel.ProcessBuilder(b, rule)
		if got, want := string(rune('0'+Shard(l, 4))), b.Get("hash"); got != want {
			t.Fatalf("%s: shard %s, want %s", l, got, want)
		}
	}
}

// TestMakeData: the shards hold what the whole holds, each series once, with the same chunks, where
// Shard says.
func TestMakeData(t *testing.T) {
	dir := t.TempDir()
	// Just after midnight the data's time crosses the edge of a day.
	midnight := time.Now().Truncate(24 * time.Hour).Add(23 * time.Minute)
	d, err := MakeData(t.Context(), dir, minSeries, 3, 1, midnight)
	if err != nil {
		t.Fatal(err)
	}
	if d.Series < minSeries*9/10 || d.Series > minSeries*11/10 || d.Nodes < 8 || d.Namespace == "" || d.Samples < 100*d.Series {
		t.Errorf("data: %+v", d)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("folders: %v, %v", entries, err)
	}
	away := t.TempDir()
	if err := copyBlocks(t.Context(), d.Shards[0], away, midnight.Add(-gapBegan), midnight.Add(-gapEnded)); err != nil {
		t.Fatal(err)
	}
	held, left := readBlocks(t, d.Shards[0]), readBlocks(t, away)
	const gap = int(gapBegan-gapEnded) / int(scrapeInterval)
	for key, s := range held {
		always := s.from < midnight.Add(-gapBegan).UnixMilli() && s.until > midnight.Add(-gapEnded).UnixMilli()
		least := s.samples - gap
		// What comes and goes with a pod may have been away in the gap.
		holes := int((s.until-s.from)/scrapeInterval.Milliseconds())+1 > s.samples
		if got, ok := left[key]; ok == (s.from >= midnight.Add(-gapBegan).UnixMilli() && s.until < midnight.Add(-gapEnded).UnixMilli()) {
			t.Fatalf("%s: %+v: it is left: %v", key, s, ok)
		} else if ok && always && (got.samples < least || got.samples > least && !holes || got.samples > s.samples) ||
			ok && (got.from < s.from || got.until > s.until) {
			t.Fatalf("%s: %+v of %+v is left without ten minutes", key, got, s)
		}
	}
	whole := readBlocks(t, d.Whole)
	if len(whole) != d.Series {
		t.Errorf("%d series on disk, %d were announced", len(whole), d.Series)
	}
	for i, part := range d.Shards {
		series := readBlocks(t, part)
		if len(series) != d.ShardSeries[i] || len(series) == 0 {
			t.Errorf("shard %d: %d series on disk, %d were announced", i, len(series), d.ShardSeries[i])
		}
		for key, s := range series {
			if s.samples != whole[key].samples || s.from != whole[key].from || s.until != whole[key].until {
				t.Fatalf("%s: %+v in shard %d, %+v in the whole", key, s, i, whole[key])
			}
			if Shard(s.labels, 3) != i {
				t.Fatalf("%s is in shard %d", key, i)
			}
			delete(whole, key)
		}
	}
	if len(whole) > 0 {
		t.Errorf("%d series are in no shard", len(whole))
	}
}

type onDisk struct {
	labels      labels.Labels
	samples     int
	from, until int64
}

// readBlocks reads the series of all blocks below dir, where a server may keep its own files too.
func readBlocks(t *testing.T, dir string) map[string]onDisk {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks in %s: %v", dir, err)
	}
	out := map[string]onDisk{}
	for _, meta := range blocks {
		b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), filepath.Dir(meta), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ir, err := b.Index()
		if err != nil {
			t.Fatal(err)
		}
		cr, err := b.Chunks()
		if err != nil {
			t.Fatal(err)
		}
		key, value := index.AllPostingsKey()
		p, err := ir.Postings(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		builder := labels.NewScratchBuilder(0)
		var metas []chunks.Meta
		for p.Next() {
			if err := ir.Series(p.At(), &builder, &metas); err != nil {
				t.Fatal(err)
			}
			l := builder.Labels()
			s := out[l.String()]
			s.labels = l
			for _, m := range metas {
				c, _, err := cr.ChunkOrIterable(m)
				if err != nil {
					t.Fatal(err)
				}
				s.samples += c.NumSamples()
			}
			s.from, s.until = metas[0].MinTime, metas[len(metas)-1].MaxTime
			out[l.String()] = s
		}
		if p.Err() != nil {
			t.Fatal(p.Err())
		}
		_, _, _ = ir.Close(), cr.Close(), b.Close()
	}
	return out
}
