package uses

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// maxExpansions is how many queries one with variables may become. Where the values would make
// more, the variable with the most of them can have any value.
const maxExpansions = 128

// variable is one of a dashboard's, or of another place that fills in queries.
type variable struct {
	name string
	// fields are what ${name.path} is, by value and path.
	fields map[string]map[string]string
	// texts are what people see in the place of its values, where that may be another text.
	texts map[string]string
	// span says that it is there for lengths of time.
	span bool
	// values are those that it can have; any says that there may be others, of which pattern is a
	// regular expression, empty for any text.
	values  []string
	any     bool
	pattern string
	// literal says that unknown values are texts that Grafana escapes: names and values of labels.
	// Others may have | in them, and then mean something else in a regular expression.
	literal bool
	// regexes says that values are escaped where they stand in a regular expression: several of
	// them, or all, can be chosen.
	regexes bool
	// typed is what stands in a text box: as good as any value in a string, and the only one known
	// elsewhere.
	typed bool
	// open says that somebody may type another value, or link to it: any is as good in a string,
	// but for the name of a metric, where that would keep everything.
	open bool
}

// scope is where a query stands: what its variables can be, and what else can change it.
type scope struct {
	variables map[string]*variable
	// adhoc says that the reader can add matchers on labels of his choice, or group by them.
	adhoc bool
	uid   string // of the dashboard, "" where it is not known
}

// reference is a variable in a text: $name, ${name}, ${name.path}, ${name:format}, [[name]],
// [[name:format]]. $1 is none: label_replace has it.
var reference = regexp.MustCompile(`^(?:\$([a-zA-Z_]\w*)|\$\{([a-zA-Z_]\w*)(?:\.([^:}]+))?(?::([^}]*))?\}|\[\[([a-zA-Z_]\w*)(?:\.([^:\]]+))?(?::([^\]]*))?\]\])`)

// needs is Needs, with what is known of the variables.
func (s *scope) needs(query string) (needs []Need, warning string) {
	if len(query) > maxText {
		return read(query, nil)
	}
	texts, m, unresolved := s.expand(query)
	seen := map[string]bool{}
	var warnings []string
	everything := false
	for _, text := range texts {
		if trimmed := strings.TrimSpace(text); m.whole(trimmed) { // the whole query is a variable
			if v := s.variable(unresolved[trimmed]); v != nil && v.any && !v.typed {
				needs = append(needs, Need{Matchers: []*labels.Matcher{m.matcher(labels.MustNewMatcher(labels.MatchEqual,
					model.MetricNameLabel, trimmed))}, Labels: All})
				everything = true
				continue
			}
			warnings = append(warnings, "the query is a variable that has no value; it names nothing, and nothing is kept for it")
			continue
		}
		found, w := read(text, m)
		if w != "" && !slices.Contains(warnings, w) {
			warnings = append(warnings, w)
		}
		for _, n := range found {
			if s != nil && s.adhoc {
				n.Labels = All
			}
			if key := n.key(); !seen[key] {
				seen[key] = true
				needs = append(needs, n)
			}
			everything = everything || len(m) > 0 && n.everything()
		}
	}
	noteSaved(needs, s.saved(query))
	if everything {
		warnings = append(warnings, fmt.Sprintf("a variable without known values (%s) stands for the name of a metric; every metric that it could name is kept", names(unresolved)))
	}
	if w := s.typedNames(query, needs); w != "" {
		warnings = append(warnings, w)
	}
	return needs, strings.Join(warnings, "; ")
}

