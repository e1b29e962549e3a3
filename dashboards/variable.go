package dashboards

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Variable is one choice at the top of a dashboard.
type Variable struct {
	Name string
	// Type is query, custom, textbox or datasource.
	Type  string
	Label string
	// Query is what fills it: label_values(selector, label) for a query variable, values with
	// commas for a custom one, the text for a text box.
	Query      Text
	Regex      string
	AllValue   string
	IncludeAll bool
	Multi      bool
	// Hide is 0 for shown, 1 without its label, 2 for hidden.
	Hide       int
	Datasource Datasource
	Current    struct{ Value Text }
}

// Text is a string that Grafana may also write as an object with the string in its field query, or
// as a list of strings.
type Text string

// UnmarshalJSON reads all three.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = Text(s)
		return nil
	}
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*t = Text(strings.Join(list, ","))
		return nil
	}
	var o struct{ Query string }
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("%s is neither text nor an object with a query", b)
	}
	*t = Text(o.Query)
	return nil
}

// labelValues is the only form of query variable that the library writes. A metric's name may be
// followed by matchers with commas.
var labelValues = regexp.MustCompile(`^label_values\(\s*(.+?)\s*,\s*([a-zA-Z_]\w*)\s*\)$`)

// Selector is the series that the variable's values come from, such as
// node:ready:max{cluster=~"$cluster"}; "" if it asks nobody.
func (v *Variable) Selector() string {
	if m := labelValues.FindStringSubmatch(string(v.Query)); v.Type == "query" && m != nil {
		return m[1]
	}
	return ""
}

// LabelName is the label that the variable's values come from.
func (v *Variable) LabelName() string {
	if m := labelValues.FindStringSubmatch(string(v.Query)); v.Type == "query" && m != nil {
		return m[2]
	}
	return ""
}

// Choose is the value of the variable with one or several of its options chosen.
func (v *Variable) Choose(options ...string) Value {
	return Value{Chosen: slices.Clone(options), Several: v.Multi || v.IncludeAll}
}

// All is the value of the variable with All chosen. options are all that there are: they are used
// where the variable has no value of its own for All.
func (v *Variable) All(options ...string) Value {
	return Value{Chosen: slices.Clone(options), Several: true, AllValue: v.AllValue}
}

// Value is what is chosen of a variable.
type Value struct {
	// Chosen are the options, one or several.
	Chosen []string
	// Several says that the variable lets one choose several options, or All: PromQL then has it in
	// a regular expression, and Grafana escapes it for one.
	Several bool
	// AllValue goes in as it is, in the place of Chosen.
	AllValue string
}

// Vars are what stands for the variables of an expression.
type Vars struct {
	// Interval is $__interval, the panel's step.
	Interval time.Duration
	// Scrape is the data source's scrape interval, 15s if it is 0: $__rate_interval is four of
	// them, or Interval and one.
	Scrape time.Duration
	// From and To are the dashboard's time range: $__from, $__to, $__range.
	From, To time.Time
	// Values are the dashboard's own variables by name.
	Values map[string]Value
}

// reference is a variable in an expression or address: $name, ${name}, ${name.path},
// ${name:format}, [[name]], [[name:format]]. $1 is none: label_replace has it.
var reference = regexp.MustCompile(`\$([a-zA-Z_]\w*)|\[\[([a-zA-Z_]\w*?)(?::(\w+))?\]\]|\$\{([a-zA-Z_]\w*)(?:\.([^:}]+))?(?::([^}]+))?\}`)

// References are the names of the variables in text, sorted, each once; Grafana's own begin with
// two underscores.
func References(text string) []string {
	var out []string
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1]+m[2]+m[4])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Substitute puts the values of variables into an expression, as Grafana's Prometheus data source
// does. A variable without a value is an error: Grafana would leave its name in the expression.
func Substitute(expr string, vars Vars) (string, error) {
	var errs []error
	out := reference.ReplaceAllStringFunc(expr, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		name, format := m[1]+m[2]+m[4], m[3]+m[6]
		if text, ok := vars.global(name); ok {
			return text
		}
		v, ok := vars.Values[name]
		if !ok || m[5] != "" {
			errs = append(errs, fmt.Errorf("%s has no value", ref))
			return ref
		}
		text, err := v.format(name, format)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ref, err))
		}
		return text
	})
	return out, errors.Join(errs...)
}

