package cost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
)

// told is what an answer of status/tsdb has. It is read name by name: of a name its hash is kept
// alone, and of a list that has more than was asked for nothing is read beyond that, so that an
// answer takes no more than 16 bytes for each name that was asked for, and its longest value. The
// names of some metrics of each size, and of jobs, are kept, too.
type told struct {
	limit                  int // of each list
	head                   *headStats
	metrics, pairs, values tally
	named                  []Metric
	kept                   map[size]int // how many of a size are in named
	jobs                   []Metric
}

// job keeps the name of a job, of which there are few.
func (t *told) job(m Metric) {
	if name, ok := strings.CutPrefix(m.Name, "job="); ok && len(t.jobs) < MaxJobs && len(name) <= maxToldName {
		t.jobs = append(t.jobs, Metric{Name: name, Series: m.Series})
	}
}

// size is about how many series a metric has, and whether they are buckets of a histogram.
type size struct {
	log    int
	bucket bool
}

// name keeps a metric's name, unless there are enough of its size.
func (t *told) name(m Metric) {
	s := size{bits.Len64(uint64(m.Series)), strings.HasSuffix(m.Name, "_bucket")}
	if len(t.named) < MaxTold && len(m.Name) <= maxToldName && t.kept[s] < toldOfSize {
		t.kept[s]++
		t.named = append(t.named, m)
	}
}

type headStats struct {
	NumSeries int64 `json:"numSeries"`
	MinTime   int64 `json:"minTime"`
}

// ignored is a value of which nothing is kept.
type ignored struct{}

func (ignored) UnmarshalJSON([]byte) error { return nil }

// read reads the answer.
func (t *told) read(body io.Reader) error {
	dec := json.NewDecoder(body)
	return object(dec, func(key string) error {
		if key != "data" {
			return dec.Decode(&ignored{})
		}
		return object(dec, func(key string) error {
			switch key {
			case "headStats":
				return dec.Decode(&t.head)
			case "seriesCountByMetricName":
				t.named, t.kept = nil, map[size]int{}
				return t.list(dec, &t.metrics, t.name)
			case "seriesCountByLabelValuePair":
				t.jobs = nil
				return t.list(dec, &t.pairs, t.job)
			case "labelValueCountByLabelName":
				return t.list(dec, &t.values, nil)
			}
			return dec.Decode(&ignored{})
		})
	})
}

// list reads one list, and calls each, if it is there, with every name; null is an empty one.
func (t *told) list(dec *json.Decoder, into *tally, each func(Metric)) error {
	switch begin, err := dec.Token(); {
	case err != nil:
		return err
	case begin == nil:
		return nil
	case begin != json.Delim('['):
		return fmt.Errorf("%v, want a list", begin)
	}
	*into = tally{least: maxSeries}
	for dec.More() {
		if len(into.of) == t.limit {
			return fmt.Errorf("a list of more than %d", t.limit)
		}
		var one struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		}
		if err := dec.Decode(&one); err != nil {
			return err
		}
		most := min(max(one.Value, 0), maxSeries)
		if each != nil {
			each(Metric{Name: one.Name, Series: most})
		}
		into.of, into.least = append(into.of, entry{hashOf(one.Name), most}), min(into.least, most)
	}
	into.full = len(into.of) == t.limit
	slices.SortFunc(into.of, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	_, err := dec.Token()
	return err
}

// object reads an object, whose values the function reads.
func object(dec *json.Decoder, value func(key string) error) error {
	begin, err := dec.Token()
	if err == nil && begin != json.Delim('{') {
		err = fmt.Errorf("%v, want an object", begin)
	}
	for err == nil && dec.More() {
		var key json.Token
		if key, err = dec.Token(); err == nil {
			err = value(key.(string)) // the decoder lets nothing else stand there
		}
	}
	if err == nil {
		_, err = dec.Token()
	}
	return err
}
