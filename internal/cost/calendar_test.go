package cost

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests, on machines without any
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestParseRange(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC) // the 21st in Berlin
	for _, c := range []struct {
		from, to string
		loc      *time.Location
		want     string // RFC 3339, or the begin of an error
	}{
		{"2026-11", "2026-11-03", time.UTC, "2026-11-01T00:00:00Z 2026-11-03T00:00:00Z"},
		{"last-month", "this-month", time.UTC, "2026-10-01T00:00:00Z 2026-11-01T00:00:00Z"},
		{"last-month", "this-month", berlin, "2026-10-01T00:00:00+02:00 2026-11-01T00:00:00+01:00"},
		{"yesterday", "today", berlin, "2026-11-20T00:00:00+01:00 2026-11-21T00:00:00+01:00"},
		{"yesterday", "today", time.UTC, "2026-11-19T00:00:00Z 2026-11-20T00:00:00Z"},
		{"today", "now", berlin, "2026-11-21T00:00:00+01:00 2026-11-21T00:30:00+01:00"},
		{"2026-11-01T06:30", "2026-11-01 18:00", berlin, "2026-11-01T06:30:00+01:00 2026-11-01T18:00:00+01:00"},
		{"2026-11-01T00:00:00Z", "2026-11-01T06:00:00+02:00", berlin, "2026-11-01T00:00:00Z 2026-11-01T06:00:00+02:00"},
		{"1790812800", "1790816400", time.UTC, "2026-10-01T00:00:00Z 2026-10-01T01:00:00Z"},
		{"2026-11-02", "2026-11-02", time.UTC, "--to (2026-11-02T00:00:00Z) must be after --from"},
		{"2026-11-02", "2026-11-22", time.UTC, "--to (2026-11-22T00:00:00Z) is still to come"},
		{"2024-01", "today", time.UTC, "the range is 1054 days long"},
		{"", "today", time.UTC, "--from is empty"},
		{"soon", "later", time.UTC, "--from=soon is no time: "},
		{"2026-13", "today", time.UTC, "--from=2026-13 is no time: "},
		{"1969-12-31", "1970-01-02", time.UTC, "--from (1969-12-31T00:00:00Z) is before 1970"},
	} {
		r, err := ParseRange(c.from, c.to, c.loc, now)
		if err != nil {
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s to %s: %v, not %s", c.from, c.to, err, c.want)
			}
			continue
		}
		if got := r.From.Format(time.RFC3339) + " " + r.To.Format(time.RFC3339); !sameMoments(got, c.want) {
			t.Errorf("%s to %s: %s, not %s", c.from, c.to, got, c.want)
		}
	}
}

func sameMoments(a, b string) bool {
	as, bs := strings.Fields(a), strings.Fields(b)
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		x, xerr := time.Parse(time.RFC3339, as[i])
		y, yerr := time.Parse(time.RFC3339, bs[i])
		if xerr != nil || yerr != nil || !x.Equal(y) {
			return false
		}
	}
	return true
}

