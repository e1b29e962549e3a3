package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// window is how much simulated time is scraped at once, before rules are evaluated over it.
const window = time.Hour

// history scrapes the cluster into a database.
type history struct {
	store    database
	model    *cluster.Model
	external labels.Labels
	interval time.Duration
	relabel  map[string][]*relabel.Config
	samples  int
}

func newHistory(o *Options, m *cluster.Model, p *plan, to database) (*history, error) {
	h := &history{store: to, model: m, interval: o.Interval, external: labels.FromStrings("cluster", m.Options().Cluster)}
	deployed, err := exporters.Relabel(exporters.Options{Cluster: m.Options().Cluster, Shards: 1, Replica: "a"})
	if err != nil {
		return nil, err
	}
	// What no rule reads is not stored; the deployed relabelling changes no family's name.
	wanted := []*relabel.Config{{
		SourceLabels: model.LabelNames{model.MetricNameLabel}, Regex: relabel.MustNewRegexp(strings.Join(p.names, "|")),
		Action: relabel.Keep, NameValidationScheme: model.UTF8Validation,
	}}
	h.relabel = map[string][]*relabel.Config{}
	for _, t := range m.Targets() {
		if _, ok := h.relabel[t.Job]; !ok {
			h.relabel[t.Job] = append(wanted[:1:1], deployed[t.Job]...)
		}
	}
	return h, nil
}

// scrape stores what the servers saw in [from, until). It begins one interval earlier: the model
// marks the end of a series only where it has the scrape before, and a sample that is there already
// is left alone.
func (h *history) scrape(ctx context.Context, from, until time.Time) error {
	st, err := h.model.BackfillHead(ctx, h.store, cluster.BackfillOptions{
		From: from.Add(-h.interval), Until: until, Interval: h.interval, ExternalTargetLabels: h.external,
		MetricRelabel: func(job string) []*relabel.Config { return h.relabel[job] },
	})
	h.samples += st.Samples
	if err != nil {
		return fmt.Errorf("scrape from %s: %w", from.UTC().Format(time.RFC3339), err)
	}
	return nil
}
