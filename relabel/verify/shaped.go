package verify

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// heldNames are what came of a form and an expression.
type heldNames struct {
	sure, unsure []string // as in shaped
	open         bool     // it is not known within the bounds
}

// shaped are names that are made up for a need whose names cannot be listed, such as one with a
// variable in the middle of its name.
type shaped struct {
	sure   []string // what the rules do to them they do to all that the need or the rule is about
	unsure []string // the need and a rule may both be about them, and either about more
	own    string   // a name that the need lets through, for rules that look at other labels
	open   []*rule  // those of which it is not known within the bounds
}

// branch is one of the alternatives of an expression, which names no finite number of words.
type branch struct {
	pieces
	re     *syntax.Regexp
	auto   *automaton // see automaton
	asked  *form      // see shared
	word   string
	answer answer
}

// maxBranches bounds the alternatives of one expression, and maxWithin how many of them are held
// against one use each by itself: that says which of them it selects all of.
const (
	maxBranches = 1024
	maxWithin   = 16
	maxFirst    = 4 // see first
)

// shape makes up names. Needs of which nothing is known but the end of the name are about
// everything, as is such a rule: what one of these has of the other tells nothing.
func (n *need) shape() (out shaped) {
	f := n.parsed.formOf(n.matchers[model.MetricNameLabel])
	if !f.named {
		return out
	}
	if n.job.looksFurther() {
		var known answer
		if out.own, known = f.own(); out.own == "" && known == unknown {
			out.open = slices.Clone(n.job.further())
		}
	}
	for _, ru := range n.job.rules {
		if !ru.nameOnly() {
			continue
		}
		switch ru.Config.Action {
		case relabel.Keep, relabel.Drop, relabel.Replace:
			s := n.parsed.patternOf(ru).held(f, ru.Config.Action == relabel.Keep)
			out.sure, out.unsure = union(out.sure, s.sure), union(out.unsure, s.unsure)
			if s.open {
				out.open = append(out.open, ru)
			}
		}
	}
	return out
}

// form is what the matchers on a name ask for; it is not named where they name words, or nothing of
// how these begin.
type form struct {
	conditions []condition
	pieces
	word   *string // see own
	known  answer
	search search // see with
}

// own is a name that the form lets through, "" where none was found.
func (f *form) own() (string, answer) {
	if f.word == nil {
		word, known := f.search.common(f.conditions)
		f.word, f.known = &word, known
	}
	return *f.word, f.known
}

// formOf reads it once: many needs ask for the same, and each is held against each job.
func (p languages) formOf(ms []*labels.Matcher) *form {
	id := ""
	for _, m := range ms {
		id += m.String() + "\x00"
	}
	if f, ok := p.forms[id]; ok {
		return f
	}
	f := new(form)
	if _, ok := p.pinned(ms); !ok {
		for _, m := range ms {
			c, err := conditionOf(m)
			if err != nil {
				f = new(form)
				break
			}
			f.conditions = append(f.conditions, c)
			f.add(m)
		}
	}
	p.forms[id] = f
	return f
}

// add adds what all names have that a matcher lets through.
func (f *form) add(m *labels.Matcher) {
	re, err := parse(m.Value)
	if err != nil || m.Type != labels.MatchRegexp {
		return
	}
	more := piecesOf(re)
	f.named = f.named || more.named
	if len(more.prefix) > len(f.prefix) {
		f.prefix = more.prefix
	}
	if len(more.suffix) > len(f.suffix) {
		f.suffix = more.suffix
	}
	f.must = append(f.must, more.must...)
}

// with is what a form asks for, and one more condition.
func (f *form) with(c condition) (string, answer) {
	return f.search.common(append(slices.Clone(f.conditions), c))
}

// pattern is an expression of rules that look at nothing but the name, with what came of it for the
// forms of needs.
type pattern struct {
	regexp      relabel.Regexp
	exact       bool // it names words only
	listed      bool // the words that it names are known
	whole       *automaton
	open        *automaton // the alternatives that name no finite number of words; nil where there are none
	branches    []*branch  // these
	kept, taken map[*form]heldNames
}

// patternOf reads an expression once: many jobs have the same rules.
func (p languages) patternOf(ru *rule) *pattern {
	if ru.pattern != nil {
		return ru.pattern
	}
	text := ru.Config.Regex.String()
	if p.patterns[text] == nil {
		whole, _ := program(text) // it was compiled before
		p.patterns[text] = &pattern{
			regexp: ru.Config.Regex, exact: ru.known && ru.words.exact(), listed: ru.known, whole: whole,
			kept: map[*form]heldNames{}, taken: map[*form]heldNames{},
		}
	}
	ru.pattern = p.patterns[text]
	return ru.pattern
}

// held are the names that a rule with the expression takes of a form's.
func (p *pattern) held(f *form, keep bool) heldNames {
	known, how := p.taken, p.take
	if keep {
		known, how = p.kept, p.keep
	}
	if _, ok := known[f]; !ok {
		known[f] = how(f)
	}
	return known[f]
}

