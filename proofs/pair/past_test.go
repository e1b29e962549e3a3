package pair

import (
	"fmt"
	"log/slog"
	"net/url"
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

// pastAway are the outages of which each replica has had one, before it is started here.
var pastAway = [2]outage{{20 * time.Hour, 19 * time.Hour}, {6 * time.Hour, 5 * time.Hour}}

// writePast writes a block with what a replica scraped each minute of the 25 hours up to end: as
// often as the other one did. Each counter grows by one a second.
func writePast(t *testing.T, dir string, replica int, end time.Time) {
	t.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, (100 * time.Hour).Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []labels.Labels
	for i := range targets {
		instance := fmt.Sprint("node-", i)
		all = append(all, labels.FromStrings("__name__", "up", "job", "node", "instance", instance))
		for s := range pastSeries {
			all = append(all, labels.FromStrings("__name__", "past_total", "job", "node", "instance", instance, "path", fmt.Sprint("/", s)))
		}
	}
	refs := make([]storage.SeriesRef, len(all))
	away := pastAway[replica]
	for at := end.Add(-25*time.Hour + time.Duration(replica)*pastEvery*2/5); !at.After(end); at = at.Add(pastEvery) {
		if at.After(end.Add(-away.from)) && at.Before(end.Add(-away.until)) {
			continue
		}
		app := w.Appender(t.Context())
		for i, l := range all {
			v := 1.0
			if i%(pastSeries+1) > 0 {
				v = at.Sub(end.Add(-26 * time.Hour)).Seconds()
			}
			if refs[i], err = app.Append(refs[i], l, at.UnixMilli(), v); err != nil {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
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
		day(`count(past_total)`, targets*pastSeries),
		day(`round(sum(rate(past_total[5m])))`, targets*pastSeries),
		day(`count(up{job="node"})`, targets),
	}
}
