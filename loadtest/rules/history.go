package rules

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/loadtest/bench"
)

// watch reads the pages of the ruler and the shards every few seconds until the run is over.
func (o *Options) watch(ctx context.Context, ruler string, shards []string, r *Result) error {
	o.Say("the ruler runs for %s", o.Run)
	urls := append([]string{ruler}, shards...)
	seen := make([]map[string]*history, len(urls))
	for n := range seen {
		seen[n] = map[string]*history{}
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	end := time.NewTimer(o.Run)
	defer end.Stop()
	for {
		for n, url := range urls {
			page, err := scrape(ctx, url+"/metrics")
			if err != nil {
				return fmt.Errorf("read the page of the ruler or of a shard: %w", err)
			}
			read(page, seen[n])
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			for _, key := range slices.Sorted(maps.Keys(seen[0])) {
				r.Groups = append(r.Groups, seen[0][key].group(key))
			}
			r.Groups = append(r.Groups, slowest(seen[1:])...)
			return nil
		case <-tick.C:
		}
	}
}

// slowest are the groups of all shards, each as it was where it took longest; what failed or was
// missed anywhere is counted.
func slowest(shards []map[string]*history) []Group {
	out := map[string]Group{}
	for _, seen := range shards {
		for key, h := range seen {
			g, old := h.group(key), out[key]
			g.Shard = true
			failures, missed := g.Failures+old.Failures, g.Missed+old.Missed
			if old.Seen > 0 && (g.Seen == 0 || g.Share() < old.Share()) {
				g = old
			}
			g.Failures, g.Missed = failures, missed
			out[key] = g
		}
	}
	groups := make([]Group, 0, len(out))
	for _, key := range slices.Sorted(maps.Keys(out)) {
		groups = append(groups, out[key])
	}
	return groups
}

// history is what the page said of one group over time.
type history struct {
	at       float64 // of the newest evaluation, s since 1970
	took     []time.Duration
	interval time.Duration
	rules    int
	failures int
	missed   int
}

// group sums up.
func (h *history) group(key string) Group {
	file, name, _ := strings.Cut(key, ";")
	g := Group{
		File: filepath.Base(file), Name: name, Rules: h.rules, Interval: h.interval, Seen: len(h.took), Failures: h.failures,
		Missed: h.missed,
	}
	if len(h.took) == 0 {
		return g
	}
	g.First = h.took[0]
	if rest := slices.Sorted(slices.Values(h.took[1:])); len(rest) > 0 {
		g.Typical, g.Max = rest[len(rest)/2], rest[len(rest)-1]
	}
	return g
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	page, err := bench.Get(ctx, &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}, url)
	if err != nil {
		return nil, err
	}
	p := expfmt.NewTextParser(prommodel.UTF8Validation)
	return p.TextToMetricFamilies(bytes.NewReader(page))
}

// read adds what a page says. Groups are told apart by the label rule_group, FILE;NAME, without the
// file's folder.
func read(page map[string]*dto.MetricFamily, seen map[string]*history) {
	each := func(metric string, f func(h *history, v float64)) {
		for _, m := range page[metric].GetMetric() {
			for _, l := range m.Label {
				if l.GetName() != "rule_group" {
					continue
				}
				key := filepath.Base(l.GetValue()) // each server has a folder of its own
				if seen[key] == nil {
					seen[key] = &history{}
				}
				f(seen[key], m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetUntyped().GetValue())
			}
		}
	}
	fresh := map[*history]bool{}
	each("prometheus_rule_group_last_evaluation_timestamp_seconds", func(h *history, v float64) {
		if v > h.at {
			h.at, fresh[h] = v, true
		}
	})
	each("prometheus_rule_group_last_duration_seconds", func(h *history, v float64) {
		if fresh[h] && !math.IsNaN(v) && v > 0 {
			h.took = append(h.took, time.Duration(v*float64(time.Second)))
		}
	})
	each("prometheus_rule_group_interval_seconds", func(h *history, v float64) { h.interval = time.Duration(v * float64(time.Second)) })
	each("prometheus_rule_group_rules", func(h *history, v float64) { h.rules = int(v) })
	each("prometheus_rule_evaluation_failures_total", func(h *history, v float64) { h.failures = max(h.failures, int(v)) })
	each("prometheus_rule_group_iterations_missed_total", func(h *history, v float64) { h.missed = int(v) })
}
