package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// judgeNeeds makes up the series that each need names and runs them through the rules. Where stored
// series were looked at, only what they cannot say is left: needs that select none of them, jobs
// that have none of them, and the other spelling of a bucket's edge, which other versions of the
// server store.
//
// Names that rules record and those that the server makes itself never come by; they are left out,
// but for the former where a job keeps the labels of another server.
func (r *Result) judgeNeeds(ctx context.Context, o Options, jobs []*job, index *uses.Index, seen *seen, recorded map[string]bool) {
	if seen != nil {
		index = seen.index
	}
	external := map[string]bool{}
	for _, l := range o.External {
		external[l] = true
	}
	parsed := languages{map[string]*language{}, map[string]*form{}, map[string]*pattern{}}
	r.shapes = map[string]*openRule{}
	different := distinct(jobs)
	for _, e := range index.Entries() {
		for _, j := range different {
			if len(j.rules) == 0 {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			n := newNeed(e, j, external, parsed)
			if n == nil {
				continue
			}
			never := func(name string) bool { return j.neverScraped(name, recorded) }
			n.names = slices.DeleteFunc(n.names, never)
			n.shaped.sure = slices.DeleteFunc(n.shaped.sure, never)
			n.shaped.unsure = slices.DeleteFunc(n.shaped.unsure, never)
			n.saved = slices.DeleteFunc(slices.Clone(e.Saved), never)
			n.spellingOnly = seen != nil && seen.entries[e] && seen.jobs[j]
			n.elsewhere = seen != nil && seen.entries[e] && !seen.jobs[j]
			n.others = len(scrapedBy(jobs)) > 1
			n.unseen = seen == nil
			if seen != nil {
				n.stays = seen.stays[j]
				n.behind(seen)
			}
			n.judge(r)
		}
	}
	r.tellUnsure()
	r.tellUnmentioned()
}

// distinct leaves out jobs that have the name and the rules of an earlier one: the copies on other
// shards.
func distinct(jobs []*job) []*job {
	seen := map[string]bool{}
	var out []*job
	for _, j := range jobs {
		key := j.Name
		for _, ru := range j.rules {
			key += "\x00" + spelled(ru.Config)
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, j)
		}
	}
	return out
}

// scrapedBy are the jobs without what is written to other servers.
func scrapedBy(jobs []*job) []*job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.remote })
}

// need is one need held against the rules of one job.
type need struct {
	*uses.Entry
	job      *job
	matchers map[string][]*labels.Matcher
	names    []string
	saved    []string // those of Need.Saved that come by
	shaped   shaped   // names that are made up where they cannot be listed
	jobs     []string // the job's labels job that the need selects
	anyJob   bool     // no matcher on the label job
	others   bool     // there are other jobs
	// wide says that its matcher on job lets any job through: it is a variable that can be all of
	// them.
	wide bool
	// stranger says that the need names a job, and whether series of this one have it, nothing
	// tells.
	stranger bool
	// spellingOnly: stored series have shown the rest.
	spellingOnly bool
	// takes are, where the rules may be in force where the stored series are from, what each takes
	// of these; nil where they have shown all.
	takes map[*rule]map[string]bool
	// inForce is what is stored there.
	inForce *behind
	// unseen: no stored series were given.
	unseen bool
	// elsewhere: stored series of other jobs are selected, and this job has none, or none of them
	// where its rules may be in force. here: of the metric that is looked at it has some there.
	elsewhere, here bool
	// stays are the names and edges of stored buckets of the job that the rules leave.
	stays    map[[2]string]bool
	external map[string]bool
	parsed   languages
	labels   map[string]bool // those that the need or the rules look at
	unjudged string          // the label for which no value could be made up
}

// newNeed is nil where the need cannot select series of the job.
func newNeed(e *uses.Entry, j *job, external map[string]bool, parsed languages) *need {
	n := &need{Entry: e, job: j, matchers: map[string][]*labels.Matcher{}, anyJob: true, external: external, parsed: parsed}
	for _, m := range e.Matchers {
		if m.Name == model.JobLabel {
			n.anyJob = false
			n.wide = m.Matches("\x00no job of anything")
			n.stranger = n.stranger || len(j.labels) == 0 && (j.server == "" && !j.couldBe(m) || j.server != "" && j.why != "")
		}
		n.matchers[m.Name] = append(n.matchers[m.Name], m)
	}
	for _, label := range j.labels {
		if matchAll(n.matchers[model.JobLabel], label) {
			n.jobs = append(n.jobs, label)
		}
	}
	if len(j.labels) > 0 && len(n.jobs) == 0 {
		if j.why == "" && !j.foreign {
			return nil
		}
		n.stranger = true
	}
	n.names = n.metricNames()
	n.shaped = n.shape()
	return n
}

