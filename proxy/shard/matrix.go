package shard

import (
	"bytes"
	"cmp"
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
	// beatUnit carries the number of series in the same number as their sum: n*2^30 + sum is exact
	// in a float64 up to eight million series, and one evaluation on the server gives both.
	beatUnit = 1 << 30
)

// beat is what one replica holds of one job in one bucket.
type beat struct {
	series  int64   // with a heartbeat
	samples float64 // of all of them
}

// beats are the beats of one replica in one stretch of time.
type beats struct {
	jobs map[string]beat
	// last is how many targets of each job have a sample within the last minute, and of how many
	// the newest is a scrape that succeeded; of the last minute of a heartbeat that is up.
	last map[string]beat
	// slices are minutes, of all jobs together, 0 the newest: what two replicas miss at different
	// times within five minutes must not hide each other.
	slices [maxSlices]beat
}

const (
	// maxSlices is how many minutes are looked at: five of a bucket, and those since the newest
	// closed one.
	maxSlices = 6
	// minuteMs is the length of a slice.
	minuteMs = 60_000
	// minSlice is how many targets a server must have for its minutes to be looked at: of few,
	// chance is too large a part.
	minSlice = 16
	// lastLabel tells the part of the question for the last minute that is about what is so now.
	lastLabel = "last"
)

// tailQuery asks for the last minute by job, and for what is so now.
func (g *Group) tailQuery() string {
	q := g.beatQuery("1m")
	if config.IsUp(g.Heartbeat) {
		q += fmt.Sprintf(` or label_replace(sum by (job) (last_over_time(%s[1m]) + %d), %q, "1", "", "")`, g.Heartbeat, beatUnit, lastLabel)
	}
	return q
}

// minuteQuery asks for one minute of all jobs together.
func (g *Group) minuteQuery() string {
	return fmt.Sprintf("sum(%s(%s[1m]) + %d)", g.countOverTime(), g.Heartbeat, beatUnit)
}

// countOverTime is what counts the samples of the heartbeat: of up the successful ones.
func (g *Group) countOverTime() string {
	if config.IsUp(g.Heartbeat) {
		return "sum_over_time"
	}
	return "count_over_time"
}

// beatQuery asks for the number of series and of samples of the heartbeat in the window, by job. A
// sample of up is written for a scrape that failed as well, so of up only the successful ones
// count, which are 1: a replica that cannot reach its targets is not whole, however well it runs.
// (A series that is scraped ends when a scrape fails.)
func (g *Group) beatQuery(window string) string {
	return fmt.Sprintf("sum by (job) (%s(%s[%s]) + %d)", g.countOverTime(), g.Heartbeat, window, beatUnit)
}

// shortfall is what one replica lacks of others in some stretch of time.
type shortfall struct {
	more    uint64 // bit i: replica i has more
	job     string // of which it lacks most
	targets int64  // how many series fewer it has than the one that has most more
	scrapes int64  // how many samples fewer
	// ended is the number of the newest minute that shows it, 1 the last one; 0 where it is not
	// known to lie in some minutes only.
	ended int
}

// judge says who lacks what another has. It takes the beats of one bucket, one entry for each
// replica, and who of them was asked. Where everybody lacks something, single scrapes of small jobs
// are no matter: who lacks nothing else is as whole as anybody.
func judge(at []beats, asked uint64) finding {
	f := judgeBy(at, asked, 0)
	if f.whole(asked) == 0 {
		if mild := judgeBy(at, asked, single); mild.whole(asked) != 0 {
			return mild
		}
	}
	return f
}

// single is how many scrapes fewer a replica may have of any job where everybody lacks something:
// one, which a job of one or two targets has by where its scrapes fall, by a pod that moves, or by
// a time-out that only one of them met.
const single = 1

// judgeBy judges with so many scrapes of each job allowed.
func judgeBy(at []beats, asked uint64, allowed float64) finding {
	f := finding{asked: asked}
	for i, mine := range at {
		if asked&(1<<i) == 0 {
			continue
		}
		f.data = f.data || len(mine.jobs) > 0
		for j, theirs := range at {
			if i == j || asked&(1<<j) == 0 {
				continue
			}
			s, is := lacks(mine, theirs, allowed)
			if !is {
				continue
			}
			if f.less == nil {
				f.less = make([]shortfall, len(at))
			}
			was := f.less[i]
			s.more = was.more | 1<<j
			ended := s.ended
			if was.more != 0 {
				ended = min(ended, was.ended)
			}
			if was.scrapes > s.scrapes || was.scrapes == s.scrapes && was.targets > s.targets {
				was.more = s.more
				s = was
			}
			s.ended = ended
			f.less[i] = s
		}
	}
	return f
}

