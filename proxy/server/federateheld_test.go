package server

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestFederationIsHeld: what is made of series to federate them is held before it is made, so that
// a page of many labels is refused where there is no memory for it.
func TestFederationIsHeld(t *testing.T) {
	const series, more = 6_000, 25
	var all []map[string]string
	for i := range series {
		s := map[string]string{"__name__": "up", "instance": fmt.Sprint(i)}
		for k := range more {
			s[fmt.Sprintf("l%d", k)] = "v"
		}
		all = append(all, s)
	}
	shard := fakeshard.Start(t, fakeshard.Config{Series: all})
	for budget, want := range map[string]int{"256MiB": 200, "16MiB": 429} {
		r := &rig{t: t, client: newClient(t)}
		r.s, r.url = startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - name: jaguar\n    shards: [{replicas: [{url: %q}]}]\n", shard.URL())+
			roomy(ample)+"memory: {budget: "+budget+"}\n")
		for _, match := range [][]string{{"up"}, {"up", `{instance="7"}`}} {
			got := r.askKeeping(64<<20, r.request(context.Background(), asking{path: "/federate", form: url.Values{"match[]": match}}))
			if got.status != want || got.err != nil || want == 200 && got.size < 200*series {
				t.Errorf("of %s, with a budget of %s: want %d, got %s", match, budget, want, got)
			}
		}
		r.idle()
	}
}

// TestFederatedBytes: what is held of a series is no less than what is made of it, nor many times
// as much.
func TestFederatedBytes(t *testing.T) {
	fh := &histogram.FloatHistogram{
		Schema: 3, Count: 10, Sum: 1, PositiveSpans: []histogram.Span{{Offset: 0, Length: 40}}, PositiveBuckets: make([]float64, 40),
	}
	lots := labels.NewScratchBuilder(14)
	for k := range 14 {
		lots.Add(fmt.Sprintf("label_%02d", k), "value")
	}
	lbls := lots.Labels()
	for name, fh := range map[string]*histogram.FloatHistogram{"float": nil, "histogram": fh} {
		const n = 20_000
		before := liveBytes()
		all := []newestSample{}
		held := int64(0)
		family := &dto.MetricFamily{}
		for range n {
			s := newestSample{lbls: lbls}
			if fh != nil {
				s.fh = fh.Copy()
			}
			held += s.kept() + s.made()
			all = append(all, s)
			family.Metric = append(family.Metric, all[len(all)-1].metric())
		}
		grown := liveBytes() - before
		if grown > held || held > 3*grown {
			t.Errorf("%s: %d bytes are held for %d", name, held, grown)
		}
		runtime.KeepAlive(family)
		runtime.KeepAlive(all)
	}
}

// liveBytes is how much memory is in use.
func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