func matchAll(ms []*labels.Matcher, value string) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(value) })
}

// pinned lists the values that matchers on one label let through, where one of them names finitely
// many.
func (p languages) pinned(ms []*labels.Matcher) ([]string, bool) {
	for _, m := range ms {
		var words []string
		switch m.Type {
		case labels.MatchEqual:
			words = []string{m.Value}
		case labels.MatchRegexp:
			l := p.of(m.Value)
			if l == nil || !l.exact() {
				continue
			}
			words = l.words
		default:
			continue
		}
		return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !matchAll(ms, w) }), true
	}
	return nil, false
}

// witness is a value, not empty, that the matchers let through; "" where none was found.
func (p languages) witness(ms []*labels.Matcher) string {
	candidates := []string{placeholder}
	for _, m := range ms {
		if m.Type == labels.MatchRegexp {
			candidates = append(candidates, shortest(m.Value))
			if l := p.of(m.Value); l != nil {
				candidates = append(candidates, l.words...)
			}
		}
	}
	for _, c := range append(candidates, "1", "a", "0.5", "default") {
		if c != "" && matchAll(ms, c) {
			return c
		}
	}
	return ""
}

// loss is what one rule takes of the need.
type loss struct {
	rule            *rule
	all, some       bool     // every made-up series goes; every one of some values that the need names
	older           bool     // only where edges are written without .0
	stays           bool     // of these, the server stores one with .0, and the rules leave it
	maybe           bool     // only with a label, or only without it
	values          []string // label="value" of what goes
	example         string
	labels          []string // labels that go while the series stay
	metrics         []string // that go, if there are such
	always          bool     // whatever other labels there are
	foreign         bool     // the rule asks for a job that is none of the entry's own, and the need lets it through
	inf             bool
	quantileBuckets bool
	here            bool // it is of a metric that the job has: see need
	extended        bool // by a rule that takes other values that are stored: see judgeExtended
	unmentioned     bool // by a label of which the need says nothing
	typed           bool // what somebody may type into a text box, which was not saved with it
}

func (n *need) judge(r *Result) {
	if n.spellingOnly && n.takes == nil && !slices.ContainsFunc(n.Matchers, func(m *labels.Matcher) bool { return isNumeric(m.Name) }) {
		return
	}
	n.labels = n.interesting()
	losses, saved := map[*rule]*loss{}, map[*rule]*loss{}
	n.judgeNames(n.saved, saved)
	names := union(n.names, n.shaped.sure)
	n.judgeNames(names, losses)
	n.judgeShaped(r, losses)
	extended := map[*rule]*loss{}
	for _, name := range names {
		n.judgeExtended(name, extended)
	}
	for ru, l := range extended {
		if losses[ru] == nil {
			losses[ru] = l
		}
	}
	for _, ru := range n.job.rules { // in the order of the rules
		if l := saved[ru]; l != nil {
			as := *n
			as.names = n.saved
			as.tell(r, l)
		} else if l := losses[ru]; l != nil && l.onlyUnmentioned() {
			r.noteUnmentioned(n, l)
		} else if l != nil {
			l.typed = n.Saved != nil
			n.tell(r, l)
		}
	}
	if n.unjudged != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: no value of label %s could be made up for %s: give stored series to know what it "+
			"loses", n.Uses[0].Place(), n.unjudged, n.Selector()))
	}
}

// judgeNames makes up the series of metrics that a rule can do something to.
func (n *need) judgeNames(names []string, losses map[*rule]*loss) {
	for _, name := range names {
		if n.job.touches(name) {
			n.here = n.inForce != nil && n.inForce.has(n.job, name)
			n.judgeBehind(name, losses)
			n.judgeName(name, losses)
		}
	}
}

