package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Report is what one load test has found.
type Report struct {
	// Title is one line; Lead is the paragraph under it: what was done, in a sentence or two.
	Title, Lead string
	// Runs are drawn side by side, in this order, on the same scales.
	Runs []Run
	// Limit is the memory that each server may use, in bytes: the line that no curve should reach.
	// Zero: no line.
	Limit int64
	// LimitName says what the limit is ("the server's memory limit"). Empty: "memory limit".
	LimitName string
	// LatencyName says whose latency the runs have ("answers to on-call people"). Empty: "latency".
	LatencyName string
	// Tables are further ones, after those of memory and requests.
	Tables []Table
	// Notes are paragraphs at the end: versions, sizes, how to repeat it.
	Notes []string
}

// A Table has a row of cells for each line, as many as Head.
type Table struct {
	Name string
	Head []string
	// Right are the columns that hold numbers; as many as Head.
	Right []bool
	Rows  [][]string
}

// A Run is one way of asking.
type Run struct {
	// Name is the heading: "asked directly", "through Spillway".
	Name string
	// Processes are those whose memory was watched.
	Processes []Process
	// Storm is the stretch of time in which the callers asked. Before it everything was idle. A
	// zero End: no stretch is drawn.
	Storm Span
	// Requests are what the callers asked, in any order.
	Requests []Request
	// Latency is of requests beside the storm, in order of time. Where a run has any, each has a
	// second panel, with the highest of each second.
	Latency []Point
}

// A Point is how long one request beside the storm took.
type Point struct {
	At   time.Duration // when it was due, since the run began
	Took time.Duration // until its answer was read whole, or it failed
	OK   bool          // whether there was an answer
}

// A Span is a stretch of a run's time.
type Span struct{ Begin, End time.Duration }

// A Role tells the curves of the bystanders from that of the one under test.
type Role int

const (
	// Server is a Prometheus server.
	Server Role = iota
	// Proxy is Spillway itself, or a peer of it.
	Proxy
)

// A Process is one process of a run.
type Process struct {
	Name string
	Role Role
	// RSS are its samples, in order of time.
	RSS []Sample
	// Died is when it was found dead, at or after its last sample; zero if it lived. Death says of
	// what ("out of memory").
	Died  time.Duration
	Death string
}

// A Sample is the resident memory of a process at one moment.
type Sample struct {
	At    time.Duration // since the run began
	Bytes int64
}

// A Request is one request of a caller.
type Request struct {
	Began time.Duration // since the run began
	Took  time.Duration // until its answer was read whole, or it failed
	// Outcome is a short word or status for the table: "200", "429", "connection refused".
	Outcome string
	// OK says whether the caller has a useful answer.
	OK    bool
	Bytes int64 // of the answer's body
}

