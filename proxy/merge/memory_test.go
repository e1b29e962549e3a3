package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// counter is a client that keeps nothing.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// TestEndlessBodies lets every merge read bodies that never end: each stops at a bound, and the
// heap stays flat.
func TestEndlessBodies(t *testing.T) {
	const head = `{"status":"success","data":`
	for _, tc := range []struct {
		name, endpoint, head, unit string
		bounds                     []string // one of them refuses; none: the shard's fault
	}{
		{"matrix", "pass", head + `{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"1"]`, `,[1700000000.123,"1.25"]`, []string{"max_samples", "max_response_bytes"}},
		{"series of a vector", "pass", head + `{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}`, `,{"metric":{"a":"b"},"value":[1,"1"]}`, []string{"max_series"}},
		{"white space", "pass", head, " ", []string{"max_response_bytes"}},
		{"stats", "pass", head + `{"resultType":"vector","stats":[1`, ",1", []string{"max_response_bytes"}},
		{"a string", "pass", head + `{"resultType":"string","result":[1,"`, "x", nil},
		{"a label", "pass", head + `{"resultType":"vector","result":[{"metric":{"a":"`, "x", nil},
		{"labels", "pass", head + `{"resultType":"vector","result":[{"metric":{"a":"b"`, `,"a":"b"`, nil},
		{"a number", "pass", head + `{"resultType":"vector","result":[{"metric":{},"value":[`, "1", []string{"max_response_bytes"}},
		{"depth", "pass", head + `{"resultType":"vector","stats":`, "[", nil},
		{"spliced points", "splice", head + `{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"1"]`, `,[1700000000.123,"1.25"]`, []string{"max_samples", "max_response_bytes"}},
		{"spliced series", "splice", head + `{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}`, `,{"metric":{"a":"b"},"value":[1,"1"]}`, nil},
		{"a spliced label", "splice", head + `{"resultType":"matrix","result":[{"metric":{"a":"`, "x", nil},
		{"spliced labels", "splice", head + `{"resultType":"matrix","result":[{"metric":{"a":"b"`, `,"a":"b"`, nil},
		{"spliced stats", "splice", head + `{"resultType":"vector","stats":[1`, ",1", []string{"max_response_bytes"}},
		{"unknown keys", "values", `{"a":1`, `,"a":[1,2,3]`, []string{"max_response_bytes"}},
		{"warnings", "values", `{"warnings":["a"`, `,"b"`, []string{"max_response_bytes"}},
		{"one value", "values", head + `["`, "x", nil},
		{"series", "series", head + `[{"__name__":"a"}`, `,{"__name__":"container_cpu_usage_seconds_total","namespace":"research-1"}`, []string{"memory.budget", "max_response_bytes"}},
		{"series, empty", "series", head + `[{}`, `,{}`, []string{"memory.budget", "max_response_bytes"}},
		{
			"exemplars", "exemplars", head + `[{"seriesLabels":{},"exemplars":[{"value":"1"}`, `,{"value":"1"}`,
			[]string{"memory.budget", "max_samples"},
		},
		{"rules", "rules", head + `{"groups":[{}`, `,{}`, []string{"memory.budget", "max_response_bytes"}},
		{"alerts", "alerts", head + `{"alerts":[{}`, `,{}`, []string{"memory.budget", "max_response_bytes"}},
		{"targets", "targets", head + `{"activeTargets":[{}`, `,{}`, []string{"memory.budget", "max_response_bytes"}},
		{"counts", "targets", head + `{"droppedTargetCounts":{"a":1`, `,"a":1`, []string{"memory.budget", "max_response_bytes"}},
		{"pools", "scrape_pools", head + `{"scrapePools":[""`, `,""`, []string{"memory.budget", "max_response_bytes"}},
		{"alertmanagers", "alertmanagers", head + `{"activeAlertmanagers":[{}`, `,{}`, []string{"memory.budget", "max_response_bytes"}},
		{"metadata", "metadata", head + `{"a":[]`, `,"a":[{}]`, []string{"memory.budget", "max_response_bytes"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const poolBytes = 8 << 20
			pool := admit.NewPool(poolBytes)
			b := admit.NewBudget(pool, admit.Limits{MaxSeries: 50000, MaxSamples: 1e6, MaxBytes: 32 << 20})
			before := liveHeap()
			body := &watched{endless: &endless{head: tc.head, unit: tc.unit}}
			w := NewWriter(&counter{}, b)
			rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
			_, err := mergers[tc.endpoint](t.Context(), w, nil, []Source{{Name: "liar", Body: body, Relabel: rl}}, b)
			w.Close()
			b.Close()
			if pool.InUse() != 0 {
				t.Errorf("%d bytes of the pool are in use", pool.InUse())
			}
			var e *qerr.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			ok := tc.bounds == nil && e.Kind == qerr.ShardFailed
			for _, bound := range tc.bounds {
				ok = ok || e.Bound == bound
			}
			if !ok {
				t.Errorf("got %v, want one of %v", err, tc.bounds)
			}
			if grown := body.highest - before; grown > poolBytes+1<<20 {
				t.Errorf("the heap grew by %s, the pool has %s", admit.FormatBytes(grown), admit.FormatBytes(poolBytes))
			}
		})
	}
}

