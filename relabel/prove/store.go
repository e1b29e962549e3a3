package prove

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/recording"
)

// commitEvery is how many series are written at once.
const commitEvery = 2_000

// store is a storage of blocks: those of the data, and those of what rules record. Series of a
// block come sorted, so that sums add in the same order wherever the same series are left.
type store struct {
	dir    string
	blocks []*tsdb.Block
	series int64
}

var _ storage.Queryable = (*store)(nil)

// Querier implements storage.Queryable.
func (s *store) Querier(mint, maxt int64) (storage.Querier, error) {
	var all []storage.Querier
	for _, b := range s.blocks {
		q, err := tsdb.NewBlockQuerier(b, mint, maxt)
		if err != nil {
			for _, q := range all {
				err = errors.Join(err, q.Close())
			}
			return nil, err
		}
		all = append(all, q)
	}
	return storage.NewMergeQuerier(all, nil, storage.ChainedSeriesMerge), nil
}

func (s *store) close() error {
	var errs []error
	for _, b := range s.blocks {
		errs = append(errs, b.Close())
	}
	s.blocks = nil
	return errors.Join(errs...)
}

// reopen opens all blocks of the folder.
func (s *store) reopen() error {
	if err := s.close(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := tsdb.OpenBlock(promslog.NewNopLogger(), filepath.Join(s.dir, e.Name()), nil, nil)
		if err != nil {
			return errors.Join(err, s.close())
		}
		s.blocks = append(s.blocks, b)
	}
	return nil
}

// newStore writes the sample into a folder of its own, as the chains of the jobs leave it; nil
// chains leave all of it.
func newStore(ctx context.Context, dir string, x *sample, span time.Duration, chains map[string]*Chain) (_ *store, err error) {
	s := &store{dir: dir}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	// One series after the other begins at the oldest moment again, and a head takes samples up to
	// half a block older than its newest. Real samples may reach back further than the span.
	reach := span
	for i := range x.series {
		if f := x.series[i].floats; len(f) > 0 {
			reach = max(reach, time.Duration(x.end-f[0].T)*time.Millisecond)
		}
		if h := x.series[i].histograms; len(h) > 0 {
			reach = max(reach, time.Duration(x.end-h[0].T)*time.Millisecond)
		}
	}
	w, err := tsdb.NewBlockWriter(promslog.NewNopLogger(), dir, 4*max(reach, time.Hour).Milliseconds())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	app := w.Appender(ctx)
	for i := range x.series {
		ls := x.series[i].labels
		if c := chains[ls.Get(model.JobLabel)]; c != nil {
			out, kept, _ := c.Apply(ls)
			if !kept {
				continue
			}
			ls = out
		}
		fresh, err := appendSeries(app, ls, &x.series[i], x.end, span)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", ls, err), app.Rollback())
		}
		if fresh {
			s.series++
		}
		if (i+1)%commitEvery == 0 {
			if ctx.Err() != nil {
				return nil, errors.Join(context.Cause(ctx), app.Rollback())
			}
			if err := app.Commit(); err != nil {
				return nil, err
			}
			app = w.Appender(ctx)
		}
	}
	if err := app.Commit(); err != nil {
		return nil, err
	}
	if s.series > 0 {
		if _, err := w.Flush(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.reopen()
}

// appendSeries writes one series. Where another one had the same labels, that one's samples stay,
// as in a scrape; fresh is false then.
func appendSeries(app storage.Appender, ls labels.Labels, x *sampled, end int64, span time.Duration) (fresh bool, err error) {
	var ref storage.SeriesRef
	err = x.each(end, span, func(t int64, v float64, h *histogram.FloatHistogram) (err error) {
		if h != nil {
			ref, err = app.AppendHistogram(ref, ls, t, nil, h)
		} else {
			ref, err = app.Append(ref, ls, t, v)
		}
		if errors.Is(err, storage.ErrOutOfOrderSample) || errors.Is(err, storage.ErrDuplicateSampleForTimestamp) {
			return nil
		}
		fresh = fresh || err == nil
		return err
	})
	return fresh, err
}

// record evaluates rule files over the storage, whose series they see then, and returns how many
// rules could be evaluated: the others are left out, and the error says why. Their queries are
// asked like any other, and the answers are compared.
func (s *store) record(ctx context.Context, engine promql.QueryEngine, rules string, from, until time.Time) (evaluated int, failed,
	err error,
) {
	o := recording.Options{Rules: os.DirFS(rules), Interval: interval}
	// recording.Blocks makes a temporary folder in its own one.
	to := s.dir + "-recorded"
	st, failed := recording.Blocks(ctx, to, o, engine, s, from, until)
	if ctx.Err() != nil {
		return 0, nil, context.Cause(ctx)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		return 0, nil, errors.Join(failed, err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(to, e.Name()), filepath.Join(s.dir, e.Name())); err != nil {
			return 0, nil, err
		}
	}
	return st.Rules, failed, s.reopen()
}