// keep adds a name that an allow-list does not name.
func (p *pattern) keep(f *form) (s heldNames) {
	word, known := f.with(condition{auto: p.whole, not: true})
	if known == none {
		return s
	}
	_, some := f.with(condition{auto: p.whole})
	switch {
	case known == found && some == none:
		s.sure = append(s.sure, word)
	case known == found:
		s.unsure = append(s.unsure, word)
	default:
		s.open = true
	}
	return s
}

// take adds a name that alternatives of the rule have in common with the need; where it selects all
// that one of them matches, that one's.
func (p *pattern) take(f *form) (s heldNames) {
	var near []*branch
	for _, b := range p.alternatives() {
		if b.fits(&f.pieces) {
			near = append(near, b)
		}
	}
	if len(near) == 0 {
		return s
	}
	word, known := p.first(f, near)
	switch known {
	case none:
		return s
	case unknown:
		if word == "" || !p.regexp.MatchString(word) {
			s.open = true
			break
		}
		s.unsure = append(s.unsure, word)
	case found:
		if _, rest := f.with(condition{auto: p.whole, not: true}); rest == none {
			s.sure = append(s.sure, word)
			return s
		}
		s.unsure = append(s.unsure, word)
	}
	for _, b := range near[:min(len(near), maxWithin)] {
		if !strings.HasPrefix(b.prefix, f.prefix) {
			continue
		}
		// that they have a word in common is known of the first ones, and costs less
		if word, known := b.shared(f); known == found && p.regexp.MatchString(word) && b.within(f) {
			return heldNames{sure: []string{word}}
		}
	}
	return s
}

// first is a name that the need and one of the alternatives have in common: most often one of the
// first few has, and each of these is looked at faster than all of them at once. Where these are
// all of them there is no more to look at, unless one is unknown and another may help.
func (p *pattern) first(f *form, near []*branch) (word string, known answer) {
	known = none
	for _, b := range near[:min(len(near), maxFirst)] {
		word, each := b.shared(f)
		if each == found && p.regexp.MatchString(word) {
			return word, found
		}
		known = max(known, each)
	}
	if known == none && len(near) <= maxFirst {
		return "", none
	}
	if known == unknown && len(p.branches) == 1 && p.open == p.whole { // the same again
		return near[0].shared(f)
	}
	if word, known = f.with(condition{auto: p.open}); known == found && !p.regexp.MatchString(word) {
		known = unknown
	}
	return word, known
}

// has says whether names that the form lets through may have all of these characters.
func (f *form) has(all []rune) bool {
	return !slices.ContainsFunc(f.conditions, func(c condition) bool { return !c.not && !c.auto.has(all) })
}

// shared is a name that the need and the alternative have in common, remembered for one need.
func (b *branch) shared(f *form) (string, answer) {
	if b.asked != f {
		b.asked, b.word, b.answer = f, "", none
		if auto := b.automaton(); auto.has(f.must) && f.has(b.must) {
			b.word, b.answer = f.with(condition{auto: auto})
		}
	}
	return b.word, b.answer
}

// within says that the need selects all that the alternative matches.
func (b *branch) within(f *form) bool {
	for _, c := range f.conditions {
		if _, known := common(condition{auto: b.automaton()}, condition{auto: c.auto, not: !c.not}); known != none {
			return false
		}
	}
	return true
}

// automaton is compiled where it is needed: there may be a thousand alternatives.
func (b *branch) automaton() *automaton {
	if b.auto == nil {
		b.auto, _ = compiled(b.re) // no larger than the whole
	}
	return b.auto
}

// judgeShaped looks at what may go only if there are metrics of a name that is made up, and at
// rules that look at other labels than the name.
func (n *need) judgeShaped(r *Result, losses map[*rule]*loss) {
	if n.spellingOnly {
		return
	}
	if name := n.shaped.own; name != "" && n.job.touches(name) {
		own := map[*rule]*loss{}
		n.judgeName(name, own)
		for ru, l := range own {
			if losses[ru] == nil && !ru.nameOnly() {
				losses[ru] = l
			}
		}
	}
	if n.unseen {
		for _, ru := range n.shaped.open {
			if losses[ru] == nil {
				r.unsure(ru, n)
			}
		}
	}
	for _, name := range n.shaped.unsure {
		if ru := n.job.first(name); ru != nil {
			n.mayLose(r, losses, ru, name, name)
			continue
		}
		own := map[*rule]*loss{}
		n.judgeName(name, own)
		for ru, l := range own {
			if ru.nameOnly() {
				n.mayLose(r, losses, ru, name, l.example)
			}
		}
	}
}

// mayLose notes that a rule takes a name that is made up.
func (n *need) mayLose(r *Result, losses map[*rule]*loss, ru *rule, name, example string) {
	if was := losses[ru]; was != nil && len(was.metrics) == 0 {
		return
	}
	l := n.of(losses, ru)
	l.metrics, l.example = union(l.metrics, []string{name}), example
	if n.unseen && ru.Config.Action != relabel.Keep {
		r.unsure(ru, n)
	}
}

