package endpoint

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

func TestParseTime(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
	}{
		{"0", 0},
		{"-0", 0},
		{"-1.5", -1500},
		{"1755003600", 1755003600000},
		{"1755003600.123", 1755003600123},
		{"1755003600.123456789", 1755003600123},
		{"1755003600.1235", 1755003600124}, // rounded, as Prometheus does with floats
		{"1.7550036e9", 1755003600000},
		{"0x1p4", 16000},
		{"1754996400000", 1754996400000000}, // Grafana's milliseconds: the year 57584
		{"2026-08-22T10:00:00Z", 1787392800000},
		{"2026-08-22T10:00:00.123Z", 1787392800123},
		{"2026-08-22T10:00:00.123999999Z", 1787392800123}, // cut, as Prometheus does with RFC 3339
		{"2026-08-22T12:00:00+02:00", 1787392800000},
		{"0000-01-01T00:00:00Z", -62167219200000},
		{"9999-12-31T23:59:59.999Z", 253402300799999},
		{minTimeText, minTime.UnixMilli()},
		{maxTimeText, maxTime.UnixMilli()},
	} {
		got, err := parseTime(tc.in)
		if err != nil || !got.Set || got.Ms != tc.want {
			t.Errorf("%s: %v %v, want %d", tc.in, got, err, tc.want)
		}
	}
	for _, in := range []string{
		"", " ", "now", "NaN", "nan", "Inf", "-Inf", "+Inf", "infinity", "1e308", "-1e308", "1e309", "1e16", "-1e16", "9223372036854775807",
		"1w2d", "5m", "1 ", "1,5",
		"2026-12-31T23:59:60Z", "2026-13-01T00:00:00Z", "2026-08-22", "2026-08-22 10:00:00Z", "2026-08-22T10:00:00",
		"10000-01-01T00:00:00Z", "--1", "0x", "\x00",
	} {
		if got, err := parseTime(in); err == nil {
			t.Errorf("%q is read as %d", in, got.Ms)
		}
	}
}

func TestParseDurations(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration
	}{
		{"15", 15 * time.Second},
		{"0.2", 200 * time.Millisecond},
		{"60.000", time.Minute},
		{"300s", 5 * time.Minute},
		{"5m", 5 * time.Minute},
		{"1m0s", time.Minute},
		{"1w2d", 9 * 24 * time.Hour},
		{"1500ms", 1500 * time.Millisecond},
		{"1.001", time.Second}, // the float is below 1.001, and Prometheus cuts
		{"1e3", 1000 * time.Second},
	} {
		for name, parse := range map[string]func(string) (time.Duration, error){
			"step": parseStep, "timeout": parseTimeout,
			"positive": parsePositive,
		} {
			if got, err := parse(tc.in); err != nil || got != tc.want {
				t.Errorf("%s %s: %v %v, want %v", name, tc.in, got, err, tc.want)
			}
		}
	}
	for _, in := range []string{"", "NaN", "Inf", "-Inf", "1e308", "1e10", "-1e10", "x", "5 m", "2d1w", "m", "9999999y"} {
		for name, parse := range map[string]func(string) (time.Duration, error){"step": parseStep, "positive": parsePositive} {
			if got, err := parse(in); err == nil {
				t.Errorf("%s %q is read as %v", name, in, got)
			}
		}
	}
	for _, in := range []string{"0", "-0", "-1", "0.0001", "-5m", "0s"} {
		if got, err := parseStep(in); err == nil {
			t.Errorf("step %q is read as %v", in, got)
		}
		if got, err := parsePositive(in); err == nil {
			t.Errorf("lookback %q is read as %v", in, got)
		}
		if got, err := parseTimeout(in); err != nil || got != 0 {
			t.Errorf("timeout %q: %v %v, want none", in, got, err)
		}
	}
}

// TestLookback: what is no stretch of time is the server's default, as Prometheus has it; what it
// cannot read, and what is too short for milliseconds, is refused.
func TestLookback(t *testing.T) {
	for in, want := range map[string]time.Duration{"0": 0, "-0": 0, "0s": 0, "0.5": 500 * time.Millisecond, "5m": 5 * time.Minute} {
		if got, err := parseLookback(in); err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"0.0001", "-1", "-5m", "", "x", "NaN", "Inf"} {
		if got, err := parseLookback(in); err == nil {
			t.Errorf("%q is read as %v", in, got)
		}
	}
}

// reference computes the milliseconds that Prometheus 3.15 evaluates at: a float is split at the
// point, its fraction rounded to milliseconds.
func reference(s string) (int64, bool) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		whole, frac := math.Modf(f)
		return time.Unix(int64(whole), int64(math.Round(frac*1000)/1000*1e9)).UnixMilli(), true
	}
	when, err := time.Parse(time.RFC3339Nano, s)
	return when.UnixMilli(), err == nil
}

func FuzzTimes(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "1755003600.123", "1754996400000", "-62135596800", "9223309901257974", "-9223309901257974", "4398046511104.001",
		"8796093022208.0005", "1e12", "NaN", "1e308",
		"2026-08-22T10:00:00.123456789+02:00", minTimeText, maxTimeText, "15", "0.2", "60.000", "300s", "1.001", "-29s876ms",
		"1y2w3d4h5m6s7ms", "9223372036.854775",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := parseTime(s); err == nil {
			if again, err := parseTime(formatTime(got)); err != nil || again != got {
				t.Errorf("%q is %d, written as %s, read as %d, %v", s, got.Ms, formatTime(got), again.Ms, err)
			}
			if want, ok := reference(s); ok && got.Ms != want {
				t.Errorf("%q is %d here and %d in Prometheus", s, got.Ms, want)
			}
			if want, ok := reference(formatTime(got)); ok && got.Ms != want {
				t.Errorf("%d is written as %s, which is %d in Prometheus", got.Ms, formatTime(got), want)
			}
		}
		for _, parse := range []func(string) (time.Duration, error){parseStep, parseTimeout, parsePositive} {
			d, err := parse(s)
			if err != nil || d == 0 {
				continue
			}
			if d < time.Millisecond || d%time.Millisecond != 0 {
				t.Errorf("%q is %v", s, d)
			}
			text := formatDuration(d)
			if again, err := parse(text); err != nil || again != d {
				t.Errorf("%q is %v, written as %s, read as %v, %v", s, d, text, again, err)
			}
			if want, err := model.ParseDuration(text); err != nil || time.Duration(want) != d {
				t.Errorf("%v is written as %s, which is %v in Prometheus, %v", d, text, want, err)
			}
		}
	})
}

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc..."}, {"a\u00e4b", 2, "a..."}, {"\u00e4", 1, "..."}, {strings.Repeat("\x80", 9), 4, "..."},
	} {
		if got := cut(tc.in, tc.n); got != tc.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}
