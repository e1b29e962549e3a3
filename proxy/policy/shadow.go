package policy

import (
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Shadowable are the bounds that may be in shadow: told of, and not enforced. They keep the shards
// from work; what keeps Spillway itself alive always holds, memory.budget foremost.
var Shadowable = []string{
	BoundMaxRange, BoundMetadataRange, BoundUnselective, BoundMaxSeriesTouched, BoundMaxShardBytes, BoundMaxSeries, BoundMaxResponseBytes,
}

// What stands for no bound: far beyond anything that can be asked or answered, and small enough to
// be added to.
const (
	anyRange  = 100 * 365 * 24 * time.Hour
	anySeries = 1 << 30 // a server may read it as an int of 32 bits
	anyBytes  = 1 << 50
)

// Without is the limits without those of the bounds, each one of Shadowable. Without metadata_range
// metadata is looked up in all of max_range.
func (l Limits) Without(bounds ...string) Limits {
	for _, b := range bounds {
		switch b {
		case BoundMaxRange:
			l.MaxRange = anyRange
		case BoundUnselective:
			l.Unselective = allowUnselective
		case BoundMaxSeriesTouched:
			l.MaxSeriesTouched = anySeries
		case BoundMaxShardBytes:
			l.MaxShardBytes = anyBytes
		case BoundMaxSeries:
			l.MaxSeries = anySeries
		case BoundMaxResponseBytes:
			l.MaxResponseBytes = anyBytes
		}
	}
	if slices.Contains(bounds, BoundMetadataRange) {
		l.MetadataRange = l.MaxRange
	}
	return l
}

// Acts are those of the bounds, each one of Shadowable, that alone would make another decision
// about a request than d, which was made without any of them: refuse it, or narrow what it looks
// at. What is found out later, by what shards answer, is not among them. known has the regular
// expressions of d.
func (d *Decision) Acts(
	req *endpoint.Request, l Limits, bounds []string, group func(label string) bool, now time.Time, known *Known,
) []string {
	var acts []string
	for i, b := range bounds {
		switch b {
		case BoundMaxSeriesTouched, BoundMaxShardBytes, BoundMaxSeries, BoundMaxResponseBytes:
			continue
		}
		others := slices.Delete(slices.Clone(bounds), i, i+1)
		alone, err := DecideKnown(req, l.Without(others...), group, now, known)
		if err != nil || alone.Start != d.Start || alone.End != d.End {
			acts = append(acts, b)
		}
	}
	return acts
}
