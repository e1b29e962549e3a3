package relabel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/nearest"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// ErrNoJob is an exempted job of which nothing is stored, where another one is spelled nearly like
// it: that was meant, and would get rules.
var ErrNoJob = errors.New("--exempt-job")

// exempted looks for each of these jobs among what is stored. Of one that is on no server now
// nothing is dropped; that is a warning.
func exempted(jobs []string, inv *inventory.Inventory) (warnings []string, err error) {
	var have []string
	for _, m := range inv.Metrics {
		if !slices.Contains(have, m.Job) {
			have = append(have, m.Job)
		}
	}
	slices.Sort(have)
	for _, job := range jobs {
		if !slices.Contains(have, job) {
			if near := nearest.Of(job, have, max(1, len(job)/4)); near != "" {
				return nil, fmt.Errorf("%w: there is no stored series of job %q; did you mean %q?", ErrNoJob, job, near)
			}
			warnings = append(warnings, fmt.Sprintf("--exempt-job=%s: no series of that job is stored", job))
		}
	}
	return warnings, nil
}

// keptNothing warns of what is to be kept and matches nothing that is stored.
func keptNothing(set *uses.Set, index *uses.Index, inv *inventory.Inventory) []string {
	found := map[*uses.Use]bool{}
	for _, m := range inv.Metrics {
		blind := index.Blind(m.Name)
		for _, e := range index.For(m.Name) {
			for _, u := range e.Uses {
				if u.Kind == uses.Kept && !slices.Contains(blind, e) {
					found[u] = true
				}
			}
		}
	}
	var places []string
	for _, u := range set.Uses {
		if u.Kind == uses.Kept && !found[u] {
			places = append(places, u.Place())
		}
	}
	if len(places) == 0 {
		return nil
	}
	const most = 20
	text := strings.Join(places[:min(most, len(places))], "; ")
	if len(places) > most {
		text += fmt.Sprintf("; and %d more", len(places)-most)
	}
	return []string{text + " matches nothing that is stored: is it spelled as the metric is?"}
}

const (
	// maxUnknown is how many names a warning has.
	maxUnknown = 20
	// maxUnknownPlace bounds the place of a use in it.
	maxUnknownPlace = 200
)

// unknownNames warns of used names that are neither stored nor recorded: of a rule that was not
// given, of what is not scraped yet, or misspelt. Those with a colon are told as missing rules.
func unknownNames(set *uses.Set, inv *inventory.Inventory) string {
	known := set.Recorded()
	for _, m := range inv.Metrics {
		known[m.Name] = true
	}
	places, names := map[string][]string{}, []string{}
	for _, u := range set.Uses {
		if u.Guessed || u.Kind == uses.Kept || u.Scales.Metric != "" {
			continue
		}
		for i := range u.Needs {
			name, exact := u.Needs[i].Name()
			if !exact || known[name] || made(name) || strings.Contains(name, ":") {
				continue
			}
			if len(places[name]) == 0 {
				names = append(names, name)
			}
			if place := u.Place(); !slices.Contains(places[name], place) {
				places[name] = append(places[name], place)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	var told []string
	for _, name := range names[:min(len(names), maxUnknown)] {
		text := name + " (" + clip.Text(places[name][0], maxUnknownPlace)
		if more := len(places[name]) - 1; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		told = append(told, text+")")
	}
	text := "1 name is"
	if len(names) > 1 {
		text = fmt.Sprintf("%d names are", len(names))
	}
	text += " used, and neither stored nor recorded by a rule that was given: " + strings.Join(told, ", ")
	if more := len(names) - maxUnknown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ". Where a rule records one of them, what that rule reads counts as unused: give it (--rules)"
}

// made says whether a server makes series of that name itself.
func made(name string) bool {
	return name == "up" || name == "ALERTS" || name == "ALERTS_FOR_STATE" || strings.HasPrefix(name, "scrape_")
}
