package vitals

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Sample is what one page says. Of bytes and counts -1 is not known.
type Sample struct {
	// Resident is the process' resident memory, with pages of files that it has mapped.
	Resident int64
	// Used is what its runtime has from the system and has not given back, garbage included.
	Used int64
	// Live is what was reachable when garbage was collected last, with all that is no heap.
	Live int64
	// Limit is what the runtime keeps Used below as well as it can (GOMEMLIMIT); -1 where none is
	// set.
	Limit int64
	// Collected is when garbage was collected last, by the server's clock; zero is not known.
	Collected time.Time
	// Own tells that the page has metrics of a Prometheus or a Thanos Query: another process that
	// answers at the same address, such as a gateway, has none.
	Own bool
	// Queries are evaluated now, of MaxQueries at once at most; those that wait are not among them.
	Queries, MaxQueries int64
	// Series are in the head.
	Series int64
	// Starting tells that the server has not read its log yet, or stops.
	Starting bool
	// Replay is how long it took to read its log when it started; -1 is not known.
	Replay time.Duration
	// Started is when the process was started; zero is not known.
	Started time.Time
}

// The names that are read, as Prometheus and Thanos have them.
const (
	resident     = "process_resident_memory_bytes"
	started      = "process_start_time_seconds"
	sys          = "go_memstats_sys_bytes"
	released     = "go_memstats_heap_released_bytes"
	heapSys      = "go_memstats_heap_sys_bytes"
	heapLive     = "go_gc_heap_live_bytes"
	memLimit     = "go_gc_gomemlimit_bytes"
	collected    = "go_memstats_last_gc_time_seconds"
	queries      = "prometheus_engine_queries"
	maxQueries   = "prometheus_engine_queries_concurrent_max"
	series       = "prometheus_tsdb_head_series"
	ready        = "prometheus_ready"
	replay       = "prometheus_tsdb_data_replay_duration_seconds"
	thanosNow    = "thanos_query_concurrent_gate_queries_in_flight"
	thanosAtMost = "thanos_query_concurrent_gate_queries_max"
)

// Names are the metrics that Read looks for. A server that can be asked for single metrics
// (`name[]`) need not send more.
func Names() []string { return append(ofAll(), thanosNow, thanosAtMost) }

// ofAll are those that a Prometheus has.
func ofAll() []string {
	return []string{
		memLimit, heapLive, collected, released, heapSys, sys, resident, started, queries, maxQueries, ready, replay, series,
	}
}

var (
	// wanted has a number for each name.
	wanted = func() map[string]int {
		m := map[string]int{}
		for i, n := range Names() {
			m[n] = i
		}
		return m
	}()
	enough = uint(1)<<len(ofAll()) - 1
)

const (
	lineBytes = 16 << 10
	// keptBytes is the longest line of a wanted name: the name, a number and a time.
	keptBytes = 256
)

// ErrNothing is the error of a page that was read to its end and has none of the names: it is no
// page of a server's own metrics.
var ErrNothing = errors.New("none of the metrics that tell how a server is")

// Read reads a page of metrics in Prometheus' text format until all that is wanted was seen, or to
// its end. The error is the reader's, ErrNothing, or the parser's for a line of a wanted name.
func Read(page io.Reader) (Sample, error) {
	in := bufio.NewReaderSize(page, lineBytes)
	var kept []byte
	var seen uint
	for seen&enough != enough {
		line, err := in.ReadSlice('\n')
		if i, ok := nameOf(line); ok && err != bufio.ErrBufferFull && seen&(1<<i) == 0 && len(line) <= keptBytes {
			seen |= 1 << i
			kept = append(append(kept, bytes.TrimRight(line, "\r\n")...), '\n')
		}
		for err == bufio.ErrBufferFull { // the rest of a line that is none of ours
			_, err = in.ReadSlice('\n')
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return Sample{}, err
		}
	}
	if seen == 0 {
		return Sample{}, ErrNothing
	}
	return parse(kept)
}

// nameOf is the number of the wanted name that the line is a sample of, without labels.
func nameOf(line []byte) (int, bool) {
	end := bytes.IndexAny(line, " \t{")
	if end <= 0 || line[end] == '{' {
		return 0, false
	}
	i, ok := wanted[string(line[:end])]
	return i, ok
}

// parse reads the lines that were kept.
func parse(kept []byte) (Sample, error) {
	values := map[string]float64{}
	p := textparse.NewPromParser(kept, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Sample{}, fmt.Errorf("a line of the page makes no sense: %w", err)
		}
		if entry == textparse.EntrySeries {
			name, _, v := p.Series()
			values[string(name)] = v
		}
	}
	whole := func(name string) int64 {
		v, ok := values[name]
		if !ok || !(v >= 0 && v < math.MaxInt64/2) { // a limit that is not set is as large as can be
			return -1
		}
		return int64(v)
	}
	s := Sample{
		Resident: whole(resident), Used: -1, Live: -1, Limit: whole(memLimit), Queries: whole(queries), MaxQueries: whole(maxQueries),
		Series: whole(series), Replay: -1,
	}
	if s.Limit == 0 {
		s.Limit = -1
	}
	if s.Queries < 0 {
		s.Queries, s.MaxQueries = whole(thanosNow), whole(thanosAtMost)
	}
	all, back, heap, live := whole(sys), whole(released), whole(heapSys), whole(heapLive)
	if all >= 0 && back >= 0 && all >= back {
		s.Used = all - back
	}
	if live >= 0 && all >= 0 && heap >= 0 && all >= heap {
		s.Live = live + all - heap
	}
	if v, ok := values[ready]; ok {
		s.Starting = v == 0
	}
	if v, ok := values[replay]; ok && v >= 0 && v < 1e6 {
		s.Replay = time.Duration(v * float64(time.Second))
	}
	for _, name := range []string{queries, maxQueries, ready, replay, series, thanosNow, thanosAtMost} {
		_, ok := values[name]
		s.Own = s.Own || ok
	}
	s.Started, s.Collected = date(values[started]), date(values[collected])
	return s, nil
}

// date is so many seconds since 1970; zero where that makes no sense.
func date(seconds float64) time.Time {
	if seconds > 0 && seconds < 1e11 {
		return time.UnixMilli(int64(seconds * 1000))
	}
	return time.Time{}
}
