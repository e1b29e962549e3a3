package fidelity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/seamref"
)

const (
	interval = int64(15_000)       // between scrapes, in milliseconds
	length   = int64(3 * 3600_000) // of a world
	origin   = int64(1_790_000_000_000) / 300_000 * 300_000
)

// span is a stretch of time, From inclusive and until exclusive.
type span struct{ from, until int64 }

func (s span) has(t int64) bool { return t >= s.from && t < s.until }

func within(spans []span, t int64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.has(t) })
}

// target is what is scraped.
type target struct {
	id       int
	job      string
	instance string
	listed   span   // in service discovery
	dead     []span // it does not answer
	starts   []int64
	errors   []span // times when it has the series errors_total
	flaps    []span // and flag, which comes and goes
}

// metrics are what the target shows at t, name by name.
func (g *target) metrics(t int64) map[string]float64 {
	since := g.listed.from
	for _, s := range g.starts {
		if s <= t {
			since = max(since, s)
		}
	}
	at, id := float64(t-origin)/1000, float64(g.id)
	up := float64(t-since) / 1000
	out := map[string]float64{
		"requests_total": up*(3+id) + 40*math.Sin(up/200+id) + 40,
		"temperature":    60 + 15*math.Sin(at/700+id) + 3*math.Sin(at/37+2*id),
		"queue":          math.Floor(math.Mod(at/90+id, 7)),
		"started":        float64(since) / 1000,
	}
	if within(g.errors, t) {
		out["errors_total"] = math.Floor(up / 5)
	}
	if within(g.flaps, t) {
		out["flag"] = 1
	}
	return out
}

// world is the truth: 14 nodes that are rebooted, or do not answer for 20 s to 10 minutes, twice at
// most; six places at which one pod follows another, each for 10 minutes to an hour; 40 jobs of 5
// to 60 s. Each has a series that comes and goes every minute or two, and one that is there at
// times.
type world struct {
	rng     *rand.Rand
	targets []*target
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 3))}
	end := origin + length
	between := func(a, b int64) int64 { return a + w.rng.Int64N(b-a) }
	for i := range 14 {
		g := &target{id: i, job: "node", instance: fmt.Sprintf("10.0.0.%d:9100", i), listed: span{origin - 3600_000, end + 3600_000}}
		for range w.rng.IntN(3) { // a reboot, or an outage
			from := between(origin, end)
			until := from + between(20_000, 600_000)
			g.dead, g.starts = append(g.dead, span{from, until}), append(g.starts, until)
		}
		w.targets = append(w.targets, g)
	}
	for slot := range 6 { // pods, one after the other
		for at := origin - between(0, 1800_000); at < end; {
			life := between(600_000, 3600_000)
			g := &target{
				id: len(w.targets), job: "app", instance: fmt.Sprintf("10.1.%d.%d:8080", slot, len(w.targets)),
				listed: span{at, at + life},
			}
			w.targets = append(w.targets, g)
			at += life + between(0, 120_000)
		}
	}
	for i := range 40 { // jobs that are over before they are scraped often
		at := between(origin, end)
		w.targets = append(w.targets, &target{
			id: len(w.targets), job: "batch", instance: fmt.Sprintf("10.2.0.%d:8080", i),
			listed: span{at, at + between(5_000, 60_000)},
		})
	}
	for _, g := range w.targets {
		for range w.rng.IntN(4) {
			from := between(origin, end)
			g.errors = append(g.errors, span{from, from + between(120_000, 1800_000)})
		}
		for at := origin; at < end; {
			on := at + between(10_000, 180_000)
			g.flaps = append(g.flaps, span{at, on})
			at = on + between(5_000, 90_000)
		}
	}
	return w
}

// replica is a server that scrapes.
type replica struct {
	down    []span         // it does not run
	cut     map[int][]span // it does not reach the target
	jitter  int64
	dropout float64       // share of scrapes that time out
	phases  map[int]phase // when it looks at each target; drawn where it is not given
	seen    map[string]*kept
}

// phase is how far behind the truth's moments a replica scrapes a target, and how late it hears of
// it, in milliseconds.
type phase struct{ offset, lag int64 }

// kept is a series as the replica stores it.
type kept struct {
	lbls    labels.Labels
	samples []seamref.Sample
	values  []float64
	up      string // key of its target's up
}

