package config

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// Prometheus reads the jobs of a prometheus.yml or of a file of scrape_config_files. include are
// the patterns of scrape_config_files that it names, relative to the file's folder as Prometheus
// takes them.
func Prometheus(file string, content []byte) (jobs []*Job, include []string, err error) {
	docs, err := documents(file, content)
	if err != nil {
		return nil, nil, err
	}
	if len(docs) == 0 {
		return nil, nil, fmt.Errorf("%s: the file is empty", file)
	}
	root := docs[0] // Prometheus reads no further
	if root.Kind != yaml.MappingNode || field(root, "scrape_configs") == nil && field(root, "scrape_config_files") == nil {
		if kind := text(root, "kind"); kind != "" {
			return nil, nil, fmt.Errorf("%s: this is a Kubernetes object (%s), no prometheus.yml: give it as a monitor", file, kind)
		}
		return nil, nil, fmt.Errorf("%s: neither scrape_configs nor scrape_config_files: is this a prometheus.yml?", file)
	}
	if list := field(root, "scrape_config_files"); list != nil && list.Kind == yaml.SequenceNode {
		for _, n := range list.Content {
			pattern := resolve(n).Value
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(file), pattern)
			}
			include = append(include, pattern)
		}
	}
	list := field(root, "scrape_configs")
	if list == nil || list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, include, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, nil, fmt.Errorf("%s:%d: scrape_configs is no list", file, list.Line)
	}
	jobs, err = scrapeConfigs(file, list, false)
	return jobs, include, err
}

// scrapeConfigs reads the elements of a list of scrape_configs; collected are those of a collector,
// which may have its variables.
func scrapeConfigs(file string, list *yaml.Node, collected bool) (jobs []*Job, err error) {
	var problems []error
	for _, n := range items(list) {
		j := &Job{Name: text(n, "job_name"), File: file, Line: n.Line, collected: collected}
		if resolve(n).Kind != yaml.MappingNode || j.Name == "" {
			problems = append(problems, fmt.Errorf("%s:%d: this element of scrape_configs has no job_name", file, n.Line))
			continue
		}
		var errRules, errTarget error
		j.Rules, errRules = rules(file, field(n, "metric_relabel_configs"), snake)
		j.Target, errTarget = rules(file, field(n, "relabel_configs"), snake)
		problems = append(problems, errRules, errTarget)
		j.setLabels(j.Name, n, snakeTargets)
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(problems...)
}

// targetFields are the fields of a job that give its series a label job.
type targetFields struct {
	static, honor string
	anything      []string // discovery whose answers may hold any label; the others give only what begins with __meta_
	other         string   // how the name of any discovery ends
}

var (
	snakeTargets = targetFields{"static_configs", "honor_labels", []string{"file_sd_configs", "http_sd_configs"}, "_sd_configs"}
	camelTargets = targetFields{"staticConfigs", "honorLabels", []string{"fileSDConfigs", "httpSDConfigs"}, "SDConfigs"}
)

// setLabels follows the label job from the targets to the stored series. name is what it is where
// nothing else says so, empty where that is not known.
func (j *Job) setLabels(name string, n *yaml.Node, f targetFields) {
	j.Labels, j.Own, j.Honors = nil, "", false
	add := func(label string) {
		if j.collected && hasVariable(label) {
			j.Own = aVariable
		} else if label != "" && !slices.Contains(j.Labels, label) {
			j.Labels = append(j.Labels, label)
		}
	}
	var static []*yaml.Node
	if j.collected && hidesLabels(field(n, f.static)) {
		j.Own = aVariable
	}
	if list := field(n, f.static); list != nil && list.Kind == yaml.SequenceNode {
		static = list.Content
	}
	found := len(static) == 0
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		found = found || strings.HasSuffix(n.Content[i].Value, f.other)
	}
	if found {
		add(name)
	}
	for _, group := range static {
		if own := text(field(group, "labels"), string(model.JobLabel)); own != "" {
			add(own)
		} else {
			add(name)
		}
	}
	for _, list := range f.anything {
		if field(n, list) != nil {
			j.Own = list
		}
	}
	j.setLabel(j.Target)
	if honor := text(n, f.honor); honor == "true" || j.collected && hasVariable(honor) {
		j.Own, j.Honors = f.honor, true
	}
	j.setLabel(j.Rules)
	j.Label = ""
	if len(j.Labels) > 0 {
		j.Label = j.Labels[0]
	}
}

// setLabel follows rules that set the label job, or take it away.
func (j *Job) setLabel(rules []Rule) {
	for _, r := range rules {
		c := r.Config
		if c == nil {
			continue
		}
		switch c.Action {
		case relabel.LabelMap:
			if mapsToJob(c) {
				j.Own = "labelmap"
			}
		case relabel.LabelDrop, relabel.LabelKeep:
			if c.Regex.MatchString(string(model.JobLabel)) == (c.Action == relabel.LabelDrop) {
				j.Open = true
			}
		case relabel.Replace, relabel.HashMod, relabel.Lowercase, relabel.Uppercase:
			switch {
			case c.TargetLabel != string(model.JobLabel):
				j.Open = j.Open || strings.Contains(c.TargetLabel, "$")
			case c.Action == relabel.Replace && len(c.SourceLabels) == 0 && !strings.Contains(c.Replacement, "$"):
				j.Labels, j.Own, j.Open, j.Beside = []string{c.Replacement}, "", false, false
			default:
				j.Open = true
			}
		}
	}
}

// mapsToJob says whether labelmap may make a label job: of what follows a prefix nearly always, and
// then a pod or a service with a label of that name is enough. Labels of nodes, which are the
// cluster's own, have no such name.
func mapsToJob(c *relabel.Config) bool {
	switch c.Replacement {
	case "$1", "${1}":
		return !strings.HasPrefix(c.Regex.String(), "__meta_kubernetes_node_")
	}
	return strings.Contains(c.Replacement, "$") || c.Replacement == string(model.JobLabel)
}

// documents parses all YAML documents of a file; empty ones are left out.
func documents(file string, content []byte) ([]*yaml.Node, error) {
	d := yaml.NewDecoder(strings.NewReader(string(content)))
	var out []*yaml.Node
	for {
		var doc yaml.Node
		if err := d.Decode(&doc); err != nil {
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			return nil, fmt.Errorf("%s: the file is no YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
			out = append(out, doc.Content[0])
		}
	}
}
