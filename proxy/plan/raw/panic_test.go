package raw

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// panicky is a copy whose reading panics.
type panicky struct{}

func (panicky) Name() string { return "panicky" }

func (panicky) Read(context.Context, Query, func([]prompb.Label, []prompb.Chunk) error) error {
	panic("boom")
}

// TestAPanicEndsOneQuery: slices and copies are read in goroutines of their own, in which a panic
// would end the process.
func TestAPanicEndsOneQuery(t *testing.T) {
	sound := &fakeCopy{name: "sound", series: []string{`{__name__="a"} 1000:1 2000:2`}}
	of := func(copies ...Copy) *Queryable {
		q := &Queryable{Meter: &countingMeter{}}
		q.legs([]Leg{
			{Slice: slice("heron[0]", math.MinInt64, math.MaxInt64, copies...)},
			{Slice: slice("heron[1]", math.MinInt64, math.MaxInt64, sound)},
		})
		return q
	}
	whereLegs, whereSeen := of(sound), of(sound)
	whereLegs.Legs = func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) { panic("boom") }
	whereSeen.Observe = func(Selected) { panic("boom") }
	for name, q := range map[string]*Queryable{
		"a copy": of(panicky{}), "one of two copies": of(panicky{}, sound),
		"the choice of slices": whereLegs, "what comes after reading": whereSeen,
	} {
		querier, err := q.Querier(0, 3000)
		if err != nil {
			t.Fatal(err)
		}
		set := querier.Select(t.Context(), true, nil)
		for set.Next() {
		}
		var p *qerr.Panic
		if err := set.Err(); !errors.As(err, &p) || p.Value != "boom" || !strings.Contains(string(p.Stack), "panic_test.go") ||
			strings.Contains(qerr.From(err).Message, "boom") {
			t.Errorf("%s: %v", name, err)
		}
		if err := querier.Close(); err != nil {
			t.Error(err)
		}
	}
}
