package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Servers are real Prometheus servers that share the series of a simulated cluster by the hash of
// the node, and the proxy in front of them.
type Servers struct {
	// Spillway is the spillway binary, which is run as the proxy.
	Spillway string
	// Nodes is the number of nodes, of 8 GPUs each, 8 to 100,000; 7,500. Shards is how many servers
	// share their series, 1 to 64; 4.
	Nodes, Shards int
	// Interval is that of scrapes, from 1 s up; 1 minute.
	Interval time.Duration
	// Seed chooses the simulated cluster.
	Seed uint64
	// Dir is where data is made, in a folder of its own that is removed; the temporary folder.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// WithDefaults fills in what is left out.
func (s Servers) WithDefaults() Servers {
	s.Nodes, s.Shards, s.Interval = cmp.Or(s.Nodes, 7500), cmp.Or(s.Shards, 4), cmp.Or(s.Interval, time.Minute)
	if s.Say == nil {
		s.Say = func(string, ...any) {}
	}
	return s
}

// Check adds what is wrong with s, once defaults are filled in, to p. rarest is the longest
// interval of scrapes with which the benchmark can do anything.
func (s Servers) Check(p *Problems, rarest time.Duration) {
	s = s.WithDefaults()
	p.Check(s.Spillway != "", "the path of the spillway binary is missing")
	p.Check(s.Nodes >= 8 && s.Nodes <= 100_000, "nodes: %d is outside 8 to 100,000", s.Nodes)
	p.Check(s.Shards >= 1 && s.Shards <= 64, "shards: %d is outside 1 to 64", s.Shards)
	p.Check(s.Interval >= time.Second && s.Interval <= rarest, "interval: %s is outside 1s to %s", s.Interval, short(rarest))
}

// Asking says how things are asked.
type Asking struct {
	// Window is the time range, up to 24 hours; 1 hour.
	Window time.Duration
	// Times is how often each thing is asked, 1 to 100; 3.
	Times int
	// Bound is what it may take; 2 s.
	Bound time.Duration
}

// WithDefaults fills in what is left out.
func (a Asking) WithDefaults() Asking {
	return Asking{Window: cmp.Or(a.Window, time.Hour), Times: cmp.Or(a.Times, 3), Bound: cmp.Or(a.Bound, 2*time.Second)}
}

// Check adds what is wrong with a, once defaults are filled in, to p. shortest is the shortest time
// range about which the benchmark can ask.
func (a Asking) Check(p *Problems, shortest time.Duration) {
	a = a.WithDefaults()
	p.Check(a.Window >= shortest && a.Window <= 24*time.Hour, "window: %s is outside %s to 24h", a.Window, short(shortest))
	p.Check(a.Times >= 1 && a.Times <= 100, "times: %d is outside 1 to 100", a.Times)
	p.Check(a.Bound > 0, "bound: %s is not above 0", a.Bound)
}

// short writes whole minutes without seconds.
func short(d time.Duration) string {
	if d >= time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// Problems are what is wrong with options, each a line that names its field and its bounds.
type Problems []error

// Check adds a problem where ok is false.
func (p *Problems) Check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Err is all of them, nil where there is none.
func (p Problems) Err() error { return errors.Join(p...) }

// Took is what it took to ask one thing several times.
type Took struct {
	// Median and Max are over all times that it was asked.
	Median, Max time.Duration
	// Err is why it was not answered; nil if it was each time.
	Err error
}

// Summary is Took of times in any order, of which there must be one; err is why one of them had no
// answer.
func Summary(times []time.Duration, err error) Took {
	t := slices.Sorted(slices.Values(times))
	return Took{Median: t[len(t)/2], Max: t[len(t)-1], Err: err}
}

// Text is the median as a table has it.
func (t Took) Text() string {
	if t.Err != nil {
		return "not answered"
	}
	return fmt.Sprintf("%.2f s", t.Median.Seconds())
}

// Compare puts the worst first: what was not answered, then what took longest.
func (t Took) Compare(u Took) int {
	if (t.Err != nil) != (u.Err != nil) {
		if t.Err != nil {
			return -1
		}
		return 1
	}
	return cmp.Compare(u.Median, t.Median)
}
