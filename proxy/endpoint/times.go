package endpoint

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/clip"
)

// The instants that Prometheus can hold, as its HTTP API bounds them; they are also the ones that
// promtool and client_golang send for "always".
var (
	minTime = time.Unix(math.MinInt64/1000+62135596801, 0).UTC()
	maxTime = time.Unix(math.MaxInt64/1000-62135596801, 999999999).UTC()

	// Their years have more than four digits, which time.Parse cannot read, so they are compared as
	// text.
	minTimeText = minTime.Format(time.RFC3339Nano)
	maxTimeText = maxTime.Format(time.RFC3339Nano)
)

// parseTime reads an instant as Prometheus does: Unix seconds with a fraction, rounded to the
// millisecond, or RFC 3339, cut down to it (before 1970 Prometheus' storage cuts down and its
// engine up; no client asks there by RFC 3339). What lies outside the range that Prometheus can
// hold is an error; Prometheus lets it wrap around.
func parseTime(s string) (Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return Time{}, fmt.Errorf("%s is no instant; write Unix seconds or RFC 3339", quoted(s))
		}
		if f < float64(minTime.Unix()) || f > float64(maxTime.Unix()) {
			return Time{}, fmt.Errorf("%s seconds is outside the time that Prometheus can hold; write Unix seconds, not nanoseconds", quoted(s))
		}
		sec, frac := math.Modf(f)
		return At(int64(sec)*1000 + int64(math.Round(frac*1000))), nil
	}
	switch s {
	case minTimeText:
		return At(minTime.UnixMilli()), nil
	case maxTimeText:
		return At(maxTime.UnixMilli()), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return At(t.UnixMilli()), nil
	}
	return Time{}, fmt.Errorf("cannot parse %s to a valid timestamp; write Unix seconds, such as 1755000000.123, or RFC 3339, such as 2026-08-12T12:00:00Z", quoted(s))
}

// formatTime writes an instant so that parseTime and Prometheus read the same millisecond: decimal
// seconds, made without floating point. Beyond 2^53 s not every decimal has a float of its own, so
// the two outermost instants have the text that Prometheus knows them by.
func formatTime(t Time) string {
	switch t.Ms {
	case minTime.UnixMilli():
		return minTimeText
	case maxTime.UnixMilli():
		return maxTimeText
	}
	sign := ""
	ms := uint64(t.Ms)
	if t.Ms < 0 {
		sign, ms = "-", -ms
	}
	out := sign + strconv.FormatUint(ms/1000, 10)
	if frac := ms % 1000; frac != 0 {
		out += "." + strings.TrimRight(fmt.Sprintf("%03d", frac), "0")
	}
	return out
}

// parseDuration reads a duration as Prometheus does: seconds as a float, or units such as 5m. It is
// cut to whole milliseconds, which is all that the engine uses of it: 1.001 is 1 s to Prometheus,
// since the float lies below, and therefore here.
func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		ns := f * float64(time.Second)
		if math.IsNaN(ns) || ns >= math.MaxInt64 || ns <= math.MinInt64 {
			return 0, fmt.Errorf("cannot parse %s to a valid duration. It overflows int64", quoted(s))
		}
		return time.Duration(ns).Truncate(time.Millisecond), nil
	}
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %s to a valid duration; write seconds, such as 15 or 0.5, or units, such as 5m", quoted(s))
}

// formatDuration writes whole seconds or milliseconds with their unit. A plain decimal would not
// do: see parseDuration about 1.001.
func formatDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return strconv.FormatInt(int64(d/time.Millisecond), 10) + "ms"
}

// parseTimeout reads the client's own bound. Zero and negative ones are no bound:
// prometheus-adapter computes now minus deadline, so what it means is "not for ever", which ours
// ensures. Refusing them would stop its autoscaling for a slip that no bound of ours depends on.
func parseTimeout(s string) (time.Duration, error) {
	abs, negative := strings.CutPrefix(s, "-")
	d, err := parseDuration(abs)
	if err != nil {
		return 0, err
	}
	if negative || d < 0 {
		return 0, nil
	}
	return d, nil
}

// parseLookback reads a lookback. Zero is the server's default, as Prometheus has it.
func parseLookback(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f == 0 {
		return 0, nil
	}
	if d, err := model.ParseDuration(s); err == nil && d == 0 {
		return 0, nil
	}
	return parsePositive(s)
}

// parsePositive reads a duration of at least a millisecond.
func parsePositive(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err != nil {
		return 0, err
	}
	if d < time.Millisecond {
		return 0, errors.New("must be at least one millisecond")
	}
	return d, nil
}

// parseStep reads the resolution of a range query. The first sentence is Prometheus' own.
func parseStep(s string) (time.Duration, error) {
	d, err := parseDuration(s)
	if err != nil {
		return 0, err
	}
	if d <= 0 {
		return 0, errors.New("zero or negative query resolution step widths are not accepted. Try a positive integer")
	}
	return d, nil
}

// quoted is a value in quotes for an error text, cut to 64 bytes.
func quoted(s string) string { return strconv.Quote(cut(s, 64)) }

// cut is clip.Text with three dots.
func cut(s string, n int) string {
	if p := clip.Prefix(s, n); len(p) < len(s) {
		return p + "..."
	}
	return s
}
