package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Bytes is an amount of memory or disk. It is written like 64MiB; units are powers of 1024, and KB
// means KiB, as in Prometheus' own flags.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{{"EiB", 1 << 60}, {"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseBytes reads an amount such as 64MiB, 1.5GB or 4096. It may be zero, never negative.
func ParseBytes(s string) (Bytes, error) {
	digits := strings.TrimRight(s, "KMGTPEiB")
	unit, ok := strings.TrimPrefix(s, digits), int64(0)
	for _, u := range byteUnits {
		if unit == u.name || unit == strings.Replace(u.name, "i", "", 1) {
			ok = u.size
		}
	}
	if unit == "" {
		ok = 1
	}
	if ok == 0 || digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return 0, errors.New("not an amount of bytes; write it like 64MiB (units: B, KiB, MiB, GiB, TiB)")
	}
	if whole, err := strconv.ParseInt(digits, 10, 64); err == nil {
		if whole > math.MaxInt64/ok {
			return 0, errors.New("more bytes than any machine has")
		}
		return Bytes(whole * ok), nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, errors.New("not an amount of bytes; write it like 64MiB")
	}
	if f *= float64(ok); f >= math.MaxInt64 {
		return 0, errors.New("more bytes than any machine has")
	}
	return Bytes(f), nil
}

// String is the amount in the largest unit that divides it, as the file would spell it.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.name
		}
	}
	return "0B"
}

// Duration spells a duration as the file does: 25s, 55m, 31d.
func Duration(d time.Duration) string { return model.Duration(d).String() }

// parseDuration reads a duration such as 25s or 31d.
func parseDuration(s string) (time.Duration, error) {
	d, err := model.ParseDuration(s)
	if err != nil {
		if _, numErr := strconv.ParseFloat(s, 64); numErr == nil {
			return 0, fmt.Errorf("a duration needs a unit; write %ss if seconds are meant", s)
		}
		return 0, errors.New("not a duration; write it like 25s, 55m or 31d (units: ms, s, m, h, d, w, y, largest first)")
	}
	return time.Duration(d), nil
}

// Moment is a point in time that bounds what a group or shard holds: absolute (RFC 3339) or
// relative to now (-14d). The zero Moment is no bound.
type Moment struct {
	// Rel is the distance from now, below 0; 0 where the moment is absolute.
	Rel time.Duration
	// Abs is the absolute time; the zero time where the moment is relative.
	Abs time.Time
	// Set tells whether the file gave it.
	Set bool
}

// At is the moment in milliseconds since the Unix epoch for a request that arrived at now. It is 0
// where the moment is not set: ask Set first, or use Span.
func (m Moment) At(now time.Time) int64 {
	switch {
	case !m.Set:
		return 0
	case m.Rel != 0:
		return now.Add(m.Rel).UnixMilli()
	default:
		return m.Abs.UnixMilli()
	}
}

// String spells the moment as the file does; empty where it is not set.
func (m Moment) String() string {
	switch {
	case !m.Set:
		return ""
	case m.Rel != 0:
		return "-" + Duration(-m.Rel)
	default:
		return m.Abs.UTC().Format(time.RFC3339Nano)
	}
}

// Span is the time [from, until) in milliseconds between two moments, for a request that arrived at
// now. Open ends are math.MinInt64 and math.MaxInt64.
func Span(from, until Moment, now time.Time) (int64, int64) {
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	if from.Set {
		lo = from.At(now)
	}
	if until.Set {
		hi = until.At(now)
	}
	return lo, hi
}

// ParseMoment reads an RFC 3339 time, or how long before now the time is: -14d.
func ParseMoment(s string) (Moment, error) {
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		d, err := model.ParseDuration(rest)
		if err != nil || d == 0 {
			return Moment{}, errors.New("not a relative time; write it like -14d")
		}
		return Moment{Rel: -time.Duration(d), Set: true}, nil
	}
	if _, err := model.ParseDuration(s); err == nil {
		return Moment{}, fmt.Errorf("a relative time lies in the past; write -%s", s)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return Moment{}, errors.New("not a time; write it like 2026-10-01T00:00:00Z, or -14d for fourteen days ago")
	}
	if y := t.Year(); y < 1970 || y > 9999 {
		return Moment{}, errors.New("the year must lie between 1970 and 9999")
	}
	return Moment{Abs: t, Set: true}, nil
}

// stars is what every secret prints as, whatever its length.
const stars = "***"

// Secret is a value that no printing shows: fmt with any verb, slog, JSON, YAML and text
// marshalling all give stars. string(s) is the value.
type Secret string

// Format prints stars for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(stars)) }

// String is stars.
func (s Secret) String() string { return stars }

// GoString is stars.
func (s Secret) GoString() string { return stars }

// MarshalJSON is stars.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(stars) }

// MarshalText is stars.
func (s Secret) MarshalText() ([]byte, error) { return []byte(stars), nil }

// MarshalYAML is stars.
func (s Secret) MarshalYAML() (any, error) { return stars, nil }

// LogValue is stars.
func (s Secret) LogValue() slog.Value { return slog.StringValue(stars) }
