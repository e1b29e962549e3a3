package server

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// blockPair are two servers that hold the same of the last three hours, but for the last ten
// minutes in a block.
func blockPair(t *testing.T) (pair []*localprom.Shard, now time.Time) {
	t.Helper()
	now = time.Now().Truncate(time.Second)
	var series []storage.Series
	for _, s := range scraped(40, now.Add(-3*time.Hour), now.Add(-10*time.Minute), 2*time.Second, nil) {
		var samples []chunks.Sample
		for _, p := range s.points {
			samples = append(samples, p)
		}
		series = append(series, storage.NewListSeries(s.lbls, samples))
	}
	made := t.TempDir()
	if _, err := tsdb.CreateBlock(series, made, (8 * time.Hour).Milliseconds(), promslog.NewNopLogger()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		p := promShard(t, labels.FromStrings("replica", name), scraped(40, now.Add(-10*time.Minute), now, 2*time.Second, nil))
		own := t.TempDir()
		if err := os.CopyFS(own, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		if err := p.AddBlocks(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		pair = append(pair, p)
	}
	return pair, now
}

// damageBlocks changes a bit of every few bytes of the server's chunks.
func damageBlocks(t *testing.T, p *localprom.Shard) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.Dir(), "*", "chunks", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q %v", files, err)
	}
	for _, name := range files {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		for at := int64(50); at < info.Size(); at += 40 {
			if _, err := f.ReadAt(one, at); err != nil {
				t.Fatal(err)
			}
			one[0] ^= 1
			if _, err := f.WriteAt(one, at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedBlock: a block of one replica is damaged, of which Prometheus speaks as of a query
// that asks for too much. The other replica answers; the damaged one is what it was for everything
// else, and the log says so once.
func TestDamagedBlock(t *testing.T) {
	pair, now := blockPair(t)
	log := &logbook{}
	s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", pair[0].URL(), pair[1].URL()), func(o *Options) {
		o.Logger = slog.New(log)
	})
	rows := []struct {
		path string
		form url.Values
	}{
		{"/api/v1/query", url.Values{"query": {"sum(sum_over_time(up[5m]))"}, "time": {stamp(now.Add(-time.Hour))}}},
		{"/api/v1/query", url.Values{
			"query": {"sum by (job) (rate(requests_total[30m]))"}, "time": {stamp(now.Add(-30 * time.Minute))},
		}},
		{"/api/v1/query_range", url.Values{
			"query": {"max(requests_total)"}, "step": {"60"},
			"start": {stamp(now.Add(-2 * time.Hour))}, "end": {stamp(now.Add(-time.Hour))},
		}},
		{"/api/v1/query", url.Values{"query": {"sum(up)"}, "time": {stamp(now.Add(-time.Minute))}}}, // not in the block
	}
	want := make([][]byte, len(rows))
	for i, row := range rows {
		var code int
		if code, want[i] = ask(t, base, row.path, row.form); code != 200 {
			t.Fatalf("before: %d %s", code, want[i])
		}
	}
	damageBlocks(t, pair[0])
	if code, got := ask(t, pair[0].URL(), rows[0].path, rows[0].form); code != 422 {
		t.Fatalf("the damaged server answers %d %.300s", code, got)
	}
	sh := s.state.Load().top.Groups[0].Shards[0]
	for range 8 {
		for i, row := range rows {
			if code, got := ask(t, base, row.path, row.form); code != 200 || string(got) != string(want[i]) {
				t.Errorf("%s: %d %.600s, want %.600s", row.form.Get("query"), code, got, want[i])
			}
		}
	}
	for _, v := range s.state.Load().top.Status() {
		if v.State != shard.Up || v.Breaker != shard.Closed || v.HeartbeatError != "" {
			t.Errorf("%+v", v)
		}
	}
	if well, err := sh.Well(); err != nil || len(well) != 2 {
		t.Errorf("%d replicas are well, %v", len(well), err)
	}
	const damaged = "cannot read some of what it stores"
	said := slices.DeleteFunc(log.atLeast(slog.LevelWarn), func(line string) bool { return !strings.Contains(line, damaged) })
	if len(said) != 1 || !strings.Contains(said[0], sh.Replicas[0].Name()) {
		t.Errorf("the log says %q", said)
	}
	// Where both are, it is said of both, and nothing that a client could mend.
	damageBlocks(t, pair[1])
	code, got := ask(t, base, rows[0].path, rows[0].form)
	if text := string(got); code != 502 || strings.Count(text, damaged) != 2 {
		t.Errorf("both: %d %s", code, text)
	}
}
