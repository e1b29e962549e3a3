package emit

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// list is where the rules of one owner of a list (a job, an endpoint of a monitor) stand or will
// stand.
type list struct {
	owner string
	key   *yaml.Node // nil where there is none yet
	value *yaml.Node
	// first and next are the 1-based lines of the owner's mapping and of what comes behind it.
	first, next int
	mapping     *yaml.Node
	// after is the line of what comes behind the list.
	after int
}

// document parses one YAML document. Several in one file are refused: Prometheus reads the first
// only.
func document(text string) (*yaml.Node, error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	var doc, second yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the file is empty: give the prometheus.yml that has the jobs")
		}
		return nil, fmt.Errorf("the file is no YAML: %w", err)
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the file has a second document; Prometheus reads the first only: remove the rest")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("the file is no mapping: give a prometheus.yml")
	}
	return doc.Content[0], nil
}

// field is the key and the value of a mapping's own field, and the line of what comes behind it:
// next where it is the last.
func field(m *yaml.Node, name string, next int) (key, value *yaml.Node, after int) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value != name || m.Content[i].Kind != yaml.ScalarNode {
			continue
		}
		after = next
		if i+2 < len(m.Content) {
			after = m.Content[i+2].Line
		}
		return m.Content[i], m.Content[i+1], after
	}
	return nil, nil, next
}

// jobs finds the entries of scrape_configs by job_name. Those that cannot be edited are nil with
// their reason in refused.
func jobs(root *yaml.Node, lines []string) (found map[string]*list, refused map[string]error, err error) {
	last := len(lines) + 1
	for i := root.Line; i < len(lines); i++ { // ... or --- at the margin end the document
		if text := content(lines[i]); text == "..." || strings.HasPrefix(text, "---") || strings.HasPrefix(text, "... ") {
			last = i + 1
			break
		}
	}
	_, configs, after := field(root, "scrape_configs", last)
	if configs == nil || configs.Kind != yaml.SequenceNode {
		return nil, nil, fmt.Errorf("the file has no list scrape_configs: give the file that has the jobs (it may be one of scrape_config_files)")
	}
	found, refused = map[string]*list{}, map[string]error{}
	for i, item := range configs.Content {
		next := after
		if i+1 < len(configs.Content) {
			next = configs.Content[i+1].Line
		}
		resolved := item
		if item.Kind == yaml.AliasNode {
			resolved = item.Alias
		}
		if resolved.Kind != yaml.MappingNode {
			return nil, nil, fmt.Errorf("%s: this element of scrape_configs is no mapping", where(item.Line))
		}
		_, name, _ := field(resolved, "job_name", next)
		if name == nil {
			continue
		}
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		job := name.Value
		if configs.Style&yaml.FlowStyle != 0 || resolved.Style&yaml.FlowStyle != 0 {
			refused[job] = fmt.Errorf("%s: job %q is written in one piece, {…}, where no line can be put in: write it as a block, one field a "+
				"line", where(item.Line), job)
			continue
		}
		if item.Kind == yaml.AliasNode {
			refused[job] = fmt.Errorf("%s: job %q is an alias: write it out where it stands", where(item.Line), job)
			continue
		}
		l := &list{owner: fmt.Sprintf("job %q", job), mapping: item, first: item.Line, next: next}
		l.key, l.value, l.after = field(item, "metric_relabel_configs", next)
		if err := l.editable(root); err != nil {
			refused[job] = err
			continue
		}
		found[job] = l
	}
	return found, refused, nil
}

// editable says why lines cannot be put into the list.
func (l *list) editable(root *yaml.Node) error {
	if l.key == nil {
		_, merge, _ := field(l.mapping, "<<", 0)
		if merge == nil {
			return nil
		}
		var inherited struct {
			List yaml.Node `yaml:"metric_relabel_configs"`
		}
		if err := l.mapping.Decode(&inherited); err == nil && inherited.List.Kind != 0 {
			return fmt.Errorf("%s: %s takes its metric_relabel_configs from an anchor (<<), and a list of its own would replace them: copy the rules into "+
				"the job first", where(merge.Line), l.owner)
		}
		return nil
	}
	switch {
	case l.value.Kind == yaml.AliasNode:
		return fmt.Errorf("%s: the metric_relabel_configs of %s are an alias (*%s), shared with others: copy the rules into the job "+
			"first", where(l.key.Line), l.owner, l.value.Value)
	case l.value.Kind == yaml.SequenceNode && l.value.Style&yaml.FlowStyle == 0:
		if l.value.Anchor != "" && aliased(root, l.value) {
			return fmt.Errorf("%s: the metric_relabel_configs of %s are shared with others by the anchor &%s, and new rules would go there too: copy them "+
				"first", where(l.key.Line), l.owner, l.value.Anchor)
		}
		return nil
	case l.value.Kind == yaml.ScalarNode && l.value.Tag == "!!null" && l.value.Value == "" && l.value.Anchor == "":
		return nil
	case l.value.Kind == yaml.SequenceNode:
		return fmt.Errorf("%s: the metric_relabel_configs of %s are written in one piece, […], where no line can be put in: write them as a block, each "+
			"behind a dash, or remove the empty list", where(l.key.Line), l.owner)
	}
	return fmt.Errorf("%s: the metric_relabel_configs of %s are no list", where(l.key.Line), l.owner)
}

func aliased(n, target *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return n.Alias == target
	}
	for _, c := range n.Content {
		if aliased(c, target) {
			return true
		}
	}
	return false
}

// dash is the column (0-based) at which the list's elements begin.
func (l *list) dash() int {
	if l.key != nil && l.value.Kind == yaml.SequenceNode {
		return l.value.Column - 1
	}
	column := l.mapping.Content[0].Column - 1
	for i := 0; i+1 < len(l.mapping.Content); i += 2 { // as the other lists of the job do
		if v := l.mapping.Content[i+1]; v.Kind == yaml.SequenceNode && v.Style&yaml.FlowStyle == 0 && len(v.Content) > 0 {
			return column + v.Column - l.mapping.Content[i].Column
		}
	}
	return column + 2
}

// end is the index of the line before which a new last element of the list, or a new last field of
// the mapping, stands: behind the last line that belongs to it. Comments at the margin of what
// follows belong to what follows.
func (l *list) end(lines []string) int {
	margin, next, first := l.mapping.Content[0].Column-1, l.next, l.first
	switch {
	case l.key != nil && l.value.Kind == yaml.SequenceNode:
		next, first = l.after, l.value.Line
		if margin = l.dash(); margin == l.key.Column-1 {
			margin++ // dashes below the key: a comment there belongs to the next key as well as to the list
		}
	case l.key != nil:
		return l.key.Line
	}
	at := next - 1
	for at > first {
		line := lines[at-1]
		if !blank(line) && indent(line) >= min(margin, l.mapping.Content[0].Column-1) && (!isComment(line) || indent(line) >= margin) {
			break
		}
		at--
	}
	return at
}
