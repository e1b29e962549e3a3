package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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

// maxOf is the reason why a node is refused that has a label's value in common with as many as may
// be out.
const maxOf = "max_of"

// perValue are how many nodes that have one value of a label may be out at a time.
type perValue []struct {
	label string
	nodes int
}

var _ flag.Value = (*perValue)(nil)

// String is how they are written.
func (p *perValue) String() string {
	var all []string
	for _, b := range *p {
		all = append(all, fmt.Sprintf("%s=%d", b.label, b.nodes))
	}
	return strings.Join(all, " ")
}

// Set adds one.
func (p *perValue) Set(text string) error {
	label, number, _ := strings.Cut(text, "=")
	nodes, err := strconv.Atoi(number)
	if wrong := validation.IsQualifiedName(label); err != nil || nodes < 1 || len(wrong) > 0 {
		return fmt.Errorf("%q must be a label and a number, like rack=2", text)
	}
	*p = append(*p, struct {
		label string
		nodes int
	}{label, nodes})
	return nil
}

// taintKeys are the keys of taints, of a flag.
type taintKeys []string

var _ flag.Value = (*taintKeys)(nil)

// String is how the flag's default is shown.
func (k *taintKeys) String() string { return strings.Join(*k, ",") }

// Set takes them instead of what was there. Empty is none.
func (k *taintKeys) Set(text string) error {
	*k = taintKeys{}
	if text == "" {
		return nil
	}
	for key := range strings.SplitSeq(text, ",") {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			return fmt.Errorf("%q is no key of a taint", key)
		}
		*k = append(*k, key)
	}
	return nil
}

// full tells whether a node may not go beside others that are out.
func (p perValue) full(next map[string]string, out []map[string]string) bool {
	for _, b := range p {
		value, ok := next[b.label]
		with := 0
		for _, of := range out {
			if v, has := of[b.label]; has && v == value {
				with++
			}
		}
		if ok && with >= b.nodes {
			return true
		}
	}
	return false
}
