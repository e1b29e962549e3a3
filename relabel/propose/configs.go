package propose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
)

// Bounds of an expression that matches names, and of one half of one that matches a name and a
// value: with both halves, and with a job in front where that is needed, it keeps those of Regex.
const (
	jobBytes         = 128
	nameBytes        = MaxRegexBytes - jobBytes
	halfBytes        = nameBytes/2 - 8
	halfAlternatives = MaxAlternatives / 2
)

// Configs writes a rule as Prometheus applies it, from its kind, metrics, label and values.
//
// Names are dropped by their name. Slices and buckets are dropped by name and value at once, joined
// by a separator that none of the rule's names and values holds, so that no other name with another
// value reads the same. A label is replaced by nothing on these metrics only; labeldrop would take
// it from every metric of the job.
func Configs(kind Kind, metrics []string, label string, values []string) ([]*relabel.Config, error) {
	var configs []*relabel.Config
	switch kind {
	case Names:
		for _, names := range chunks(metrics, nameBytes, MaxAlternatives) {
			configs = append(configs, &relabel.Config{
				Action: relabel.Drop, SourceLabels: model.LabelNames{model.MetricNameLabel},
				Separator: ";",
			})
			if err := compile(configs[len(configs)-1], factor(names)); err != nil {
				return nil, err
			}
		}
	case Slice, Buckets:
		separator := Separator(metrics, values)
		for _, names := range chunks(metrics, halfBytes, halfAlternatives) {
			for _, some := range chunks(values, halfBytes, halfAlternatives) {
				regex := group(names, factor) + Quote(separator)
				if kind == Buckets {
					regex += group(some, edges)
				} else {
					regex += group(some, factor)
				}
				configs = append(configs, &relabel.Config{
					Action: relabel.Drop, SourceLabels: model.LabelNames{model.MetricNameLabel, model.LabelName(label)},
					Separator: separator,
				})
				if err := compile(configs[len(configs)-1], regex); err != nil {
					return nil, err
				}
			}
		}
	case Label:
		for _, names := range chunks(metrics, nameBytes, MaxAlternatives) {
			configs = append(configs, &relabel.Config{
				Action: relabel.Replace, SourceLabels: model.LabelNames{model.MetricNameLabel}, Separator: ";", TargetLabel: label,
				Replacement: "",
			})
			if err := compile(configs[len(configs)-1], factor(names)); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("rules of kind %q: there are %s, %s, %s and %s", kind, Names, Slice, Buckets, Label)
	}
	return configs, nil
}

// compile gives a config its expression and has Prometheus validate it.
func compile(c *relabel.Config, regex string) error {
	compiled, err := relabel.NewRegexp(regex)
	if err != nil {
		return fmt.Errorf("regular expression %q: %w", regex, err)
	}
	c.Regex = compiled
	if c.Action == relabel.Drop {
		// Not used by drop, and what Prometheus' own decoder puts there.
		c.Replacement = relabel.DefaultRelabelConfig.Replacement
	}
	return c.Validate(model.UTF8Validation)
}

// Separator is a string that none of the names and values holds: Prometheus' own `;` where it can
// be. Joined by it, a name and a value of the rule read like no other name with another value.
func Separator(names, values []string) string {
	free := func(s string) bool {
		holds := func(text string) bool { return strings.Contains(text, s) }
		return !slices.ContainsFunc(names, holds) && !slices.ContainsFunc(values, holds)
	}
	for _, s := range []string{";", ",", "@", "#", "|", "!", "~"} {
		if free(s) {
			return s
		}
	}
	// There are more characters than a rule can hold: it has at most a few hundred names and
	// values.
	for r := rune(0x2500); ; r++ {
		if free(string(r)) {
			return string(r)
		}
	}
}

// group writes values as one part of a larger expression.
func group(values []string, write func([]string) string) string {
	text := write(values)
	if len(values) == 1 {
		return text
	}
	return "(" + text + ")"
}

// edges writes bucket edges in both spellings: Prometheus 3 stores 30.0 where the page says 30,
// older ones store 30.
func edges(values []string) string {
	var bare, other []string
	for _, value := range values {
		if number, ok := strings.CutSuffix(value, ".0"); ok {
			bare = append(bare, Quote(number))
		} else {
			other = append(other, Quote(value))
		}
	}
	switch len(bare) {
	case 0:
	case 1:
		other = append(other, bare[0]+`(\.0)?`)
	default:
		other = append(other, "("+strings.Join(bare, "|")+`)(\.0)?`)
	}
	return strings.Join(other, "|")
}
