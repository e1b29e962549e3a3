package inventory

import "slices"

// Behind is a Source of what a server stores: what its rules in force drop is not there.
type Behind interface {
	Source
	// BehindRules says so; it is false of what only looks like one.
	BehindRules() bool
}

// BehindRules says whether src, or a source that it is made of, is behind rules in force.
func BehindRules(src Source) bool {
	switch s := src.(type) {
	case *joinedSamples:
		return BehindRules(s.joined)
	case *joined:
		return slices.ContainsFunc(s.sources, BehindRules)
	case Behind:
		return s.BehindRules()
	}
	return false
}

// BehindRules implements Behind.
func (*api) BehindRules() bool { return true }

// BehindRules implements Behind.
func (*blocks) BehindRules() bool { return true }
