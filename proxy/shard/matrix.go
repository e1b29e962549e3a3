package shard

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
	// maxBeatBytes bounds one heartbeat answer: 72 buckets of 200 jobs come to half of it.
	maxBeatBytes = 1 << 20
	// maxJobs bounds the jobs of a heartbeat.
	maxJobs = 200
	// beatUnit carries the number of series in the same number as their sum: n*2^30 + sum is exact in a float64 up to eight million series, and one
	// evaluation on the server gives both.
	beatUnit = 1 << 30
)

// beat is what one replica holds of one job in one bucket.
type beat struct {
	series  int64   // with a heartbeat
	samples float64 // of all of them
}

// beats are the beats of one replica in one bucket, by job.
type beats map[string]beat

// beatQuery asks for the number of series and of samples of the heartbeat in the window, by job. A sample of up is written for a scrape that failed as well, so of up only the
// successful ones count, which are 1: a replica that cannot reach its targets is not whole, however well it runs. (A series that is scraped ends when a scrape fails.)
func (g *Group) beatQuery(window string) string {
	count := "count_over_time"
	if config.IsUp(g.Heartbeat) {
		count = "sum_over_time"
	}
	return fmt.Sprintf("sum by (job) (%s(%s[%s]) + %d)", count, g.Heartbeat, window, beatUnit)
}

// judge says which replicas agree with the fullest. It takes the beats of one bucket, one entry for each replica.
func judge(at []beats) finding {
	full := beats{} // the most that any replica has, job by job
	for _, b := range at {
		for job, v := range b {
			f := full[job]
			full[job] = beat{max(f.series, v.series), max(f.samples, v.samples)}
		}
	}
	if len(full) == 0 { // nobody was scraped: all agree on nothing
		return finding{mask: 1<<len(at) - 1}
	}
	var mask uint64
	agreeing := 0
	for i, b := range at {
		if agrees(full, b) {
			mask |= 1 << i
			agreeing++
		}
	}
	if agreeing < 2 { // one alone agrees with nobody
		mask = 0
	}
	return finding{mask: mask, data: true}
}

// agrees tells whether a replica has as many series as the fullest in each job, and lacks no more samples than chance explains.
func agrees(full, b beats) bool {
	for job, f := range full {
		v, ok := b[job]
		if !ok || v.series != f.series {
			return false
		}
		if lack := f.samples - v.samples; lack != 0 && lack >= byChance(f.series) {
			return false
		}
	}
	return true
}

// byChance is how many samples of so many targets two sound replicas do not differ by. A scrape that a whole server missed is one sample for each target, so half their number is too much.
// Of many targets that would hide a hundred that one replica did not scrape at all; where their scrapes fall at the edge of the window is each target's own chance, one sample more or
// less, and the sum of these has a standard deviation of at most the square root of their number.
func byChance(targets int64) float64 {
	return min(float64(targets)/2, 4*math.Sqrt(float64(targets)))
}

// decodeBeats reads the answer to beatQuery, a matrix or a vector, by bucket end. r is bounded by maxBeatBytes.
func decodeBeats(r io.Reader) (map[int64]beats, error) {
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
	if len(answer.Data.Result) > maxJobs {
		return nil, fmt.Errorf("the heartbeat covers %d jobs, more than %d; choose a narrower selector", len(answer.Data.Result), maxJobs)
	}
	out := map[int64]beats{}
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
			if at == nil {
				at = beats{}
				out[end] = at
			}
			job := s.Metric["job"]
			sum := at[job] // a server that did not aggregate gives several
			at[job] = beat{sum.series + b.series, sum.samples + b.samples}
		}
	}
	return out, nil
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
