package uses

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// The bounds on what is tried of a text. Beyond them a query counts as one that cannot be read.
const (
	maxEnds      = 64      // ends of a query
	maxCalls     = 200     // queries that differ
	maxParameter = 4 << 10 // bytes of a query
)

// callOf finds calls of Prometheus' API, of its federation, of VictoriaMetrics' export and of
// promtool. What stands before the path may be a variable that ends in a slash.
var callOf = regexp.MustCompile("api/v1/(?:query|(?:series|labels?|export)\\b)|[/\"'`}]federate\\b|\\bpromtool\\s+query\\b")

// clientOf finds the calls of clients that add the path themselves, those for Python and for Go,
// and parameters of a request whose address stands elsewhere.
var clientOf = regexp.MustCompile(`\b(?:custom_query(?:_range)?|get_current_metric_value|get_metric_range_data|get_metric_aggregation)\s*\(|` +
	`\b(?:\w*v1\w*|\w*[pP]rom\w*)(?:\.\w+)*\.Query(?:Range)?\(|\bparams\s*[=:]\s*(?:\{|dict\()[^{}]{0,500}?\bquery["']?\s*[:=]`)

// baseOf finds the address of an API whose paths stand elsewhere, and pathOf such paths.
var (
	baseOf = regexp.MustCompile(`\bapi/v1(?:/?[^\w/.]|/?$)`)
	pathOf = regexp.MustCompile(`\bquery(?:_range|_exemplars)?\b`)
)

// copies finds the calls whose selectors are no lists of what there is: all that they select is
// copied.
var copies = regexp.MustCompile(`\bfederate\b|api/v1/export\b`)

// parameterOf finds the queries and selectors among the parameters of calls.
var parameterOf = regexp.MustCompile(`\b(?:query=|match(?:\[\]|%5[bB]%5[dD])=)`)

// caller finds what makes calls in scripts: texts for people name addresses too.
var caller = regexp.MustCompile(`\b(?:curl|wget|promtool|fetch|axios(?:\.\w+)?|urlopen|requests?\.\w+|http\.\w+)[\s(]|\bhttps?\s+[^{\s]|[("'](?:query|match\[\])["']`)

// spelled finds the parameters of calls in the spellings of clients: the keys of their objects, the
// files of curl, and escapes of a shell.
var spelled = regexp.MustCompile(`["'](?:query|match\[\])["']|\bquery\s*(?::|=>|\s=)|\bquery@|\bmatch\\\[\\\]=`)

// argument matches what stands before the parameter in an argument of a command, and the start of a
// body beside an address: the call is in another text.
var argument = regexp.MustCompile(`^(?:-d ?|--data\S*?[= ])?((?:query|match(?:\[\]|%5[bB]%5[dD]))=)`)

// isArgumentAlone tells whether a text is an argument with a query, or a body, without a call.
func isArgumentAlone(text string) bool {
	return argument.MatchString(text) && !callOf.MatchString(text)
}

// calls are the queries in the calls of Prometheus' API that a text makes: one address, or a script
// with any number of them. all is false where a call asks something that is not in the text as a
// query, such as the variable of a shell.
func calls(text string) (queries []string, all bool) {
	made := callOf.FindAllStringIndex(text, -1)
	alone := isArgumentAlone(text)
	if alone {
		text = text[argument.FindStringSubmatchIndex(text)[2]:]
	}
	starts := parameterOf.FindAllStringIndex(text, -1)
	address := !strings.ContainsAny(strings.TrimSpace(text), " \t\n") && !(len(made) > 0 && strings.ContainsAny(text[:made[0][0]], "\"'`"))
	other := !address && spelled.MatchString(text)
	apart := !address && baseOf.MatchString(text) && (len(starts) > 0 || other || pathOf.MatchString(text))
	client, unnamed := clients(text)
	if len(made) == 0 && !apart && !alone && !client || len(starts) == 0 && !other && !client && !caller.MatchString(text) {
		return nil, true
	}
	known := map[string]called{} // equal ones are tried once
	all = !other && !apart && !unnamed && paired(text, made, starts)
	var in quoting
	for i, start := range starts {
		value := text[start[1]:]
		if i+1 < len(starts) {
			value = text[start[1]:starts[i+1][0]]
		}
		quote := in.at(text, start[1])
		key := text[max(start[0]-1, 0):start[0]+1] + string(quote) + value
		one, tried := known[key]
		if !tried {
			if len(known) == maxCalls {
				return queries, false
			}
			one.query, one.sure = parameter(value, quote)
			if one.query == "" && address && !alone { // whatever it is
				one.query, _, _ = strings.Cut(value, "&")
				one.query, one.sure = decoded(one.query), true
				if needs, _ := Needs(templated(one.query)); len(needs) == 0 { // a string, or a number
					one.query = ""
				}
			}
			one.unread = one.query == "" || isVariable(one.query) || assigned(text, one.query) ||
				namedByMark(templated(one.query)) && given(text, one.query)
			one.lists = !one.unread && text[start[0]] == 'm' && !alone && !copies.MatchString(text) && listsAll(one.query)
			one.sure = one.sure && !(one.lists && len(referenced(templated(one.query))) > 0) && !isArgument(text, start, one.query)
			known[key] = one
		}
		all = all && one.sure && !one.unread
		if !one.unread && !one.lists { // lists of what there is select nothing in particular
			queries = append(queries, one.query)
		}
	}
	return queries, all
}

