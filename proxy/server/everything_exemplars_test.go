package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// checkExemplars compares exemplars: all of the replicas', each once. Where there is a heartbeat,
// those of a whole replica will do.
func (e *everything) checkExemplars() {
	list, refused := e.several(2)
	expr := list[0].text
	if len(list) > 1 {
		expr = "sum(rate(" + list[0].text + "[5m])) / on () group_left " + list[1].text
	}
	until := e.start.UnixMilli() + e.rng.Int64N(e.length.Milliseconds())
	from := until - e.rng.Int64N((20 * time.Minute).Milliseconds())
	form := url.Values{"query": {expr}, "start": {msText(from)}}
	if e.rng.IntN(4) > 0 {
		form.Set("end", msText(until))
	} else {
		until = time.Now().UnixMilli()
	}
	what := fmt.Sprintf("exemplars of %s from %d to %d", expr, from, until)
	req, err := http.NewRequest(http.MethodPost, e.base+"/api/v1/query_exemplars", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, _, body := e.body(req, err)
	if refused {
		e.refusal(what, status, body)
		return
	}
	var env struct {
		Status   string
		Warnings []string
		Data     []struct {
			SeriesLabels map[string]string
			Exemplars    []struct {
				Labels    map[string]string
				Value     string
				Timestamp float64
			}
		}
	}
	if err := json.Unmarshal(body, &env); err != nil || status != 200 || len(env.Warnings) > 0 {
		e.t.Errorf("%s: %v %d %.500s", what, err, status, body)
		return
	}
	got, last := map[string]bool{}, labels.EmptyLabels()
	for _, s := range env.Data {
		l := labels.FromMap(s.SeriesLabels)
		if labels.Compare(last, l) >= 0 {
			e.t.Errorf("%s: %s stands behind %s", what, l, last)
		}
		last = l
		at := math.Inf(-1)
		for _, x := range s.Exemplars {
			line := fmt.Sprintf("%s %s %s %d", l, labels.FromMap(x.Labels), x.Value, int64(math.Round(x.Timestamp*1000)))
			if got[line] || x.Timestamp < at {
				e.t.Errorf("%s: twice or out of order: %s", what, line)
			}
			got[line], at = true, x.Timestamp
		}
	}
	all := map[string]bool{}
	for _, g := range e.groups {
		for _, s := range g.shards {
			first, final := s.span()
			var best []string
			for i, srv := range s.replicas {
				var missing []string
				for _, x := range srv.exemplars {
					l := g.shown(x.series)
					if x.exemplar.Ts < max(from, first) || x.exemplar.Ts > min(until, final) ||
						!slices.ContainsFunc(list, func(s selector) bool { return matches(l, s.matchers) }) {
						continue
					}
					line := fmt.Sprintf("%s %s %v %d", l, x.exemplar.Labels, x.exemplar.Value, x.exemplar.Ts)
					all[line] = true
					if !got[line] {
						missing = append(missing, line)
					}
				}
				switch {
				case i == 0:
					best = missing
				case !g.heartbeat:
					best = append(best, missing...)
				case len(missing) < len(best):
					best = missing
				}
			}
			for _, line := range best {
				e.t.Errorf("%s: missing %s", what, line)
			}
		}
	}
	for line := range got {
		if !all[line] {
			e.t.Errorf("%s: nobody holds %s", what, line)
		}
	}
	e.counts["exemplars"]++
	e.counts["exemplars found"] += len(got)
}
