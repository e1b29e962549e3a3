package fidelity

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// score is what is not true in an answer.
type score struct {
	missing, ghosts, wrong  int
	falseAlerts, lostAlerts int
	phase                   int // alerts that are false or lost on a replica that never fails too
	blind                   int // alerts that are false or lost at a time when nobody looked
}

func (s score) artefacts() int { return s.missing + s.ghosts + s.wrong }

func (s *score) add(o score) {
	s.missing, s.ghosts, s.wrong, s.falseAlerts, s.lostAlerts, s.phase, s.blind = s.missing+o.missing, s.ghosts+o.ghosts, s.wrong+o.wrong,
		s.falseAlerts+o.falseAlerts, s.lostAlerts+o.lostAlerts, s.phase+o.phase, s.blind+o.blind
}

// truth is what the ideal server answers, query by query and alert by alert.
type truth struct {
	answers []map[string]map[int64]float64
	// near are the answers of the ideal server a moment before and after: what changes just then is
	// nobody's fault.
	near   [][]map[string]map[int64]float64
	firing []map[string][]span
	// steady is what replicas that never fail get wrong in alerts, replica by replica and alert by
	// alert: what one of them says a good Prometheus may say.
	steady [][][]difference
	// blind is when none of those who are judged looked at a target, by instance; under the empty
	// one when at any.
	blind map[string][]span
}

const tolerance = 0.1

// judge counts what differs from the truth in what a view answers.
func (w *truth) judge(t testing.TB, v asker) (s score) {
	for i := range w.answers {
		got, want := w.asked(t, v, i), w.answers[i]
		for key, points := range want {
			for at, f := range points {
				g, has := got[key][at]
				switch {
				case !has && !w.excused(i, key, at, nil):
					s.missing++
				case has && !alike(f, g) && !w.excused(i, key, at, &g):
					s.wrong++
				}
			}
		}
		for key, points := range got {
			for at, g := range points {
				if _, has := want[key][at]; !has && !w.excused(i, key, at, &g) {
					s.ghosts++
				}
			}
		}
	}
	for i, found := range w.differing(t, v) {
		for _, d := range found {
			counted := "false"
			switch {
			case w.unseen(alerts[i], d.quietly):
				counted, s.blind = "while nobody looked", s.blind+1
			case slices.ContainsFunc(w.steady, func(r [][]difference) bool { return slices.ContainsFunc(r[i], d.same) }):
				counted, s.phase = "on a replica that never fails too", s.phase+1
			case d.lost:
				counted, s.lostAlerts = "lost", s.lostAlerts+1
			default:
				s.falseAlerts++
			}
			if *verbose {
				t.Logf("%s for %d s: %s from minute %.1f to %.1f: %s", alerts[i].expr, alerts[i].hold/1000, d.key,
					float64(d.from-origin)/60_000, float64(d.until-origin)/60_000, counted)
			}
		}
	}
	return s
}

// difference is a quiet alert that is false, or lost.
type difference struct {
	quietly
	lost bool
}

// same tells whether another replica gets the same alert wrong in the same way at the same time.
func (d difference) same(o difference) bool {
	return d.key == o.key && d.lost == o.lost && d.from < o.until+90_000 && o.from < d.until+90_000
}

// differing are the quiet alerts that a view has and the truth has not, and the other way round,
// alert by alert.
func (w *truth) differing(t testing.TB, v asker) [][]difference {
	out := make([][]difference, len(alerts))
	for i, a := range alerts {
		got := firing(v.ranges(t, a.expr, 15_000), a.hold)
		for _, q := range quiet(got, w.firing[i]) {
			out[i] = append(out[i], difference{q, false})
		}
		for _, q := range quiet(w.firing[i], got) {
			out[i] = append(out[i], difference{q, true})
		}
	}
	return out
}

// asked is the answer to a query, or to those of instants behind them.
func (*truth) asked(t testing.TB, v asker, query int) map[string]map[int64]float64 {
	if query < len(queries) {
		return v.ranges(t, queries[query], 30_000)
	}
	return v.instants(t, instants[query-len(queries)])
}

// excused tells whether an interval before or after the truth is what was answered: whoever looks
// at another moment sees that.
func (w *truth) excused(query int, key string, at int64, got *float64) bool {
	for _, a := range w.near[query] {
		f, has := a[key][at]
		if !has && got == nil || has && got != nil && alike(f, *got) {
			return true
		}
	}
	return false
}

func alike(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))+0.05
}

// firing is when each alert of an answer fires.
func firing(answer map[string]map[int64]float64, hold int64) map[string][]span {
	out := map[string][]span{}
	for key, points := range answer {
		var times []int64
		for t := range points {
			times = append(times, t)
		}
		slices.Sort(times)
		for i := 0; i < len(times); {
			j := i
			for j+1 < len(times) && times[j+1]-times[j] <= 15_000 {
				j++
			}
			if from := times[i] + hold; from <= times[j] {
				out[key] = append(out[key], span{from, times[j] + 15_000})
			}
			i = j + 1
		}
	}
	return out
}

// quietly is an alert that fires while others do not.
type quietly struct {
	key string
	span
}

// unseen tells whether nobody looked at what the alert is about, just before or while it fires or
// does not: then nobody can know.
func (w *truth) unseen(a alert, q quietly) bool {
	_, rest, _ := strings.Cut(q.key, `instance="`)
	instance, _, _ := strings.Cut(rest, `"`)
	return slices.ContainsFunc(w.blind[instance], func(s span) bool { return s.from < q.until && s.until > q.from-a.hold-a.back })
}

// quiet are the alerts that fire for a minute or more while, an interval and a half around, the
// others do not fire at all.
func quiet(of, others map[string][]span) (list []quietly) {
	for key, spans := range of {
		for _, s := range spans {
			if s.until-s.from < 60_000 {
				continue
			}
			if !slices.ContainsFunc(others[key], func(o span) bool { return o.from < s.until+90_000 && s.from < o.until+90_000 }) {
				list = append(list, quietly{key, s})
			}
		}
	}
	return list
}

// blind is when neither of a pair looked at a target: both are down, or cut off from it.
func blind(w *world, pair [2]*replica) map[string][]span {
	out := map[string][]span{}
	for _, g := range w.targets {
		var away [2][]span
		for i, r := range pair {
			for _, d := range r.down { // and until the first scrape after it
				away[i] = append(away[i], span{d.from - interval, d.until + interval})
			}
			for _, c := range r.cut[g.id] {
				away[i] = append(away[i], span{c.from - interval, c.until + interval})
			}
		}
		for _, a := range away[0] {
			for _, b := range away[1] {
				if both := (span{max(a.from, b.from), min(a.until, b.until)}); both.from < both.until {
					out[g.instance] = append(out[g.instance], both)
					out[""] = append(out[""], both)
				}
			}
		}
	}
	return out
}
