package mix

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Result is what was measured. Its JSON form is part of what Save writes.
type Result struct {
	Series   int `json:"series"`
	Buckets  int `json:"buckets"`
	Samples  int `json:"samples"`
	Nodes    int `json:"nodes"`
	Shards   int `json:"shards"`
	Rounds   int `json:"rounds"`
	Requests int `json:"requests"`
	// Hints says whether Spillway was told which shard holds what (shard_by and hashmod).
	Hints   bool   `json:"hints"`
	Machine string `json:"machine"`
	beside  []Build
	// Wrong are answers that differ from the single server's.
	Wrong []string `json:"wrong"`
	Loads []Load   `json:"loads"`
	Bulk  *Bulk    `json:"bulk"`
	Goals []Goal   `json:"goals"`
}

// Load is the figures at one concurrency.
type Load struct {
	Concurrency int    `json:"concurrency"`
	Paths       []Path `json:"paths"`
}

// Path is the figures of one path at one concurrency. Ratios are to the direct path in the same
// round, the median of the rounds; times are over all rounds.
type Path struct {
	Name string `json:"name"`
	// Requests were asked, Failed of them in vain; Error is the first reason.
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	Error    string `json:"error,omitempty"`
	// P50 and P99 are in milliseconds. P50Ratio is that of the medians over all requests, OneRatio
	// and AllRatio over those that one shard can answer and those that need all; GeoMean is the
	// geometric mean of the queries' own ratios.
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	P50Ratio  float64 `json:"p50_ratio"`
	OneRatio  float64 `json:"p50_ratio_for_one_shard"`
	AllRatio  float64 `json:"p50_ratio_for_all_shards"`
	GeoMean   float64 `json:"geo_mean_ratio"`
	PerSecond float64 `json:"requests_per_second"`
	// CPU times are in seconds per 1,000 requests: of the proxy, of the servers behind it, and of
	// the proxy divided by that of ReverseProxy in the same round.
	ProxyCPU   float64 `json:"proxy_cpu_s_per_1000"`
	ServersCPU float64 `json:"servers_cpu_s_per_1000"`
	ReverseCPU float64 `json:"proxy_cpu_to_reverse_proxy"`
	// PeakMiB is the highest resident memory of the proxy; of the server on the direct path.
	PeakMiB float64      `json:"peak_rss_mib"`
	Queries []QueryTimes `json:"queries"`
}