// scrape makes the replica's samples. ideal is a server that looks at the same moments as the truth
// is asked about.
func (r *replica) scrape(w *world, rng *rand.Rand, ideal bool) {
	r.seen = map[string]*kept{}
	for _, g := range w.targets {
		offset, lag := rng.Int64N(interval), rng.Int64N(5000)
		if ideal {
			offset, lag = 0, 0
		}
		if p, known := r.phases[g.id]; known {
			offset, lag = p.offset, p.lag
		} else {
			if r.phases == nil {
				r.phases = map[int]phase{}
			}
			r.phases[g.id] = phase{offset, lag}
		}
		upKey := ""
		var shown []string
		add := func(name string, t int64, v float64, marker bool) {
			l := labels.FromStrings("__name__", name, "job", g.job, "instance", g.instance)
			key := l.String()
			if name == "up" {
				upKey = key
			}
			s := r.seen[key]
			if s == nil {
				s = &kept{lbls: l, up: upKey}
				r.seen[key] = s
			}
			if n := len(s.samples); n > 0 && s.samples[n-1].T >= t {
				return
			}
			s.samples = append(s.samples, seamref.Sample{T: t, Marker: marker, Zero: v == 0})
			s.values = append(s.values, v)
		}
		forget := func(t int64, names ...string) {
			for _, n := range names {
				add(n, t, 0, true)
			}
		}
		wasDown, listed := false, false
		for at := origin - 600_000 + offset; at < origin+length; at += interval {
			t := at
			if r.jitter > 0 {
				t += rng.Int64N(r.jitter)
			}
			if within(r.down, t) { // what it knew is forgotten; no markers are written
				wasDown = true
				continue
			}
			if wasDown {
				shown, wasDown, listed = nil, false, false
			}
			if known := (span{g.listed.from + lag, g.listed.until + lag}); !known.has(t) {
				if listed {
					forget(t, append(shown, "up", "scrape_duration_seconds")...)
					shown, listed = nil, false
				}
				continue
			}
			listed = true
			failed := within(g.dead, t) || !g.listed.has(t) || within(r.cut[g.id], t) || rng.Float64() < r.dropout
			if failed {
				add("up", t, 0, false)
				add("scrape_duration_seconds", t, 10, false)
				forget(t, shown...)
				shown = nil
				continue
			}
			add("up", t, 1, false)
			add("scrape_duration_seconds", t, 0.01+float64(g.id)/1000, false)
			is := g.metrics(t)
			for _, name := range shown {
				if _, has := is[name]; !has {
					forget(t, name)
				}
			}
			shown = shown[:0]
			for name, v := range is {
				add(name, t, v, false)
				shown = append(shown, name)
			}
			slices.Sort(shown)
		}
	}
}

// pair is two replicas that fail, each in every way, at times of their own and sometimes at the
// same time. Each of them
//
//   - is restarted three times, for 20 to 80 s;
//   - crashes once and replays its log, for 4 to 14 minutes;
//   - is cut off once from all targets, and once from half of them, for 2 to 17 minutes;
//   - times out in one scrape of a thousand;
//   - hears of each target, and of its end, up to 5 s late, and scrapes up to 120 ms late.
//
// Where outages of the two fall together is chance, but for one: in the middle of the world both
// are away for 30 s, one from a minute before on and the other until a minute after. Shards have
// pairs of their own. No replica is reloaded, and none has lost what it stored before it went away.
func (w *world) pair() [2]*replica {
	var out [2]*replica
	for i := range out {
		r := &replica{cut: map[int][]span{}, jitter: 120, dropout: 0.001}
		at := func() int64 { return origin + 300_000 + w.rng.Int64N(length-900_000) }
		for range 3 { // restarts
			from := at()
			r.down = append(r.down, span{from, from + 20_000 + w.rng.Int64N(60_000)})
		}
		from := at() // a crash, and the replay of its log
		r.down = append(r.down, span{from, from + 240_000 + w.rng.Int64N(600_000)})
		for half := range 2 { // cut off from all, and from half of the targets
			from := at()
			cut := span{from, from + 120_000 + w.rng.Int64N(900_000)}
			for _, g := range w.targets {
				if half == 0 || g.id%2 == 0 {
					r.cut[g.id] = append(r.cut[g.id], cut)
				}
			}
		}
		out[i] = r
	}
	// Once both are away, one a little later than the other.
	from := origin + length/2
	out[0].down = append(out[0].down, span{from, from + 90_000})
	out[1].down = append(out[1].down, span{from + 60_000, from + 150_000})
	return out
}
