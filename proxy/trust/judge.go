package trust

import (
	"cmp"
	"math"
)

const (
	// maxSlices is how many minutes are looked at: five of a bucket, and those since the newest
	// closed one.
	maxSlices = 6
	// minuteMs is the length of a slice.
	minuteMs = 60_000
	// maxPhases is how many buckets before one are looked at for what targets' phases make of it.
	maxPhases = 3
	// often is how many times in five minutes a target is scraped at least, so that each minute
	// shows it: every 40 seconds. What is scraped once a minute is not there while its scrape,
	// which may take half of one, is under way.
	often = 7.5
	// minSlice is how many targets a server must have for its minutes to be looked at: of few,
	// chance is too large a part.
	minSlice = 16
)

// finding says what the replicas that were asked about some stretch of time lack of each other.
type finding struct {
	asked  uint64      // bit i: replica i answered
	unsure uint64      // bit i: it had answered, and was away since
	less   []shortfall // of each replica; nil where none lacks anything
	data   bool        // a heartbeat was seen at all
	until  int64       // how long this is believed, Unix milliseconds; 0 where that is not bounded
	renew  int64       // from when on it is to be asked for anew; 0 for one that is asked for once it is not believed
}

// sound tells that nobody lacks anything of what there is.
func (f finding) sound() bool { return f.less == nil && f.data }

// young tells that nobody lacked anything, and that it is too early to know.
func (f finding) young() bool { return f.sound() && f.renew == 0 && f.until != 0 }

// known tells whether the finding still stands, and is about all that take part.
func (f finding) known(part uint64, nowMs int64) bool {
	return f.asked&part == part && (f.until == 0 || nowMs < f.until)
}

// whole are those that take part and lack nothing that another of them has.
func (f finding) whole(part uint64) uint64 {
	whole := part
	for i, s := range f.less {
		if s.more&part != 0 {
			whole &^= 1 << i
		}
	}
	return whole
}

// wholeSince are those that take part and lack nothing after from that another of them has; the
// finding is of the bucket that ends at end.
func (f finding) wholeSince(part uint64, from, end int64) uint64 {
	whole := part
	for i, s := range f.less {
		if s.more&part != 0 && s.until(end) > from {
			whole &^= 1 << i
		}
	}
	return whole
}

// lacking are those that lack something of substance that one of others has, after from; the
// finding is of the bucket that ends at end.
func (f finding) lacking(others uint64, from, end int64) (lacking uint64) {
	for i, s := range f.less {
		if f.asked&(1<<i) != 0 && s.more&others&f.asked != 0 && (s.none || s.scrapes >= minSlice) && s.until(end) > from {
			lacking |= 1 << i
		}
	}
	return lacking
}

// shortfall is what one replica lacks of others in some stretch of time.
type shortfall struct {
	more    uint64 // bit i: replica i has more
	job     string // of which it lacks most
	targets int64  // how many series fewer it has than the one that has most more
	scrapes int64  // how many samples fewer
	none    bool   // of some job it has no sample, and another one several
	// ended is the number of the newest minute that shows it, 1 the last one; 0 where it is not
	// known to lie in some minutes only.
	ended int
}

// until is the time up to which it reaches in the bucket that ends at end: the end of the last
// minute that shows it. The next one has less of it than half a scrape of each target.
func (s shortfall) until(end int64) int64 {
	if s.ended == 0 {
		return math.MaxInt64
	}
	return end - int64(s.ended-1)*minuteMs
}

// judge says who lacks what another has. It takes the beats of one bucket, one entry for each
// replica, who of them was asked, and the buckets before it, the newest first. Where everybody
// lacks something, single scrapes of small jobs are no matter, nor what phases make: who lacks
// nothing else is as whole as anybody.
func judge(at []Beats, asked uint64, before ...[]Beats) finding {
	f := judgeBy(at, asked, 0, nil)
	if f.whole(asked) == 0 {
		if mild := judgeBy(at, asked, single, before); mild.whole(asked) != 0 {
			return mild
		}
	}
	return f
}

// single is how many scrapes fewer a replica may have of any job where everybody lacks something:
// one, which a job of one or two targets has by where its scrapes fall, by a pod that moves, or by
// a time-out that only one of them met.
const single = 1

// judgeBy judges with so many scrapes of each job allowed, and with what phases make of it.
func judgeBy(at []Beats, asked uint64, allowed float64, before [][]Beats) finding {
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
			s, is := lacks(mine, theirs, allowed, pairs(before, i, j))
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
			none := was.none || s.none
			if was.scrapes > s.scrapes || was.scrapes == s.scrapes && was.targets > s.targets {
				was.more = s.more
				s = was
			}
			s.ended, s.none = ended, none
			f.less[i] = s
		}
	}
	return f
}