func names(unresolved map[string]string) string {
	var out []string
	for _, name := range unresolved {
		out = append(out, "$"+name)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// everything tells whether the need names no metric at all.
func (n *Need) everything() bool {
	return n.named(noName)
}

// noName is what no metric is called.
const noName = "\x00\x01"

func (s *scope) variable(name string) *variable {
	if s == nil {
		return nil
	}
	return s.variables[name]
}

// expand returns the query with its variables filled in, once for each of their values, with marks
// for those that have none; and the names of these, by mark.
func (s *scope) expand(query string) (texts []string, m marks, unresolved map[string]string) {
	if !strings.Contains(query, "$") && !strings.Contains(query, "[[") {
		return []string{query}, nil, nil
	}
	var used []*variable
	f := filler{choice: map[string]choice{}, unresolved: map[string]string{}}
	for _, name := range referenced(query) {
		if v := s.variable(name); v != nil && !slices.Contains(used, v) {
			used = append(used, v)
		}
	}
	choices := make(map[*variable][]choice, len(used))
	for _, v := range used {
		for _, value := range v.values {
			choices[v] = append(choices[v], choice{value: value, variable: v})
		}
		if v.any || len(v.values) == 0 {
			choices[v] = append(choices[v], choice{mark: true, variable: v})
		}
	}
	mark := func(v *variable) { choices[v] = []choice{{mark: true, wide: len(v.values) > 0, variable: v}} }
	if productOf(used, choices) > maxExpansions {
		for _, v := range used {
			if v.span { // mostly the length of a range, where its values do not count
				mark(v)
			}
		}
	}
	for {
		product, most := 1, -1
		for i, v := range used {
			product *= len(choices[v])
			if most < 0 || len(choices[v]) > len(choices[used[most]]) {
				most = i
			}
			if product > maxExpansions {
				break
			}
		}
		if product <= maxExpansions {
			break
		}
		mark(used[most])
	}
	index := make([]int, len(used))
	for {
		for i, v := range used {
			f.choice[v.name] = choices[v][index[i]]
		}
		text := f.fill(query)
		for range 3 { // a value may have variables in it, whose values are not known here
			if len(referenced(text)) == 0 {
				break
			}
			text = f.fill(text)
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		i := 0
		for ; i < len(index); i++ {
			if index[i]++; index[i] < len(choices[used[i]]) {
				break
			}
			index[i] = 0
		}
		if i == len(index) {
			return texts, f.marks, f.unresolved
		}
	}
}

// productOf is how many combinations there are, or any larger number than maxExpansions.
func productOf(used []*variable, choices map[*variable][]choice) int {
	product := 1
	for _, v := range used {
		if product *= len(choices[v]); product > maxExpansions {
			break
		}
	}
	return product
}

// referenced are the names of the variables in a text, in order, each once.
func referenced(text string) []string {
	var out []string
	for i := 0; i < len(text); i++ {
		if text[i] != '$' && text[i] != '[' {
			continue
		}
		if g := reference.FindStringSubmatch(text[i:]); g != nil {
			if name := g[1] + g[2] + g[5]; !slices.Contains(out, name) {
				out = append(out, name)
			}
			i += len(g[0]) - 1
		}
	}
	return out
}

// choice is the value that a variable has this time.
type choice struct {
	value    string
	mark     bool // any value
	wide     bool // also what the variable's pattern does not match
	variable *variable
}

// field is what ${name.path} is where the value has such a field.
func (c choice) field(path string) (string, bool) {
	if path == "" || c.variable == nil || c.mark {
		return "", false
	}
	text, ok := c.variable.fields[c.value][path]
	return text, ok
}

// filler puts values and marks in the place of variables.
type filler struct {
	choice     map[string]choice
	marks      marks
	byName     map[string]string // mark by variable
	unresolved map[string]string // variable by mark
}

// place is where in a query a variable stands.
type place struct {
	quote    byte // the quote of the string around it, or 0
	regex    bool // the string is a regular expression
	name     bool // the string is the value of a matcher on the name
	brackets int
	braces   int
	duration bool // after offset
	instant  bool // after @
	joined   bool // a part of a word, such as the name of a metric, and not of a function
}

func (f *filler) fill(query string) string {
	var b strings.Builder
	var p place
	word := 0 // where the last word in b begins
	for i := 0; i < len(query); {
		c := query[i]
		if c == '$' || c == '[' {
			if g := reference.FindStringSubmatch(query[i:]); g != nil {
				i += len(g[0])
				p.joined = (b.Len() > word || query[i:] != "" && wordByte(query[i])) && !ofFunction(query[i:])
				next := strings.TrimLeft(query[i:], " \t\r\n")
				b.WriteString(f.value(g[1]+g[2]+g[5], g[3]+g[6], g[4]+g[7], p, query[i:], next))
				p.duration, p.instant = false, false
				word = b.Len()
				continue
			}
		}
		i++
		if p.quote != 0 {
			b.WriteByte(c)
			switch {
			case c == '\\' && p.quote != '`' && i < len(query):
				b.WriteByte(query[i])
				i++
			case c == p.quote:
				p.quote = 0
				word = b.Len()
			}
			continue
		}
		if wordByte(c) {
			b.WriteByte(c)
			continue
		}
		before := b.String()[word:]
		if strings.EqualFold(before, "offset") {
			p.duration = true
		} else if before != "" {
			p.duration, p.instant = false, false
		}
		switch c {
		case '"', '\'', '`':
			so := strings.TrimRight(b.String(), " \t\r\n")
			p.quote, p.regex = c, strings.HasSuffix(so, "=~") || strings.HasSuffix(so, "!~")
			p.name = strings.HasSuffix(strings.TrimRight(so, "=!~ \t\r\n"), model.MetricNameLabel)
		case '[':
			p.brackets++
		case ']':
			p.brackets--
		case '{':
			p.braces++
		case '}':
			p.braces--
		case '@':
			p.instant = true
		case '#':
			for i < len(query) && query[i] != '\n' {
				i++
			}
			c = ' '
		}
		b.WriteByte(c)
		word = b.Len()
	}
	return b.String()
}

// value is what stands for a variable; rest follows it, next is what follows without spaces.
func (f *filler) value(name, path, format string, p place, rest, next string) string {
	if text, ok := builtin(name); ok && p.quote == 0 {
		if p.brackets > 0 || p.duration || p.instant {
			return span(p, rest)
		}
		return text
	}
	chosen := f.choice[name]
	if field, ok := chosen.field(path); ok {
		chosen.value, path = field, ""
	} else if v := chosen.variable; format == "text" && v != nil && !chosen.mark {
		chosen.value = v.text(chosen.value)
		chosen.mark = chosen.value == ""
	}
	known := chosen.variable != nil && !chosen.mark && path == ""
	switch {
	case p.quote != 0:
		if !known || chosen.variable.typed || chosen.variable.open && !p.name {
			return f.mark(name)
		}
		return quoted(chosen.value, format, chosen.variable.regexes && format != "text", p)
	case p.brackets > 0 || p.duration || p.instant:
		return span(p, rest)
	case strings.HasSuffix(format, "quote"): // ${name:doublequote} brings its own
		if !known {
			return strconv.Quote(f.mark(name))
		}
		return strconv.Quote(chosen.value)
	case p.braces > 0 && !strings.HasPrefix(next, "=") && !strings.HasPrefix(next, "!") && (rest == "" || !wordByte(rest[0])) &&
		(!known || chosen.variable.typed || chosen.variable.open):
		return f.mark(name) + `=~".*"` // whole matchers
	case known && chosen.variable.typed && p.joined && p.braces == 0:
		return f.mark(name)
	case known && (!chosen.variable.typed || chosen.value != ""):
		return chosen.value
	}
	return f.mark(name)
}

// ofFunction says whether what follows a variable makes it a part of the name of a function.
func ofFunction(rest string) bool {
	rest = strings.TrimLeftFunc(rest, func(r rune) bool { return r < 0x80 && wordByte(byte(r)) })
	return strings.HasPrefix(strings.TrimLeft(rest, " \t\r\n"), "(")
}

// typedNames warns of text boxes that name a metric: which ones people type is not known.
func (s *scope) typedNames(query string, needs []Need) string {
	var out []string
	for _, name := range referenced(query) {
		v := s.variable(name)
		if v == nil || !v.typed {
			continue
		}
		for i := range needs {
			if metric, exact := needs[i].Name(); exact && slices.Contains(v.values, metric) {
				out = append(out, fmt.Sprintf("the text box $%s names the metric: only %s, with which it was saved, is kept; name in keep.yaml what people type there", name, metric))
				break
			}
		}
	}
	return strings.Join(out, "; ")
}

// span is a duration, or the number before its unit; after @ an instant.
func span(p place, rest string) string {
	switch {
	case p.instant:
		return "0"
	case rest != "" && strings.ContainsRune("smhdwy0123456789", rune(rest[0])):
		return "5"
	}
	return "5m"
}

// quoted is a value inside of a string.
func quoted(value, format string, regexes bool, p place) string {
	// what looks like an expression is a value for All, which goes in as it is
	if p.regex && (regexes || format == "regex") && !strings.ContainsAny(value, "*+|") {
		value = regexp.QuoteMeta(value)
	}
	if p.quote == '`' {
		return strings.ReplaceAll(value, "`", ".")
	}
	value = strings.ReplaceAll(value, `\`, `\\`)
	return strings.NewReplacer(string(p.quote), `\`+string(p.quote), "\n", `\n`).Replace(value)
}

// mark is the mark of a variable, the same wherever it stands.
func (f *filler) mark(name string) string {
	if have, ok := f.byName[name]; ok {
		return have
	}
	pattern := ""
	if v := f.choice[name].variable; v != nil && v.literal {
		if pattern = first(v.pattern, ".*"); f.choice[name].wide {
			pattern = ".*"
		}
	}
	text := markStart + strconv.Itoa(len(f.marks)) + markEnd
	f.marks = append(f.marks, pattern)
	if f.byName == nil {
		f.byName = map[string]string{}
	}
	f.byName[name], f.unresolved[text] = text, name
	return text
}

// builtin is the value of a variable that Grafana has by itself and that is a number or a duration.
func builtin(name string) (string, bool) {
	switch name {
	case "__interval", "__rate_interval", "__range", "__auto", "interval_auto", "__auto_interval":
		return "5m", true
	case "__interval_ms", "__rate_interval_ms", "__range_ms", "__range_s", "__from", "__to", "__auto_ms", "__auto_s":
		return "300", true
	}
	return "", false
}
