package dropped

import "slices"

// plans are some of the plans, a bit for each.
type plans []uint64

func (p plans) with(i int) plans {
	for len(p) <= i/64 {
		p = append(p, 0)
	}
	p[i/64] |= 1 << (i % 64)
	return p
}

func (p plans) has(i int) bool { return i/64 < len(p) && p[i/64]&(1<<(i%64)) != 0 }

func (p plans) without(i int) {
	if i/64 < len(p) {
		p[i/64] &^= 1 << (i % 64)
	}
}

func (p plans) empty() bool {
	return !slices.ContainsFunc(p, func(bits uint64) bool { return bits != 0 })
}

// others are the plans whose servers may have a metric of a job, as far as they tell: they know the
// metric or the job, and do not drop the metric. A plan that knows neither is about other jobs.
func (s *Set) others(name, job string) plans {
	a, b, not := s.jobs[job], s.known[name], s.whole[name]
	out := make(plans, max(len(a), len(b)))
	for i := range out {
		if i < len(a) {
			out[i] |= a[i]
		}
		if i < len(b) {
			out[i] |= b[i]
		}
		if i < len(not) {
			out[i] &^= not[i]
		}
	}
	return out
}

// elsewhereWhole tells whether servers of another plan may have what a rule takes of a metric: the
// label, or these values of it.
func (s *Set) elsewhereWhole(name string, r *rule, gone []string, l *losses) bool {
	rest := s.others(name, r.Job)
	rest.without(r.plan)
	if rest.empty() {
		return false
	}
	for _, other := range s.rules[name] {
		if !l.try() {
			break
		}
		if rest.has(other.plan) && other.takes(r, gone) {
			rest.without(other.plan)
		}
	}
	return !rest.empty()
}

// takes tells whether the rule takes the same of a metric as another one: the label, or these
// values of it.
func (r *rule) takes(other *rule, gone []string) bool {
	if r.Label != other.Label || (r.Kind == kindLabel) != (other.Kind == kindLabel) || r.Kind == kindNames {
		return false
	}
	return !slices.ContainsFunc(gone, func(v string) bool { return !slices.Contains(r.Values, v) })
}

// compare notes what the plans know of each other's metrics.
func (s *Set) compare(b *builder) {
	if b.plans < 2 {
		return
	}
	s.jobs = b.jobs
	for name, rules := range s.rules {
		for _, r := range rules {
			s.known[name] = s.known[name].with(r.plan)
			if r.Kind == kindNames {
				s.whole[name] = s.whole[name].with(r.plan)
			}
		}
	}
	for i, name := range b.kept {
		if len(s.rules[name]) > 0 {
			s.known[name] = s.known[name].with(b.keptBy[i])
		}
	}
	for name, rules := range s.rules {
		s.some[name] = slices.ContainsFunc(rules, func(r *rule) bool { return r.Kind == kindNames && !s.others(name, r.Job).empty() })
	}
}
