package server

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/config"
)

// keptTo are the selectors that each tenant was kept to when it was last in force, since the start:
// of those with any. One that a file lacks stays, since a file that is being written grows, and has
// it again before it has its matchers.
type keptTo map[string][]string

// took remembers a configuration that is in force.
func (k keptTo) took(cfg *config.Config) {
	for i := range cfg.Tenants {
		if t := &cfg.Tenants[i]; len(t.Matchers) > 0 {
			k[t.Name] = t.Matchers
		} else {
			delete(k, t.Name)
		}
	}
}

// cutOff tells whether a configuration lacks what keeps tenants to their own, as a file does that
// ends too early. Where that ends is not known, so what nobody wrote opens nothing: everything has
// to be asked for, by matchers that are an empty list.
func (k keptTo) cutOff(old, cfg *config.Config) error {
	if len(old.Tenants) > 0 && len(cfg.Tenants) == 0 {
		return errors.New("the file names no tenants any more, so that everybody could ask everything, as where it is cut off; a restart takes that up, a reload does not")
	}
	var all []error
	for i := range cfg.Tenants {
		t := &cfg.Tenants[i]
		had, path := k[t.Name], fmt.Sprintf("tenants[%d].matchers", i)
		switch {
		case len(had) == 0 || t.Matchers != nil && len(t.Matchers) == 0:
		case t.Matchers == nil:
			all = append(all, fmt.Errorf("%s: tenant %s had matchers and the key is gone, so that it would see everything, as where the file is cut off; write matchers: [] where it is to see everything", path, t.Name))
		case len(t.Matchers) < len(had) && !includes(t.Matchers, had):
			all = append(all, fmt.Errorf("%s: of the %d selectors of tenant %s %d are left, so that it could see more, as where the file is cut off; where it is to see more, put one that fits everything, such as {namespace=~\".*\"}, in the place of each that goes, or restart Spillway", path, len(had), t.Name, len(t.Matchers)))
		}
	}
	return errors.Join(all...)
}

// includes tells whether the selectors have all matchers of the others.
func includes(selectors, others []string) bool {
	has := matchersOf(selectors)
	for m := range matchersOf(others) {
		if !has[m] {
			return false
		}
	}
	return true
}

// matchersOf are the matchers of selectors, as texts. Those that cannot be read are none, and a
// configuration has no such ones.
func matchersOf(selectors []string) map[string]bool {
	out := map[string]bool{}
	for _, text := range selectors {
		ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
		if err != nil {
			continue
		}
		for _, m := range ms {
			out[m.String()] = true
		}
	}
	return out
}
