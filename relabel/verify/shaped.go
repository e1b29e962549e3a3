package verify

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// shaped are names that are made up for a need whose names cannot be listed, such as one with a
// variable in the middle of its name.
type shaped struct {
	sure   []string // what the rules do to them they do to all that the need or the rule is about
	unsure []string // the need and a rule may both be about them, and either about more
	own    string   // a name that the need lets through, for rules that look at other labels
}

// branch is one of the alternatives of an expression, which names no finite number of words.
type branch struct {
	prefix string // how all of its words begin
	prog   *syntax.Prog
}

// maxBranches bounds the alternatives of one expression.
const maxBranches = 1024

// shape makes up names. Needs of which nothing is known but the end of the name are about
// everything, as is such a rule: what one of these has of the other tells nothing.
func (n *need) shape() (out shaped) {
	f := n.parsed.formOf(n.Entry, n.matchers[model.MetricNameLabel])
	if f.prefix == "" {
		return out
	}
	out.own = f.word
	own, prefix := f.conditions, f.prefix
	for _, ru := range n.job.rules {
		c := ru.Config
		switch {
		case !ru.nameOnly():
		case c.Action == relabel.Keep:
			out.kept(own, ru)
		case c.Action == relabel.Drop || c.Action == relabel.Replace:
			out.taken(own, prefix, ru)
		}
	}
	return out
}

// form is what the matchers on a name ask for; its prefix is empty where they name words, or
// nothing that all of them begin with.
type form struct {
	conditions   []condition
	prefix, word string
}

// formOf reads it once: a need is held against each job.
func (p languages) formOf(e *uses.Entry, ms []*labels.Matcher) form {
	if f, ok := p.forms[e]; ok {
		return f
	}
	var f form
	if _, ok := p.pinned(ms); !ok {
		for _, m := range ms {
			c, err := conditionOf(m)
			if err != nil {
				f = form{}
				break
			}
			f.conditions = append(f.conditions, c)
			if prefix := literalPrefix(m); len(prefix) > len(f.prefix) {
				f.prefix = prefix
			}
		}
		if f.prefix != "" {
			f.word, _ = common(f.conditions...)
		}
	}
	p.forms[e] = f
	return f
}

// kept adds a name that an allow-list does not name.
func (s *shaped) kept(own []condition, ru *rule) {
	whole := ru.whole()
	word, known := common(append(slices.Clone(own), condition{prog: whole, not: true})...)
	_, some := common(append(slices.Clone(own), condition{prog: whole})...)
	switch {
	case known == none:
	case known == found && some == none:
		s.sure = append(s.sure, word)
	case known == found:
		s.unsure = append(s.unsure, word)
	}
}

// taken adds a name for each alternative of the rule that begins as names of the need do.
func (s *shaped) taken(own []condition, prefix string, ru *rule) {
	for _, b := range ru.open() {
		if b.prefix == "" || !strings.HasPrefix(b.prefix, prefix) && !strings.HasPrefix(prefix, b.prefix) {
			continue
		}
		word, known := common(append(slices.Clone(own), condition{prog: b.prog})...)
		if known == none {
			continue
		}
		if known == found && !ru.Config.Regex.MatchString(word) {
			known = unknown
		}
		_, rest := common(append(slices.Clone(own), condition{prog: ru.whole(), not: true})...)
		if known == found && (rest == none || within(b, own)) {
			s.sure = append(s.sure, word)
		} else {
			s.unsure = append(s.unsure, word)
		}
	}
}

// within says that the need selects all that the alternative matches.
func within(b branch, own []condition) bool {
	for _, c := range own {
		if _, known := common(condition{prog: b.prog}, condition{prog: c.prog, not: !c.not}); known != none {
			return false
		}
	}
	return true
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
	for _, name := range n.shaped.unsure {
		own := map[*rule]*loss{}
		n.judgeName(name, own)
		for ru, l := range own {
			if was := losses[ru]; was != nil && len(was.metrics) == 0 || !ru.nameOnly() {
				continue
			}
			of(losses, ru).metrics = union(of(losses, ru).metrics, []string{name})
			if of(losses, ru).example = l.example; n.unseen && ru.Config.Action != relabel.Keep {
				r.unchecked(fmt.Errorf("%s: whether rule %s:%d takes anything of %s is known only where the names of its metrics are: give --scrape",
					n.Uses[0].Place(), ru.File, ru.Line, n.Selector()))
			}
		}
	}
}

// nameOnly says that the rule looks at nothing but the name of the metric.
func (ru *rule) nameOnly() bool {
	return len(ru.Config.SourceLabels) == 1 && ru.Config.SourceLabels[0] == model.MetricNameLabel
}

// whole is the rule's expression.
func (ru *rule) whole() *syntax.Prog {
	if ru.prog == nil {
		ru.prog, _ = program(ru.Config.Regex.String()) // it was compiled before
	}
	return ru.prog
}

// open are the alternatives of the rule that name no finite number of words.
func (ru *rule) open() []branch {
	if ru.branches != nil {
		return ru.branches
	}
	ru.branches = []branch{}
	re, err := syntax.Parse(ru.Config.Regex.String(), syntax.Perl|syntax.DotNL)
	if err != nil || ru.known && ru.words.exact() {
		return ru.branches
	}
	for _, alternative := range alternatives(re, maxBranches) {
		var l language
		if _, ok := l.walk(alternative); ok && l.exact() {
			continue // its words are looked at one by one
		}
		prog, err := syntax.Compile(alternative.Simplify())
		if err != nil {
			continue
		}
		prefix, _ := begins(alternative)
		ru.branches = append(ru.branches, branch{prefix: prefix, prog: prog})
	}
	return ru.branches
}

// alternatives takes an expression apart, at most into that many; what they have in common stands
// before each.
func alternatives(re *syntax.Regexp, most int) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpCapture:
		return alternatives(re.Sub[0], most)
	case syntax.OpAlternate:
		var out []*syntax.Regexp
		for _, sub := range re.Sub {
			out = append(out, alternatives(sub, most)...)
		}
		if len(out) <= most {
			return out
		}
	case syntax.OpConcat:
		out := []*syntax.Regexp{{Op: syntax.OpEmptyMatch}}
		for _, sub := range re.Sub {
			var next []*syntax.Regexp
			parts := alternatives(sub, most)
			for _, before := range out {
				for _, part := range parts {
					next = append(next, &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{before, part}})
				}
			}
			if out = next; len(out) > most {
				return []*syntax.Regexp{re}
			}
		}
		return out
	}
	return []*syntax.Regexp{re}
}

// literalPrefix is how all names begin that a matcher lets through.
func literalPrefix(m *labels.Matcher) string {
	re, err := syntax.Parse(m.Value, syntax.Perl|syntax.DotNL)
	if err != nil || m.Type != labels.MatchRegexp {
		return ""
	}
	prefix, _ := begins(re)
	return prefix
}

// begins is how all words of an expression begin, and whether that is all of them.
func begins(re *syntax.Regexp) (prefix string, all bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return "", true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return "", false
		}
		return string(re.Rune), true
	case syntax.OpCapture:
		return begins(re.Sub[0])
	case syntax.OpPlus:
		prefix, _ = begins(re.Sub[0])
		return prefix, false
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			next, all := begins(sub)
			if prefix += next; !all {
				return prefix, false
			}
		}
		return prefix, true
	case syntax.OpAlternate:
		prefix, _ = begins(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			next, _ := begins(sub)
			same := 0
			for same < min(len(prefix), len(next)) && prefix[same] == next[same] {
				same++
			}
			prefix = prefix[:same]
		}
	}
	return prefix, false
}
