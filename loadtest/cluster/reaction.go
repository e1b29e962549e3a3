package cluster

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// A reaction is how the series of one family follow troubles. It is asked once
// for each page and family. Staged troubles are taken whole, not cut to the
// page's window, so that what a curve says of a moment does not depend on who
// asks.
type reaction func(p *page) change

// change is what troubles do to one family of one page. The zero value is
// nothing.
type change struct {
	each func(*series)  // may change the curve of every series before it goes on
	then func(*emitter) // emits the series that only a trouble brings
}

// reactions are by job and family.
var reactions = map[string]map[string]reaction{
	JobAPIServer:  apiServerReactions(),
	JobEtcd:       etcdReactions(),
	JobEtcdEvents: etcdReactions(),
	JobCoreDNS:    dnsReactions(),
	JobPrometheus: prometheusReactions(),
	JobNode:       nodeReactions(),
	JobCadvisor:   cadvisorReactions(),
}

// react lets the families of a job follow their troubles.
func react(job string, fams []family) []family {
	r := reactions[job]
	if len(r) == 0 {
		return fams
	}
	for i := range fams {
		if f, ok := r[fams[i].name]; ok {
			fams[i].emit = tapped(fams[i].emit, f)
		}
	}
	return fams
}

func tapped(emit func(*page, *emitter), r reaction) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		c := r(p)
		sink := e.sink
		if c.each != nil {
			e.sink = func(s *series) {
				c.each(s)
				sink(s)
			}
		}
		emit(p, e)
		e.sink = sink
		if c.then != nil {
			c.then(e)
		}
	}
}

// label is the value of one of the series' own labels; "" where it has none.
func (s *series) label(name string) string {
	for i := 0; i < len(s.pairs); i += 2 {
		if s.pairs[i] == name {
			return s.pairs[i+1]
		}
	}
	return ""
}

// troubles are the staged events of a kind that concern a page: those of the
// whole cluster, of its job and of its instance, by time.
func (p *page) troubles(k Kind) []event {
	if !p.m.tl.kinds[k] {
		return nil
	}
	var out []event
	for _, target := range []string{WholeCluster, p.t.Job, p.t.Instance} {
		out = append(out, p.m.tl.staged[eventKey{k, target}]...)
	}
	return byTime(out)
}

func byTime(evs []event) []event {
	slices.SortStableFunc(evs, func(a, b event) int { return cmp.Compare(a.from, b.from) })
	return evs
}

// active is 1 while any of the events lasts.
func active(evs []event) *steps {
	s := &steps{}
	end := int64(0)
	for _, e := range evs { // by from
		if e.from > end || end == 0 {
			if end != 0 {
				s.push(end, 0)
			}
			s.push(e.from, 1)
		}
		end = max(end, e.until)
	}
	if end != 0 {
		s.push(end, 0)
	}
	return s
}

// levels is the sum of what each event that lasts brings, in 64ths.
func levels(evs []event, by func(event) float64) *steps {
	var d []delta
	for _, e := range evs {
		v := sixtyFourths(by(e))
		d = append(d, delta{e.from, v}, delta{e.until, -v})
	}
	return stepsFromDeltas(d)
}

// sixtyFourths rounds to what steps hold without error, never to 0.
func sixtyFourths(v float64) float64 {
	if v == 0 {
		return 0
	}
	n := float64(int64(v*64 + 0.5))
	return max(1, n) / 64
}

// counts is a counter's steps that rise by one at each of the times given.
func counts(at []int64) *steps {
	var d []delta
	for _, t := range at {
		d = append(d, delta{t, 1000}, delta{t + 1, -1000})
	}
	return stepsFromDeltas(d)
}

// more makes a counter rise by st a second on top of what it does.
func (c *curve) more(pr *process, st *steps) {
	if c.kind == constant {
		// What a constant counter shows it has counted right after its start.
		*c = curve{kind: counter, plus: c.base, pr: pr, whole: true}
	}
	if c.st != nil {
		st = sum(c.st, st)
	}
	c.k, c.st = 1, st
}

// held stops a counter while st is 1; a level between slows it down.
func (c *curve) held(st *steps) {
	if c.kind != counter {
		return
	}
	if c.hold != nil {
		both := sum(c.hold, st)
		st = &steps{}
		for i, v := range both.val {
			st.push(both.at[i], min(1, v))
		}
	}
	c.hold = st
}

// set moves a gauge to value while st is 1.
func (c *curve) set(value float64, st *steps) {
	if c.kind == constant {
		c.kind, c.whole = gauge, c.base == float64(int64(c.base))
	}
	c.k, c.st = value-c.base, st
}

// slower moves a share of a histogram's observations to the distribution that to
// gives each event: as many as before, but slower. Summaries stay as they are.
func slower(evs []event, share float64, to func(event, *series) dist) func(*series) {
	hold := levels(evs, func(event) float64 { return share })
	return func(s *series) {
		c := &s.curve
		if c.kind != counter || s.fam.typ != model.MetricTypeHistogram {
			return
		}
		c.held(hold)
		s.observe(c.pr, evs, func(event) float64 { return share * c.base }, func(e event) dist { return to(e, s) })
	}
}

// extra adds observations of a distribution to a histogram, rate a second.
func extra(s *series, pr *process, evs []event, rate func(event) float64, d dist) {
	s.observe(pr, evs, func(e event) float64 { return sixtyFourths(rate(e)) }, func(event) dist { return d })
}

// observe is the part of observations that this series of a histogram counts.
func (s *series) observe(pr *process, evs []event, rate func(event) float64, of func(event) dist) {
	if strings.HasSuffix(s.name, "_sum") {
		var ds []delta
		for _, e := range evs {
			v := rate(e) * of(e).mean()
			ds = append(ds, delta{e.from, v}, delta{e.until, -v})
		}
		s.curve.more(pr, stepsFromDeltas(ds))
		s.curve.whole = false
		return
	}
	below := func(dist) float64 { return 1 }
	if strings.HasSuffix(s.name, "_bucket") {
		if le := s.pairs[len(s.pairs)-1]; le != "+Inf" {
			bound, _ := strconv.ParseFloat(le, 64)
			below = func(d dist) float64 { return d.below(bound) }
		}
	}
	s.curve.more(pr, &steps{})
	s.curve.whole = true
	s.curve.also = s.curve.also[:len(s.curve.also):len(s.curve.also)]
	for _, e := range evs {
		v := rate(e)
		s.curve.also = append(s.curve.also, observed{stepsFromDeltas([]delta{{e.from, v}, {e.until, -v}}), below(of(e))})
	}
}

// sum adds up steps.
func sum(parts ...*steps) *steps {
	var d []delta
	for _, s := range parts {
		was := 0.0
		for i, v := range s.val {
			d = append(d, delta{s.at[i], v - was})
			was = v
		}
	}
	return stepsFromDeltas(d)
}

// ramp rises from lo at from to hi at until in n steps, and is 0 then.
func ramp(from, until int64, lo, hi float64, n int) []delta {
	var d []delta
	was := 0.0
	for i := range n {
		v := lo + (hi-lo)*float64(i+1)/float64(n)
		d = append(d, delta{from + (until-from)*int64(i)/int64(n), v - was})
		was = v
	}
	return append(d, delta{until, -was})
}
