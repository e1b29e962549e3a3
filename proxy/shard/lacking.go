package shard

import (
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
)

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

// reachUnknown forgets who is cut off.
func (h *heartbeats) reachUnknown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.of {
		h.of[i].unreached = 0
	}
}

// noteLacking keeps since when each replica lacks something; none that takes no part does.
func (h *heartbeats) noteLacking(part uint64, closed int64, now time.Time) {
	whole, known := part, true
	if bits.OnesCount64(part) > 1 {
		whole, known = h.lookup(part, upTo(closed), now)
	}
	if !known {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.of {
		switch lacks := part&^whole&(1<<i) != 0; {
		case !lacks:
			h.of[i].lacking = time.Time{}
		case h.of[i].lacking.IsZero():
			h.of[i].lacking = h.began(i, part, closed, now)
		}
	}
}

// began is when a replica that lacks something began to, as far as it is known: the beginning of
// the first of the five minutes that follow each other; now where they lack nothing yet. The caller
// holds mu.
func (h *heartbeats) began(i int, part uint64, closed int64, now time.Time) time.Time {
	for end := closed; ; end -= bucketMs {
		f, ok := h.buckets[end]
		if !ok || f.whole(part)&(1<<i) != 0 {
			return now
		}
		now = time.UnixMilli(end - bucketMs)
	}
}

const (
	// cutOff is the share of targets from which the log calls a replica cut off, as the alert does.
	cutOff = 0.1
	// lacksOn is how long a replica may lack something until the log says that it goes on to.
	lacksOn = 30 * time.Minute
)

// told is what the log has said of a replica.
type told struct {
	cutOff, lacking bool
	since           time.Time // when it was first seen to lack what it lacks
}

// tellLacking writes to the log who is cut off, and who goes on to lack something, and when that
// ends. That one lacks what it missed while it was away is no news.
func (s *Shard) tellLacking(now time.Time) {
	h := s.beats
	log := s.topology.opts.Logger
	h.mu.Lock()
	was := make([]pulse, len(h.of))
	for i := range h.of {
		was[i] = h.of[i]
		p := &h.of[i]
		if p.lacking.IsZero() {
			p.told.since = time.Time{}
		} else if p.told.since.IsZero() {
			p.told.since = now
		}
		p.told.cutOff = p.unreached >= cutOff || p.told.cutOff && p.unreached > 0
		p.told.lacking = !p.told.since.IsZero() && now.Sub(p.told.since) >= lacksOn
	}
	is := slices.Clone(h.of)
	h.mu.Unlock()
	for i, r := range s.Replicas {
		if i >= len(is) {
			return
		}
		name := slog.String("replica", r.Name())
		switch {
		case is[i].told.cutOff && !was[i].told.cutOff:
			log.Warn("a replica is cut off: it does not reach targets that another one of its shard reaches, which is read instead", name, slog.Float64("share", is[i].unreached))
		case was[i].told.cutOff && !is[i].told.cutOff:
			log.Info("a replica is cut off no more", name)
		}
		switch {
		case is[i].told.lacking && !was[i].told.lacking:
			log.Warn("a replica goes on to lack what another one of its shard has; see whether both scrape the same", name, slog.String("lacks", r.shortfall(is[i].lacking, now)))
		case was[i].told.lacking && !is[i].told.lacking:
			log.Info("a replica lacks nothing any more", name)
		}
	}
}

// maxTold is how many replicas are told of in one sentence.
const maxTold = 3

// Shortfalls says for people what each replica that takes part lacks in the window, as far as that
// is known already: nobody is asked. Empty where nothing is lacking, or nothing known.
func (s *Shard) Shortfalls(from, until int64, now time.Time) string {
	if len(s.Replicas) < 2 || len(s.Replicas) > maxReplicas || s.Group.Heartbeat == "" || s.Thanos() || s.split.Load() {
		return ""
	}
	part := s.present(time.Now())
	w, ok := window(from, until, now)
	if !ok || bits.OnesCount64(part) < 2 {
		return ""
	}
	var out []string
	more := 0
	for _, r := range s.Replicas {
		if part&(1<<r.Index) == 0 {
			continue
		}
		text := s.beats.shortfall(r, part, w)
		switch {
		case text == "":
		case len(out) == maxTold:
			more++
		default:
			out = append(out, text)
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more lack something too", more))
	}
	return strings.Join(out, "; ")
}

// shortfall says what the replica lacks since then.
func (r *Replica) shortfall(since, now time.Time) string {
	w, ok := window(since.UnixMilli()+1, now.UnixMilli(), now)
	if !ok {
		return ""
	}
	return r.Shard.beats.shortfall(r, r.Shard.present(time.Now()), w)
}

// lacking is what the gauges have: since when the replica lacks something, in seconds since 1970, 0
// where it does not; and what share of another's scrapes failed on it.
func (r *Replica) lacking() (since, unreached float64) {
	if r.Index >= maxReplicas {
		return 0, 0
	}
	h := r.Shard.beats
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.of[r.Index]; !p.lacking.IsZero() {
		since = float64(p.lacking.UnixMilli()) / 1000
	}
	return since, h.of[r.Index].unreached
}

// shortfall is the sentence about one replica; empty where it lacks nothing that is known of.
func (h *heartbeats) shortfall(r *Replica, part uint64, w buckets) string {
	bit := uint64(1) << r.Index
	all := shortfall{}
	jobs := map[string]int64{}
	add := func(f finding) bool {
		if f.whole(part)&bit != 0 {
			return false
		}
		l := f.less[r.Index]
		all.targets, all.scrapes = max(all.targets, l.targets), all.scrapes+l.scrapes
		if jobs[l.job] += l.scrapes; all.job == "" || jobs[l.job] > jobs[all.job] {
			all.job = l.job
		}
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var first, last int64 // the buckets' ends
	holes := false        // between the first and the last are some in which it lacks nothing
	for end := w.first; end <= w.last; end += bucketMs {
		f, ok := h.buckets[end]
		if !ok || !add(f) {
			continue
		}
		if first == 0 {
			first = end
		}
		holes = holes || last != 0 && last != end-bucketMs
		last = end
	}
	when := ""
	var recent []finding // since the last bucket
	if w.open {
		h.eachOpen(w, func(f finding, _ Span) { recent = append(recent, f) })
		recent = slices.DeleteFunc(append(recent, h.tail), func(f finding) bool { return f.whole(part)&bit != 0 })
	}
	tail := len(recent) > 0
	switch {
	case first == 0 && !tail:
		return ""
	case first == 0:
		for _, f := range recent {
			add(f)
		}
		when = "within the last six minutes"
	case w.open && last == w.last && !holes:
		when = "since " + moment(first-bucketMs)
	default:
		when = "between " + moment(first-bucketMs) + " and " + moment(last)
		if tail {
			when = "again and again since " + moment(first-bucketMs)
		}
	}
	what := fmt.Sprintf("%d scrapes", all.scrapes)
	switch {
	case !config.IsUp(r.Shard.Group.Heartbeat):
		what = fmt.Sprintf("%d samples of its heartbeat", all.scrapes)
	case all.scrapes == 0:
		what = fmt.Sprintf("%d targets", all.targets)
	}
	text := r.Name() + " lacks " + what + " that another one has, " + when
	if all.job != "" {
		text += ", most of job " + all.job
	}
	if share := h.of[r.Index].unreached; w.open && share > 0 {
		text += fmt.Sprintf(" (it is cut off now from %.0f %% of the targets that the other one reaches)", 100*share)
	}
	return text
}
