package trust

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/spillwayproject/spillway/proxy/config"
)

const (
	// MaxAnswer bounds one heartbeat answer, in bytes: 72 buckets of 200 jobs come to half of it.
	MaxAnswer = 1 << 20
	// maxJobs bounds the jobs of a heartbeat.
	maxJobs = 200
	// beatUnit carries the number of series in the same number as their sum: n*2^30 + sum is exact
	// in a float64 up to eight million series, and one evaluation on the server gives both.
	beatUnit = 1 << 30
	// lastLabel tells the parts of the question for the last minute that are not about it alone:
	// lastNow that about what is so now, lastWide that about five minutes.
	lastLabel         = "last"
	lastNow, lastWide = "1", "5m"
)

// beat is what one replica holds of one job in one bucket.
type beat struct {
	series  int64   // with a heartbeat
	samples float64 // of all of them
}

// Beats are what one replica holds of the heartbeat in one stretch of time.
type Beats struct {
	jobs map[string]beat
	// last is how many targets each job has now, and of how many the newest scrape succeeded; of
	// the last minute of a heartbeat that is up.
	last map[string]beat
	// wide are the five minutes up to the end of the last one, by job; only of that.
	wide map[string]beat
	// slices are minutes, of all jobs together, 0 the newest: what two replicas miss at different
	// times within five minutes must not hide each other.
	slices [maxSlices]beat
}

// tailQuery asks for the last minute by job, for what is so now, and, since a job may be scraped
// more rarely than once a minute, for five minutes. What is so now is what a selector finds, in
// which no target is that is gone, whenever it was scraped last.
func (h *Heartbeats) tailQuery() string {
	labelled := func(what, value string) string {
		return fmt.Sprintf(` or label_replace(%s, %q, %q, "", "")`, what, lastLabel, value)
	}
	q := h.beatQuery("1m")
	if config.IsUp(h.selector) {
		q += labelled(fmt.Sprintf("sum by (job) (%s + %d)", h.selector, beatUnit), lastNow)
	}
	return q + labelled(h.beatQuery("5m"), lastWide)
}

// minuteQuery asks for one minute of all jobs together.
func (h *Heartbeats) minuteQuery() string {
	return fmt.Sprintf("sum(%s(%s[1m]) + %d)", h.countOverTime(), h.selector, beatUnit)
}

// countOverTime is what counts the samples of the heartbeat: of up the successful ones.
func (h *Heartbeats) countOverTime() string {
	if config.IsUp(h.selector) {
		return "sum_over_time"
	}
	return "count_over_time"
}

// beatQuery asks for the number of series and of samples of the heartbeat in the window, by job. A
// sample of up is written for a scrape that failed as well, so of up only the successful ones
// count, which are 1: a replica that cannot reach its targets is not whole, however well it runs.
// (A series that is scraped ends when a scrape fails.)
func (h *Heartbeats) beatQuery(window string) string {
	return fmt.Sprintf("sum by (job) (%s(%s[%s]) + %d)", h.countOverTime(), h.selector, window, beatUnit)
}

// Decode reads the answer to a heartbeat question, a matrix or a vector, by the end of its buckets
// or minutes in milliseconds. r is bounded by MaxAnswer. The error is r's, or says what makes no
// sense.
func Decode(r io.Reader) (map[int64]Beats, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	type sample [2]json.RawMessage
	var answer struct {
		Status string `json:"status"`
		Data   struct {
			ResultType string `json:"resultType"`
			Result     []struct {
				Metric map[string]string `json:"metric"`
				Value  *sample           `json:"value"`
				Values []sample          `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" || answer.Data.ResultType != "matrix" && answer.Data.ResultType != "vector" {
		return nil, errors.New("the answer is neither a matrix nor a vector")
	}
	if answer.Data.Result == nil {
		return nil, errors.New("the answer has no result")
	}
	jobs := 0
	for _, s := range answer.Data.Result {
		if s.Metric[lastLabel] == "" {
			jobs++
		}
	}
	if jobs > maxJobs {
		return nil, fmt.Errorf("the heartbeat covers %d jobs, more than %d; choose a narrower selector", jobs, maxJobs)
	}
	out := map[int64]Beats{}
	for _, s := range answer.Data.Result {
		values := s.Values
		if s.Value != nil {
			values = append(values, *s.Value)
		}
		for _, v := range values {
			end, b, err := parseBeat(v[0], v[1])
			if err != nil {
				return nil, err
			}
			at := out[end]
			at.add(s.Metric["job"], s.Metric[lastLabel], b)
			out[end] = at
		}
	}
	return out, nil
}

// add takes in one number, of the part that a label tells. A server that did not aggregate gives
// several of a job.
func (b *Beats) add(job, part string, n beat) {
	m := &b.jobs
	switch part {
	case lastNow:
		m = &b.last
	case lastWide:
		m = &b.wide
	}
	if *m == nil {
		*m = map[string]beat{}
	}
	(*m)[job] = beat{(*m)[job].series + n.series, (*m)[job].samples + n.samples}
}

// all is the sum over the jobs.
func (b *Beats) all() (sum beat) {
	for _, n := range b.jobs {
		sum = beat{sum.series + n.series, sum.samples + n.samples}
	}
	return sum
}

func parseBeat(at, value json.RawMessage) (int64, beat, error) {
	t, err := strconv.ParseFloat(string(at), 64)
	if err != nil || math.IsNaN(t) || math.Abs(t) > math.MaxInt64/1000/2 {
		return 0, beat{}, errors.New("a time is no number")
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return 0, beat{}, errors.New("a value is no string")
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 1<<53 {
		return 0, beat{}, errors.New("a value is no count")
	}
	n := math.Floor(v / beatUnit)
	return int64(math.Round(t * 1000)), beat{series: int64(n), samples: v - n*beatUnit}, nil
}