// QueryTimes is one query on one path.
type QueryTimes struct {
	Name   string  `json:"name"`
	Shards string  `json:"shards"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Ratio  float64 `json:"ratio"`
}

// Bulk is the one query that returns a great many series. Times are medians, in seconds.
type Bulk struct {
	Query  string `json:"query"`
	Series int    `json:"series"`
	Points int    `json:"points"`
	Bytes  int    `json:"bytes"`
	// SlowestAlone is the time of the slowest shard where each is asked by itself, SlowestAtOnce
	// where all are asked at the same time.
	SlowestAlone  float64    `json:"slowest_shard_alone_s"`
	SlowestAtOnce float64    `json:"slowest_shard_at_once_s"`
	Paths         []BulkPath `json:"paths"`
	Failed        []string   `json:"failed,omitempty"`
}

// BulkPath is one path's part in it.
type BulkPath struct {
	Name        string  `json:"name"`
	Seconds     float64 `json:"s"`
	ProxyCPU    float64 `json:"proxy_cpu_s"`
	IdleMiB     float64 `json:"idle_rss_mib"`
	OverIdleMiB float64 `json:"peak_over_idle_mib"`
}

// Goal is one thing to be reached.
type Goal struct {
	Name    string  `json:"name"`
	Figure  float64 `json:"figure"`
	Bound   float64 `json:"bound"`
	Unit    string  `json:"unit"` // "x" is a ratio
	Reached bool    `json:"reached"`
	// Why says more: what Go's ReverseProxy comes to, which query is the worst.
	Why string `json:"why,omitempty"`
}

func (w *World) newResult() *Result {
	return &Result{
		Series: w.Data.Series, Buckets: w.Data.Buckets, Samples: w.Data.Samples, Nodes: w.Data.Nodes, Shards: len(w.parts),
		Rounds: w.o.Rounds, Requests: w.o.Requests,
		Hints: !w.o.NoHints, Machine: machine(), Wrong: []string{}, beside: w.o.Beside,
	}
}

// machine is where it was measured, and how busy that was with other things.
func machine() string {
	s := fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 0 {
			s += ", load average before it " + f[0]
		}
	}
	return s
}

// sum sums up what one path did.
func (w *World) sum(p *path, all []*turn) Path {
	out := Path{Name: p.name}
	queries := w.o.Mix.Queries
	var everything []time.Duration
	of := make([][]time.Duration, len(queries))
	var ratios, ones, alls, reverse []float64
	perQuery := make([][]float64, len(queries))
	var wall, proxy, servers time.Duration
	for _, t := range all {
		if t.path != p {
			continue
		}
		direct, other := beside(all, t, Direct), beside(all, t, Reverse)
		wall, proxy, servers = wall+t.wall, proxy+t.proxy, servers+t.servers
		out.Requests += len(t.samples)
		for _, s := range t.samples {
			if s.err != nil {
				out.Failed++
				if out.Error == "" {
					out.Error = s.err.Error()
				}
				continue
			}
			everything = append(everything, s.took)
			of[s.query] = append(of[s.query], s.took)
		}
		compare := func(of func(query int) bool) float64 { return ratio(t.median(of), direct.median(of)) }
		ratios = append(ratios, compare(func(int) bool { return true }))
		ones = append(ones, compare(func(q int) bool { return queries[q].Shards == One }))
		alls = append(alls, compare(func(q int) bool { return queries[q].Shards == All }))
		for q := range queries {
			perQuery[q] = append(perQuery[q], compare(func(i int) bool { return i == q }))
		}
		if p.pid > 0 {
			reverse = append(reverse, ratio(t.proxy, other.proxy))
		}
	}
	thousands := float64(out.Requests) / 1000
	out.P50, out.P99, out.P50Ratio = ms(quantile(everything, 50)), ms(quantile(everything, 99)), medianOf(ratios)
	out.OneRatio, out.AllRatio = medianOf(ones), medianOf(alls)
	out.PerSecond = float64(out.Requests) / wall.Seconds()
	out.ProxyCPU, out.ServersCPU, out.ReverseCPU = proxy.Seconds()/thousands, servers.Seconds()/thousands, medianOf(reverse)
	logs := 0.0
	for q, query := range queries {
		t := QueryTimes{
			Name: query.Name, Shards: query.Shards, P50: ms(quantile(of[q], 50)), P99: ms(quantile(of[q], 99)),
			Ratio: medianOf(perQuery[q]),
		}
		out.Queries = append(out.Queries, t)
		logs += math.Log(max(t.Ratio, 1e-9)) // 0 only where every request failed
	}
	out.GeoMean = math.Exp(logs / float64(len(queries)))
	return out
}

// beside is the turn of another path in the same round; an empty one where there is none.
func beside(all []*turn, t *turn, name string) *turn {
	for _, o := range all {
		if o.round == t.round && o.concurrency == t.concurrency && o.path.name == name {
			return o
		}
	}
	return &turn{}
}

// median is the median time of these queries in the turn; 0 where none was answered.
func (t *turn) median(of func(query int) bool) time.Duration {
	var took []time.Duration
	for _, s := range t.samples {
		if s.err == nil && of(s.query) {
			took = append(took, s.took)
		}
	}
	return median(took)
}

func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// quantile is the nearest rank: of n values the one at ceil(q*n).
func quantile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(took))
	return sorted[(percent*len(sorted)+99)/100-1]
}

func median(took []time.Duration) time.Duration { return quantile(took, 50) }

func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// path finds a path by its name.
func (l *Load) path(name string) Path {
	for _, p := range l.Paths {
		if p.Name == name {
			return p
		}
	}
	return Path{}
}

func (b *Bulk) path(name string) BulkPath {
	for _, p := range b.Paths {
		if p.Name == name {
			return p
		}
	}
	return BulkPath{}
}

// worst names the query of a path with the highest ratio, among those that so many shards can
// answer.
func (p Path) worst(shards string) string {
	var worst QueryTimes
	for _, q := range p.Queries {
		if q.Shards == shards && q.Ratio >= worst.Ratio {
			worst = q
		}
	}
	return fmt.Sprintf("the worst: %s %.2f", worst.Name, worst.Ratio)
}

// The bounds of the goals.
const (
	oneRatio, oneCPU            = 1.25, 1.3
	prunedRatio, allRatio       = 1.5, 3
	geoRatio                    = 2
	fourCPU, totalCPU, aimTotal = 0.9, 7, 6
	bulkRatio, bulkMiB          = 1.3, 64
	gapsRatio                   = 1.2
	besideCPU                   = 1.05
)

// goals holds the figures against what is to be reached. A figure that does not exist, since every
// request failed, reaches nothing.
func (r *Result) goals() []Goal {
	var out []Goal
	add := func(name string, figure, bound float64, unit, why string) {
		out = append(out, Goal{name, figure, bound, unit, figure > 0 && figure <= bound, why})
	}
	for _, l := range r.Loads {
		at := fmt.Sprintf(", %d at a time", l.Concurrency)
		one, four, reverse := l.path(SpillwayOne), l.path(SpillwayFour), l.path(Reverse)
		shard, direct := l.path(ReverseShard), l.path(DirectShard)
		add("one server: p50 to direct"+at, one.P50Ratio, oneRatio, "x", fmt.Sprintf("ReverseProxy %.2f", reverse.P50Ratio))
		add("one server: proxy's CPU to ReverseProxy's"+at, one.ReverseCPU, oneCPU, "x", "")
		add("four shards: p50 to direct, queries for one shard"+at, four.OneRatio, prunedRatio, "x", four.worst(One)+fmt.Sprintf("; the node's shard asked directly %.2f, through ReverseProxy %.2f", direct.OneRatio, shard.OneRatio))
		add("four shards: p50 to direct, queries for all shards"+at, four.AllRatio, allRatio, "x", four.worst(All)+fmt.Sprintf("; ReverseProxy %.2f", reverse.AllRatio))
		add("four shards: geometric mean over the queries"+at, four.GeoMean, geoRatio, "x",
			fmt.Sprintf("ReverseProxy %.2f", reverse.GeoMean))
		add("four shards: proxy's CPU per 1,000"+at, four.ProxyCPU, fourCPU, "s", fmt.Sprintf("ReverseProxy %.2f", reverse.ProxyCPU))
		add("four shards: CPU of proxy and servers per 1,000"+at, four.ProxyCPU+four.ServersCPU, totalCPU, "s",
			fmt.Sprintf("the aim is %d; direct %.1f", aimTotal, l.path(Direct).ServersCPU))
	}
	for _, l := range r.Loads {
		for _, b := range r.beside {
			at := fmt.Sprintf(": proxy's CPU to that of %s, %d at a time", b.Name, l.Concurrency)
			add("one server"+at, l.path(SpillwayOne).ProxyCPU/l.path(b.one()).ProxyCPU, besideCPU, "x", "")
			add("four shards"+at, l.path(SpillwayFour).ProxyCPU/l.path(b.four()).ProxyCPU, besideCPU, "x", "")
		}
	}
	for _, l := range r.Loads {
		if whole, gaps := l.path(SpillwayPairs), l.path(SpillwayGaps); whole.P50Ratio > 0 {
			add(fmt.Sprintf("pairs with gaps: p50 to whole pairs, %d at a time", l.Concurrency), gaps.P50Ratio/whole.P50Ratio, gapsRatio,
				"x",
				fmt.Sprintf("four shards without copies %.2f", l.path(SpillwayFour).P50Ratio/whole.P50Ratio))
		}
	}
	if b := r.Bulk; b != nil {
		four := b.path(SpillwayFour)
		name := fmt.Sprintf("four shards: %d series: ", b.Series)
		add(name+"peak memory over idle", four.OverIdleMiB, bulkMiB, "MiB", "")
		add(name+"time to the slowest shard's own, all asked at once", four.Seconds/b.SlowestAtOnce, bulkRatio, "x", fmt.Sprintf("%.2f x the slowest shard's where each has the machine to itself", four.Seconds/b.SlowestAlone))
	}
	failed := len(r.Wrong)
	for _, l := range r.Loads {
		for _, p := range l.Paths {
			if !slices.Contains(paths, p.Name) && p.Name != SpillwayPairs && p.Name != SpillwayGaps {
				continue // a peer
			}
			failed += p.Failed
		}
	}
	out = append(out, Goal{Name: "answers that differ from the server's, or failed", Figure: float64(failed), Reached: failed == 0})
	return out
}

// Err is nil where every answer was right and, if all is set, every goal was reached.
func (r *Result) Err(all bool) error {
	var missed []string
	for i, g := range r.Goals {
		if !g.Reached && (all || i == len(r.Goals)-1) {
			missed = append(missed, g.Name)
		}
	}
	if len(missed) == 0 {
		return nil
	}
	return fmt.Errorf("not reached: %s; see the table", strings.Join(missed, "; "))
}
