package policy

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// boundMetadata sets window and limits of series, labels and label_values. It is one of the two
// places that change what was asked; both warn, this one of a start that was not given only where
// somebody may miss something (Decision.Searched).
//
//	class        window                                                          limit per shard
//	named        the caller's, its newest max_range; metadata_range without one  least of the caller's and max_series
//	other        the last metadata_range before the caller's end                 likewise
//	unselective  likewise                                                        and at most 1,000, unless allowed
func boundMetadata(q *Query, d *Decision) {
	r, l := q.Request, q.Limits
	d.Limit = l.MaxSeries
	if r.Limit > 0 {
		d.Limit = min(d.Limit, r.Limit)
	}
	d.PerShardLimit = d.Limit
	if len(r.Match) == 0 {
		d.Class = Other
	}
	if d.Class == Unselective {
		d.Unselective = true
		if l.Unselective != allowUnselective {
			d.PerShardLimit = min(d.PerShardLimit, UnselectiveSeriesPerShard)
		}
		d.Verdict = Clamp
	}
	widest, bound := l.MetadataRange, BoundMetadataRange
	if d.Class == Named && r.Start.Set {
		widest, bound = l.MaxRange, BoundMaxRange
	} else {
		widest = min(widest, l.MaxRange)
	}
	d.Empty = backwards(r)
	d.Start, d.End = metadataWindow(r, ms(widest), q.NowMs)
	if !r.Start.Set || d.Start > r.Start.Ms {
		d.Verdict = Clamp // no start asks for the whole retention
	}
	if r.Start.Set && d.Start > r.Start.Ms {
		d.Narrowed = true
		why := "max_range is the longest range that is searched"
		if bound == BoundMetadataRange {
			why = "metadata_range is the longest range that is searched where no metric is named; name one to search further back"
		}
		d.Warnings = append(d.Warnings,
			fmt.Sprintf("Spillway narrowed the range to %s before %s: %s", model.Duration(widest), instant(d.End), why))
	}
	if !r.Start.Set {
		how := "name a metric and give a start to search further back, or set end"
		if d.Class == Named {
			how = "give one (start=) to search further back"
		}
		d.Searched = fmt.Sprintf("Spillway searched the last %s before %s because the request has no start (metadata_range); %s",
			model.Duration(widest), instant(d.End), how)
	}
	d.Request.Start, d.Request.End = endpoint.At(d.Start), endpoint.At(d.End)
	d.Request.Limit = d.PerShardLimit
}

// metadataWindow is the newest stretch of the caller's range that is at most widest long and, where
// the range reaches beyond now, does not: promtool asks for now ± 9999h. A range that lies in the
// future as a whole stays there, where nothing is found. The result never starts before the
// caller's start.
func metadataWindow(r *endpoint.Request, widest, now int64) (start, end int64) {
	end = r.End.Or(now)
	if !r.Start.Set {
		end = min(end, now)
		return satSub(end, widest), end
	}
	start = r.Start.Ms
	if !r.End.Set {
		end = max(now, start)
	}
	if end > now && start <= now && satSub(end, start) > widest {
		end = now
	}
	if satSub(end, start) <= widest {
		return start, end
	}
	if start > now {
		return start, satAdd(start, widest)
	}
	return max(start, satSub(end, widest)), end
}

// boundExemplars completes the window of query_exemplars. A given range is held to max_range by a
// check and never changed; where there is no start, which to Prometheus means everything, the
// newest max_range is searched and the answer says so.
func boundExemplars(q *Query, d *Decision) {
	r := q.Request
	var start, end int64
	switch {
	case r.Start.Set:
		start = r.Start.Ms
		end = r.End.Or(max(q.NowMs, start))
	default:
		end = min(r.End.Or(q.NowMs), q.NowMs)
		start = satSub(end, ms(q.Limits.MaxRange))
	}
	d.Start, d.End = start, end
	d.Empty = inFuture(q)
	if !r.Start.Set && !d.Empty && !d.Constant {
		d.Verdict = Clamp
		d.Warnings = append(d.Warnings, fmt.Sprintf("Spillway searched the last %s before %s because the request has no start; exemplars older than that need one",
			model.Duration(q.Limits.MaxRange), instant(end)))
	}
	d.Request.Start, d.Request.End = endpoint.At(start), endpoint.At(end)
}

// futureMs is how far in the future the start of an exemplar query must lie to be called one
// without an answer: more than clocks disagree.
const futureMs = int64(time.Hour / time.Millisecond)

// inFuture tells whether an exemplar query starts in the future. Grafana sends milliseconds where
// seconds belong, around the year 57000.
func inFuture(q *Query) bool {
	return q.Request.ID.Decode() == endpoint.DecodeExemplars && q.Request.Start.Set && q.Request.Start.Ms > satAdd(q.NowMs, futureMs)
}

// instant writes a time for people; years beyond four digits as seconds.
func instant(msec int64) string {
	if t := time.UnixMilli(msec).UTC(); t.Year() >= 0 && t.Year() <= 9999 {
		return t.Format(time.RFC3339)
	}
	return fmt.Sprintf("%d seconds after 1970", msec/1000)
}
