package uses

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

const (
	// slack is how far ahead a log may begin without a word: it was begun within the second in
	// which the plan is made, which is a whole one.
	slack = time.Second
	// quiet is for how long a log may have no line without a word.
	quiet = 24 * time.Hour
	// weekend is for how long people may ask nothing. Where a log has no line for longer, lines are
	// missing rather than people, and it reaches back no further.
	weekend = 4 * 24 * time.Hour
	// namedHoles is how many times without a line are named.
	namedHoles = 5
)

// Coverage is how much of the time that was asked for the usage logs have lines of.
type Coverage struct {
	// Window is the time that was asked for, Lines how much of it is not a day or more in which
	// lines are missing: of all logs together, or of one between its own lines. A log that begins
	// later than another, or ends while that goes on, lacks nothing: its writer was not there.
	Window, Lines time.Duration
	// Since is how far back the logs reach, Holes are the times without a line.
	Since time.Time
	Holes string
	// Ended is for how long there has been no line, and Until the end of the last hour with one;
	// zero where that is no longer than people may ask nothing.
	Ended time.Duration
	Until time.Time
}

// Little says whether it is less than half.
func (c *Coverage) Little() bool { return c.Window > 0 && c.Lines < c.Window/2 }

// hour is the hour of a time, counted from 1970.
func hour(t time.Time) int64 { return t.Unix() / 3600 }

// silence is a time without a line.
type silence struct{ from, to time.Time }

func (h silence) length() time.Duration { return h.to.Sub(h.from) }

// holesOf are the times of a day and more, between the first line that the window needs and now, of
// which no line is there; the latest first. They are counted by the hour, and no hour to come
// counts.
func holesOf(hours map[int64]bool, since, now time.Time) []silence {
	var out []silence
	to := now
	for _, h := range slices.Backward(slices.Sorted(maps.Keys(hours))) {
		begin := time.Unix(h*3600, 0)
		if begin.After(now) { // by a clock that is ahead: it ends nothing
			continue
		}
		if end := begin.Add(time.Hour); to.Sub(end) > quiet {
			out = append(out, silence{later(end, since), to})
		}
		if to = begin; begin.Before(since) {
			break
		}
	}
	return slices.DeleteFunc(out, func(h silence) bool { return h.length() <= quiet })
}

// together makes one of times that overlap; the latest first.
func together(holes []silence) []silence {
	var out []silence
	for _, h := range slices.SortedFunc(slices.Values(holes), func(a, b silence) int { return a.from.Compare(b.from) }) {
		if last := len(out) - 1; last >= 0 && !h.from.After(out[last].to) {
			out[last].to = later(out[last].to, h.to)
		} else {
			out = append(out, h)
		}
	}
	slices.Reverse(out)
	return out
}

// spellTimes writes the times down.
func spellTimes(holes []silence) string {
	var texts []string
	for _, h := range holes[:min(len(holes), namedHoles)] {
		texts = append(texts, h.from.UTC().Format(time.DateTime)+" to "+h.to.UTC().Format(time.DateTime))
	}
	if more := len(holes) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// coverage notes how far back the log reaches, and warns where that is less than was asked for.
func (l *logReader) coverage(set *Set, warn func(format string, args ...any)) {
	set.Logs++
	young := l.oldest.After(l.since.Add(time.Hour))
	if l.lines > 0 {
		holes := holesOf(l.hours, l.since, l.options.Now)
		if text := spellTimes(holes); text != "" {
			warn("the log has no line from %s: where requests were served then, what only these used counts as unused", text)
		}
		set.cover(l, holes)
	}
	switch {
	case l.lines == 0 && l.oldest.IsZero():
		warn("the log is empty")
	case l.lines == 0 && l.own > 0:
		warn("no other line of the log is from the last %s", model.Duration(l.options.Window))
	case l.lines == 0:
		warn("no line of the log is from the last %s", model.Duration(l.options.Window))
	case l.options.Window > 0 && l.oldest.After(l.options.Now.Add(slack)):
		warn("the log begins on %s, which has not come yet: is the clock right of the machine that wrote it, or of this one?", l.oldest.UTC().Format(time.DateTime))
	case l.options.Window > 0 && young:
		warn("the log begins on %s and covers %s of the %s asked for: what is used more rarely than that is not in it",
			l.oldest.UTC().Format(time.DateTime), l.options.Now.Sub(l.oldest).Round(time.Hour), model.Duration(l.options.Window))
	}
	if end := l.options.Now; l.to.After(end.Add(time.Hour)) && !l.oldest.After(end.Add(slack)) {
		warn("the log has lines up to %s, which has not come yet: was the clock right of the machine that wrote them?", l.to.UTC().Format(time.DateTime))
	}
	if !l.from.IsZero() {
		set.From = earlier(set.From, l.from)
	}
	set.To = later(set.To, l.to)
}

// written is what is known of the times of which all logs together have lines.
type written struct {
	hours  map[int64]bool
	oldest time.Time
	lost   []silence // between the lines of one log
}

// cover adds a log that has lines, with its holes, and notes how far back the logs reach now: to
// the begin of the oldest or, where that is nearer, to the end of the last time in which lines are
// missing.
func (s *Set) cover(l *logReader, holes []silence) {
	w, now := &s.written, l.options.Now
	if w.hours == nil {
		w.hours = map[int64]bool{}
	}
	maps.Copy(w.hours, l.hours)
	w.oldest = earlier(w.oldest, l.oldest)
	for _, h := range holes {
		if h.to.Before(now) {
			w.lost = append(w.lost, h)
		}
	}
	covers := l.options.Window
	if covers <= 0 || w.oldest.After(l.since.Add(time.Hour)) {
		covers = max(now.Sub(w.oldest), time.Second) // of a log whose clock is ahead, as little as can be
	}
	c := Coverage{Window: l.options.Window, Lines: covers, Since: later(w.oldest, l.since)}
	all := append(holesOf(w.hours, l.since, now), w.lost...)
	for _, h := range all {
		switch {
		case h.length() <= weekend:
		case h.to.Before(now):
			covers = min(covers, now.Sub(h.to))
		default:
			c.Ended, c.Until = h.length(), h.from
		}
	}
	all = together(all)
	for _, h := range all {
		c.Lines -= h.length()
	}
	c.Lines, c.Holes = max(c.Lines, 0), spellTimes(all)
	s.Covers, s.Coverage = covers, c
}
