package merge

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestEndlessTables lets tables read bodies that never end: each stops at a bound, and the heap
// stays flat.
func TestEndlessTables(t *testing.T) {
	const head = `{"status":"success","data":{"resultType":"matrix","result":[`
	long := Grid{Start: 0, End: 10_000_000, Step: 1000}
	for _, tc := range []struct {
		name, head, unit string
		grid             Grid
		bounds           []string
	}{
		{"series", head + `{"metric":{},"values":[[0,"1"]]}`, `,{"metric":{"a":"b"},"values":[[1,"1"]]}`, long, []string{"memory.budget"}},
		{"series of an instant", strings.Replace(head, "matrix", "vector", 1) + `{"metric":{},"value":[0,"1"]}`, `,{"metric":{"__name__":"container_cpu_usage_seconds_total"},"value":[0,"1"]}`, Grid{}, []string{"memory.budget"}},
		{"series without samples", head + `{"metric":{},"values":[]}`, `,{"metric":{"a":"b"},"values":[]}`, four, nil},
		{"white space", head + `{"metric":{},"values":[`, ` `, four, []string{"max_response_bytes"}},
		{"points", head + `{"metric":{},"values":[[0,"1"]`, `,[1,"1"]`, long, nil},
		{"a value", head + `{"metric":{},"values":[[0,"`, `1`, long, nil},
		{"a time", head + `{"metric":{},"values":[[1`, `0`, long, nil},
		{"a label", head + `{"metric":{"a":"`, `x`, long, nil},
		{"labels", head + `{"metric":{"a":"b"`, `,"a":"b"`, long, nil},
		{"stats", `{"status":"success","data":{"stats":[1`, `,1`, long, []string{"max_response_bytes"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const poolBytes = 8 << 20
			pool := admit.NewPool(poolBytes)
			b := admit.NewBudget(pool, admit.Limits{MaxSamples: 1e6, MaxBytes: 32 << 20})
			runtime.GC()
			runtime.GC() // twice, for the pools of earlier tests
			before := liveHeap()
			body := &watched{endless: &endless{head: tc.head, unit: tc.unit}}
			tab, _, err := DecodeTable(t.Context(), Source{Name: "liar", Body: body}, tc.grid, b)
			if tab != nil || err == nil {
				t.Fatalf("got %v, %v", tab, err)
			}
			if b.Held() != 0 {
				t.Errorf("%d bytes are held", b.Held())
			}
			b.Close()
			e := qerr.From(err)
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

// TestTablesCostWhatIsHeld decodes tables that are as dear for their bytes as they can be: what
// they come to on the heap was held before.
func TestTablesCostWhatIsHeld(t *testing.T) {
	var short strings.Builder
	for i := range 30000 {
		fmt.Fprintf(&short, `%s{"metric":{"a":"%d"},"value":[0,"1"]}`, comma(i), i)
	}
	for name, tc := range map[string]struct {
		doc  string
		grid Grid
	}{
		"short series": {envelope(`{"resultType":"vector","result":[` + short.String() + `]}`), Grid{}},
		"long labels":  {string(gridDoc(Grid{}, 0, 20000, valueKinds[0].next)), Grid{}},
		"long grid":    {string(gridDoc(Grid{End: 9_000_000, Step: 1000}, 0, 20, valueKinds[0].next)), Grid{End: 9_000_000, Step: 1000}},
		"hour":         {string(gridDoc(hour, 0, 2000, valueKinds[0].next)), hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := admit.NewBudget(admit.NewPool(1<<30), roomy)
			defer b.Close()
			runtime.GC()
			before := liveHeap() // the pools are empty now, so their blocks are counted as well
			tab, _, err := DecodeTable(t.Context(), Source{Name: "a", Body: strings.NewReader(tc.doc)}, tc.grid, b)
			if err != nil {
				t.Fatal(err)
			}
			grown, held := liveHeap()-before, b.Held()
			if grown > held+scanBuffer { // the scanner's buffer is in its pool
				t.Errorf("%d bytes of JSON became %d on the heap, %d were held", len(tc.doc), grown, held)
			}
			t.Logf("%d on the heap, %d held, peak %d", grown, held, b.Peak())
			tab.Close()
			if b.Held() != 0 {
				t.Errorf("%d bytes are held at the end", b.Held())
			}
		})
	}
}

// TestDecodeTableAllocates measures that points cost no allocation, and a series three at most.
func TestDecodeTableAllocates(t *testing.T) {
	pool := admit.NewPool(1 << 30)
	allocs := func(series int, grid Grid) float64 {
		doc := gridDoc(grid, 0, series, valueKinds[2].next)
		return testing.AllocsPerRun(5, func() {
			b := admit.NewBudget(pool, roomy)
			tab, _, err := DecodeTable(t.Context(), Source{Name: "a", Body: bytes.NewReader(doc)}, grid, b)
			if err != nil {
				t.Fatal(err)
			}
			tab.Close()
			b.Close()
		})
	}
	if few, many := allocs(500, Grid{Start: hour.Start, End: hour.Start + hour.Step, Step: hour.Step}), allocs(500, hour); many > few+40 {
		t.Errorf("%v allocations for 2 points, %v for 121", few, many)
	}
	if few, many := allocs(100, hour), allocs(1100, hour); many > few+3*1000 {
		t.Errorf("%v allocations for 100 series, %v for 1,100", few, many)
	}
}
