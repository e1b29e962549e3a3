package mix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// answer is a Prometheus answer of a query or a range query.
type answer struct {
	Status, Error string
	Warnings      []string
	Data          struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  *point
			Values []point
		}
	}
}

// point is [seconds, "value"].
type point struct{ t, v float64 }

// UnmarshalJSON implements json.Unmarshaler.
func (p *point) UnmarshalJSON(b []byte) error {
	t, v, ok := bytes.Cut(bytes.Trim(b, "[] \n"), []byte(","))
	v = bytes.Trim(v, "\" \n")
	var err1, err2 error
	p.t, err1 = strconv.ParseFloat(string(bytes.TrimSpace(t)), 64)
	p.v, err2 = strconv.ParseFloat(string(v), 64)
	if !ok || err1 != nil || err2 != nil {
		return fmt.Errorf("%.80q is no point of the form [seconds, \"value\"]", b)
	}
	return nil
}

// result is an answer as a set: the points of each series, by its labels.
type result struct {
	kind     string
	warnings []string
	series   map[string][]point
	points   int
}

// parseResult reads an answer. A group's label, where there is one, is taken off every series:
// either all have it, with the right value, or none, since an aggregate took it off before.
func parseResult(body []byte, labeled bool) (*result, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("not a Prometheus answer: %w", err)
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("status %q: %s", a.Status, a.Error)
	}
	r := &result{kind: a.Data.ResultType, warnings: a.Warnings, series: make(map[string][]point, len(a.Data.Result))}
	group := ""
	for i, s := range a.Data.Result {
		if labeled {
			v := s.Metric[groupLabel]
			if i == 0 {
				group = v
			}
			if v != group || v != "" && v != groupValue {
				return nil, fmt.Errorf("series %v has %s=%q, which is not the group's label, or others have another", s.Metric, groupLabel, v)
			}
			delete(s.Metric, groupLabel)
		}
		key, err := json.Marshal(s.Metric) // sorts
		if err != nil {
			return nil, err
		}
		if _, ok := r.series[string(key)]; ok {
			return nil, fmt.Errorf("series %s is there twice", key)
		}
		if s.Value != nil {
			s.Values = append(s.Values, *s.Value)
		}
		r.series[string(key)] = s.Values
		r.points += len(s.Values)
	}
	return r, nil
}

// tolerance is how far two values may be apart, relative to the larger: sums over shards are added
// up in another order.
const tolerance = 1e-12

// differs says what is wrong with got, want being right; nil if they are equal.
func differs(want, got *result) error {
	if want.kind != got.kind {
		return fmt.Errorf("a %s instead of a %s", got.kind, want.kind)
	}
	if len(got.warnings) > len(want.warnings) {
		return fmt.Errorf("warnings that the server does not give: %q", got.warnings)
	}
	for key, points := range want.series {
		other, ok := got.series[key]
		if !ok {
			return fmt.Errorf("series %s is missing (%d series instead of %d)", key, len(got.series), len(want.series))
		}
		if len(points) != len(other) {
			return fmt.Errorf("series %s has %d points instead of %d", key, len(other), len(points))
		}
		for i, p := range points {
			if o := other[i]; o.t != p.t || !equal(o.v, p.v) {
				return fmt.Errorf("series %s: %v at %v instead of %v at %v", key, o.v, o.t, p.v, p.t)
			}
		}
	}
	if len(got.series) != len(want.series) {
		return fmt.Errorf("%d series instead of %d", len(got.series), len(want.series))
	}
	return nil
}

func equal(a, b float64) bool {
	if a == b || math.IsNaN(a) && math.IsNaN(b) {
		return true
	}
	return math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))
}
