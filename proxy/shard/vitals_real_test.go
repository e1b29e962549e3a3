package shard

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// writeLog makes a data directory whose log has so many series and nothing else.
func writeLog(t testing.TB, dir string, series int) {
	t.Helper()
	o := tsdb.DefaultOptions()
	db, err := tsdb.Open(dir, promslog.NewNopLogger(), nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	app := db.Appender(context.Background())
	for i := range series {
		set := labels.FromStrings("__name__", "work", "instance", "node-"+strconv.Itoa(i%1000), "path", "/"+strconv.Itoa(i))
		for _, ago := range []int64{60_000, 30_000, 0} {
			if _, err := app.Append(0, set, now-ago, float64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if i%10_000 == 9_999 {
			if err := app.Commit(); err != nil {
				t.Fatal(err)
			}
			app = db.Appender(context.Background())
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVitalsOfAPrometheus: of a real Prometheus it is seen that it reads its log, and it is not
// asked meanwhile; then its memory, its limit, its series and the queries that it evaluates. Under
// a limit that it has passed, what is heavy is not sent.
func TestVitalsOfAPrometheus(t *testing.T) {
	bin, err := realprom.Find("prometheus")
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	const series = 200_000
	dir := t.TempDir()
	writeLog(t, filepath.Join(dir, "data"), series)
	conf := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(conf, []byte("global: {scrape_interval: 15s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	srv, err := realprom.StartProcess(realprom.ProcessOptions{
		Path: bin, Env: []string{"GOMEMLIMIT=2GiB"},
		Args: []string{"--config.file=" + conf, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Stop() })
	g := group("http://" + address)
	o := Options{ProbeInterval: 20 * time.Millisecond, VitalsEvery: 50 * time.Millisecond, Budget: 64 << 20}
	top := build(t, o, false, g)
	top.Start(t.Context())
	s := top.Groups[0].Shards[0]
	until := func(what string, is func(Info) bool) (i Info) {
		t.Helper()
		deadline := time.Now().Add(patience)
		for i = top.Status()[0]; !is(i); i = top.Status()[0] {
			if time.Now().After(deadline) {
				t.Fatalf("not seen: %s; %+v", what, i)
			}
			time.Sleep(2 * time.Millisecond)
		}
		return i
	}
	i := until("it is starting", func(i Info) bool { return i.Starting != "" })
	if _, err := ask(t.Context(), s, seriesRequest); err == nil || !strings.Contains(err.Error(), i.Starting[:10]) {
		t.Errorf("it %s, and a call: %v", i.Starting, err)
	}
	t.Logf("it %s", i.Starting)
	i = until("it is ready and read", func(i Info) bool { return i.State == Up && i.Vitals.Series == series })
	v := i.Vitals
	if v.State != vitals.Sound || v.LimitBytes != 2<<30 || v.MaxQueries != 20 || v.HeldBytes < series*100 || v.HeldBytes > v.ResidentBytes {
		t.Errorf("%+v", v)
	}
	t.Logf("it holds %d MiB of which %d MiB cannot be given back, after %s of reading its log", v.ResidentBytes>>20, v.HeldBytes>>20,
		s.Replicas[0].Vitals().Replay)
	if r := s.Replicas[0].Vitals(); r.Replay <= 0 || r.Started.Before(time.Now().Add(-patience)) {
		t.Errorf("%+v", r)
	}
	asked := make(chan error, 1)
	go func() {
		req := &endpoint.Request{ID: endpoint.Query, Query: "count(sum_over_time(work[1m:1s]))", Time: endpoint.At(time.Now().UnixMilli())}
		_, err := ask(t.Context(), s, req)
		asked <- err
	}()
	until("it evaluates a query", func(i Info) bool { return i.Vitals.Queries > 0 })
	if err := <-asked; err != nil {
		t.Error(err)
	}
	until("it evaluates none", func(i Info) bool { return i.Vitals.Queries == 0 })

	g.Shards[0].Replicas[0].MemoryLimit = config.Bytes(until("what it holds", func(Info) bool { return true }).Vitals.HeldBytes)
	tight, err := New([]config.Group{g}, o, top)
	if err != nil {
		t.Fatal(err)
	}
	defer tight.Close()
	tight.Start(t.Context())
	top.Close()
	top, s = tight, tight.Groups[0].Shards[0]
	until("it is sick", func(i Info) bool { return i.Vitals.State == vitals.Sick })
	if _, err := spend(laneOf(t, "default"), s, CallOptions{Held: much}); !isShed(t, err, address) {
		t.Errorf("a heavy call: %v", err)
	}
	if _, err := spend(laneOf(t, "default"), s, CallOptions{Held: 1}); err != nil {
		t.Errorf("a light call: %v", err)
	}
}