// lacks tells whether another replica has more series of some job, or more samples, than chance
// explains, and what that comes to. So many samples of a job are allowed beside, of a server with
// enough targets that one scrape of one of them is not a scrape of the server.
func lacks(mine, theirs beats, allowed float64) (s shortfall, is bool) {
	if theirs.all().series < minSlice {
		allowed = 0
	}
	most := shortfall{targets: -1} // of one job
	for job, t := range theirs.jobs {
		m := mine.jobs[job]
		chance := byChance(t.series)
		of := shortfall{job: job, targets: max(t.series-m.series, 0), scrapes: max(int64(t.samples-m.samples), 0)}
		if float64(of.targets) < chance && (float64(of.scrapes) <= allowed || float64(of.scrapes) < chance) {
			continue
		}
		is = true
		s.targets, s.scrapes = s.targets+of.targets, s.scrapes+of.scrapes
		if c := cmp.Or(cmp.Compare(of.scrapes, most.scrapes), cmp.Compare(of.targets, most.targets), cmp.Compare(most.job, of.job)); c > 0 {
			most = of
		}
	}
	s.job = most.job
	if now := lost(mine.last, theirs.last); now > 0 {
		is, s.scrapes = true, max(s.scrapes, now)
	}
	missed, newest := int64(0), 0
	for k, t := range theirs.slices {
		if less := t.samples - mine.slices[k].samples; missesMinute(mine.slices[k], t) {
			if missed == 0 {
				newest = k + 1
			}
			missed += int64(less)
		}
	}
	if missed > 0 {
		is, s.scrapes = true, max(s.scrapes, missed)
		if inMinutes(mine, theirs) {
			s.ended = newest
		}
	}
	return s, is
}

// missesMinute tells whether mine has fewer scrapes of a minute than theirs, beyond chance.
func missesMinute(mine, theirs beat) bool {
	return theirs.series >= minSlice && theirs.samples-mine.samples >= byChance(theirs.series)
}

// inMinutes tells whether what mine lacks of a bucket lies in the minutes in which it misses
// scrapes, and next to them: whether of no job it lacks more than the same share, beyond chance,
// which is two scrapes of each target here: a gap begins and ends between two scrapes. So what
// somebody missed who was away is told from what somebody does not reach who was away too.
func inMinutes(mine, theirs beats) bool {
	var all, missed float64
	for k, t := range theirs.slices {
		all += t.samples
		if missesMinute(mine.slices[k], t) ||
			k > 0 && missesMinute(mine.slices[k-1], theirs.slices[k-1]) ||
			k+1 < maxSlices && missesMinute(mine.slices[k+1], theirs.slices[k+1]) {
			missed += max(t.samples-mine.slices[k].samples, 0)
		}
	}
	for job, t := range theirs.jobs {
		m, n := mine.jobs[job], float64(t.series)
		if float64(t.series-m.series) >= byChance(t.series) || t.samples-m.samples-t.samples*missed/all >= min(2*n, 4*math.Sqrt(n)) {
			return false
		}
	}
	return true
}

// lost is how many more targets another replica has reached, of jobs in which it is more than
// chance explains.
func lost(mine, theirs map[string]beat) (n int64) {
	for job, t := range theirs {
		if less := t.samples - mine[job].samples; less > 0 && less >= byChance(t.series) {
			n += int64(less)
		}
	}
	return n
}

// byChance is how many series or samples of so many targets two sound replicas do not differ by:
// targets that come and go do so at the bucket's edge for one of them and not for the other. A
// scrape that a whole server missed is one sample for each target, so half their number is too
// much. Of many targets that would hide a hundred that one replica did not scrape at all; where
// their scrapes fall at the edge of the window is each target's own chance, one sample more or
// less, and the sum of these has a standard deviation of at most the square root of their number.
func byChance(targets int64) float64 {
	return min(float64(targets)/2, 4*math.Sqrt(float64(targets)))
}

// decodeBeats reads the answer to beatQuery, a matrix or a vector, by bucket end. r is bounded by
// maxBeatBytes.
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
	jobs := 0
	for _, s := range answer.Data.Result {
		if s.Metric[lastLabel] == "" {
			jobs++
		}
	}
	if jobs > maxJobs {
		return nil, fmt.Errorf("the heartbeat covers %d jobs, more than %d; choose a narrower selector", jobs, maxJobs)
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
			at.add(s.Metric["job"], s.Metric[lastLabel] != "", b)
			out[end] = at
		}
	}
	return out, nil
}

// add takes in one number. A server that did not aggregate gives several of a job.
func (b *beats) add(job string, last bool, n beat) {
	m := &b.jobs
	if last {
		m = &b.last
	}
	if *m == nil {
		*m = map[string]beat{}
	}
	(*m)[job] = beat{(*m)[job].series + n.series, (*m)[job].samples + n.samples}
}

// all is the sum over the jobs.
func (b *beats) all() (sum beat) {
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
