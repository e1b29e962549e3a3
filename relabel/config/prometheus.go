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

// Prometheus reads the jobs of a prometheus.yml or of a file of scrape_config_files. include are the patterns of scrape_config_files that it names,
// relative to the file's folder as Prometheus takes them.
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
	var problems []error
	for _, n := range list.Content {
		j := &Job{Name: text(n, "job_name"), File: file, Line: n.Line}
		if resolve(n).Kind != yaml.MappingNode || j.Name == "" {
			problems = append(problems, fmt.Errorf("%s:%d: this element of scrape_configs has no job_name", file, n.Line))
			continue
		}
		var errRules, errTarget error
		j.Rules, errRules = rules(file, field(n, "metric_relabel_configs"), snake)
		j.Target, errTarget = rules(file, field(n, "relabel_configs"), snake)
		problems = append(problems, errRules, errTarget)
		j.Label, j.Open = j.Name, false
		for _, r := range slices.Concat(j.Target, j.Rules) {
			j.setLabel(r.Config)
		}
		jobs = append(jobs, j)
	}
	return jobs, include, errors.Join(problems...)
}

// setLabel follows a rule that sets the label job. honor_labels and labelmap may set it too, where a page or discovery has a label of that name: so rarely
// that they are not looked at.
func (j *Job) setLabel(c *relabel.Config) {
	if c == nil || c.TargetLabel != string(model.JobLabel) || c.Action != relabel.Replace {
		return
	}
	if len(c.SourceLabels) == 0 && !strings.Contains(c.Replacement, "$") {
		j.Label = c.Replacement
		return
	}
	j.Open = true
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
