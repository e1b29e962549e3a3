package verify

import (
	"encoding/binary"
	"regexp"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// condition is an expression that a word matches, or does not.
type condition struct {
	auto *automaton
	not  bool
}

// answer says whether there is a word that meets all conditions.
type answer int

const (
	none answer = iota
	found
	unknown
)

// maxStates bounds how much is looked at for one word, and maxSteps how many places in expressions
// are gone through for it: those of a long list are many for each character.
const (
	maxStates = 2048
	maxSteps  = 200_000
)

// conditionOf is what a matcher asks of a value.
func conditionOf(m *labels.Matcher) (condition, error) {
	pattern := m.Value
	if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
		pattern = regexp.QuoteMeta(m.Value)
	}
	auto, err := program(pattern)
	return condition{auto: auto, not: m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp}, err
}

// state is where the expressions of all conditions are after the same characters.
type state struct {
	at   string // the states of their automata
	last rune
	from int // the state before it
}

// common is the shortest word that meets all conditions; one of them at least names how it begins.
// With assertions on where something stands, such as \b, it may be none. What it costs, and so
// whether there is an answer, depends on the conditions alone.
func common(conditions ...condition) (string, answer) {
	exact := !slices.ContainsFunc(conditions, func(c condition) bool { return c.auto.asserts })
	start, now, next := make([]int, len(conditions)), make([]int, len(conditions)), make([]int, len(conditions))
	for i, c := range conditions {
		start[i] = c.auto.begin()
	}
	all := []state{{at: key(start), from: -1}}
	seen, steps := map[string]bool{all[0].at: true}, 0
	for at := 0; at < len(all); at++ {
		if unkey(now, all[at].at); accepted(conditions, now) {
			if exact {
				return word(all, at), found
			}
			return word(all, at), unknown
		}
		for _, r := range characters(conditions, now) {
			cost, ok := after(conditions, now, next, r)
			if steps += cost; !ok {
				continue
			}
			if k := key(next); !seen[k] {
				seen[k] = true
				all = append(all, state{at: k, last: r, from: at})
			}
		}
		if len(seen) > maxStates || steps > maxSteps {
			return "", unknown
		}
	}
	if !exact && slices.ContainsFunc(conditions, func(c condition) bool { return c.not }) {
		return "", unknown
	}
	return "", none
}

func key(states []int) string {
	var b []byte
	for _, s := range states {
		b = binary.LittleEndian.AppendUint32(b, uint32(s))
	}
	return string(b)
}

func unkey(states []int, key string) {
	for i := range states {
		states[i] = int(binary.LittleEndian.Uint32([]byte(key[4*i : 4*i+4])))
	}
}

// word is what leads to a state.
func word(all []state, at int) string {
	var out []rune
	for ; all[at].from >= 0; at = all[at].from {
		out = append(out, all[at].last)
	}
	slices.Reverse(out)
	return string(out)
}

// accepted says whether the word meets all conditions as it is.
func accepted(conditions []condition, at []int) bool {
	for i, c := range conditions {
		if c.auto.states[at[i]].matches == c.not {
			return false
		}
	}
	return true
}

// after is where everything is after one more character; not ok where no longer word can meet the
// conditions.
func after(conditions []condition, at, next []int, r rune) (cost int, ok bool) {
	for i, c := range conditions {
		cost += 1 + len(c.auto.states[at[i]].at)
		if next[i] = c.auto.after(at[i], r); next[i] == 0 && !c.not {
			return cost, false
		}
	}
	return cost, true
}

// characters stand for all that lead anywhere: what people would take first, then the bounds of
// what is named.
func characters(conditions []condition, at []int) []rune {
	out := []rune{'x', 'a', '0', '_'}
	for i, c := range conditions {
		out = append(out, c.auto.characters(at[i])...)
	}
	seen := map[rune]bool{}
	return slices.DeleteFunc(out, func(r rune) bool {
		again := seen[r]
		seen[r] = true
		return again
	})
}
