package localprom

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// Sample is one sample of a series as load text describes it; H is set for native histograms, F
// otherwise.
type Sample struct {
	Labels labels.Labels
	T      int64 // milliseconds
	F      float64
	H      *histogram.FloatHistogram
}

// Load appends the series of text, written as in Prometheus' own PromQL tests, from time 0 on:
//
//	load 15s
//	  http_requests_total{job="api"} 0+10x40
//	  up 1 1 _ stale 0
//
// Several load commands may follow each other; `eval`, `clear`, `load_with_nhcb` and `@st` lines
// are refused. Samples older than an hour before the head's newest are refused by the TSDB.
func (s *Shard) Load(text string) error { return s.LoadAt(text, time.UnixMilli(0)) }

// LoadAt is Load with the first sample at start.
func (s *Shard) LoadAt(text string, start time.Time) error {
	samples, err := ParseLoad(text, start)
	if err != nil {
		return err
	}
	return s.Append(func(app storage.Appender) error {
		refs := map[string]storage.SeriesRef{} // by all label bytes: the head believes a reference and does not compare labels
		var buf []byte
		for _, x := range samples {
			buf = x.Labels.Bytes(buf)
			var (
				ref = refs[string(buf)]
				err error
			)
			if x.H != nil {
				ref, err = app.AppendHistogram(ref, x.Labels, x.T, nil, x.H)
			} else {
				ref, err = app.Append(ref, x.Labels, x.T, x.F)
			}
			if err != nil {
				return fmt.Errorf("load %s at %s: %w", x.Labels, time.UnixMilli(x.T).UTC().Format(time.RFC3339), err)
			}
			refs[string(buf)] = ref
		}
		return nil
	})
}

// ParseLoad returns the samples of a load text (see Load) in the order of their times, then of
// their labels. An error names the line. Memory is that of the samples: `1x1000000` is a million of
// them, so the text must be trusted.
func ParseLoad(text string, start time.Time) ([]Sample, error) {
	var (
		samples []Sample
		step    time.Duration
		p       = parser.NewParser(parser.Options{})
	)
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		switch command, arg, _ := strings.Cut(line, " "); {
		case command == "load":
			d, err := model.ParseDuration(strings.TrimSpace(arg))
			if err != nil {
				return nil, fmt.Errorf("line %d: load needs a step such as 15s: %w", i+1, err)
			}
			if d <= 0 {
				return nil, fmt.Errorf("line %d: load needs a step greater than 0", i+1)
			}
			step = time.Duration(d)
			continue
		case command == "eval", command == "clear", command == "load_with_nhcb":
			return nil, fmt.Errorf("line %d: %s is not understood here: only load and series are", i+1, command)
		}
		if step == 0 {
			return nil, fmt.Errorf("line %d: a series stands before the first load: begin with a line such as `load 15s`", i+1)
		}
		ls, values, err := p.ParseSeriesDesc(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		for n, v := range values {
			if v.Omitted {
				continue
			}
			samples = append(samples, Sample{Labels: ls, T: start.Add(time.Duration(n) * step).UnixMilli(), F: v.Value, H: v.Histogram})
		}
	}
	// The head takes samples in the order of time; the order of labels makes equal texts give equal
	// heads.
	slices.SortStableFunc(samples, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.T, b.T), labels.Compare(a.Labels, b.Labels))
	})
	return samples, nil
}
