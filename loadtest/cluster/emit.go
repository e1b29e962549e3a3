package cluster

import (
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// family is one metric family of one page.
type family struct {
	name, help string
	typ        model.MetricType
	emit       func(*page, *emitter)
}

// page is what the families of one target need to know, worked out once for
// the window [from, until] (equal when a page is scraped).
type page struct {
	m           *Model
	t           *Target
	h           uint64 // of the target
	from, until int64
	pr          *process // the exporter itself
	machine     *process // the node below it, where there is one
	node        int      // -1 where there is none
	down        []event  // when it does not answer
	host        *nodeState
	cluster     *clusterState
}

// series is one time series as an emitter hands it on; it is valid only within
// the call.
type series struct {
	fam   *family
	name  string   // sample name: family plus _bucket, _sum, _count
	pairs []string // label name, value, …; no __name__, exposition form of le and quantile
	life
	// What a back-fill's relabelling made of it, if there is one.
	relabelled bool
	stays      labels.Labels
}

// emitter turns the calls of a family into series that exist in the window.
type emitter struct {
	p    *page
	fam  *family
	sink func(*series)
	s    series
	// absent are the spans in which the cluster has no such object.
	absent []event

	bucketName, sumName, countName string
}

func (e *emitter) begin(f *family) {
	e.fam = f
	e.s.fam = f
	if f.typ == model.MetricTypeHistogram {
		e.bucketName = f.name + "_bucket"
	}
	if f.typ == model.MetricTypeHistogram || f.typ == model.MetricTypeSummary {
		e.sumName, e.countName = f.name+"_sum", f.name+"_count"
	}
}

// add emits a series that exists as long as its target does.
func (e *emitter) add(c curve, pairs ...string) {
	e.addIn(0, never, c, pairs...)
}

// addIn emits a series that exists in [from, until).
func (e *emitter) addIn(from, until int64, c curve, pairs ...string) {
	if from > e.p.until || until <= e.p.from {
		return
	}
	e.s.pairs = append(e.s.pairs[:0], pairs...)
	e.put(e.fam.name, from, until, c)
}

func (e *emitter) put(name string, from, until int64, c curve) {
	e.s.name = name
	if len(e.absent) == 0 {
		e.s.life = life{from, until, c}
		e.sink(&e.s)
		return
	}
	without(e.absent, from, until, func(from, until int64) {
		if from <= e.p.until && until > e.p.from {
			e.s.life = life{from, until, c}
			e.sink(&e.s)
		}
	})
}

// weight is a factor in [0.3, 1.7) that tells the series of one family apart.
func (e *emitter) weight(pairs []string) (float64, uint64) {
	h := hashString(e.p.h, e.fam.name)
	for i := 1; i < len(pairs); i += 2 {
		h = hashString(h, pairs[i])
	}
	return between(h, 0.3, 1.7), h
}

// wave gives a curve its slow movement: a period of 4 to 50 minutes.
func wave(c curve, h uint64) curve {
	c.w = 2 * 3.141592653589793 / between(mix(h+1), 240, 3000)
	c.ph = between(mix(h+2), 0, 6.28)
	return c
}

// rate is a counter of about perSecond.
func (e *emitter) rate(perSecond float64, whole bool, h uint64, pr *process) curve {
	c := wave(curve{kind: counter, base: perSecond, whole: whole, pr: pr}, h)
	c.amp = 0.5 * perSecond / c.w
	return c
}

// histogram emits buckets, sum and count of a distribution around mean whose
// number of observations is total.
func (e *emitter) histogram(from, until int64, total curve, d dist, les []string, bounds []float64, pairs ...string) {
	if from > e.p.until || until <= e.p.from {
		return
	}
	e.s.pairs = append(append(e.s.pairs[:0], pairs...), "le", "")
	n := len(e.s.pairs) - 1
	for i, le := range les {
		e.s.pairs[n] = le
		c := total
		if i < len(bounds) {
			c.scale = d.below(bounds[i])
			if c.scale == 0 {
				c = curve{}
			}
		}
		e.put(e.bucketName, from, until, c)
	}
	e.s.pairs = append(e.s.pairs[:0], pairs...)
	sum := total
	sum.whole, sum.scale = false, d.mean()
	e.put(e.sumName, from, until, sum)
	e.put(e.countName, from, until, total)
}

// summary emits quantiles, sum and count.
func (e *emitter) summary(total curve, d dist, quantiles []string, h uint64, pairs ...string) {
	e.s.pairs = append(append(e.s.pairs[:0], pairs...), "quantile", "")
	n := len(e.s.pairs) - 1
	for _, q := range quantiles {
		e.s.pairs[n] = q
		f, _ := strconv.ParseFloat(q, 64)
		v := d.quantile(f)
		e.put(e.fam.name, 0, never, wave(curve{kind: gauge, base: v, amp: v / 20}, h))
	}
	e.s.pairs = append(e.s.pairs[:0], pairs...)
	sum := total
	sum.whole, sum.scale = false, d.mean()
	e.put(e.sumName, 0, never, sum)
	e.put(e.countName, 0, never, total)
}

// collect hands every series of the page that exists in its window to sink.
func (p *page) collect(fams []family, sink func(*series)) {
	e := &emitter{p: p, sink: sink}
	for i := range fams {
		e.begin(&fams[i])
		fams[i].emit(p, e)
	}
}

// splitList splits a|b|c; the empty string is one empty value.
func splitList(s string) []string { return strings.Split(s, "|") }
