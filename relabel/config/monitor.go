package config

import (
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Kinds of the operator's objects.
const (
	ServiceMonitor = "ServiceMonitor"
	PodMonitor     = "PodMonitor"
	ScrapeConfig   = "ScrapeConfig"
	Probe          = "Probe"
)

// Object is a ServiceMonitor, a PodMonitor, a ScrapeConfig or a Probe.
type Object struct {
	Kind, Namespace, Name string
	File                  string
	Line                  int
	// Endpoints are its endpoints, in order; a ScrapeConfig or a Probe is one.
	Endpoints []*Endpoint
	// jobLabel, selector and namespaces say which services it scrapes and what their series' job
	// is; see jobs.go.
	jobLabel   string
	selector   map[string]string
	namespaces []string // nil is all
	unclear    bool     // it selects by expressions
	class      string   // its scrape class
}

// Endpoint is one endpoint of an object.
type Endpoint struct {
	Job
	// Path is that of the endpoint in a JSON patch: /spec/endpoints/0.
	Path string
	// List is its metricRelabelings as they stand in the file; nil where it has none.
	List *yaml.Node
	// node is the endpoint as it stands in the file.
	node *yaml.Node
}

// Monitors reads the objects of a file: several documents, lists as `kubectl get -o yaml` writes
// them, JSON. Other kinds are passed by; a file that has none of the three is an error.
func Monitors(file string, content []byte) ([]*Object, error) {
	all, err := monitors(file, content)
	if err != nil {
		return nil, err
	}
	all.setJobs()
	out := all.scraped()
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no ServiceMonitor, PodMonitor or ScrapeConfig in it", file)
	}
	return out, nil
}

// monitors reads the objects of a file.
func monitors(file string, content []byte) (*Objects, error) {
	docs, err := documents(file, content)
	if err != nil {
		return nil, err
	}
	out := new(Objects)
	var problems []error
	for _, doc := range docs {
		objects := []*yaml.Node{doc}
		if list := field(doc, "items"); list != nil && list.Kind == yaml.SequenceNode {
			objects = list.Content
		}
		for _, n := range objects {
			problems = append(problems, out.object(file, resolve(n)))
		}
	}
	return out, errors.Join(problems...)
}

func object(file string, n *yaml.Node) (*Object, error) {
	o := &Object{Kind: text(n, "kind"), File: file, Line: n.Line}
	meta, spec := field(n, "metadata"), field(n, "spec")
	o.Name, o.Namespace = text(meta, "name"), text(meta, "namespace")
	var list, base string
	switch o.Kind {
	case ServiceMonitor:
		list, base = "endpoints", "serviceMonitor"
	case PodMonitor:
		list, base = "podMetricsEndpoints", "podMonitor"
	case ScrapeConfig:
		base = "scrapeConfig"
	case Probe:
		base = "probe"
	default:
		return nil, nil
	}
	if o.Name == "" || spec == nil {
		return nil, fmt.Errorf("%s:%d: this %s has no name or no spec", file, n.Line, o.Kind)
	}
	o.selects(spec)
	o.class = text(spec, "scrapeClass")
	name := base + "/" + o.Namespace + "/" + o.Name
	if list == "" {
		e, err := endpoint(file, spec, name, "/spec")
		o.Endpoints = []*Endpoint{e}
		return o, err
	}
	endpoints := field(spec, list)
	if endpoints == nil || endpoints.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s:%d: %s %s/%s has no list %s", file, n.Line, o.Kind, o.Namespace, o.Name, list)
	}
	var problems []error
	for i, m := range endpoints.Content {
		e, err := endpoint(file, resolve(m), name+"/"+strconv.Itoa(i), "/spec/"+list+"/"+strconv.Itoa(i))
		o.Endpoints = append(o.Endpoints, e)
		problems = append(problems, err)
	}
	return o, errors.Join(problems...)
}

// misspelt are what people write for the two lists of an endpoint.
var misspelt = map[string]string{
	"metric_relabel_configs": "metricRelabelings", "metricRelabelConfigs": "metricRelabelings",
	"metric_relabelings": "metricRelabelings", "metricsRelabelings": "metricRelabelings",
	"relabel_configs": "relabelings", "relabelConfigs": "relabelings",
}

func endpoint(file string, m *yaml.Node, name, path string) (*Endpoint, error) {
	e := &Endpoint{Job: Job{Name: name, Open: true, File: file, Line: m.Line}, Path: path, List: field(m, "metricRelabelings"), node: m}
	if e.List != nil && e.List.Tag == "!!null" {
		e.List = nil
	}
	var problems []error
	if m.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(m.Content); i += 2 {
			if right := misspelt[m.Content[i].Value]; right != "" {
				problems = append(problems, fmt.Errorf("%s:%d: the field is called %s here; the API server drops %s without a "+
					"word", file, m.Content[i].Line, right, m.Content[i].Value))
			}
		}
	}
	var err error
	e.Rules, err = rules(file, e.List, camel)
	problems = append(problems, err)
	e.Target, err = rules(file, field(m, "relabelings"), camel)
	return e, errors.Join(append(problems, err)...)
}
