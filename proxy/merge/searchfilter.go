package merge

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/util/strutil"
)

// Search says what is looked for, and in which order it is wanted. It means what the search API of
// Prometheus 3.15 means, whose own filters come with a whole server; a test holds the two together.
type Search struct {
	// Terms are the texts; what is like one of them is found, everything where there are none. None
	// is empty.
	Terms []string
	// JaroWinkler takes what contains a text, or is similar to it by at least Threshold where that
	// is above zero. Else the letters of the text have to come in their order, and as close
	// together as Threshold wants.
	JaroWinkler bool
	// Threshold is 0 to 100.
	Threshold int
	// AnyCase tells that case does not count.
	AnyCase bool
	// ByScore puts the likest first, among equals by value; Descending the last value first. At
	// most one of them is set; else the order is by value.
	ByScore, Descending bool
}

// scorer tells whether a value is found, and how like it is, 0 to 1. It is not for several
// goroutines at once.
type scorer func(value string) (found bool, score float64)

// scorer makes one.
func (s *Search) scorer() scorer {
	if len(s.Terms) == 0 {
		return func(string) (bool, float64) { return true, 1 }
	}
	threshold := float64(s.Threshold) / 100
	each := make([]scorer, len(s.Terms))
	for i, term := range s.Terms {
		if s.AnyCase {
			term = strings.ToLower(term)
		}
		switch {
		case !s.JaroWinkler:
			each[i] = subsequence(term, threshold)
		case s.Threshold > 0:
			each[i] = similar(term, threshold)
		default:
			each[i] = func(value string) (bool, float64) { return substring(value, term) }
		}
	}
	return func(value string) (found bool, best float64) {
		if s.AnyCase {
			value = strings.ToLower(value)
		}
		for _, one := range each {
			if ok, score := one(value); ok {
				if found, best = true, max(best, score); best >= 1 {
					break
				}
			}
		}
		return found, best
	}
}

func subsequence(term string, threshold float64) scorer {
	m := strutil.NewSubsequenceMatcher(term)
	return func(value string) (bool, float64) {
		if strings.HasPrefix(value, term) {
			return true, 1
		}
		score := m.Score(value)
		return score > 0 && score >= threshold, score
	}
}

func similar(term string, threshold float64) scorer {
	m, has := strutil.NewJaroWinklerMatcher(term), counted(term)
	return func(value string) (bool, float64) {
		if ok, score := substring(value, term); ok {
			return true, score
		}
		if most := has.mostLike(value); most < threshold {
			return false, most
		}
		score := m.Score(value)
		return score >= threshold, score
	}
}

// letters is how often each byte is in a term of ASCII.
type letters struct {
	term  string
	of    [utf8.RuneSelf]int32
	ascii bool
}

func counted(term string) *letters {
	l := &letters{term: term, ascii: true}
	for i := range len(term) {
		if term[i] >= utf8.RuneSelf {
			return &letters{}
		}
		l.of[term[i]]++
	}
	return l
}

// mostLike is what the Jaro-Winkler similarity of the value is at most, from the letters that both
// have and their first ones: in linear time, where the similarity takes the product of both
// lengths. It is 1 where either is not ASCII.
func (l *letters) mostLike(value string) float64 {
	if !l.ascii || len(value) == 0 {
		return 1
	}
	left, both := l.of, 0
	for i := range len(value) {
		c := value[i]
		if c >= utf8.RuneSelf {
			return 1
		}
		if left[c] > 0 {
			left[c]--
			both++
		}
	}
	if both == 0 {
		return 0
	}
	same := 0
	for same < min(4, len(value), len(l.term)) && value[same] == l.term[same] {
		same++
	}
	n := float64(both)
	jaro := (n/float64(len(value)) + n/float64(len(l.term)) + 1) / 3
	const rounding = 1e-9 // the similarity is computed in another order
	return jaro + float64(same)*0.1*(1-jaro) + rounding
}

// substring is 1 where the value begins with the term, and from there down to 0.1 the later it
// stands in it, counted in characters.
func substring(value, term string) (bool, float64) {
	at := strings.Index(value, term)
	if at <= 0 {
		return at == 0, float64(at + 1)
	}
	pos, last := utf8.RuneCountInString(value[:at]), utf8.RuneCountInString(value)-utf8.RuneCountInString(term)
	if last <= 0 {
		return true, 1
	}
	return true, 1 - 0.9*float64(pos)/float64(last)
}

// Found is a name or a value that a search found.
type Found struct {
	// Value is the name or value.
	Value string
	// Score is how like it is.
	Score float64
	// About is what servers say about the metric; zero where none does, or nobody asked.
	About About
}

// About is what is known of a metric.
type About struct{ Type, Unit, Help string }

func (a About) compare(b About) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Help, b.Help))
}

// compare is the order in which the search wants what it finds.
func (s *Search) compare(a, b *Found) int {
	switch {
	case s.Descending:
		return cmp.Compare(b.Value, a.Value)
	case s.ByScore && a.Score != b.Score:
		return cmp.Compare(b.Score, a.Score)
	}
	return cmp.Compare(a.Value, b.Value)
}