// liveHeap is what is reachable, in bytes.
func liveHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// watched looks at the heap for each 512 KiB read.
type watched struct {
	*endless
	next    int
	highest int64
}

func (w *watched) Read(p []byte) (int, error) {
	if w.n >= w.next {
		w.next += 512 << 10
		w.highest = max(w.highest, liveHeap())
	}
	return w.endless.Read(p)
}

// TestDocumentsCostWhatIsHeld decodes documents that are as dear for their bytes as they can be:
// what they come to on the heap was held before.
func TestDocumentsCostWhatIsHeld(t *testing.T) {
	list := func(n int, head, unit, tail string) string {
		return envelope(head + unit + strings.Repeat(","+unit, n) + tail)
	}
	keys := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `%s"%x":%s`, comma(i), i, value)
		}
		return b.String()
	}
	const n = 20000
	decode := map[string]struct {
		doc  string
		read func([]Source, *admit.Budget) (func(), error)
	}{
		"groups":           {list(n, `{"groups":[`, `{}`, `]}`), reads[ruleDiscovery]},
		"rules":            {list(n, `{"groups":[{"rules":[`, `{}`, `]}]}`), reads[ruleDiscovery]},
		"alerts of a rule": {list(n, `{"groups":[{"rules":[{"alerts":[`, `{}`, `]}]}]}`), reads[ruleDiscovery]},
		"alerts":           {list(n, `{"alerts":[`, `{"labels":{"a":"b"}}`, `]}`), reads[alertDiscovery]},
		"targets":          {list(n, `{"droppedTargets":[],"activeTargets":[`, `{"labels":{"a":"b"}}`, `]}`), reads[targetDiscovery]},
		"counts":           {envelope(`{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{` + keys(n, "1") + `}}`), reads[targetDiscovery]},
		"metadata":         {envelope(`{` + keys(n, "[]") + `}`), reads[map[string][]metadata.Metadata]},
		"metadata of one":  {list(n, `{"a":[`, `{}`, `]}`), reads[map[string][]metadata.Metadata]},
		"targets metadata": {list(n, `[`, `{"metric":"a"}`, `]`), reads[[]targetMetadata]},
		"features":         {envelope(`{` + keys(n, `{"a":true}`) + `}`), reads[map[string]map[string]bool]},
		"scrape pools":     {list(n, `{"scrapePools":[`, `""`, `]}`), reads[scrapePools]},
		"alertmanagers":    {list(n, `{"droppedAlertmanagers":[],"activeAlertmanagers":[`, `{}`, `]}`), reads[alertmanagers]},
		"tsdb":             {list(n, `{"seriesCountByMetricName":[`, `{}`, `]}`), reads[tsdbStatus]},
	}
	for name, tc := range decode {
		t.Run(name, func(t *testing.T) {
			b := admit.NewBudget(admit.NewPool(1<<30), roomy)
			defer b.Close()
			before := liveHeap()
			release, err := tc.read([]Source{{Name: "a", Body: strings.NewReader(tc.doc)}}, b)
			if err != nil {
				t.Fatal(err)
			}
			grown, held := liveHeap()-before, b.Held()
			if grown > held {
				t.Errorf("%d bytes of JSON became %d on the heap, %d were held", len(tc.doc), grown, held)
			}
			release()
			if b.Held() != 0 {
				t.Errorf("%d bytes are held at the end", b.Held())
			}
		})
	}
}

func reads[T any](shards []Source, b *admit.Budget) (func(), error) {
	d, err := readDocuments[T](context.Background(), shards, b)
	return d.release, err
}

// TestPassAllocates measures that the number of allocations does not grow with the answer.
func TestPassAllocates(t *testing.T) {
	pool := admit.NewPool(1 << 30)
	allocs := func(series, points int) float64 {
		doc := matrixDoc(series, points)
		return testing.AllocsPerRun(5, func() {
			b := admit.NewBudget(pool, roomy)
			w := NewWriter(io.Discard, b)
			if _, err := Pass(t.Context(), w, Source{Name: "a", Body: bytes.NewReader(doc)}, b); err != nil {
				t.Fatal(err)
			}
			w.Close()
			b.Close()
		})
	}
	small, large := allocs(10, 10), allocs(2000, 100)
	if large > small+60 { // the writer's sixteen chunks come from a pool that may be empty
		t.Errorf("%v allocations for 10 series, %v for 2,000", small, large)
	}
}
