package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds one answer's bytes: panels are not allowed more than 200 series.
const maxAnswer = 64 << 20

// Source is a server that is asked as Grafana asks it.
type Source struct {
	name, url string
	client    *http.Client
}

// patience bounds one question, beside its context: a proxy whose shards hang answers sooner.
const patience = 5 * time.Minute

// NewSource is the server at url, without a slash at its end. name is what errors call it.
func NewSource(name, url string) Source { return Source{name, url, &http.Client{Timeout: patience}} }

// Question is one query with its times. A Step makes it a range query; Label asks for the values of
// a label of the series that Expr selects.
type Question struct {
	Expr     string
	From, To time.Time
	Step     time.Duration
	Label    string
}

// Series is one series of an answer.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point is one value; NaN where the answer has it.
type Point struct {
	T int64 // ms
	V float64
}

// Answer is what came back.
type Answer struct {
	Series []Series
	// Values are those of a label.
	Values []string
	// Notes are warnings and infos.
	Notes []string
}

// Empty says that nothing came back.
func (a *Answer) Empty() bool { return len(a.Series) == 0 && len(a.Values) == 0 }

// OnlyNaN says that there are values and none of them is a number.
func (a *Answer) OnlyNaN() bool {
	if len(a.Series) == 0 {
		return false
	}
	return !slices.ContainsFunc(a.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return !math.IsNaN(p.V) })
	})
}

// Ask asks, and gives what the server says is wrong as an error.
func (s Source) Ask(ctx context.Context, q Question) (_ *Answer, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, asked %s: %w", s.name, q.Expr, err)
		}
	}()
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64) }
	var path string
	v := url.Values{}
	switch {
	case q.Label != "":
		path = "/api/v1/label/" + url.PathEscape(q.Label) + "/values"
		v.Set("match[]", q.Expr)
		v.Set("start", at(q.From))
		v.Set("end", at(q.To))
	case q.Step > 0:
		path = "/api/v1/query_range"
		v.Set("query", q.Expr)
		v.Set("start", at(q.From))
		v.Set("end", at(q.To))
		v.Set("step", strconv.FormatFloat(q.Step.Seconds(), 'f', -1, 64))
	default:
		path = "/api/v1/query"
		v.Set("query", q.Expr)
		v.Set("time", at(q.To))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+v.Encode(), nil)
	if err != nil {
		return nil, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	return readAnswer(body)
}

func readAnswer(body []byte) (*Answer, error) {
	var in struct {
		Status, Error   string
		Warnings, Infos []string
		Data            json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the answer is no JSON: %.200s", body)
	}
	if in.Status != "success" {
		return nil, errors.New(in.Error)
	}
	a := &Answer{Notes: append(in.Warnings, in.Infos...)}
	if len(in.Data) > 0 && in.Data[0] == '[' {
		return a, json.Unmarshal(in.Data, &a.Values)
	}
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := json.Unmarshal(in.Data, &data); err != nil {
		return nil, err
	}
	if data.ResultType == "scalar" {
		var p point
		if err := json.Unmarshal(data.Result, &p); err != nil {
			return nil, err
		}
		a.Series = []Series{{Labels: map[string]string{}, Points: []Point{Point(p)}}}
		return a, nil
	}
	var result []struct {
		Metric map[string]string
		Value  *point
		Values []point
	}
	if err := json.Unmarshal(data.Result, &result); err != nil {
		return nil, err
	}
	for _, r := range result {
		s := Series{Labels: r.Metric}
		for _, p := range r.Values {
			s.Points = append(s.Points, Point(p))
		}
		if r.Value != nil {
			s.Points = append(s.Points, Point(*r.Value))
		}
		a.Series = append(a.Series, s)
	}
	slices.SortFunc(a.Series, func(x, y Series) int { return strings.Compare(name(x.Labels), name(y.Labels)) })
	return a, nil
}

// point is [seconds, "value"].
type point Point

// UnmarshalJSON reads it.
func (p *point) UnmarshalJSON(b []byte) error {
	var pair [2]any
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	t, ok := pair[0].(float64)
	text, ok2 := pair[1].(string)
	if !ok || !ok2 {
		return fmt.Errorf("%s is no sample", b)
	}
	v, err := strconv.ParseFloat(text, 64)
	p.T, p.V = int64(math.Round(t*1000)), v
	return err
}

// name is a series' labels in one way of writing.
func name(ls map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(ls)) {
		fmt.Fprintf(&b, "%s=%q,", k, ls[k])
	}
	return b.String()
}

// Differs says where b is not a, "" where they are equal: the same series with the same moments,
// and values that are apart by at most tolerance of the larger one.
func (a *Answer) Differs(b *Answer, tolerance float64) string {
	if !slices.Equal(a.Values, b.Values) {
		return fmt.Sprintf("values %.300q, and %.300q", a.Values, b.Values)
	}
	of := func(x *Answer) map[string][]Point {
		m := map[string][]Point{}
		for _, s := range x.Series {
			m[name(s.Labels)] = s.Points
		}
		return m
	}
	mine, theirs := of(a), of(b)
	for _, k := range slices.Sorted(maps.Keys(mine)) {
		if _, ok := theirs[k]; !ok {
			return fmt.Sprintf("{%s} is missing", k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(theirs)) {
		p, ok := mine[k]
		if !ok {
			return fmt.Sprintf("{%s} is too much", k)
		}
		q := theirs[k]
		if len(p) != len(q) {
			return fmt.Sprintf("{%s} has %d points, and %d", k, len(p), len(q))
		}
		for i := range p {
			if p[i].T != q[i].T || !near(p[i].V, q[i].V, tolerance) {
				return fmt.Sprintf("{%s} at %s is %v, and %v at %s", k, time.UnixMilli(p[i].T).UTC().Format(time.TimeOnly), p[i].V, q[i].V,
					time.UnixMilli(q[i].T).UTC().Format(time.TimeOnly))
			}
		}
	}
	return ""
}

// outside says which point, or lack of one, is that of none of the others at the same moment, ""
// where there is none.
func (a *Answer) outside(others []*Answer) string {
	type at struct {
		series string
		t      int64
	}
	points := func(x *Answer) map[at]float64 {
		m := map[at]float64{}
		for _, s := range x.Series {
			for _, p := range s.Points {
				m[at{name(s.Labels), p.T}] = p.V
			}
		}
		return m
	}
	mine := points(a)
	moments := maps.Clone(mine)
	var theirs []map[at]float64
	for _, other := range others {
		theirs = append(theirs, points(other))
		maps.Copy(moments, theirs[len(theirs)-1])
	}
	for m := range moments {
		v, ok := mine[m]
		if !slices.ContainsFunc(theirs, func(other map[at]float64) bool {
			w, has := other[m]
			return ok == has && (!ok || near(v, w, 0))
		}) {
			return fmt.Sprintf("{%s} at %s is %v (%t), as in no other", m.series, time.UnixMilli(m.t).UTC().Format(time.TimeOnly), v, ok)
		}
	}
	return ""
}

// last are the values at the last moment, sorted: what topk is about, whichever of two equal series
// it took.
func (a *Answer) last() []float64 {
	var at int64
	for _, s := range a.Series {
		for _, p := range s.Points {
			at = max(at, p.T)
		}
	}
	var out []float64
	for _, s := range a.Series {
		if n := len(s.Points); n > 0 && s.Points[n-1].T == at {
			out = append(out, s.Points[n-1].V)
		}
	}
	slices.Sort(out)
	return out
}

func near(a, b, tolerance float64) bool {
	if a == b || math.IsNaN(a) && math.IsNaN(b) {
		return true
	}
	return math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))
}