// first is the first rule on names alone that takes a name; nil where there is none, or a rule
// before it makes another name of it.
func (j *job) first(name string) *rule {
	if ru, ok := j.firsts[name]; ok {
		return ru
	}
	var first *rule
	for _, ru := range j.rules {
		c := ru.Config
		drop, keep := c.Action == relabel.Drop, c.Action == relabel.Keep
		if c.TargetLabel == model.MetricNameLabel || strings.Contains(c.TargetLabel, "$") {
			break
		}
		if ru.nameOnly() && (drop || keep) && c.Regex.MatchString(name) == drop {
			first = ru
			break
		}
	}
	if j.firsts == nil {
		j.firsts = map[string]*rule{}
	}
	j.firsts[name] = first
	return first
}

// unsure remembers that what a rule takes of a need is not known.
func (r *Result) unsure(ru *rule, n *need) {
	at := ru.File + ":" + strconv.Itoa(ru.Line)
	o := r.shapes[at]
	if o == nil {
		o = &openRule{example: n.Selector(), place: n.Uses[0].Place(), entries: map[*uses.Entry]bool{}}
		r.shapes[at] = o
		r.shaped = append(r.shaped, at)
	}
	if !o.entries[n.Entry] {
		o.entries[n.Entry] = true
		o.uses += len(n.Uses)
	}
}

// openRule are the uses of which nobody knows what a rule takes.
type openRule struct {
	example, place string
	entries        map[*uses.Entry]bool
	uses           int
}

// tellUnsure says it in one line for each rule.
func (r *Result) tellUnsure() {
	for _, at := range r.shaped {
		o := r.shapes[at]
		of := o.example
		if o.uses > 1 {
			of = fmt.Sprintf("what %d uses ask for, such as %s", o.uses, of)
		}
		r.unchecked(fmt.Errorf("%s: whether rule %s takes anything of %s is known only where the names of its metrics are: give --scrape", o.place, at, of))
	}
}

// looksFurther says that some rule looks at other labels than the name.
func (j *job) looksFurther() bool { return len(j.further()) > 0 }

// further are the rules that look at other labels than the name.
func (j *job) further() []*rule {
	if j.others == nil {
		j.others = slices.DeleteFunc(slices.Clone(j.rules), (*rule).nameOnly)
	}
	return j.others
}

// nameOnly says that the rule looks at nothing but the name of the metric.
func (ru *rule) nameOnly() bool {
	return len(ru.Config.SourceLabels) == 1 && ru.Config.SourceLabels[0] == model.MetricNameLabel
}

// alternatives are those of the expression that name no finite number of words, and how they begin.
func (p *pattern) alternatives() []*branch {
	if p.branches != nil {
		return p.branches
	}
	p.branches = []*branch{}
	re, err := parse(p.regexp.String())
	if err != nil || p.exact {
		return p.branches
	}
	all := alternatives(re, maxBranches)
	var texts []string
	for _, alternative := range all {
		var l language
		if _, ok := l.walk(alternative); ok && l.exact() && p.listed {
			continue // its words are looked at one by one
		}
		b := &branch{pieces: piecesOf(alternative), re: alternative}
		if !b.named {
			continue
		}
		p.branches = append(p.branches, b)
		texts = append(texts, alternative.String())
	}
	if p.open = p.whole; len(texts) < len(all) {
		if p.open, err = program(strings.Join(texts, "|")); err != nil {
			p.open = p.whole
		}
	}
	return p.branches
}

// ways is how many alternatives an expression comes apart into, 1 where that were more than most.
func ways(re *syntax.Regexp, most int) int {
	n := 1
	switch re.Op {
	case syntax.OpCapture:
		return ways(re.Sub[0], most)
	case syntax.OpAlternate:
		n = 0
		for _, sub := range re.Sub {
			if n += ways(sub, most); n > most {
				return 1
			}
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if n *= ways(sub, most); n > most {
				return 1
			}
		}
	}
	return n
}

// alternatives takes an expression apart, at most into that many; what they have in common stands
// before each.
func alternatives(re *syntax.Regexp, most int) []*syntax.Regexp {
	if ways(re, most) == 1 {
		return []*syntax.Regexp{re}
	}
	switch re.Op {
	case syntax.OpCapture:
		return alternatives(re.Sub[0], most)
	case syntax.OpAlternate:
		var out []*syntax.Regexp
		for _, sub := range re.Sub {
			out = append(out, alternatives(sub, most)...)
		}
		return out
	}
	out := []*syntax.Regexp{{Op: syntax.OpEmptyMatch}}
	for _, sub := range re.Sub {
		var next []*syntax.Regexp
		parts := alternatives(sub, most)
		for _, before := range out {
			for _, part := range parts {
				next = append(next, &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{before, part}})
			}
		}
		out = next
	}
	return out
}