// clients tells whether a client's functions are called in a text, and whether one of these calls
// does not give its query by name.
func clients(text string) (called, unnamed bool) {
	for _, at := range clientOf.FindAllStringIndex(text, -1) {
		called = true
		unnamed = unnamed || text[at[1]-1] != '(' || !strings.HasPrefix(strings.TrimLeft(text[at[1]:], " \t\r\n"), "query=")
	}
	return called, unnamed
}

// paired tells whether each call has a parameter of its own: the last one before it, in the same
// command, or one behind it and before the next call. What promtool asks has no name.
func paired(text string, made, starts [][]int) bool {
	next := 0 // the first parameter behind those of the calls before
	for i, call := range made {
		if strings.HasPrefix(text[call[0]:], "promtool") {
			return false
		}
		first := next
		for next < len(starts) && starts[next][0] < call[0] {
			next++
		}
		if next > first && !commandEnd.MatchString(text[starts[next-1][1]:call[0]]) {
			continue
		}
		if next == len(starts) || i+1 < len(made) && starts[next][0] > made[i+1][0] {
			return false
		}
		for next < len(starts) && (i+1 == len(made) || starts[next][0] < made[i+1][0]) {
			next++
		}
	}
	return true
}

// commandEnd finds the end of a command of a shell.
var commandEnd = regexp.MustCompile(`[^\\]\n|;|&&|\|`)

// called is one parameter of a call: whether it cannot be read as a query, whether it only lists
// what there is, and whether nothing but the query stands in the call.
type called struct {
	query               string
	unread, lists, sure bool
}

// isVariable tells whether a query is nothing but a variable: what it is stands elsewhere in the
// script, or in none of what is read. What a template puts in is known to its document.
func isVariable(query string) bool {
	_, whole := wholeTemplate(templated(query))
	return whole && !hole.MatchString(query)
}

// isArgument tells whether a query is made of bare words, in no quotes, that a program gives to a
// function by name, f(query=q): variables.
func isArgument(text string, start []int, query string) bool {
	rest, found := strings.CutPrefix(text[start[1]:], query)
	return found && start[0] > 0 && strings.IndexByte("(, \t\n", text[start[0]-1]) >= 0 &&
		bareWords.MatchString(query) && argumentEnd.MatchString(rest)
}

var (
	bareWords   = regexp.MustCompile(`^[\w\s:+*/-]+$`)
	argumentEnd = regexp.MustCompile(`^[ \t]*(?:$|[,)\]}\n])`)
)

// variables finds the variables of a shell in a query.
var variables = regexp.MustCompile(`\$\{?([a-zA-Z_]\w*)`)

// given tells whether the text, a script, gives all of a query's variables their values: what they
// are stands in it, and else may be anything.
func given(text, query string) bool {
	all := variables.FindAllStringSubmatch(query, -1)
	return len(all) > 0 && !slices.ContainsFunc(all, func(m []string) bool {
		return !assigned(text, m[1]) && !strings.Contains(text, "for "+m[1]+" in ")
	})
}

// namedByMark tells whether a query has a variable in the place of a metric's name: what it may be
// stands elsewhere in the script.
func namedByMark(query string) bool {
	if _, whole := wholeTemplate(query); whole {
		return true
	}
	return slices.ContainsFunc(parsed(query), func(expr parser.Expr) bool {
		return selects(expr, func(vs *parser.VectorSelector) bool { return mark.FindString(vs.Name) == vs.Name && vs.Name != "" })
	})
}

// assigned tells whether a query is one word that the text gives a value elsewhere: a variable of a
// program.
func assigned(text, query string) bool {
	if !model.LegacyValidation.IsValidMetricName(query) {
		return false
	}
	for rest := text; ; {
		before, after, found := strings.Cut(rest, query)
		if !found {
			return false
		}
		value := strings.TrimLeft(after, " \t")
		value, equal := strings.CutPrefix(strings.TrimPrefix(value, ":"), "=")
		if equal && !strings.HasPrefix(value, "=") && strings.TrimRight(before, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:.[") == before {
			return true
		}
		rest = after
	}
}

// listsAll tells whether a selector selects nothing in particular.
func listsAll(query string) bool {
	needs, _ := Needs(templated(query))
	return len(needs) > 0 && !slices.ContainsFunc(needs, func(n Need) bool { return n.selective() })
}
