package trust

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
)

// What people are told of a replica that lacks something: since when, how much of which job, and
// whether it is cut off. Three things look alike from afar. A replica that was away has a gap that
// lies behind it: over the last minute it lacks nothing. One that is cut off scrapes its targets in
// vain: it has the series of up, and they are 0 where another one's are 1. One that scrapes fewer
// targets does not have those series.

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

// Pulse is what is known of one replica.
type Pulse struct {
	// Error is why the last question to it failed, or that the heartbeat selects nothing anywhere;
	// empty where neither is so. Nothing tells that it is the latter.
	Error   string
	Nothing bool
	// Lacking is since when it lacks what another one has; zero where it does not.
	Lacking time.Time
	// Unreached is the share of the targets that another one reaches now and this one fails to.
	Unreached float64
}

// Pulse is what is known of that replica.
func (h *Heartbeats) Pulse(replica int) Pulse {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of[replica]
	nothing := p.err == "" && h.selectsNothing()
	if nothing {
		p.err = h.selector + " selects nothing on any replica of the shard, so that none is known to be whole"
	}
	return Pulse{p.err, nothing, p.lacking, p.unreached}
}

// selectsNothing tells whether no replica has anything of the heartbeat of late; where that is not
// known, whether it was so when Empty was called last. The caller holds mu.
func (h *Heartbeats) selectsNothing() bool {
	newest, ok := h.buckets[lastClosed(h.tailAt.UnixMilli())]
	if !ok && !h.tail.data {
		return h.empty
	}
	return !newest.data && !h.tail.data
}

// Empty tells whether the heartbeat selects nothing on any replica of late; news is whether that
// was otherwise at the last call.
func (h *Heartbeats) Empty() (empty, news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.empty
	h.empty = h.selectsNothing()
	return h.empty, h.empty != was
}

// reachUnknown forgets who is cut off.
func (h *Heartbeats) reachUnknown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.of {
		h.of[i].unreached = 0
	}
}

// noteLacking keeps since when each replica lacks something; none that takes no part does.
func (h *Heartbeats) noteLacking(part uint64, closed int64, now time.Time) {
	whole, known := part, true
	if bits.OnesCount64(part) > 1 {
		whole, known = h.Lookup(part, upTo(closed), now)
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
func (h *Heartbeats) began(i int, part uint64, closed int64, now time.Time) time.Time {
	for end := closed; ; end -= bucketMs {
		f, ok := h.buckets[end]
		if !ok || f.whole(part)&(1<<i) != 0 {
			return now
		}
		now = time.UnixMilli(end - bucketMs)
	}
}

// News is what has changed about one replica and is worth a line of the log.
type News struct {
	// CutOff: it is cut off, and was not; Reaches: it is not any more.
	CutOff, Reaches bool
	// Lacks: it has lacked something for half an hour; Whole: it does not any more.
	Lacks, Whole bool
}

// News are what has changed since the last call, by replica: which one is cut off, which one goes
// on lacking something, and when that ends. That a replica lacks what it missed while it was away
// is no news.
func (h *Heartbeats) News(now time.Time) []News {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]News, len(h.of))
	for i := range h.of {
		p := &h.of[i]
		was := p.told
		if p.lacking.IsZero() {
			p.told.since = time.Time{}
		} else if p.told.since.IsZero() {
			p.told.since = now
		}
		p.told.cutOff = p.unreached >= cutOff || p.told.cutOff && p.unreached > 0
		p.told.lacking = !p.told.since.IsZero() && now.Sub(p.told.since) >= lacksOn
		out[i] = News{
			CutOff: p.told.cutOff && !was.cutOff, Reaches: was.cutOff && !p.told.cutOff,
			Lacks: p.told.lacking && !was.lacking, Whole: was.lacking && !p.told.lacking,
		}
	}
	return out
}

// Shortfall is the sentence about one replica, which it calls name; empty where it is not known to
// lack anything.
func (h *Heartbeats) Shortfall(replica int, name string, part uint64, w Window) string {
	bit := uint64(1) << replica
	all := shortfall{}
	jobs := map[string]int64{}
	add := func(f finding) bool {
		if f.whole(part)&bit != 0 {
			return false
		}
		l := f.less[replica]
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
	case !config.IsUp(h.selector):
		what = fmt.Sprintf("%d samples of its heartbeat", all.scrapes)
	case all.scrapes == 0:
		what = fmt.Sprintf("%d targets", all.targets)
	}
	text := name + " lacks " + what + " that another one has, " + when
	if all.job != "" {
		text += ", most of job " + all.job
	}
	if share := h.of[replica].unreached; w.open && share > 0 {
		text += fmt.Sprintf(" (it is cut off now from %.0f %% of the targets that the other one reaches)", 100*share)
	}
	return text
}

// moment writes a time in milliseconds.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
