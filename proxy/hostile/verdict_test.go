package hostile

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

var (
	count = flag.Int("hostile.texts", 1000, "how many texts are tried")
	seed  = flag.Uint64("hostile.seed", 0, "of the texts; 0 is another one each time")
	// make test runs beside much else, make test-full runs this alone.
	strict = flag.Bool("hostile.strict", false, "nothing else runs on the machine, so that times are held too")
)

// request is the query as the proxy has it.
func (q Query) request(now time.Time) *endpoint.Request {
	if q.Step == 0 {
		return &endpoint.Request{ID: endpoint.Query, Query: q.Text, Time: endpoint.At(now.UnixMilli())}
	}
	return &endpoint.Request{
		ID: endpoint.QueryRange, Query: q.Text, Start: endpoint.At(now.Add(-q.Range).UnixMilli()),
		End: endpoint.At(now.UnixMilli()), Step: q.Step,
	}
}

// TestVerdicts: each text gets a verdict, a refusal is a sentence that is short whatever the text,
// and the texts lie on both sides of the bounds.
func TestVerdicts(t *testing.T) {
	limits := policy.Limits(config.Default().LimitsFor(endpoint.Query))
	limits.MaxQueryBytes = MaxText
	now := time.Unix(1_790_000_000, 0)
	w := NewWriter(randseed.Of(t, *seed))
	seen := map[string]int{}
	for range *count {
		q := w.Next()
		if len(q.Text) > MaxText {
			t.Fatalf("a text of %d bytes", len(q.Text))
		}
		_, err := policy.Decide(q.request(now), limits, nil, now)
		var e *qerr.Error
		switch {
		case err == nil:
			seen[q.Kind+" pass"]++
		case !errors.As(err, &e):
			t.Errorf("%.200s: %v", q.Text, err)
		case e.Bound == "":
			seen[q.Kind+" bad data"]++
			seen["bad data"]++
		default:
			seen[q.Kind+" refused"]++
			seen[e.Bound]++
			if len(e.Message) > 500 {
				t.Errorf("a sentence of %d bytes: %s", len(e.Message), e.Message)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%s: %d", k, seen[k])
	}
	for _, kind := range Kinds {
		for _, way := range []string{"pass", "refused"} {
			if kind == "mixed" && way == "refused" {
				continue // few of them are large
			}
			if seen[fmt.Sprint(kind, " ", way)] < *count/500 {
				t.Errorf("%d of %d texts aimed at %s: %s", seen[kind+" "+way], *count, kind, way)
			}
		}
	}
	if seen["bad data"] > *count/4 {
		t.Errorf("%d of %d texts do not parse", seen["bad data"], *count)
	}
}
