package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
)

// exactAnswer is the data of a query's answer, as read from its JSON.
type exactAnswer struct {
	kind   string // vector, matrix, scalar, string
	series map[string]map[int64]exactValue
	order  []string // the label sets as they came
}

// exactValue is one value: a number in the text that it was written in, or a histogram.
type exactValue struct {
	text string
	h    *exactBuckets
}

// exactBuckets are a native histogram in the API's form.
type exactBuckets struct {
	Count, Sum string
	Buckets    [][4]any // boundary rule, lower, upper, count
}

var errExactShape = errors.New("not an answer of Prometheus' form")

// readExact reads a successful answer.
func readExact(body []byte) (*exactAnswer, error) {
	var env struct {
		Status string
		Data   struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &env); err != nil {
		return nil, fmt.Errorf("%w: %w", errExactShape, err)
	}
	if env.Status != "success" {
		return nil, fmt.Errorf("%w: status %q", errExactShape, env.Status)
	}
	out := &exactAnswer{kind: env.Data.ResultType, series: map[string]map[int64]exactValue{}}
	if out.kind == "scalar" || out.kind == "string" {
		var pair []json.RawMessage
		if err := json.Unmarshal(env.Data.Result, &pair); err != nil {
			return nil, fmt.Errorf("%w: %w", errExactShape, err)
		}
		out.series[""] = map[int64]exactValue{}
		out.order = []string{""}
		return out, out.put("", pair, false)
	}
	var list []struct {
		Metric             map[string]string
		Value, Histogram   []json.RawMessage
		Values, Histograms [][]json.RawMessage
	}
	if err := json.Unmarshal(env.Data.Result, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", errExactShape, err)
	}
	for _, s := range list {
		key := labels.FromMap(s.Metric).String()
		if out.series[key] != nil {
			return nil, fmt.Errorf("%w: %s stands twice", errExactShape, key)
		}
		out.series[key] = map[int64]exactValue{}
		out.order = append(out.order, key)
		if s.Value != nil {
			s.Values = append(s.Values, s.Value)
		}
		if s.Histogram != nil {
			s.Histograms = append(s.Histograms, s.Histogram)
		}
		for _, p := range s.Values {
			if err := out.put(key, p, false); err != nil {
				return nil, err
			}
		}
		for _, p := range s.Histograms {
			if err := out.put(key, p, true); err != nil {
				return nil, err
			}
		}
		if len(out.series[key]) != len(s.Values)+len(s.Histograms) {
			return nil, fmt.Errorf("%w: %s has two values at one time", errExactShape, key)
		}
	}
	return out, nil
}

func (a *exactAnswer) put(key string, pair []json.RawMessage, isHistogram bool) error {
	if len(pair) != 2 {
		return fmt.Errorf("%w: a pair of %d", errExactShape, len(pair))
	}
	seconds, err := strconv.ParseFloat(string(pair[0]), 64)
	if err != nil {
		return fmt.Errorf("%w: %w", errExactShape, err)
	}
	var v exactValue
	if isHistogram {
		v.h = &exactBuckets{}
		err = json.Unmarshal(pair[1], v.h)
	} else {
		err = json.Unmarshal(pair[1], &v.text)
	}
	a.series[key][int64(math.Round(seconds*1000))] = v
	return err
}

// exactDifference is where two answers differ first. at is the time of it, 0 where a whole series
// or the kind differs.
type exactDifference struct {
	text      string
	at        int64
	got, want float64 // where numbers differ
	numbers   bool
}

// unsigned is the answer with every zero positive.
func (a *exactAnswer) unsigned() *exactAnswer {
	out := &exactAnswer{kind: a.kind, order: a.order, series: map[string]map[int64]exactValue{}}
	for key, points := range a.series {
		out.series[key] = maps.Clone(points)
		for t, v := range points {
			if v.text == "-0" {
				v.text = "0"
				out.series[key][t] = v
			}
		}
	}
	return out
}

