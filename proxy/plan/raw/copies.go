package raw

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// readAll reads all copies at once. One that was read whole lets the others have SparePatience
// more.
func (q *Queryable) readAll(ctx context.Context, s *Slice, query Query, held [][]stored, errs []error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		once  sync.Once
		timer *time.Timer
	)
	for i, c := range s.Copies {
		wg.Go(func() {
			errs[i] = qerr.Guard(func() (err error) {
				held[i], err = q.read(ctx, s, c, query)
				return err
			})
			if errs[i] == nil && q.SparePatience > 0 {
				once.Do(func() { timer = time.AfterFunc(q.SparePatience, func() { cancel(errSlowCopy) }) })
			}
		})
	}
	wg.Wait()
	if timer != nil {
		timer.Stop()
	}
}

// copyFailed tells whether another copy may still answer.
func copyFailed(err error) bool {
	var e *qerr.Error
	if !errors.As(err, &e) {
		return true
	}
	return e.Kind == qerr.ShardFailed || e.Kind == qerr.Timeout || e.Kind == qerr.Overloaded && len(e.Shards) > 0 // no slot at that server
}

type copyChunks struct {
	copy   int
	chunks []prompb.Chunk
}

type spliced struct {
	lbls   labels.Labels
	copies []copyChunks // the base, or the first that has the series, first
}

// splice makes one series of the copies'. The error is that of an undecodable sample or of a bound.
func (sp *spliced) splice(ctx context.Context, heard *scrapes, several bool) (*series, error) {
	s, lo, hi := heard.slice, heard.query.From, heard.query.Until
	out := &series{lbls: sp.lbls}
	if !several {
		c := sp.copies[0]
		out.parts = []part{{Segment{s.Name, s.Copies[c.copy].Name(), lo, hi}, c.chunks}}
		return out, nil
	}
	var acc []stamp
	zeros := sp.lbls.Get(model.MetricNameLabel) == upName
	for _, c := range sp.copies {
		ss, err := stamps(c.chunks, lo, hi, c.copy, zeros, nil)
		if err != nil {
			return nil, qerr.Wrap(qerr.ShardFailed, err, "shard %s sent series data that cannot be decoded", s.Name)
		}
		if len(sp.copies) > 1 {
			if err := heard.mark(ctx, sp.lbls, c.copy, ss); err != nil {
				return nil, err
			}
		}
		acc = splice(acc, ss, lo, hi)
	}
	for _, r := range runs(acc) {
		i := slices.IndexFunc(sp.copies, func(c copyChunks) bool { return c.copy == r.copy })
		out.parts = append(out.parts, part{Segment{s.Name, s.Copies[r.copy].Name(), r.from, r.until}, sp.copies[i].chunks})
	}
	return out, nil
}
