package live

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// clusterLabel is what the proxy calls a group of servers by.
const clusterLabel = "cluster"

// named is a storage whose series have the cluster's label, as the proxy adds it.
type named struct {
	storage.Queryable
	cluster string
}

var _ storage.Queryable = named{}

func (n named) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := n.Queryable.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return namedQuerier{q, n.cluster}, nil
}

type namedQuerier struct {
	storage.Querier
	cluster string
}

// Select asks without the label and puts it on what comes. All labels are held: with one more their
// order is another.
func (q namedQuerier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var rest []*labels.Matcher
	for _, m := range matchers {
		switch {
		case m.Name != clusterLabel:
			rest = append(rest, m)
		case !m.Matches(q.cluster):
			return storage.EmptySeriesSet()
		}
	}
	from := q.Querier.Select(ctx, false, hints, rest...)
	set := &listed{at: -1}
	b := labels.NewBuilder(labels.EmptyLabels())
	for from.Next() {
		s := from.At()
		b.Reset(s.Labels())
		b.Set(clusterLabel, q.cluster)
		set.series = append(set.series, withLabels{b.Labels(), s})
	}
	set.err, set.warnings = from.Err(), from.Warnings()
	slices.SortFunc(set.series, func(a, b withLabels) int { return labels.Compare(a.lset, b.lset) })
	return set
}

// withLabels is a series under other labels.
type withLabels struct {
	lset labels.Labels
	of   storage.Series
}

func (s withLabels) Labels() labels.Labels { return s.lset }

func (s withLabels) Iterator(it chunkenc.Iterator) chunkenc.Iterator { return s.of.Iterator(it) }

// listed is a set that is all there.
type listed struct {
	series   []withLabels
	at       int
	err      error
	warnings annotations.Annotations
}

func (l *listed) Next() bool                        { l.at++; return l.err == nil && l.at < len(l.series) }
func (l *listed) At() storage.Series                { return l.series[l.at] }
func (l *listed) Err() error                        { return l.err }
func (l *listed) Warnings() annotations.Annotations { return l.warnings }

// together is several storages as one.
type together []storage.Queryable

func (t together) Querier(mint, maxt int64) (storage.Querier, error) {
	var list []storage.Querier
	for _, s := range t {
		q, err := s.Querier(mint, maxt)
		if err != nil {
			for _, opened := range list {
				err = errors.Join(err, opened.Close())
			}
			return nil, err
		}
		list = append(list, q)
	}
	return storage.NewMergeQuerier(list, nil, storage.ChainedSeriesMerge), nil
}
