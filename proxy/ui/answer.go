package ui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
)

// What a drawing shows at most.
const (
	// MaxRows is the number of rows of a table.
	MaxRows = 200
	// MaxLines is the number of lines of a plot.
	MaxLines = 20
	// MaxPoints is the number of points of one line: more than a screen has columns for.
	MaxPoints = 1000
)

// Answer is what query or query_range answered.
type Answer struct {
	// Warnings and Infos are the answer's own.
	Warnings, Infos []string
	value           model.Value
}

// Read reads the body of a successful answer. The error says that it is not one.
func Read(body []byte) (*Answer, error) {
	var raw struct {
		Warnings, Infos []string
		Data            struct {
			ResultType model.ValueType
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	a := &Answer{Warnings: raw.Warnings, Infos: raw.Infos}
	into := func(v model.Value) error {
		a.value = v
		return json.Unmarshal(raw.Data.Result, v)
	}
	var err error
	switch raw.Data.ResultType {
	case model.ValVector:
		err = into(&model.Vector{})
	case model.ValMatrix:
		err = into(&model.Matrix{})
	case model.ValScalar:
		err = into(&model.Scalar{})
	case model.ValString:
		err = into(&model.String{})
	default:
		err = fmt.Errorf("a result of the kind %v", raw.Data.ResultType)
	}
	if err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return a, nil
}

// Row is one row of a table.
type Row struct {
	// Series is the series' name and labels as PromQL writes them; empty for a scalar or a string.
	Series string
	// Value is its value, the last one where it has several.
	Value string
}

// Rows are the first MaxRows of the answer and how many more there are.
func (a *Answer) Rows() (rows []Row, more int) {
	switch v := a.value.(type) {
	case *model.Vector:
		for _, s := range (*v)[:min(len(*v), MaxRows)] {
			r := Row{Series: s.Metric.String(), Value: number(float64(s.Value))}
			if s.Histogram != nil {
				r.Value = histogram(s.Histogram)
			}
			rows = append(rows, r)
		}
		more = len(*v) - len(rows)
	case *model.Matrix:
		for _, s := range (*v)[:min(len(*v), MaxRows)] {
			r := Row{Series: s.Metric.String()}
			if n := len(s.Values); n > 0 {
				r.Value = fmt.Sprintf("%s at %s, the last of %d", number(float64(s.Values[n-1].Value)),
					s.Values[n-1].Timestamp.Time().UTC().Format(time.TimeOnly), n)
			} else if n := len(s.Histograms); n > 0 {
				r.Value = fmt.Sprintf("%s, the last of %d", histogram(s.Histograms[n-1].Histogram), n)
			}
			rows = append(rows, r)
		}
		more = len(*v) - len(rows)
	case *model.Scalar:
		rows = []Row{{Value: number(float64(v.Value))}}
	case *model.String:
		rows = []Row{{Value: v.Value}}
	}
	return rows, more
}

func histogram(h *model.SampleHistogram) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("a histogram of %s observations that add up to %s", number(float64(h.Count)), number(float64(h.Sum)))
}

// number writes a value as Prometheus does.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Line is one line of a plot.
type Line struct {
	// Name is the series as PromQL writes it.
	Name string
	// Points are in the order of time.
	Points []Point
}

// Point is one value.
type Point struct {
	At    time.Time
	Value float64
}

// Lines are all series of a matrix; none of anything else. Histograms have no line.
func (a *Answer) Lines() []Line {
	m, ok := a.value.(*model.Matrix)
	if !ok {
		return nil
	}
	lines := make([]Line, 0, len(*m))
	for _, s := range *m {
		l := Line{Name: s.Metric.String(), Points: make([]Point, 0, len(s.Values))}
		for _, v := range s.Values {
			l.Points = append(l.Points, Point{v.Timestamp.Time(), float64(v.Value)})
		}
		if len(l.Points) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}
