package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// silenced is the reason why one that waits is left alone: somebody sees to what its alert is
// about, and Alertmanager would not post it.
const silenced = "silenced"

// silence is one of Alertmanager's. It is for an alert that all of its matchers match.
type silence []matcher

// matcher is about one label.
type matcher struct {
	name  string
	value *regexp.Regexp // of the whole of it
	equal bool           // whether that is to match
}

// match tells whether it is for an alert with these labels. One that is not there is the empty
// text.
func (s silence) match(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(m matcher) bool { return m.value.MatchString(labels[m.name]) != m.equal })
}

// silences are those that are active now. Of those that have ended, which it keeps for days, an
// older Alertmanager tells too.
func (c *controller) silences(ctx context.Context) ([]silence, error) {
	var list []struct {
		Status   struct{ State string }
		Matchers []struct {
			Name, Value string
			IsRegex     bool
			IsEqual     *bool // nil: it is, as before there was anything else
		}
	}
	if err := c.get(ctx, "/api/v2/silences?active=true&expired=false&pending=false", &list); err != nil {
		return nil, err
	}
	if list == nil {
		return nil, errors.New("alertmanager's answer makes no sense: null is no list of silences")
	}
	var out []silence
	for _, one := range list {
		if one.Status.State != "active" {
			continue
		}
		var s silence
		for _, m := range one.Matchers {
			text := m.Value
			if !m.IsRegex {
				text = regexp.QuoteMeta(text)
			}
			value, err := regexp.Compile("^(?:" + text + ")$")
			if err != nil {
				return nil, fmt.Errorf("alertmanager's answer makes no sense: a silence of %s: %w", m.Name, err)
			}
			s = append(s, matcher{m.Name, value, m.IsEqual == nil || *m.IsEqual})
		}
		out = append(out, s)
	}
	return out, nil
}

// silencesOnce asks for the silences when somebody wants to know, once.
type silencesOnce func() ([]silence, error)

// match tells whether one of them is for the alert of one that waits. What Alertmanager posts right
// now is not silenced.
func (once silencesOnce) match(w *wish) (bool, error) {
	if !w.waits {
		return false, nil
	}
	all, err := once()
	return slices.ContainsFunc(all, func(s silence) bool { return s.match(w.alert.Labels) }), err
}