// lacks tells whether another replica has more series of some job, or more samples, than chance
// explains, and what that comes to. So many samples of a job are allowed beside, of a server with
// enough targets that one scrape of one of them is not a scrape of the server.
func lacks(mine, theirs Beats, allowed float64, before [][2]Beats) (s shortfall, is bool) {
	if theirs.all().series < minSlice {
		allowed, before = 0, nil
	}
	most := shortfall{targets: -1} // of one job
	for job, t := range theirs.jobs {
		m := mine.jobs[job]
		if allowed > 0 && rarely(theirs.wide[job]) { // of which a minute has a scrape or none
			m, t = mine.wide[job], theirs.wide[job]
			if t.series <= m.series && t.samples-m.samples <= float64(t.series) {
				continue
			}
		}
		chance := byChance(t.series)
		of := shortfall{job: job, targets: max(t.series-m.series, 0), scrapes: max(int64(t.samples-m.samples), 0)}
		if float64(of.targets) < chance && (float64(of.scrapes) <= allowed || float64(of.scrapes) < chance) {
			continue
		}
		if float64(of.targets) < chance && byPhase(job, m, t, before) {
			continue
		}
		is = true
		s.none = s.none || m.samples == 0 && t.samples > 1
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

// rarely tells whether a job of few targets is scraped more rarely than each minute shows, by five
// minutes of it. Of many targets a minute shows enough for chance to be told from loss.
func rarely(wide beat) bool {
	return wide.series > 0 && wide.series < minSlice && wide.samples < often*float64(wide.series)
}

// pairs are what replicas i and j had in each bucket.
func pairs(buckets [][]Beats, i, j int) [][2]Beats {
	out := make([][2]Beats, len(buckets))
	for k, at := range buckets {
		out[k] = [2]Beats{at[i], at[j]}
	}
	return out
}

// byPhase tells whether targets' phases explain that mine has fewer scrapes of a job than theirs,
// of a bucket before which came those, the newest first. Where a target's interval does not divide
// a bucket, such as 45 seconds, it has a scrape more in one bucket than in the next, and in which
// of them is each replica's own; over a few buckets it is the same number. So it is no more than a
// scrape of each target, with what came before it is nothing at all, and somewhere the number of
// scrapes of who has more is no multiple of that of targets: where a scrape is missed, who has more
// has all of them, of each target as many.
func byPhase(job string, mine, theirs beat, before [][2]Beats) bool {
	if theirs.samples-mine.samples > float64(theirs.series) {
		return false
	}
	uneven := func(a, b beat) bool {
		if a.samples < b.samples {
			a = b
		}
		return a.series > 0 && math.Mod(a.samples, float64(a.series)) != 0
	}
	odd, evens := uneven(mine, theirs), false
	for _, at := range before {
		m, t := at[0].jobs[job], at[1].jobs[job]
		if m.series == 0 || t.series == 0 {
			break
		}
		mine.samples, theirs.samples = mine.samples+m.samples, theirs.samples+t.samples
		odd = odd || uneven(m, t)
		evens = evens || theirs.samples == mine.samples
	}
	return odd && evens
}

// missesMinute tells whether mine has fewer scrapes of a minute than theirs, beyond chance.
func missesMinute(mine, theirs beat) bool {
	return theirs.series >= minSlice && theirs.samples-mine.samples >= byChance(theirs.series)
}

// inMinutes tells whether what mine lacks of a bucket lies in the minutes in which it misses
// scrapes, and next to them: whether of no job it lacks more than the same share, beyond chance,
// which is two scrapes of each target here: a gap begins and ends between two scrapes. So what
// somebody missed who was away is told from what somebody does not reach who was away too.
func inMinutes(mine, theirs Beats) bool {
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

// What people are told of a replica that lacks something: since when, how much of which job, and
// whether it is cut off. Three things look alike from afar. A replica that was away has a gap that
// lies behind it: over the last minute it lacks nothing. One that is cut off scrapes its targets in
// vain: it has the series of up, and they are 0 where another one's are 1. One that scrapes fewer
// targets does not have those series.

// unreached is the share of the targets that another replica reached at its newest scrapes which
// this one failed to reach at its own: of jobs in which there are more of them than chance
// explains. What is dead fails on both; what this one does not have does not fail.
func unreached(mine, theirs map[string]beat) float64 {
	var all, failed float64
	for job, t := range theirs {
		all += t.samples
		m := mine[job]
		less := min(t.samples-m.samples, (float64(m.series)-m.samples)-(float64(t.series)-t.samples))
		if less > 0 && less >= byChance(t.series) {
			failed += less
		}
	}
	if all == 0 {
		return 0
	}
	return failed / all
}
