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
	// Window is the time that was asked for, Lines how much of it is not a day or more without any
	// line; of the log that has least.
	Window, Lines time.Duration
	// Since is how far back that log reaches, Holes are the times without a line.
	Since time.Time
	Holes string
}

// Little says whether it is less than half.
func (c *Coverage) Little() bool { return c.Window > 0 && c.Lines < c.Window/2 }

// hour is the hour of a time, counted from 1970.
func hour(t time.Time) int64 { return t.Unix() / 3600 }

// silence is a time without a line.
type silence struct{ from, to time.Time }

func (h silence) length() time.Duration { return h.to.Sub(h.from) }

// holes are the times of a day and more, between the first line that the window needs and now, of
// which the log has no line; the latest first. They are counted by the hour.
func (l *logReader) holes() []silence {
	var out []silence
	to := l.options.Now
	for _, h := range slices.Backward(slices.Sorted(maps.Keys(l.hours))) {
		begin := time.Unix(h*3600, 0)
		if end := begin.Add(time.Hour); to.Sub(end) > quiet {
			out = append(out, silence{later(end, l.since), to})
		}
		if to = begin; begin.Before(l.since) {
			break
		}
	}
	return slices.DeleteFunc(out, func(h silence) bool { return h.length() <= quiet })
}

// coverage notes how far back the log reaches, and warns where that is less than was asked for.
func (l *logReader) coverage(set *Set, warn func(format string, args ...any)) {
	set.Logs++
	young := l.oldest.After(l.since.Add(time.Hour))
	if l.lines > 0 {
		l.covers(set, young, warn)
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
	if !l.from.IsZero() {
		set.From = earlier(set.From, l.from)
	}
	set.To = later(set.To, l.to)
}

// covers notes how far back a log with lines reaches: to its begin or, where that is nearer, to the
// end of the last time in which lines are missing.
func (l *logReader) covers(set *Set, young bool, warn func(format string, args ...any)) {
	covers := l.options.Window
	if covers <= 0 || young {
		covers = max(l.options.Now.Sub(l.oldest), time.Second) // of a log whose clock is ahead, as little as can be
	}
	with, holes := covers, l.holes()
	var texts []string
	for i, h := range holes {
		with -= h.length()
		if i < namedHoles {
			texts = append(texts, h.from.UTC().Format(time.DateTime)+" to "+h.to.UTC().Format(time.DateTime))
		}
	}
	if more := len(holes) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	named := strings.Join(texts, ", ")
	if named != "" {
		warn("the log has no line from %s: where requests were served then, what only these used counts as unused", named)
	}
	for _, h := range holes {
		if h.length() > weekend && h.to.Before(l.options.Now) {
			covers = min(covers, l.options.Now.Sub(h.to))
			break
		}
	}
	if set.Covers == 0 || covers < set.Covers {
		set.Covers = covers
	}
	c := Coverage{l.options.Window, max(with, 0), later(l.oldest, l.since), named}
	if set.Coverage.Window == 0 || c.Lines < set.Coverage.Lines {
		set.Coverage = c
	}
}
