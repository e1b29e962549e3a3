package cost

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxRange is the longest range of one bill.
const maxRange = 400 * 24 * time.Hour

// Range is what a bill covers: [From, To), with the days of Location.
type Range struct {
	From, To time.Time
	Location *time.Location
}

// Day is a calendar day of a range's time zone as far as it lies in the range. It has 23 or 25
// hours where clocks are changed.
type Day struct {
	Name     string // 2026-11-03
	From, To time.Time
}

// window is what is counted in one piece: an hour, or less at the end of a day or of the range. To
// is exclusive.
type window struct {
	from, to int64 // ms
	day      int   // index into Days
	hour     int   // index of the hour within the range: pieces of one hour share it
}

// ParseRange reads the flags --from and --to. Both take 2026-11 (the first moment of the month),
// 2026-11-03, 2026-11-03T04:00, an RFC 3339 time, Unix seconds, and now, today, yesterday,
// this-month, last-month (the first moment of it), all in loc but the RFC 3339 time, which has its
// own offset. Seconds are cut off.
func ParseRange(from, to string, loc *time.Location, now time.Time) (Range, error) {
	f, ferr := parseMoment("from", from, loc, now)
	t, terr := parseMoment("to", to, loc, now)
	if err := errors.Join(ferr, terr); err != nil {
		return Range{}, err
	}
	r := Range{From: f, To: t, Location: loc}
	return r, r.check(now)
}

func (r Range) check(now time.Time) error {
	switch {
	case !r.To.After(r.From):
		return fmt.Errorf("--to (%s) must be after --from (%s)", r.To.Format(time.RFC3339), r.From.Format(time.RFC3339))
	case r.To.After(now):
		return fmt.Errorf("--to (%s) is still to come: hours that have not been cannot be billed; use --to=today, or --to=now at the latest", r.To.Format(time.RFC3339))
	case r.To.Sub(r.From) > maxRange:
		return fmt.Errorf("the range is %d days long; at most %d at once", int(r.To.Sub(r.From).Hours()/24), int(maxRange.Hours()/24))
	case r.From.Unix() < 0:
		return fmt.Errorf("--from (%s) is before 1970", r.From.Format(time.RFC3339))
	}
	return nil
}

// layouts are the forms of a moment without an offset, all to be read in the range's time zone.
var layouts = []string{"2006-01", "2006-01-02", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05"}

func parseMoment(flag, s string, loc *time.Location, now time.Time) (time.Time, error) {
	s = strings.TrimSpace(s)
	y, m, d := now.In(loc).Date()
	switch s {
	case "":
		return time.Time{}, fmt.Errorf("--%s is empty: give a day such as 2026-11-01, a month such as 2026-11, or yesterday, today, last-month, this-month", flag)
	case "now":
		return now.Truncate(time.Second), nil
	case "today":
		return dayStart(y, m, d, loc), nil
	case "yesterday":
		return dayStart(y, m, d-1, loc), nil
	case "this-month":
		return dayStart(y, m, 1, loc), nil
	case "last-month":
		return dayStart(y, m-1, 1, loc), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.Truncate(time.Second), nil
	}
	for i, l := range layouts {
		t, err := time.ParseInLocation(l, s, loc)
		if err != nil {
			continue
		}
		if i < 2 {
			y, m, d := mustDate(l, s)
			t = dayStart(y, m, d, loc) // where clocks change at midnight there may be none
		}
		return t, nil
	}
	if sec, err := strconv.ParseInt(s, 10, 64); err == nil && sec >= 0 && sec < 1<<33 {
		return time.Unix(sec, 0), nil
	}
	return time.Time{}, fmt.Errorf("--%s=%s is no time: give a day such as 2026-11-01, a month such as 2026-11, a time such as 2026-11-01T06:00, or yesterday, today, last-month, this-month", flag, s)
}

// mustDate is the date that s, which was parsed with the layout before, says. It does not depend on
// a time zone.
func mustDate(layout, s string) (int, time.Month, int) {
	t, err := time.Parse(layout, s)
	if err != nil {
		panic(err) // the same text was parsed with the same layout a moment ago
	}
	return t.Date()
}

// dayStart is the first moment of a day. time.Date alone gives 23:00 of the day before where clocks
// are put forward at midnight.
func dayStart(y int, m time.Month, d int, loc *time.Location) time.Time {
	wy, wm, wd := time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Date() // normalised
	want := time.Date(wy, wm, wd, 0, 0, 0, 0, time.UTC)
	date := func(t time.Time) time.Time {
		y, m, d := t.In(loc).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
	t := time.Date(wy, wm, wd, 0, 0, 0, 0, loc)
	const step = 15 * time.Minute // offsets are changed at, and by, multiples of it
	for n := 0; n < 200 && date(t).Before(want); n++ {
		t = t.Add(step)
	}
	for n := 0; n < 200 && !date(t.Add(-step)).Before(want); n++ {
		t = t.Add(-step)
	}
	return t
}

// Days are the calendar days that the range touches, the first and the last cut to it. A day that a
// time zone skips, as Samoa did when it changed sides of the date line, is not among them.
func (r Range) Days() []Day {
	var out []Day
	y, m, d := r.From.In(r.Location).Date()
	for from := r.From; from.Before(r.To); {
		d++
		to := dayStart(y, m, d, r.Location)
		if !to.After(from) {
			continue
		}
		if to.After(r.To) {
			to = r.To
		}
		out = append(out, Day{Name: from.In(r.Location).Format(time.DateOnly), From: from, To: to})
		from = to
	}
	return out
}

// windows cuts each day into hours from its beginning on; the last of a day may be shorter (Lord
// Howe Island changes its clocks by half an hour).
func windows(days []Day) []window {
	var out []window
	hour := 0
	for i, d := range days {
		end := d.To.UnixMilli()
		for from := d.From.UnixMilli(); from < end; hour++ {
			to := min(from+hourMillis, end)
			out = append(out, window{from: from, to: to, day: i, hour: hour})
			from = to
		}
	}
	return out
}

const hourMillis = int64(time.Hour / time.Millisecond)