// global is the value of a variable that Grafana itself has.
func (v Vars) global(name string) (string, bool) {
	scrape := v.Scrape
	if scrape == 0 {
		scrape = 15 * time.Second
	}
	rate := max(4*scrape, v.Interval+scrape)
	span := v.To.Sub(v.From).Round(time.Second)
	switch name {
	case "__interval":
		return promDuration(v.Interval), true
	case "__interval_ms":
		return strconv.FormatInt(v.Interval.Milliseconds(), 10), true
	case "__rate_interval":
		return promDuration(rate), true
	case "__rate_interval_ms":
		return strconv.FormatInt(rate.Milliseconds(), 10), true
	case "__range":
		return strconv.FormatInt(int64(span.Seconds()), 10) + "s", true
	case "__range_s":
		return strconv.FormatInt(int64(span.Seconds()), 10), true
	case "__range_ms":
		return strconv.FormatInt(span.Milliseconds(), 10), true
	case "__from":
		return strconv.FormatInt(v.From.UnixMilli(), 10), true
	case "__to":
		return strconv.FormatInt(v.To.UnixMilli(), 10), true
	}
	return "", false
}

// promDuration is never 0, which PromQL does not take for a range.
func promDuration(d time.Duration) string { return model.Duration(max(d, time.Millisecond)).String() }

// format writes a value as Grafana does; "" is the data source's own way.
func (v Value) format(name, format string) (string, error) {
	switch {
	case v.AllValue != "" && format == "queryparam":
		return "var-" + name + "=$__all", nil
	case v.AllValue != "":
		return v.AllValue, nil
	}
	each := func(f func(string) string) []string {
		out := make([]string, len(v.Chosen))
		for i, s := range v.Chosen {
			out[i] = f(s)
		}
		return out
	}
	grouped := func(list []string) string {
		if len(list) == 1 {
			return list[0]
		}
		return "(" + strings.Join(list, "|") + ")"
	}
	switch format {
	case "":
		if !v.Several {
			return escapeString(strings.Join(v.Chosen, ",")), nil
		}
		return grouped(each(escapePattern)), nil
	case "regex":
		return grouped(each(escapeRegex)), nil
	case "raw", "text", "csv":
		return strings.Join(v.Chosen, ","), nil
	case "pipe":
		return strings.Join(v.Chosen, "|"), nil
	case "doublequote":
		return strings.Join(each(func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }), ","), nil
	case "singlequote":
		return strings.Join(each(func(s string) string { return `'` + strings.ReplaceAll(s, `'`, `\'`) + `'` }), ","), nil
	case "glob":
		if len(v.Chosen) == 1 {
			return v.Chosen[0], nil
		}
		return "{" + strings.Join(v.Chosen, ",") + "}", nil
	case "percentencode":
		return strings.ReplaceAll(url.QueryEscape(strings.Join(v.Chosen, ",")), "+", "%20"), nil
	case "queryparam":
		return strings.Join(each(func(s string) string { return "var-" + name + "=" + strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }),
			"&"), nil
	}
	return "", fmt.Errorf("there is no format %q", format)
}

// escapeString makes s the inside of a PromQL string.
func escapeString(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}

var special = regexp.MustCompile(`[\\^$*+?.()|[\]{}/]`)

// escapeRegex makes s a regular expression that matches s only, as the format regex does.
func escapeRegex(s string) string { return special.ReplaceAllString(s, `\$0`) }

var promSpecial = regexp.MustCompile(`[$^*{}\[\]'+?.()|]`)

// escapePattern makes s a regular expression in a PromQL string: backslashes are there twice.
func escapePattern(s string) string {
	s = strings.NewReplacer(`\`, `\\\\`, `"`, `\"`).Replace(s)
	return promSpecial.ReplaceAllString(s, `\\$0`)
}
