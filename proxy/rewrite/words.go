package rewrite

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Words say in what the request differs from the one that was refused: what to ask, after "try".
func Words(was, is *endpoint.Request) string {
	what := ""
	switch {
	case is.Query != was.Query:
		what = clip.Text(is.Query, shownText)
	case !slices.Equal(is.Match, was.Match):
		what = clip.Text("match[]="+strings.Join(is.Match, " match[]="), shownText)
	}
	if is.Start != was.Start {
		last := "the last " + said(time.Duration(is.End.Ms-is.Start.Ms)*time.Millisecond) + " of this range"
		if what != "" {
			what += " over "
		}
		what += last
	}
	if is.Step != was.Step {
		if what != "" {
			what += " with "
		}
		what += "step=" + model.Duration(is.Step).String()
	}
	return what
}

// said is a stretch of time that may be short of a round one by what lies between two steps.
func said(d time.Duration) string {
	for _, w := range slices.Backward(windows) {
		if d <= w {
			if w-d <= w/10 {
				d = w
			}
			break
		}
	}
	return model.Duration(d).String()
}

// Sentence is the proposal as advice to whoever asked for was: what to ask, and what that costs.
// ago is how long it was ago that it was tried; 0 is now.
func (p *Proposal) Sentence(was *endpoint.Request, ago time.Duration) string {
	what := Words(was, p.Request)
	if !p.Tried {
		return fmt.Sprintf("try %s (estimated at %s, %s)", what, count(p.Cost.Series, "series", "series"),
			count(p.Cost.Samples, "sample", "samples"))
	}
	when := "tried"
	if ago = ago.Truncate(time.Second); ago > 0 {
		when += " " + ago.String() + " ago"
	}
	return fmt.Sprintf("try %s (%s: %s, %s in %s)", what, when, count(p.Took.Series, "series", "series"),
		count(p.Took.Samples, "sample", "samples"), shortly(p.Took.Time))
}

func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// shortly is a time as people say it: whole milliseconds, at least one.
func shortly(d time.Duration) string {
	return max(d.Round(time.Millisecond), time.Millisecond).String()
}
