package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// Objects are what files of the operator's objects have.
type Objects struct {
	// Monitors are ServiceMonitors, PodMonitors, ScrapeConfigs and Probes.
	Monitors []*Object
	// Jobs are those of additional scrape configs, in a Secret or a ConfigMap.
	Jobs []*Job
	// Remotes are what is written to other servers.
	Remotes []*Job
	// Unread are rules that drop something, in objects that are not read: FILE:LINE and their kind.
	Unread []string

	services []service
	classes  []class
	servers  int                // Prometheus and PrometheusAgent
	dollars  map[*yaml.Node]int // see undollar
}

// class is a scrape class of a Prometheus: rules that go before those of each monitor of it.
type class struct {
	name     string
	standard bool // for monitors that name none
	rules    []Rule
}

func (o *Objects) add(more *Objects) {
	o.Monitors, o.Jobs = append(o.Monitors, more.Monitors...), append(o.Jobs, more.Jobs...)
	o.Remotes, o.Unread = append(o.Remotes, more.Remotes...), append(o.Unread, more.Unread...)
	o.services, o.classes = append(o.services, more.services...), append(o.classes, more.classes...)
	o.servers += more.servers
}

func (o *Objects) empty() bool {
	return len(o.Monitors)+len(o.Jobs)+len(o.Remotes)+len(o.Unread)+len(o.classes) == 0
}

// setJobs gives all endpoints their label job, and the rules of their class. Whose monitors are
// whose is not known where there are several servers: classes are not read then.
func (o *Objects) setJobs() {
	if o.servers > 1 && len(o.classes) > 0 {
		o.Unread = append(o.Unread, fmt.Sprintf("%d scrape classes of %d servers: give each Prometheus with its own monitors", len(o.classes), o.servers))
		o.classes = nil
	}
	for _, m := range o.Monitors {
		for _, e := range m.Endpoints {
			var before []Rule
			for _, c := range o.classes {
				if c.name == m.class || c.standard && m.class == "" {
					before = append(before, c.rules...)
				}
			}
			e.Rules = append(before, e.Rules...)
		}
		m.setJobs(o.services)
	}
}

// object reads one object.
func (o *Objects) object(file string, n *yaml.Node) error {
	switch kind := text(n, "kind"); kind {
	case "Service":
		meta := field(n, "metadata")
		o.services = append(o.services, service{text(meta, "namespace"), text(meta, "name"), texts(field(meta, "labels"))})
	case ServiceMonitor, PodMonitor, ScrapeConfig, Probe:
		m, err := object(file, n)
		if m != nil {
			o.Monitors = append(o.Monitors, m)
		}
		return err
	case "Prometheus", "PrometheusAgent":
		return o.server(file, field(n, "spec"))
	case "OpenTelemetryCollector":
		return o.collector(file, field(field(n, "spec"), "config"))
	case "Secret", "ConfigMap":
		return errors.Join(o.additional(file, field(n, "stringData"), false), o.additional(file, field(n, "data"), kind == "Secret"))
	default:
		if kind == "" {
			kind = "no object of Kubernetes"
		}
		o.unread(file, kind, n, map[*yaml.Node]bool{})
	}
	return nil
}

// server reads a Prometheus or a PrometheusAgent.
func (o *Objects) server(file string, spec *yaml.Node) error {
	o.servers++
	var problems []error
	for _, n := range items(field(spec, "scrapeClasses")) {
		c := class{name: text(n, "name"), standard: text(n, "default") == "true"}
		var err error
		c.rules, err = rules(file, field(n, "metricRelabelings"), camel)
		o.classes, problems = append(o.classes, c), append(problems, err)
	}
	remotes, err := remotes(file, field(spec, "remoteWrite"), "writeRelabelConfigs", camel)
	o.Remotes = append(o.Remotes, remotes...)
	return errors.Join(append(problems, err)...)
}

// remotes reads what is written to other servers, where there are rules for that.
func remotes(file string, list *yaml.Node, name string, s spelling) ([]*Job, error) {
	var out []*Job
	var problems []error
	for _, n := range items(list) {
		j := &Job{Name: "remote write to " + text(n, "url"), File: file, Line: n.Line}
		var err error
		if j.Rules, err = rules(file, field(n, name), s); len(j.Rules) > 0 {
			out = append(out, j)
		}
		problems = append(problems, err)
	}
	return out, errors.Join(problems...)
}

// Remotes are what a prometheus.yml writes to other servers, where there are rules for that.
func Remotes(file string, content []byte) ([]*Job, error) {
	docs, err := documents(file, content)
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	return remotes(file, field(docs[0], "remote_write"), "write_relabel_configs", snake)
}

// additional reads additional scrape configs, and those of collectors and agents. Other values are
// passed by.
func (o *Objects) additional(file string, data *yaml.Node, packed bool) error {
	if data == nil || data.Kind != yaml.MappingNode {
		return nil
	}
	var problems []error
	for i := 1; i < len(data.Content); i += 2 {
		value := resolve(data.Content[i])
		content := value.Value
		if packed {
			raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
			if err != nil {
				continue
			}
			content = string(raw)
		}
		problems = append(problems, o.written(file, value, content, !packed && value.Style&yaml.LiteralStyle != 0))
	}
	return errors.Join(problems...)
}

// written reads the scrape configs of a text that stands in a value.
func (o *Objects) written(file string, value *yaml.Node, content string, literal bool) error {
	jobs := strings.Contains(content, "job_name") && strings.Contains(content, "metric_relabel_configs")
	if !jobs && !mayInclude(content) {
		return nil
	}
	docs, err := documents(file, []byte(content))
	if err != nil {
		return nil // a text that speaks of them
	}
	var problems []error
	for _, doc := range docs {
		moved(doc, value.Line, literal)
		if named(doc) {
			jobs, err := scrapeConfigs(file, doc, false)
			o.Jobs, problems = append(o.Jobs, jobs...), append(problems, err)
			continue
		}
		problems = append(problems, o.scrapes(file, doc, outside, map[place]bool{}))
	}
	return errors.Join(problems...)
}

// moved says in which line of the file around it a node stands.
func moved(n *yaml.Node, line int, literal bool) {
	if n == nil {
		return
	}
	if literal {
		n.Line += line
	} else {
		n.Line = line
	}
	for _, c := range n.Content {
		moved(c, line, literal)
	}
}

// unread looks for lists of rules that drop something, below what it has not seen.
func (o *Objects) unread(file, kind string, n *yaml.Node, seen map[*yaml.Node]bool) {
	if n = resolve(n); n == nil || seen[n] {
		return
	}
	seen[n] = true
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && relabelsMetrics(n.Content[i-1].Value) && slices.ContainsFunc(items(c), drops) {
			o.Unread = append(o.Unread, fmt.Sprintf("%s:%d: %s drops something, in an object that is not read (%s)",
				file, n.Content[i-1].Line, n.Content[i-1].Value, kind))
			continue
		}
		o.unread(file, kind, c, seen)
	}
}

// relabelsMetrics says whether a field of that name has rules on metrics, in whatever spelling.
func relabelsMetrics(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", ""))
	for _, what := range []string{"metricrelabel", "metricsrelabel", "writerelabel"} {
		if strings.HasPrefix(name, what) {
			return true
		}
	}
	return false
}

func drops(n *yaml.Node) bool {
	switch relabel.Action(strings.ToLower(text(n, "action"))) {
	case relabel.Drop, relabel.Keep, relabel.LabelDrop, relabel.LabelKeep:
		return true
	}
	return false
}

// items are the elements of a list.
func items(list *yaml.Node) []*yaml.Node {
	if list = resolve(list); list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}
