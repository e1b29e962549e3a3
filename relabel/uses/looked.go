package uses

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// words are what a use of each kind is called in a sentence, in this order.
var words = []struct {
	kind Kind
	word string
}{
	{Dashboard, "dashboard"},
	{Rule, "rule"},
	{Autoscaler, "autoscaler"},
	{Object, "other document"},
	{Listed, "query of a file"},
	{Kept, "entry to keep"},
	{Logged, "logged query"},
}

// Looked names the kinds of which something was read, for sentences that begin with No: `dashboard,
// rule or logged query`. What nobody gave is not in it: a sentence that named it would claim that
// somebody looked. past goes behind the logged queries.
func Looked(read func(Kind) bool, past string) string {
	var out []string
	for _, w := range words {
		if !read(w.kind) {
			continue
		}
		word := w.word
		if w.kind == Logged && past != "" {
			word += " " + past
		}
		out = append(out, word)
	}
	switch last := len(out) - 1; last {
	case -1:
		return "use"
	case 0:
		return out[0]
	default:
		return strings.Join(out[:last], ", ") + " or " + out[last]
	}
}

// Looked is Looked of what the set has. A usage log that is younger than the window is said to
// reach back as far as it does, one that ended long ago to end there, and one with losses to lack
// them.
func (s *Set) Looked(window time.Duration) string {
	past := ""
	switch {
	case s.Covers > 0 && s.Coverage.Ended > 0:
		past = fmt.Sprintf("of the %s until %s", Span(s.Covers-s.Coverage.Ended), s.Coverage.Until.UTC().Format(time.DateOnly))
	case s.Covers > 0 && (window <= 0 || s.Covers < window):
		past = fmt.Sprintf("of the %s that the usage log covers", Span(s.Covers))
	case window > 0:
		past = "of the last " + Span(window)
	}
	if s.Covers > 0 && s.Lost.Requests > 0 {
		past += fmt.Sprintf(" (but for %s)", number(s.Lost.Requests, "request that was lost", "requests that were lost"))
	}
	return Looked(func(kind Kind) bool {
		return kind == Logged && s.Covers > 0 || slices.ContainsFunc(s.Uses, func(u *Use) bool { return u.Kind == kind })
	}, past)
}

// Span writes a stretch of time as people say it: whole days, or hours where it is shorter than two
// of them.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day || d == day:
		return number(int64(d/day), "day", "days")
	case d >= time.Hour:
		return number(int64(d/time.Hour), "hour", "hours")
	}
	return d.Round(time.Second).String()
}

func number(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