// Validate reports everything that is wrong with the report, each with its path.
func (r *Report) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Title == "" {
		bad("title: must not be empty")
	}
	if len(r.Runs) == 0 {
		bad("runs: there must be one at least")
	}
	if r.Limit < 0 {
		bad("limit: %d bytes is no limit", r.Limit)
	}
	for i, t := range r.Tables {
		if t.Name == "" || len(t.Head) == 0 || len(t.Right) != len(t.Head) ||
			slices.ContainsFunc(t.Rows, func(row []string) bool { return len(row) != len(t.Head) }) {
			bad("tables[%d]: there must be a name, and as many cells in each row as in the head", i)
		}
	}
	for i, run := range r.Runs {
		if run.Name == "" {
			bad("runs[%d].name: must not be empty", i)
		}
		if run.Storm.End < run.Storm.Begin || run.Storm.Begin < 0 {
			bad("runs[%d].storm: from %s to %s is no stretch of time", i, run.Storm.Begin, run.Storm.End)
		}
		if len(run.Processes) == 0 {
			bad("runs[%d].processes: there must be one at least", i)
		}
		for j, p := range run.Processes {
			at := fmt.Sprintf("runs[%d].processes[%d]", i, j)
			if p.Name == "" {
				bad("%s.name: must not be empty", at)
			}
			if len(p.RSS) == 0 {
				bad("%s.rss: there must be one sample at least", at)
				continue
			}
			for k, s := range p.RSS {
				if s.At < 0 || s.Bytes < 0 || k > 0 && s.At < p.RSS[k-1].At {
					bad("%s.rss[%d]: %d bytes at %s: samples must be in order of time, and not negative", at, k, s.Bytes, s.At)
					break
				}
			}
			if last := p.RSS[len(p.RSS)-1].At; p.Died != 0 && p.Died < last {
				bad("%s.died: it died at %s, but has a sample at %s", at, p.Died, last)
			}
		}
		for j, p := range run.Latency {
			if p.At < 0 || p.Took < 0 || j > 0 && p.At < run.Latency[j-1].At {
				bad("runs[%d].latency[%d]: %s at %s: points must be in order of time, and not negative", i, j, p.Took, p.At)
				break
			}
		}
		for j, q := range run.Requests {
			if q.Took < 0 || q.Began < 0 || q.Bytes < 0 || q.Outcome == "" {
				bad("runs[%d].requests[%d]: began, took and bytes must not be negative, and there must be an outcome", i, j)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// Memory is what a table says of a process. All in bytes.
type Memory struct {
	Idle  int64 // the highest before the storm; the first sample if there is none before it
	Peak  int64 // the highest from the storm on
	After int64 // the last
}

// Memory sums a process up.
func (r Run) Memory(p Process) Memory {
	var m Memory
	if len(p.RSS) == 0 {
		return m
	}
	for _, s := range p.RSS {
		if s.At < r.Storm.Begin {
			m.Idle = max(m.Idle, s.Bytes)
		} else {
			m.Peak = max(m.Peak, s.Bytes)
		}
	}
	if m.Idle == 0 {
		m.Idle = p.RSS[0].Bytes
	}
	m.After = p.RSS[len(p.RSS)-1].Bytes
	m.Peak = max(m.Peak, m.After) // a process that ended before the storm has its last sample only
	return m
}

// Answers is what a table says of the requests of a run.
type Answers struct {
	Asked, OK     int
	Outcomes      []Outcome // the most frequent first, equal ones by name
	P50, P99, Max time.Duration
	Bytes         int64 // of the largest body
}

// An Outcome is how many requests ended in one way.
type Outcome struct {
	Name  string
	Count int
}

// Answers sums the requests of a run up. The quantiles are over all of them, failed ones included:
// a caller waits for these too.
func (r Run) Answers() Answers {
	a := Answers{Asked: len(r.Requests)}
	if a.Asked == 0 {
		return a
	}
	count := map[string]int{}
	took := make([]time.Duration, 0, len(r.Requests))
	for _, q := range r.Requests {
		if q.OK {
			a.OK++
		}
		count[q.Outcome]++
		took = append(took, q.Took)
		a.Bytes = max(a.Bytes, q.Bytes)
	}
	for name, n := range count {
		a.Outcomes = append(a.Outcomes, Outcome{name, n})
	}
	slices.SortFunc(a.Outcomes, func(x, y Outcome) int {
		if x.Count != y.Count {
			return y.Count - x.Count
		}
		return strings.Compare(x.Name, y.Name)
	})
	slices.Sort(took)
	// Nearest rank: of n values the one at ceil(q*n), so that p99 of eight is the slowest.
	rank := func(percent int) time.Duration { return took[(percent*len(took)+99)/100-1] }
	a.P50, a.P99, a.Max = rank(50), rank(99), took[len(took)-1]
	return a
}

// worst is the server that tells the run's story: the first that died, else the one that grew the
// most.
func (r Run) worst() (Process, bool) {
	best, found := Process{}, false
	var bestGrowth int64
	for _, p := range r.Processes {
		if p.Role != Server {
			continue
		}
		m := r.Memory(p)
		growth := m.Peak - m.Idle
		switch {
		case !found:
		case (p.Died != 0) != (best.Died != 0):
			if p.Died == 0 {
				continue
			}
		case p.Died != 0 && p.Died >= best.Died, p.Died == 0 && growth <= bestGrowth:
			continue
		}
		best, bestGrowth, found = p, growth, true
	}
	return best, found
}

// Summary is the run in one line: what became of the servers, and of the callers.
func (r Run) Summary() string {
	var parts []string
	if p, ok := r.worst(); ok {
		m := r.Memory(p)
		dead, servers := 0, 0
		for _, q := range r.Processes {
			if q.Role == Server {
				servers++
				if q.Died != 0 {
					dead++
				}
			}
		}
		switch {
		case dead == 0:
			parts = append(parts, "server memory "+growth(m.Peak-m.Idle))
		case servers == 1:
			parts = append(parts, fmt.Sprintf("server dead after %s", seconds(p.Died-r.Storm.Begin)))
		default:
			parts = append(parts, fmt.Sprintf("%d of %d servers dead, the first after %s", dead, servers, seconds(p.Died-r.Storm.Begin)))
		}
	}
	if a := r.Answers(); a.Asked > 0 {
		s := fmt.Sprintf("%d of %d requests answered", a.OK, a.Asked)
		if a.OK > 0 {
			var slowest time.Duration
			for _, q := range r.Requests {
				if q.OK {
					slowest = max(slowest, q.Took)
				}
			}
			s += ", slowest " + seconds(slowest)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// mib writes bytes as MiB with a separator of thousands: "1,445".
func mib(bytes int64) string {
	n := (bytes + 1<<19) >> 20
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// growth writes a difference of bytes: "+1,120 MiB".
func growth(bytes int64) string {
	s := mib(bytes) + " MiB"
	if bytes >= 0 {
		return "+" + s
	}
	return s
}

// seconds writes a duration so that it can be compared at a glance: "0.04 s", "12.3 s".
func seconds(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 100:
		return fmt.Sprintf("%.0f s", s)
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	default:
		return fmt.Sprintf("%.2f s", s)
	}
}
