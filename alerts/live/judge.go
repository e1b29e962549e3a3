package live

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// always fires whatever happens: it is the proof that alerts arrive.
const always = "Watchdog"

// Judge holds what Alertmanager sent against what was staged.
type Judge struct {
	record *Record
	// quietAfter is how long consequences of a trouble may go on after its end: ranges of rules and
	// the ends of alerts.
	quietAfter time.Duration
	// timeScale is how much faster than their own time rules run.
	timeScale float64
	staged    []staged
}

// expect adds cases that are on the time line.
func (j *Judge) expect(s ...staged) { j.staged = append(j.staged, s...) }

// wait returns when every wanted alert of the cases has been received since their beginning, or
// with an error that names those that have not when ctx ends.
func (j *Judge) wait(ctx context.Context, cases []staged) error {
	for {
		changed := j.record.changed()
		var missing []string
		for _, s := range cases {
			for _, name := range s.missing(j.record.Since(s.from)) {
				missing = append(missing, fmt.Sprintf("%s (%s of %s)", name, s.Name, s.target))
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("these alerts did not reach Alertmanager's receiver: %q: %w", missing, context.Cause(ctx))
		}
	}
}

// Strays are the alerts that began at or after from and that no staged case explains.
func (j *Judge) Strays(from time.Time) []Notification {
	var out []Notification
	for _, n := range j.record.Since(from) {
		if n.Name() == always || n.StartsAt.Before(from) {
			continue
		}
		if !slices.ContainsFunc(j.staged, func(s staged) bool {
			remembered := time.Duration(float64(s.Remembered[n.Name()]) / max(1, j.timeScale))
			return !n.StartsAt.Before(s.from) && n.StartsAt.Before(s.until.Add(j.quietAfter+max(s.After, remembered))) && s.explains(n)
		}) {
			out = append(out, n)
		}
	}
	return out
}
