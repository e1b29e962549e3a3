package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// history scrapes the cluster into a database.
type history struct {
	store    database
	model    *cluster.Model
	external labels.Labels
	interval time.Duration
	window   time.Duration
	names    []string // what no rule reads is not worked out; the deployed relabelling renames no family
	relabel  map[string][]*relabel.Config
	samples  int
	took     time.Duration
}

func newHistory(o *Options, m *cluster.Model, p *plan, to database) (*history, error) {
	h := &history{
		store: to, model: m, interval: o.Interval, window: o.window, names: p.names,
		external: labels.FromStrings("cluster", m.Options().Cluster),
	}
	deployed, err := exporters.Relabel(exporters.Options{Cluster: m.Options().Cluster, Shards: 1, Replica: "a"})
	if err != nil {
		return nil, err
	}
	h.relabel = deployed
	if slices.ContainsFunc(h.names, func(n string) bool { return strings.HasPrefix(n, "scrape_") }) {
		h.names = nil // they count what is on the pages
	}
	return h, nil
}

// run scrapes all of [from, until), a window after the other. After each round of scrapes reach is
// told up to where they are there.
func (h *history) run(ctx context.Context, from, until time.Time, reach func(time.Time) error) error {
	for at := from; at.Before(until); at = at.Add(h.window) {
		end := at.Add(h.window)
		if end.After(until) {
			end = until
		}
		if err := h.scrape(ctx, at, end, reach); err != nil {
			return err
		}
	}
	return nil
}

// scrape stores what the servers saw in [from, until). It begins one interval earlier: the model
// marks the end of a series only where it has the scrape before, and a sample that is there already
// is left alone.
func (h *history) scrape(ctx context.Context, from, until time.Time, reach func(time.Time) error) error {
	from = from.Add(-h.interval)
	r := &rounds{Appendable: h.store.scraper(), step: h.interval, at: from, until: until, reach: reach, mark: time.Now()}
	st, err := h.model.BackfillHead(ctx, r, cluster.BackfillOptions{
		From: from, Until: until, Interval: h.interval, ExternalTargetLabels: h.external,
		MetricRelabel: func(job string) []*relabel.Config { return h.relabel[job] }, Names: h.names,
	})
	h.samples += st.Samples
	h.took += r.took + time.Since(r.mark)
	if err != nil {
		return fmt.Errorf("scrape from %s: %w", from.UTC().Format(time.RFC3339), err)
	}
	return reach(until)
}

// rounds tells after each transaction, which is a round of scrapes, up to where scrapes are there.
type rounds struct {
	storage.Appendable
	step      time.Duration
	at, until time.Time
	reach     func(time.Time) error
	mark      time.Time     // since when it has not waited
	took      time.Duration // without what it has waited
}

func (r *rounds) Appender(ctx context.Context) storage.Appender {
	return &round{r.Appendable.Appender(ctx), r}
}

type round struct {
	storage.Appender
	*rounds
}

func (r *round) Commit() error {
	if err := r.Appender.Commit(); err != nil {
		return err
	}
	if r.at = r.at.Add(r.step); r.at.After(r.until) {
		r.at = r.until
	}
	r.took += time.Since(r.mark)
	defer func() { r.mark = time.Now() }()
	return r.reach(r.at)
}
