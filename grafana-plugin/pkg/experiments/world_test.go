package experiments

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/grafana/grafana-plugin-sdk-go/experimental"
	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/internal/localprom"
)

var update = flag.Bool("update", false, "write the golden frames of testdata anew")

// A world is a Prometheus that holds the series of testdata/NAME.load, from time 0 (1970) on. The
// tests of a run share it.
type world struct {
	shard *localprom.Shard
	asker prom.Asker
	done  func()
}

var worlds = struct {
	sync.Mutex
	m map[string]*world
}{m: map[string]*world{}}

func TestMain(m *testing.M) {
	code := m.Run()
	for name, w := range worlds.m {
		w.done()
		if err := w.shard.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "close the world %s: %v\n", name, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// worldOf returns the world of testdata/name.load, which starts at its first use and ends with the
// run.
func worldOf(t testing.TB, name string) *world {
	t.Helper()
	worlds.Lock()
	defer worlds.Unlock()
	if w := worlds.m[name]; w != nil {
		return w
	}
	text, err := os.ReadFile(filepath.Join("testdata", name+".load"))
	if err != nil {
		t.Fatal(err)
	}
	// t's context would end it with this test. All stays in the head: blocks of months would be cut
	// while a slow test asks.
	shard, err := localprom.Start(context.Background(), localprom.Options{DisableWAL: true, BlockDuration: 1000 * day})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	w := &world{shard: shard, done: transport.CloseIdleConnections}
	worlds.m[name] = w
	if err := shard.Load(string(text)); err != nil {
		t.Fatalf("testdata/%s.load: %v", name, err)
	}
	if w.asker, err = prom.New(shard.URL(), &http.Client{Transport: transport}, ""); err != nil {
		t.Fatal(err)
	}
	return w
}

// settingsOf are those of jsonData; "" for the defaults.
func settingsOf(t testing.TB, jsonData string) model.Settings {
	t.Helper()
	s, err := model.ParseSettings([]byte(jsonData))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run is a run of query, as the editor writes it in JSON, over from to until since the world's
// beginning, as a panel has it that is 100 points wide.
func (w *world) run(t testing.TB, settings model.Settings, query string, from, until time.Duration) *Run {
	t.Helper()
	q, err := model.ParseQuery("A", "", []byte(query))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRun(w.asker, settings, q, time.UnixMilli(0).Add(from).UTC(), time.UnixMilli(0).Add(until).UTC())
	r.MaxPoints, r.Interval = 100, time.Minute
	return r
}

// frames answers a query by the handler of its type; an error ends the test.
func (w *world) frames(t testing.TB, settings model.Settings, query string, from, until time.Duration) data.Frames {
	t.Helper()
	frames, err := w.run(t, settings, query, from, until).Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

// golden compares frames with testdata/name.jsonc. With -update the file is written.
func golden(t *testing.T, name string, frames data.Frames) {
	t.Helper()
	if !*update {
		if _, err := os.Stat(filepath.Join("testdata", name+".jsonc")); err != nil {
			t.Fatalf("%v; -update writes it", err) // else the checker makes one and goes on
		}
	}
	experimental.CheckGoldenJSONResponse(t, "testdata", name, &backend.DataResponse{Frames: frames}, *update)
}

// values are those of a frame's field, which must be there.
func values[T any](t testing.TB, f *data.Frame, field string) []T {
	t.Helper()
	i, at := f.FieldByName(field)
	if at < 0 {
		t.Fatalf("frame %q has no field %q", f.Name, field)
	}
	out := make([]T, i.Len())
	for j := range out {
		v, ok := i.At(j).(T)
		if !ok {
			t.Fatalf("field %q has values of type %s, not %s", field, i.Type(), reflect.TypeFor[T]())
		}
		out[j] = v
	}
	return out
}

// notices are the texts of a frame's notices.
func notices(f *data.Frame) []string {
	var out []string
	if f.Meta != nil {
		for _, n := range f.Meta.Notices {
			out = append(out, n.Text)
		}
	}
	return out
}
