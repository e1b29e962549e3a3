package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// ReadMonitors reads the ServiceMonitors, PodMonitors and ScrapeConfigs of files, and of all .yaml,
// .yml and .json files below folders. The services that stand in any of them say what the job of a
// monitor's series is. A path without a monitor is an error; in a folder, files without one are
// passed by. The rules of scrape classes are not those of the monitors that name them.
func ReadMonitors(paths ...string) ([]*Object, []error) {
	all, problems := read(paths, func(o *Objects) bool { return len(o.scraped()) == 0 })
	all.classes = nil
	all.setJobs()
	return all.scraped(), problems
}

// ReadObjects reads the same, and all else that has rules on metrics.
func ReadObjects(paths ...string) (*Objects, []error) {
	all, problems := read(paths, (*Objects).empty)
	all.setJobs()
	return all, problems
}

// scraped are the monitors without probes, into which nothing is merged.
func (o *Objects) scraped() []*Object {
	return slices.DeleteFunc(slices.Clone(o.Monitors), func(m *Object) bool { return m.Kind == Probe })
}

func read(paths []string, empty func(*Objects) bool) (*Objects, []error) {
	out := new(Objects)
	var problems []error
	for _, path := range paths {
		files, err := below(path)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		found := false
		for _, file := range files {
			content, err := plainfile.Read(file)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			if len(files) > 1 && !slices.ContainsFunc([]string{ServiceMonitor, PodMonitor, ScrapeConfig, Probe, "Service", "elabel"},
				func(word string) bool { return strings.Contains(string(content), word) }) && !packed(content) &&
				!mayInclude(string(content)) {
				continue
			}
			objects, err := monitors(file, content)
			switch {
			case err != nil && len(files) > 1 && !hasMonitor(content):
				continue // whatever it is, a chart's template for one
			case err != nil:
				problems = append(problems, err)
				found = true
				continue
			}
			out.add(objects)
			found = found || !empty(objects)
		}
		if !found {
			problems = append(problems, fmt.Errorf("%s: no ServiceMonitor, PodMonitor or ScrapeConfig in it", path))
		}
	}
	return out, problems
}

// hasMonitor says whether a file that cannot be read was looked at before for what it may be.
func hasMonitor(content []byte) bool {
	return slices.ContainsFunc([]string{ServiceMonitor, PodMonitor, ScrapeConfig, Probe, "Service"},
		func(kind string) bool { return strings.Contains(string(content), kind) })
}

// packed says whether a file may have a Secret, whose values are packed.
func packed(content []byte) bool { return strings.Contains(string(content), "Secret") }

// below are the path itself, if it is a file, or the files of a folder that may hold objects, in
// order.
func below(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var out []string
	err = filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != path && (strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules"):
			if e.IsDir() {
				return filepath.SkipDir
			}
		case !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(at))):
			out = append(out, at)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = errors.New(path + ": no file with .yaml or .yml or .json is below it")
	}
	return out, err
}

// service is what a ServiceMonitor may scrape.
type service struct {
	namespace, name string
	labels          map[string]string
}

// texts are the fields of a mapping of texts.
func texts(n *yaml.Node) map[string]string {
	out := map[string]string{}
	if n == nil || n.Kind != yaml.MappingNode {
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out[n.Content[i].Value] = resolve(n.Content[i+1]).Value
	}
	return out
}

// selects reads which services or pods an object scrapes.
func (o *Object) selects(spec *yaml.Node) {
	o.jobLabel = text(spec, "jobLabel")
	if o.Kind == ScrapeConfig || o.Kind == Probe {
		o.jobLabel = text(spec, "jobName")
	}
	selector := field(spec, "selector")
	o.selector = texts(field(selector, "matchLabels"))
	if list := field(selector, "matchExpressions"); list != nil && len(list.Content) > 0 {
		o.unclear = true
	}
	names := field(spec, "namespaceSelector")
	if text(names, "any") == "true" {
		return
	}
	if list := field(names, "matchNames"); list != nil && list.Kind == yaml.SequenceNode && len(list.Content) > 0 {
		for _, n := range list.Content {
			o.namespaces = append(o.namespaces, resolve(n).Value)
		}
		return
	}
	o.namespaces = []string{o.Namespace}
}

// job is the label job of an object's series, as the operator makes it: the value of jobLabel on
// the service or pod, else the service's name, or NAMESPACE/NAME of a PodMonitor. Empty where that
// is not known.
func (o *Object) job(services []service) string {
	switch {
	case (o.Kind == ScrapeConfig || o.Kind == Probe) && o.jobLabel != "":
		return o.jobLabel
	case o.Kind == ScrapeConfig:
		return "scrapeConfig/" + o.Namespace + "/" + o.Name
	case o.Kind == Probe:
		return "probe/" + o.Namespace + "/" + o.Name
	case o.jobLabel != "" && o.selector[o.jobLabel] != "": // all that it selects have it
		return o.selector[o.jobLabel]
	case o.Kind == PodMonitor && o.jobLabel == "" && o.Namespace != "":
		return o.Namespace + "/" + o.Name
	case o.Kind == PodMonitor || o.unclear:
		return ""
	}
	job := ""
	for _, s := range services {
		if !o.selectsService(s) {
			continue
		}
		name := s.name
		if value := s.labels[o.jobLabel]; o.jobLabel != "" && value != "" {
			name = value
		}
		if job != "" && job != name {
			return "" // several
		}
		job = name
	}
	return job
}

func (o *Object) selectsService(s service) bool {
	if len(o.selector) == 0 || o.namespaces != nil && !slices.Contains(o.namespaces, s.namespace) {
		return false // one that selects everything has the jobs of everything
	}
	for label, value := range o.selector {
		if s.labels[label] != value {
			return false
		}
	}
	return true
}

// setJobs gives the endpoints the label job of their series, where it is known.
func (o *Object) setJobs(services []service) {
	job := o.job(nil)
	beside := job == ""
	if beside {
		job = o.job(services)
	}
	for _, e := range o.Endpoints {
		e.Open, e.Beside = job == "", beside && job != ""
		e.setLabels(job, e.node, camelTargets)
		if e.Open {
			e.Label = ""
		}
	}
}
