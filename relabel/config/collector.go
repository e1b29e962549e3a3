package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// collector reads the scrape configs of an OpenTelemetryCollector, whose configuration is a text or
// stands there as it is.
func (o *Objects) collector(file string, config *yaml.Node) error {
	if config != nil && config.Kind == yaml.ScalarNode {
		return o.written(file, config, config.Value, config.Style&yaml.LiteralStyle != 0)
	}
	return o.scrapes(file, config, outside, map[place]bool{})
}

// depth is where in a collector's configuration a node stands.
type depth int

const (
	outside    depth = iota
	receivers        // the mapping of receivers
	prometheus       // a receiver that scrapes
	behind           // below anything in receivers
)

// below is where the value of a field stands.
func (d depth) below(key string) depth {
	switch {
	case key == "receivers":
		return receivers
	case d == receivers && (key == "prometheus" || strings.HasPrefix(key, "prometheus/")):
		return prometheus
	case d == outside:
		return outside
	}
	return behind
}

// place is a node, where it stands, and whether as a list of scrape configs. An alias leads to it
// again.
type place struct {
	node  *yaml.Node
	depth depth
	list  bool
}

// scrapes reads the lists of scrape configs that stand anywhere in a configuration: receivers of a
// collector have them, and so have agents. Behind receivers a $ is written $$, and what stands
// elsewhere is named as not read. What was seen is not looked at again.
func (o *Objects) scrapes(file string, n *yaml.Node, at depth, seen map[place]bool) error {
	n = resolve(n)
	here := place{n, at, false}
	if n == nil || seen[here] {
		return nil
	}
	seen[here] = true
	var problems []error
	for i, c := range n.Content {
		key := ""
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			key = n.Content[i-1].Value
		}
		below := at.below(key)
		c = resolve(c)
		list := key == "scrape_configs" && (at != outside && c.Kind == yaml.SequenceNode || named(c))
		switch it := (place{c, at, true}); {
		case list && !seen[it]:
			seen[it] = true
			if at != outside {
				c = o.undollared(file, c)
			}
			jobs, err := scrapeConfigs(file, c, at != outside)
			o.Jobs, problems = append(o.Jobs, jobs...), append(problems, err)
		case list:
		case isVariable(c) && (at == outside && below == receivers || below == prometheus || at == prometheus && key == "config" ||
			at != outside && key == "scrape_configs"):
			o.elsewhere(file, n.Content[i-1].Line, key, c)
		default:
			problems = append(problems, o.scrapes(file, c, below, seen))
		}
	}
	return errors.Join(problems...)
}

// named says whether a list is one of scrape configs: each has a name.
func named(list *yaml.Node) bool {
	jobs := items(list)
	return len(jobs) > 0 && !slices.ContainsFunc(jobs, func(n *yaml.Node) bool { return text(n, "job_name") == "" })
}

// variable is what a collector replaces when it starts.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// mayInclude says whether a text may be a collector's that takes scrape configs from elsewhere.
func mayInclude(text string) bool {
	return strings.Contains(text, "receivers") && strings.Contains(text, "${")
}

// isVariable says whether a node is a text with a variable in it.
func isVariable(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && hasVariable(n.Value)
}

func hasVariable(text string) bool {
	return variable.MatchString(strings.ReplaceAll(text, "$$", "\x00"))
}

// aVariable is why the label job of a collector's series may be any: see Job.Own.
const aVariable = "a variable of the collector where its label job is given"

// hidesLabels says whether a variable may stand for labels of static targets. One in the place of
// the label job itself is seen where that is read.
func hidesLabels(static *yaml.Node) bool {
	return static != nil && isVariable(static) || slices.ContainsFunc(items(static), func(group *yaml.Node) bool {
		labels := field(group, "labels")
		return isVariable(resolve(group)) || labels != nil && isVariable(labels)
	})
}

// elsewhere names what stands in a variable.
func (o *Objects) elsewhere(file string, line int, what string, n *yaml.Node) {
	o.Unread = append(o.Unread, fmt.Sprintf("%s:%d: %s is a variable of the collector (%s), whose value is not known here",
		file, line, what, variable.FindString(n.Value)))
}

// undollared is a list of scrape configs as the collector hands it on. Jobs that stand
// elsewhere, or whose rules have variables in them, are not read.
func (o *Objects) undollared(file string, list *yaml.Node) *yaml.Node {
	out := *list
	out.Content = nil
	for _, job := range list.Content {
		switch n := resolve(job); {
		case isVariable(n):
			o.elsewhere(file, job.Line, "an element of scrape_configs", n)
			continue
		case text(n, "job_name") == "":
			o.Unread = append(o.Unread, fmt.Sprintf("%s:%d: this element of scrape_configs has no job_name", file, job.Line))
			continue
		}
		for _, name := range []string{"metric_relabel_configs", "relabel_configs"} {
			rules := field(job, name)
			if rules == nil {
				continue
			}
			if at := o.undollar(rules); at > 0 {
				o.Unread = append(o.Unread, fmt.Sprintf("%s:%d: %s of job %s has variables of the collector (${…}), whose values are not known here",
					file, at, name, text(job, "job_name")))
				job = nil
				break
			}
		}
		if job != nil {
			o.undollar(field(job, "job_name"))
			o.undollar(field(job, snakeTargets.static))
			out.Content = append(out.Content, job)
		}
	}
	return &out
}

// undollar writes $ for $$ in all texts below a node, once. It gives the line of a variable, 0
// where there is none.
func (o *Objects) undollar(n *yaml.Node) (line int) {
	if n = resolve(n); n == nil {
		return 0
	}
	if line, again := o.dollars[n]; again { // an anchor
		return line
	}
	if o.dollars == nil {
		o.dollars = map[*yaml.Node]int{}
	}
	o.dollars[n] = 0
	if n.Kind == yaml.ScalarNode {
		text := strings.ReplaceAll(n.Value, "$$", "\x00")
		if variable.MatchString(text) {
			line = n.Line
		} else {
			n.Value = strings.ReplaceAll(text, "\x00", "$")
		}
	}
	for _, c := range n.Content {
		if at := o.undollar(c); line == 0 {
			line = at
		}
	}
	o.dollars[n] = line
	return line
}