// judgeName makes up the series of one metric.
func (n *need) judgeName(name string, losses map[*rule]*loss) {
	var fixed, free []string
	values := map[string][]string{}
	for label := range n.labels {
		words, ok := n.parsed.pinned(n.matchers[label])
		if label == model.JobLabel {
			words, ok = n.jobsOf(name, words, ok)
		}
		switch {
		case !ok:
			free = append(free, label)
		case isNumeric(label):
			fixed = append(fixed, label)
			for _, w := range words {
				for _, s := range spellings(w) {
					if !slices.Contains(values[label], s) {
						values[label] = append(values[label], s)
					}
				}
			}
		default:
			fixed = append(fixed, label)
			values[label] = words
		}
	}
	slices.Sort(fixed)
	slices.Sort(free)
	if !n.spellingOnly || slices.ContainsFunc(fixed, isNumeric) {
		n.combine(name, fixed, free, values, losses)
	}
	if !n.spellingOnly {
		n.listedByRules(name, fixed, losses)
		n.byValue(name, fixed, losses)
	}
}

// interesting are the labels that the need or the rules look at.
func (n *need) interesting() map[string]bool {
	out := map[string]bool{}
	for label := range n.matchers {
		out[label] = true
	}
	if !n.Labels.Except {
		for _, label := range n.Labels.Names {
			out[label] = true
		}
	}
	for _, ru := range n.job.rules {
		for _, l := range ru.Config.SourceLabels {
			out[string(l)] = true
		}
	}
	delete(out, "")
	delete(out, model.MetricNameLabel)
	for label := range n.external {
		delete(out, label)
	}
	return out
}

// combine goes through what the need names: each combination with a value for every other label,
// and with none.
func (n *need) combine(name string, fixed, free []string, values map[string][]string, losses map[*rule]*loss) {
	if n.unjudged != "" {
		return
	}
	type fate struct{ full, bare *rule }
	total, gone := 0, map[*rule]int{}
	for combination := range combinations(fixed, values) {
		total++
		var f fate
		for _, bare := range []bool{false, true} {
			ls := n.series(name, combination, free, bare, "")
			if n.unjudged != "" {
				return
			}
			by, taken := n.run(ls)
			if by != nil && len(taken) > 0 {
				l := n.of(losses, by)
				l.labels = union(l.labels, taken)
				l.example = ls.String()
				l.foreign = l.foreign || n.foreign(by, name, combination)
				for _, label := range taken {
					again, also := n.run(n.series(name, combination, free, true, label))
					l.always = l.always || again == by && slices.Contains(also, label)
				}
				continue
			}
			if bare {
				f.bare = by
			} else {
				f.full = by
			}
			if by != nil {
				n.of(losses, by).example = ls.String()
			}
		}
		switch {
		case f.full != nil && f.bare != nil:
			l := n.of(losses, f.full)
			gone[f.full]++
			l.foreign = l.foreign || n.foreign(f.full, name, combination)
			l.note(n, name, combination, fixed)
		case f.full != nil:
			n.of(losses, f.full).maybe = true
		case f.bare != nil:
			n.of(losses, f.bare).maybe = true
		}
	}
	for ru, count := range gone {
		if count == total {
			losses[ru].all = true
		}
	}
}

// series is made up of what the need names, and of a value for each other label; bare, only for
// those that may not be empty, and for with.
func (n *need) series(name string, combination map[string]string, free []string, bare bool, with string) labels.Labels {
	lb := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name))
	for label, v := range combination {
		lb.Set(label, v)
	}
	for _, label := range free {
		ms := n.matchers[label]
		if bare && label != with && matchAll(ms, "") {
			continue
		}
		v := n.parsed.witness(ms)
		if v == "" && !matchAll(ms, "") {
			n.unjudged = label
		}
		lb.Set(label, v)
	}
	return lb.Labels()
}

// note writes down which named values go.
func (l *loss) note(n *need, name string, combination map[string]string, fixed []string) {
	old := false
	for _, label := range fixed {
		v := combination[label]
		if label == model.JobLabel && n.foreign(l.rule, name, combination) && !slices.ContainsFunc(n.matchers[label], equal) {
			l.values = union(l.values, []string{label + "=" + strconv.Quote(v)})
			continue
		}
		if len(n.matchers[label]) == 0 || v == "" || label == model.JobLabel {
			continue
		}
		if isNumeric(label) {
			if v != stored(v) {
				old = true
				l.stays = l.stays || n.stays[[2]string{name, stored(v)}]
			}
			l.inf = l.inf || v == "+Inf"
		} else if equal(n.matchers[label][0]) {
			continue // the selector says it
		}
		if text := label + "=" + strconv.Quote(v); !slices.Contains(l.values, text) {
			l.values = append(l.values, text)
		}
	}
	if old {
		l.older = true
		return
	}
	l.some = true
}

