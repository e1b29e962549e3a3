package vitals

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// page is that of a Prometheus 3.15 under GOMEMLIMIT=1GiB.
func page(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/prometheus-3.15.txt")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestReadsGenuinePage: all that is wanted is read from what a Prometheus serves, however little
// comes at a time, and nothing behind the last wanted line is read.
func TestReadsGenuinePage(t *testing.T) {
	want := Sample{
		Resident: 58400768, Used: 39426312 - 13508608, Live: 8219624 + 39426312 - 32866304, Limit: 1 << 30, Queries: 0, MaxQueries: 20,
		Replay: 842267 * time.Nanosecond, Started: time.UnixMilli(1795782177110), Collected: time.UnixMilli(1795782177392), Own: true,
	}
	text := page(t)
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(text), "byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
		"lines ended by CR LF": bytes.NewReader(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))),
		"without an end":       io.MultiReader(bytes.NewReader(text), endless("# HELP and so on\n")),
		"with a line without an end first": io.MultiReader(
			io.LimitReader(endless("x"), 1<<20), strings.NewReader("\n"), bytes.NewReader(text)),
	} {
		got, err := Read(r)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

type endless string

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e[i%len(e)]
	}
	return len(p), nil
}

// TestThanos: a Thanos Query has other names for its queries.
func TestThanos(t *testing.T) {
	got, err := Read(strings.NewReader("prometheus_engine_queries{engine=\"prometheus\",mode=\"local\"} 7\n" +
		"thanos_query_concurrent_gate_queries_in_flight 3\nthanos_query_concurrent_gate_queries_max 20\ngo_gc_gomemlimit_bytes 9.223372036854776e+18\n"))
	if err != nil || !got.Own || got.Queries != 3 || got.MaxQueries != 20 || got.Limit != -1 || got.Live != -1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNonsenseIsNotKnown: of values that make no sense nothing is made, and nothing of a page that
// is none.
func TestNonsenseIsNotKnown(t *testing.T) {
	for text, want := range map[string]int64{
		"process_resident_memory_bytes 1": 1, "process_resident_memory_bytes 0": 0, "process_resident_memory_bytes 1e3 1600000000000": 1000,
		"process_resident_memory_bytes NaN": -1, "process_resident_memory_bytes -5": -1, "process_resident_memory_bytes +Inf": -1,
		"process_resident_memory_bytes 1e300": -1, "process_resident_memory_bytes{pod=\"a\"} 5\ngo_memstats_sys_bytes 1": -1,
		"process_resident_memory_bytes 7\nprocess_resident_memory_bytes 9": 7,
	} {
		if got, err := Read(strings.NewReader(text)); err != nil || got.Resident != want {
			t.Errorf("%q: %d, %v; want %d", text, got.Resident, err, want)
		}
	}
	got, err := Read(strings.NewReader("go_gc_gomemlimit_bytes 0\ngo_memstats_sys_bytes 5\ngo_memstats_heap_released_bytes 9\ngo_memstats_heap_sys_bytes 7\ngo_gc_heap_live_bytes 1\n"))
	if err != nil || got.Limit != -1 || got.Used != -1 || got.Live != -1 {
		t.Errorf("parts larger than the whole: %+v, %v", got, err)
	}
	for text, want := range map[string]error{
		"": ErrNothing, "<html><body>Log in</body></html>": ErrNothing, "up 1\n": ErrNothing, `{"status":"success"}`: ErrNothing,
	} {
		if _, err := Read(strings.NewReader(text)); !errors.Is(err, want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"process_resident_memory_bytes abc\n", "process_resident_memory_bytes \n", "prometheus_ready 1 2 3\n"} {
		if s, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
	cut := errors.New("cut")
	if _, err := Read(io.MultiReader(strings.NewReader("prometheus_ready 1\n"), iotest.ErrReader(cut))); !errors.Is(err, cut) {
		t.Errorf("a page that was cut: %v", err)
	}
}

// TestStarting: a server that reads its log says so.
func TestStarting(t *testing.T) {
	for text, want := range map[string]bool{
		"prometheus_ready 0\n": true, "prometheus_ready 1\n": false, "prometheus_engine_queries 0\n": false,
	} {
		if s, err := Read(strings.NewReader(text)); err != nil || s.Starting != want {
			t.Errorf("%q: %t, %v", text, s.Starting, err)
		}
	}
}

// TestReadHoldsLittle: however long a page and its lines are, hardly anything is held.
func TestReadHoldsLittle(t *testing.T) {
	allocated := func(text io.Reader) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Read(text); err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, r := range map[string]io.Reader{
		"64 MiB in one line":                io.LimitReader(endless("x"), 64<<20),
		"64 MiB of a wanted name in one":    io.MultiReader(strings.NewReader(resident+" "), io.LimitReader(endless("1"), 64<<20)),
		"64 MiB of a wanted name and again": io.LimitReader(endless(resident+" 1\n"), 64<<20),
		"8 MiB of labels":                   io.LimitReader(endless(`prometheus_engine_queries{a="b"} 1`+"\n"), 8<<20),
	} {
		if n := allocated(r); n > 64<<10 {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

// FuzzRead: no page does harm, and what is read is what Prometheus' parser reads of the whole page.
func FuzzRead(f *testing.F) {
	f.Add(page(f)[:8<<10])
	for _, text := range []string{
		"process_resident_memory_bytes 1\n", "# HELP a b\nprometheus_ready 0\n", "prometheus_ready{} 0\n", "prometheus_ready\t1 5\n",
		"go_memstats_sys_bytes NaN",
		resident + " 1e400\n" + series + " -0\n", "\n\n" + started + " 1.5\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read(bytes.NewReader(text))
		if err != nil {
			if got != (Sample{}) {
				t.Errorf("%+v beside %v", got, err)
			}
			return
		}
		for _, v := range []int64{got.Resident, got.Used, got.Live, got.Limit, got.Queries, got.MaxQueries, got.Series, int64(got.Replay)} {
			if v < -1 {
				t.Errorf("%+v", got)
			}
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return // which ends a page for Prometheus' parser
		}
		first := map[string]float64{}
		p := textparse.NewPromParser(bytes.Clone(text), labels.NewSymbolTable(), false)
		for {
			entry, err := p.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return // a page that Prometheus would not take: there is nothing to compare with
			}
			if entry != textparse.EntrySeries {
				continue
			}
			name, _, v := p.Series()
			if _, twice := first[string(name)]; !twice && slices.Contains(Names(), string(name)) {
				first[string(name)] = v
			}
		}
		want, has := first[resident]
		switch {
		case got.Resident >= 0 && (!has || float64(got.Resident) > want || float64(got.Resident) < want-1):
			t.Errorf("resident %d, want %g (%t) of %q", got.Resident, want, has, text)
		case has && got.Resident < 0 && want >= 0 && want < 1<<62:
			t.Errorf("resident memory of %g was not read of %q", want, text)
		}
		if v, has := first[ready]; got.Starting != (has && v == 0) {
			t.Errorf("starting %t, of %g (%t) in %q", got.Starting, v, has, text)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	text := page(b)
	small := ""
	for _, n := range ofAll() {
		small += fmt.Sprintf("# HELP %s x\n# TYPE %s gauge\n%s 1\n", n, n, n)
	}
	for name, text := range map[string]string{"page": string(text), "names": small} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := Read(strings.NewReader(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestWhosePage: the page of another process has nothing of a Prometheus or a Thanos Query.
func TestWhosePage(t *testing.T) {
	for text, want := range map[string]bool{
		"go_gc_gomemlimit_bytes 1\ngo_gc_heap_live_bytes 1\nprocess_start_time_seconds 5\n": false,
		"prometheus_ready 0\n": true, "prometheus_engine_queries 0\n": true, thanosAtMost + " 20\n": true, "prometheus_engine_queries{a=\"b\"} 1\nprocess_start_time_seconds 5\n": false,
	} {
		if s, err := Read(strings.NewReader(text)); err != nil || s.Own != want {
			t.Errorf("%q: %t, %v", text, s.Own, err)
		}
	}
}
