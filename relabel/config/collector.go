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
	return o.scrapes(file, config, false, map[place]bool{})
}

// place is a node, whether it stands behind receivers, and whether as a list of scrape configs. An
// alias leads to it again.
type place struct {
	node           *yaml.Node
	receiver, list bool
}

// scrapes reads the lists of scrape configs that stand anywhere in a configuration: receivers of a
// collector have them, and so have agents. Behind receivers a $ is written $$. What was seen is not
// looked at again.
func (o *Objects) scrapes(file string, n *yaml.Node, receiver bool, seen map[place]bool) error {
	n = resolve(n)
	here := place{n, receiver, false}
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
		if key != "scrape_configs" || !named(c) {
			problems = append(problems, o.scrapes(file, c, receiver || key == "receivers", seen))
			continue
		}
		list := resolve(c)
		at := place{list, receiver, true}
		if seen[at] {
			continue
		}
		seen[at] = true
		if receiver {
			list = o.undollared(file, list)
		}
		jobs, err := scrapeConfigs(file, list)
		o.Jobs, problems = append(o.Jobs, jobs...), append(problems, err)
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

// undollared is a list of scrape configs as the collector hands it on. Jobs whose rules have
// variables in them, which stand elsewhere, are not read.
func (o *Objects) undollared(file string, list *yaml.Node) *yaml.Node {
	out := *list
	out.Content = nil
	for _, job := range list.Content {
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
			out.Content = append(out.Content, job)
		}
	}
	return &out
}

// undollar writes $ for $$ in all texts below a node, once. It gives the line of a variable, 0
// where there is none.
func (o *Objects) undollar(n *yaml.Node) (line int) {
	n = resolve(n)
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