func equal(m *labels.Matcher) bool { return m.Type == labels.MatchEqual }

// listedByRules goes through what the rules name of this metric, where the need names no value
// itself.
func (n *need) listedByRules(name string, fixed []string, losses map[*rule]*loss) {
	for _, ru := range n.job.rules {
		c := ru.Config
		at := slices.Index(c.SourceLabels, model.MetricNameLabel)
		if c.Action != relabel.Drop || !ru.known || at < 0 || len(c.SourceLabels) < 2 || !ru.names()[name] {
			continue
		}
		for _, w := range ru.words.words {
			values := split(c, w)
			if values == nil || values[at] != name {
				continue
			}
			lb := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name))
			if len(n.jobs) > 0 {
				lb.Set(model.JobLabel, n.jobs[0])
			}
			selects, open := true, ""
			for i, l := range c.SourceLabels {
				label := string(l)
				if i == at {
					continue
				}
				ok := matchAll(n.matchers[label], values[i])
				if isNumeric(label) {
					values[i] = stored(values[i])
					ok = slices.ContainsFunc(spellings(values[i]), func(s string) bool { return matchAll(n.matchers[label], s) })
				}
				selects = selects && ok
				if !slices.Contains(fixed, label) && values[i] != "" {
					open = label
				}
				lb.Set(label, values[i])
			}
			if !selects || open == "" {
				continue
			}
			ls := lb.Labels()
			by, taken := n.run(ls)
			if by == nil || len(taken) > 0 {
				continue
			}
			l := n.of(losses, by)
			l.maybe = true
			l.example = ls.String()
			if text := open + "=" + strconv.Quote(ls.Get(open)); !slices.Contains(l.values, text) {
				l.values = append(l.values, text)
			}
			l.inf = l.inf || ls.Get(labels.BucketLabel) == "+Inf"
			l.quantileBuckets = l.quantileBuckets || open == labels.BucketLabel && n.Quantile
		}
	}
}

// run gives the rule that takes the series, or that takes labels from it which the need reads.
func (n *need) run(ls labels.Labels) (by *rule, taken []string) {
	out, kept, at := n.job.chain.Apply(ls)
	if at < 0 {
		return nil, nil
	}
	if !kept {
		return n.job.rules[at], nil
	}
	ls.Range(func(l labels.Label) {
		if out.Get(l.Name) != l.Value && n.mentions(l.Name) {
			taken = append(taken, l.Name)
		}
	})
	if len(taken) == 0 {
		return nil, nil
	}
	return n.job.taker(ls, taken[0]), taken
}

// mentions says that the need names the label. One that reads all labels does not: which there are,
// only stored series tell.
func (n *need) mentions(label string) bool {
	return len(n.matchers[label]) > 0 || !n.Labels.Except && slices.Contains(n.Labels.Names, label)
}

func (n *need) of(losses map[*rule]*loss, ru *rule) *loss {
	if losses[ru] == nil {
		losses[ru] = &loss{rule: ru}
	}
	losses[ru].here = losses[ru].here || n.here
	return losses[ru]
}

func union(a, b []string) []string {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// combinations goes through the products of values, at most maxCombined of them.
func combinations(fixed []string, values map[string][]string) func(yield func(map[string]string) bool) {
	return func(yield func(map[string]string) bool) {
		at := make([]int, len(fixed))
		for range maxCombined {
			combination := map[string]string{}
			for i, label := range fixed {
				if len(values[label]) == 0 {
					return // matchers that contradict each other
				}
				combination[label] = values[label][at[i]]
			}
			if !yield(combination) {
				return
			}
			i := 0
			for ; i < len(fixed); i++ {
				if at[i]++; at[i] < len(values[fixed[i]]) {
					break
				}
				at[i] = 0
			}
			if i == len(fixed) {
				return
			}
		}
	}
}

// byNumber orders edges.
func byNumber(a, b string) int {
	x, errA := strconv.ParseFloat(a, 64)
	y, errB := strconv.ParseFloat(b, 64)
	if errA == nil && errB == nil && x != y {
		if x < y {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
