package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// controlPlane are the selectors of the nodes that are left alone unless others are named: the
// label that Kubernetes gives them, and the one of before 1.24.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// excluded is the reason why a node is left alone that --exclude names.
const excluded = "excluded"

// selectors are label selectors, of which one must match. As a flag they come one at a time, and
// the first one takes the place of the default.
type selectors struct {
	list  []labels.Selector
	given bool
}

// defaultSelectors are those of the control plane.
func defaultSelectors() selectors {
	var s selectors
	for _, text := range controlPlane {
		_ = s.Set(text) // they are right
	}
	s.given = false
	return s
}

var _ flag.Value = (*selectors)(nil)

// String is how the flag's default is shown.
func (s *selectors) String() string {
	var all []string
	for _, one := range s.list {
		all = append(all, one.String())
	}
	return strings.Join(all, " or ")
}

// Set adds a selector. An empty one, which for Kubernetes would be all nodes, adds none.
func (s *selectors) Set(text string) error {
	one, err := labels.Parse(text)
	if err != nil {
		return fmt.Errorf("%q is no label selector: %w", text, err)
	}
	if !s.given {
		s.list, s.given = nil, true
	}
	if !one.Empty() {
		s.list = append(s.list, one)
	}
	return nil
}

// match tells whether one of them does.
func (s *selectors) match(of map[string]string) bool {
	return slices.ContainsFunc(s.list, func(one labels.Selector) bool { return one.Matches(labels.Set(of)) })
}
