package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// Rule is one element of a list of relabelling rules.
type Rule struct {
	// Config is the rule; nil where Err says why it is none. It is validated.
	Config *relabel.Config
	File   string
	Line   int
	// Err is what Prometheus or the operator would say, or should.
	Err error
}

// Job is a scrape job, or one endpoint of a monitor.
type Job struct {
	// Name is job_name; of a monitor what the operator makes of it
	// (serviceMonitor/NAMESPACE/NAME/INDEX).
	Name string
	// Label is the label job of its series: job_name, or what a rule sets. Of a monitor it is what
	// its jobLabel and selector say, or the services that stand beside it; empty where these say
	// nothing.
	Label string
	// Labels are all labels job that the configuration gives to its series, Label first:
	// static_configs may give several. Empty where none is known.
	Labels []string
	// Own says what lets series have a label job that stands nowhere here: honor_labels, discovery
	// that may set any label, or labelmap. Empty where nothing does.
	Own string
	// Beside says that Label is that of services that were given beside the monitor: there may be
	// others that it scrapes.
	Beside bool
	// Honors says that it is honor_labels: series may come from another server, recorded ones too.
	Honors bool
	// Open says that the label job comes from elsewhere: a monitor takes it from a service that
	// nobody gave, and a rule may take it from another label.
	Open bool
	File string
	Line int
	// Rules are metric_relabel_configs, Target are relabel_configs, in order.
	Rules, Target []Rule

	collected bool // a collector scrapes it, and its texts may have variables
}

// Sole says that all series of the job have the label job that Label says, and no other one.
func (j *Job) Sole() bool {
	return j.Label != "" && len(j.Labels) == 1 && j.Own == "" && !j.Open && !j.Beside
}

// spelling is how the fields of a rule are called.
type spelling struct {
	fields map[string]string // to Prometheus' own name
	wrong  map[string]string // to the right one here
	kind   string
}

var (
	snake = spelling{
		fields: map[string]string{
			"source_labels": "source_labels", "separator": "separator", "regex": "regex", "modulus": "modulus",
			"target_label": "target_label",
			"replacement":  "replacement", "action": "action",
		},
		wrong: map[string]string{"sourceLabels": "source_labels", "targetLabel": "target_label"},
		kind:  "prometheus.yml",
	}
	camel = spelling{
		fields: map[string]string{
			"sourceLabels": "source_labels", "separator": "separator", "regex": "regex", "modulus": "modulus",
			"targetLabel": "target_label",
			"replacement": "replacement", "action": "action",
		},
		wrong: map[string]string{"source_labels": "sourceLabels", "target_label": "targetLabel"},
		kind:  "a monitor",
	}
)

// rules reads a list. A nil node is an empty list.
func rules(file string, list *yaml.Node, s spelling) ([]Rule, error) {
	list = resolve(list)
	if list == nil || list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s:%d: this is no list of rules", file, list.Line)
	}
	var out []Rule
	for _, n := range list.Content {
		r := Rule{File: file, Line: n.Line}
		r.Config, r.Err = rule(resolve(n), s)
		out = append(out, r)
	}
	return out, nil
}

func rule(n *yaml.Node, s spelling) (*relabel.Config, error) {
	if n.Kind != yaml.MappingNode {
		return nil, errors.New("this rule is no mapping")
	}
	renamed := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	action := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := *n.Content[i]
		name, ok := s.fields[key.Value]
		switch right := s.wrong[key.Value]; {
		case ok:
		case right != "" && s.kind == camel.kind:
			return nil, fmt.Errorf("%s is Prometheus' own spelling; in a monitor the field is %s, and the API server drops one that it does not know "+
				"without a word: the rule would look at no label at all", key.Value, right)
		case right != "":
			return nil, fmt.Errorf("%s is the operator's spelling; in %s the field is %s, and Prometheus does not load a file with a field that it does "+
				"not know", key.Value, s.kind, right)
		default:
			return nil, fmt.Errorf("a relabelling rule has no field %s; it has %s", key.Value, fieldNames(s))
		}
		action = action || name == "action"
		if v := resolve(n.Content[i+1]); name == "regex" && (v.Value == "null" || v.Value == "~") && v.Tag != "!!null" {
			return nil, fmt.Errorf("regex %q: Prometheus' YAML reader takes this for nothing, in quotes too, and then writes it over its default regex, "+
				"the one of every rule that has none; write (?:%s)", v.Value, v.Value)
		}
		key.Value = name
		renamed.Content = append(renamed.Content, &key, n.Content[i+1])
	}
	c := new(relabel.Config)
	if err := renamed.Decode(c); err != nil {
		return nil, fmt.Errorf("this rule cannot be read: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if (c.Action == relabel.LabelDrop || c.Action == relabel.LabelKeep) && len(c.SourceLabels) > 0 {
		return nil, fmt.Errorf("%s with %s: it looks at the names of labels, never at a value, and Prometheus refuses it. To take a label from some "+
			"series only, use action replace with target_label and an empty replacement",
			c.Action, fieldOf(s, "source_labels"))
	}
	if err := c.Validate(model.UTF8Validation); err != nil {
		if !action {
			return nil, fmt.Errorf("the rule has no action, which makes it replace, and Prometheus refuses that: %w. Was `action: drop` meant?", err)
		}
		return nil, fmt.Errorf("Prometheus refuses this rule: %w", err)
	}
	return c, nil
}

func fieldOf(s spelling, prometheus string) string {
	for here, there := range s.fields {
		if there == prometheus {
			return here
		}
	}
	return prometheus
}

func fieldNames(s spelling) string {
	return strings.Join([]string{
		fieldOf(s, "source_labels"), "separator", "regex", "modulus", fieldOf(s, "target_label"), "replacement",
		"action",
	}, ", ")
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// field finds a field of a mapping, also one that it takes from anchors (<<). Nil where there is
// none.
func field(m *yaml.Node, name string) *yaml.Node {
	return fieldWithin(m, name, nil)
}

// fieldWithin looks at each mapping once: seen are those that were, with anchors of their own.
func fieldWithin(m *yaml.Node, name string, seen map[*yaml.Node]bool) *yaml.Node {
	if m = resolve(m); m == nil || m.Kind != yaml.MappingNode || seen[m] {
		return nil
	}
	var merged *yaml.Node
	for i := 0; i+1 < len(m.Content); i += 2 {
		switch {
		case m.Content[i].Value == name:
			return resolve(m.Content[i+1])
		case m.Content[i].Tag == "!!merge":
			merged = resolve(m.Content[i+1])
		}
	}
	if merged == nil {
		return nil
	}
	if seen == nil {
		seen = map[*yaml.Node]bool{}
	}
	seen[m] = true
	if merged.Kind != yaml.SequenceNode {
		return fieldWithin(merged, name, seen)
	}
	for _, part := range merged.Content {
		if v := fieldWithin(part, name, seen); v != nil {
			return v
		}
	}
	return nil
}

func text(m *yaml.Node, name string) string {
	if v := field(m, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}