// TestDays: days of all lengths there are, each cut into windows of an hour from its own beginning.
func TestDays(t *testing.T) {
	for _, c := range []struct {
		zone, from, to string
		hours          []float64
		first          string // of the second day
	}{
		{"Europe/Berlin", "2026-03-28", "2026-03-31", []float64{24, 23, 24}, "2026-03-29T00:00:00+01:00"},
		{"Europe/Berlin", "2026-10-24", "2026-10-27", []float64{24, 25, 24}, "2026-10-25T00:00:00+02:00"},
		{"America/Los_Angeles", "2026-03-07", "2026-03-10", []float64{24, 23, 24}, "2026-03-08T00:00:00-08:00"},
		{"Australia/Lord_Howe", "2026-04-04", "2026-04-07", []float64{24, 24.5, 24}, "2026-04-05T00:00:00+11:00"},
		{"America/Sao_Paulo", "2018-11-03", "2018-11-06", []float64{24, 23, 24}, "2018-11-04T01:00:00-02:00"}, // no midnight
		{"Pacific/Apia", "2011-12-28", "2012-01-01", []float64{24, 24, 24}, "2011-12-29T00:00:00-10:00"},      // no 30th
		{"Asia/Kathmandu", "2026-11-01", "2026-11-03", []float64{24, 24}, "2026-11-02T00:00:00+05:45"},
		{"UTC", "2026-11-01T06:30", "2026-11-02T01:15", []float64{17.5, 1.25}, "2026-11-02T00:00:00Z"},
	} {
		r, err := ParseRange(c.from, c.to, zone(t, c.zone), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, 0))
		if err != nil {
			t.Fatal(c.zone, err)
		}
		days := r.Days()
		var hours []float64
		for _, d := range days {
			hours = append(hours, d.To.Sub(d.From).Hours())
		}
		if len(hours) != len(c.hours) {
			t.Errorf("%s: days of %v hours, not %v", c.zone, hours, c.hours)
			continue
		}
		for i := range hours {
			if hours[i] != c.hours[i] {
				t.Errorf("%s: days of %v hours, not %v", c.zone, hours, c.hours)
			}
		}
		if got := days[1].From.In(r.Location).Format(time.RFC3339); got != c.first {
			t.Errorf("%s: the second day begins at %s, not %s", c.zone, got, c.first)
		}
		tiles(t, r)
	}
}

// tiles fails where days and windows do not lie one after the other from the range's begin to its
// end.
func tiles(t testing.TB, r Range) {
	t.Helper()
	days := r.Days()
	at := r.From
	for _, d := range days {
		if !d.From.Equal(at) || !d.To.After(d.From) || d.To.Sub(d.From) > 49*time.Hour {
			t.Fatalf("%s: the day %s is from %s to %s, the one before ended at %s", r.Location, d.Name, d.From, d.To, at)
		}
		at = d.To
	}
	if !at.Equal(r.To) {
		t.Fatalf("%s: the last day ends at %s, the range at %s", r.Location, at, r.To)
	}
	ms := r.From.UnixMilli()
	for _, w := range windows(days) {
		if w.from != ms || w.to <= w.from || w.to-w.from > hourMillis || w.from < days[w.day].From.UnixMilli() ||
			w.to > days[w.day].To.UnixMilli() {
			t.Fatalf("%s: the window %+v comes after %d", r.Location, w, ms)
		}
		ms = w.to
	}
	if ms != r.To.UnixMilli() {
		t.Fatalf("%s: the windows end at %d, the range at %d", r.Location, ms, r.To.UnixMilli())
	}
}

// FuzzParseRange: whatever the flags say, there is a range that its days and windows fill without a
// gap, or an error that names a flag.
func FuzzParseRange(f *testing.F) {
	zones := []string{
		"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu",
		"America/St_Johns", "Africa/Casablanca",
	}
	for i, s := range []string{
		"2026-11", "2026-03-29", "2018-11-04", "2011-12-30", "today", "last-month", "2026-11-01T06:30", "1790812800",
		"2026-11-01T00:00:00+14:00", "",
	} {
		f.Add(s, "today", uint8(i), int64(1795000000))
		f.Add("2011-12-01", s, uint8(i+1), int64(1325900000))
	}
	f.Fuzz(func(t *testing.T, from, to string, z uint8, now int64) {
		if now < 0 || now > 1<<33 {
			return
		}
		loc := zone(t, zones[int(z)%len(zones)])
		r, err := ParseRange(from, to, loc, time.Unix(now, 0))
		if err != nil {
			if !strings.Contains(err.Error(), "--") && !strings.Contains(err.Error(), "the range is") {
				t.Errorf("%v names no flag", err)
			}
			return
		}
		if r.To.After(time.Unix(now, 0)) || !r.From.Before(r.To) || r.To.Sub(r.From) > maxRange {
			t.Fatalf("%s to %s at %d: %s to %s", from, to, now, r.From, r.To)
		}
		tiles(t, r)
	})
}