// differ finds the first difference; tolerance is relative, 0 is bit for bit.
func (a *exactAnswer) differ(want *exactAnswer, tolerance float64) *exactDifference {
	if a.kind != want.kind {
		return &exactDifference{text: fmt.Sprintf("it is a %s, not a %s", a.kind, want.kind)}
	}
	for _, key := range slices.Sorted(maps.Keys(want.series)) {
		points := want.series[key]
		g, ok := a.series[key]
		if !ok {
			return &exactDifference{
				text: "there is no series " + key,
				at:   slices.Min(append(slices.Collect(maps.Keys(points)), math.MaxInt64)),
			}
		}
		for _, t := range slices.Sorted(maps.Keys(points)) {
			v, ok := g[t]
			if !ok {
				return &exactDifference{text: fmt.Sprintf("%s has no value at %d, but ought to have %s", key, t, points[t]), at: t}
			}
			if d := v.differ(points[t], tolerance); d != nil {
				d.text = fmt.Sprintf("%s at %d is %s", key, t, d.text)
				d.at = t
				return d
			}
		}
		for _, t := range slices.Sorted(maps.Keys(g)) {
			if _, ok := points[t]; !ok {
				return &exactDifference{text: fmt.Sprintf("%s has the value %s at %d, but ought to have none", key, g[t], t), at: t}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.series)) {
		if _, ok := want.series[key]; !ok {
			return &exactDifference{
				text: "it has a series " + key,
				at:   slices.Min(append(slices.Collect(maps.Keys(a.series[key])), math.MaxInt64)),
			}
		}
	}
	if a.kind == "matrix" && !slices.Equal(a.order, want.order) {
		return &exactDifference{text: fmt.Sprintf("the series come in the order %v, not %v", a.order, want.order)}
	}
	return nil
}

// differInOrder compares the values of two instant vectors in the order in which they came: that of
// a sort, to which zeros of both signs are equal.
func (a *exactAnswer) differInOrder(want *exactAnswer, tolerance float64) *exactDifference {
	zero := func(v exactValue) bool { return v.h == nil && (v.text == "0" || v.text == "-0") }
	for i, key := range a.order {
		for t, v := range a.series[key] {
			w := want.series[want.order[i]][t]
			if zero(v) && zero(w) {
				continue
			}
			if d := v.differ(w, tolerance); d != nil {
				d.text = fmt.Sprintf("the %d. of the sorted values is %s", i+1, d.text)
				return d
			}
		}
	}
	return nil
}

func (v exactValue) String() string {
	if v.h != nil {
		return fmt.Sprintf("a histogram of count %s, sum %s, buckets %v", v.h.Count, v.h.Sum, v.h.Buckets)
	}
	return v.text
}

func (v exactValue) differ(want exactValue, tolerance float64) *exactDifference {
	if (v.h == nil) != (want.h == nil) {
		return &exactDifference{text: fmt.Sprintf("%s, not %s", v, want)}
	}
	if v.h == nil {
		return differNumbers(v.text, want.text, tolerance)
	}
	if d := differCounts(v.h.Count, want.h.Count, tolerance); d != nil {
		d.text = "a histogram whose count is " + d.text
		return d
	}
	if d := differNumbers(v.h.Sum, want.h.Sum, tolerance); d != nil {
		d.text = "a histogram whose sum is " + d.text
		return d
	}
	if len(v.h.Buckets) != len(want.h.Buckets) {
		return &exactDifference{text: fmt.Sprintf("%s, not %s", v, want)}
	}
	for i, b := range v.h.Buckets {
		w := want.h.Buckets[i]
		if b[0] != w[0] || b[1] != w[1] || b[2] != w[2] {
			return &exactDifference{text: fmt.Sprintf("a histogram with the bucket %v, not %v", b, w)}
		}
		got, _ := b[3].(string)
		count, _ := w[3].(string)
		if d := differCounts(got, count, tolerance); d != nil {
			d.text = fmt.Sprintf("a histogram whose bucket %v holds %s", b[:3], d.text)
			return d
		}
	}
	return nil
}

// differCounts compares what histograms count. Whole numbers below 2^53 add up exactly in any
// order: no tolerance is for them.
func differCounts(got, want string, tolerance float64) *exactDifference {
	whole := func(s string) bool {
		f, err := strconv.ParseFloat(s, 64)
		return err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	if whole(got) && whole(want) {
		tolerance = 0
	}
	return differNumbers(got, want, tolerance)
}

// differNumbers compares numbers as they were written: the shortest text that reads back as the
// same bits, so equal texts are equal bits.
func differNumbers(got, want string, tolerance float64) *exactDifference {
	if got == want {
		return nil
	}
	a, err1 := strconv.ParseFloat(got, 64)
	b, err2 := strconv.ParseFloat(want, 64)
	d := &exactDifference{text: fmt.Sprintf("%s, not %s", got, want), got: a, want: b, numbers: true}
	switch {
	case err1 != nil || err2 != nil:
		d.numbers = false
		return d
	case tolerance > 0 && math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b)):
		return nil
	}
	return d
}

// amid tells whether the answer is within what the others, answers of one engine to one question,
// leave open among themselves: every value within four times their spread there, and a series or
// value missing only where one of them misses it too.
func (a *exactAnswer) amid(others []*exactAnswer) bool {
	keys := map[string]map[int64]bool{}
	for _, o := range append(others, a) {
		for key, points := range o.series {
			if keys[key] == nil {
				keys[key] = map[int64]bool{}
			}
			for t := range points {
				keys[key][t] = true
			}
		}
	}
	for key, times := range keys {
		for t := range times {
			got, has := a.series[key][t]
			lo, hi, missing, seen := math.Inf(1), math.Inf(-1), false, false
			same := false
			for _, o := range others {
				v, ok := o.series[key][t]
				switch {
				case !ok:
					missing = true
				case has && v.differ(got, 1e-12) == nil:
					same = true
				case v.h == nil && has && got.h == nil:
					f, _ := strconv.ParseFloat(v.text, 64)
					lo, hi, seen = min(lo, f), max(hi, f), true
				}
			}
			if same || !has && missing {
				continue
			}
			if !has || !seen {
				return false
			}
			f, _ := strconv.ParseFloat(got.text, 64)
			if spread := hi - lo; !(f >= lo-4*spread && f <= hi+4*spread) || spread == 0 {
				return false
			}
		}
	}
	return true
}

// largest is the largest finite magnitude among the numbers of an answer, histograms' sums
// included.
func (a *exactAnswer) largest() float64 {
	out := 0.0
	for _, points := range a.series {
		for _, v := range points {
			text := v.text
			if v.h != nil {
				text = v.h.Sum
			}
			if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
				out = max(out, math.Abs(f))
			}
		}
	}
	return out
}

// near tells whether two answers have the same series and times, and numbers no farther apart than
// distance.
func (a *exactAnswer) near(want *exactAnswer, distance float64) bool {
	if len(a.series) != len(want.series) {
		return false
	}
	for key, points := range want.series {
		if len(a.series[key]) != len(points) {
			return false
		}
		for t, w := range points {
			g, ok := a.series[key][t]
			if !ok {
				return false
			}
			d := g.differ(w, 1e-12)
			if d != nil && (!d.numbers || !(math.Abs(d.got-d.want) <= distance)) {
				return false
			}
		}
	}
	return true
}
