package pair

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	pastSeries = 60 // of each target
	pastEvery  = time.Minute
	pastStep   = 2 * time.Minute
	pastPoints = int(24*time.Hour/pastStep) + 1
	// hole is how many points a range query of the day lacks at most while only one replica can be
	// asked: those of the hour that this one lacks itself.
	hole = int(time.Hour/pastStep) + 1
	// edges is how many points read of its outage and of what is beside it: a rate of five minutes
	// is then smaller, as in any Prometheus.
	edges = int(5*time.Minute/pastStep) + 1
)

// outage is a time during which a replica has nothing, before the end of the day.
type outage struct{ from, until time.Duration }

// pastAway are the outages of which each replica has had one, before it is started here.
var pastAway = [2]outage{{20 * time.Hour, 19 * time.Hour}, {6 * time.Hour, 5 * time.Hour}}

// writeDay writes a block into dir with what a replica scraped each minute of the 25 hours up to
// end, but for its outages: up, and counters named name of each target, which grow by one a second.
func writeDay(tb testing.TB, dir, name string, targets, series, replica int, end time.Time, away ...outage) {
	tb.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, (100 * time.Hour).Milliseconds())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			tb.Error(err)
		}
	}()
	var all []labels.Labels
	for i := range targets {
		instance := fmt.Sprint("node-", i)
		all = append(all, labels.FromStrings("__name__", "up", "job", "node", "instance", instance))
		for s := range series {
			all = append(all, labels.FromStrings("__name__", name, "job", "node", "instance", instance, "path", fmt.Sprint("/", s)))
		}
	}
	refs := make([]storage.SeriesRef, len(all))
	for at := end.Add(-25*time.Hour + time.Duration(replica)*pastEvery*2/5); !at.After(end); at = at.Add(pastEvery) {
		if slices.ContainsFunc(away, func(o outage) bool { return at.After(end.Add(-o.from)) && at.Before(end.Add(-o.until)) }) {
			continue
		}
		app := w.Appender(tb.Context())
		for i, l := range all {
			v := 1.0
			if i%(series+1) > 0 {
				v = at.Sub(end.Add(-26 * time.Hour)).Seconds()
			}
			if refs[i], err = app.Append(refs[i], l, at.UnixMilli(), v); err != nil {
				tb.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := w.Flush(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// dayQuestions are panels of the day before end, which reach back to both outages. Series by series
// each would need more than max_series, but for the last.
func dayQuestions(end time.Time) []question {
	day := func(q string, want int) question {
		start := fmt.Sprint(end.Add(-24 * time.Hour).Unix())
		form := url.Values{"query": {q}, "start": {start}, "end": {fmt.Sprint(end.Unix())}, "step": {fmt.Sprint(pastStep.Seconds())}}
		return question{path: "/api/v1/query_range", form: form, want: fmt.Sprintf(`"%d"]`, want), day: true}
	}
	return []question{
		day(`count(last_over_time(past_total[5m]))`, targets*pastSeries),
		day(`round(sum(rate(past_total[5m])))`, targets*pastSeries),
		day(`count(last_over_time(up{job="node"}[5m]))`, targets),
	}
}
