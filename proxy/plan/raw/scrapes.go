package raw

import (
	"context"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"golang.org/x/sync/errgroup"
)

// upName is the metric that says whether a scrape succeeded; scrapePrefix begins the names of the
// others that a server writes for each scrape, also for one that failed.
const (
	upName       = "up"
	scrapePrefix = "scrape_"
)

// scrapes are what each copy says of its own scrapes, read once for a select, and only where a
// splice has to know. The goroutine that splices uses it.
type scrapes struct {
	q     *Queryable
	slice *Slice
	query Query
	live  []int // copies that were read

	asked   bool
	charged int64
	of      map[int]map[target][]heard // by copy
}

// target is what a server writes on all series of one.
type target struct{ job, instance string }

// heard is one series of up; its stamps are decoded when they are asked for.
type heard struct {
	lbls   labels.Labels
	chunks []prompb.Chunk
	stamps []stamp
}

// targetOf is the target of a series, false where it has none: a rule's.
func targetOf(lbls labels.Labels) (target, bool) {
	t := target{lbls.Get(model.JobLabel), lbls.Get(model.InstanceLabel)}
	return t, t.instance != ""
}

// mark notes on the stamps of one copy's series what that copy says of the scrapes that they come
// from: of stale markers whether the scrape succeeded, of what is written for each scrape whether
// it failed. What is not known is not noted.
func (s *scrapes) mark(ctx context.Context, lbls labels.Labels, copy int, ss []stamp) error {
	name := lbls.Get(model.MetricNameLabel)
	reports := strings.HasPrefix(name, scrapePrefix)
	if name == upName || !reports && samples(ss) == len(ss) {
		return nil
	}
	of, ok := targetOf(lbls)
	if !ok {
		return nil
	}
	if err := s.ask(ctx); err != nil {
		return err
	}
	ups, err := s.ups(of, lbls, copy)
	if err != nil || ups == nil {
		return err
	}
	for i := range ss {
		if !ss[i].stale && !reports {
			continue
		}
		if at := search(ups, ss[i].t); at < len(ups) && ups[at].t == ss[i].t && !ups[at].stale {
			ss[i].sure, ss[i].failed = ss[i].stale && !ups[at].failed, !ss[i].stale && ups[at].failed
		}
	}
	return nil
}

// ups are the samples of up of the target that the series comes from; nil where the copy has none,
// or several that could be meant.
func (s *scrapes) ups(of target, lbls labels.Labels, copy int) ([]stamp, error) {
	var found *heard
	all := s.of[copy][of]
	for i := range all {
		if within(all[i].lbls, lbls) {
			if found != nil {
				return nil, nil
			}
			found = &all[i]
		}
	}
	if found == nil {
		return nil, nil
	}
	if found.stamps == nil {
		var err error
		if found.stamps, err = stamps(found.chunks, s.query.From, s.query.Until, copy, true, []stamp{}); err != nil {
			return nil, err
		}
	}
	return found.stamps, nil
}

// within tells whether a series has all labels of its target's up.
func within(up, lbls labels.Labels) bool {
	ok := true
	up.Range(func(l labels.Label) {
		ok = ok && (l.Name == model.MetricNameLabel || lbls.Get(l.Name) == l.Value)
	})
	return ok
}

// ask reads up of the targets that the select can be about, of each copy. A copy that fails now
// says nothing; the select has its series already.
func (s *scrapes) ask(ctx context.Context) error {
	if s.asked {
		return nil
	}
	s.asked = true
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, upName)}
	for _, m := range s.query.Matchers {
		if m.Name == model.JobLabel || m.Name == model.InstanceLabel {
			ms = append(ms, m)
		}
	}
	query := Query{From: s.query.From, Until: s.query.Until, Matchers: ms, Asked: ms}
	got, charged := make([][]stored, len(s.live)), make([]int64, len(s.live))
	g, gctx := errgroup.WithContext(ctx)
	for n, i := range s.live {
		g.Go(func() error {
			err := qerr.Guard(func() (err error) {
				got[n], charged[n], _, err = s.q.readFrom(gctx, s.slice, s.slice.Copies[i], query)
				return err
			})
			if err != nil && copyFailed(err) {
				return nil
			}
			return err
		})
	}
	err := g.Wait()
	s.of = map[int]map[target][]heard{}
	for n, i := range s.live {
		s.charged += charged[n]
		by := map[target][]heard{}
		for _, st := range got[n] {
			if t, ok := targetOf(st.lbls); ok {
				by[t] = append(by[t], heard{lbls: st.lbls, chunks: st.chunks})
			}
		}
		s.of[i] = by
	}
	return err
}

// drop gives back what is held.
func (s *scrapes) drop() {
	s.q.Meter.Drop(s.charged)
	s.charged, s.of = 0, nil
}
