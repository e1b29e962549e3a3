package relabel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// ErrNoJob is an exempted job of which nothing is stored: another one was meant, which would get
// rules.
var ErrNoJob = errors.New("--exempt-job")

// exempted looks for each of these jobs among what is stored.
func exempted(jobs []string, inv *inventory.Inventory) error {
	var have []string
	for _, m := range inv.Metrics {
		if !slices.Contains(have, m.Job) {
			have = append(have, m.Job)
		}
	}
	slices.Sort(have)
	for _, job := range jobs {
		if !slices.Contains(have, job) {
			return fmt.Errorf("%w: there is no stored series of job %q; there are %s", ErrNoJob, job, strings.Join(have, ", "))
		}
	}
	return nil
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
	var out []string
	for _, u := range set.Uses {
		if u.Kind == uses.Kept && !found[u] {
			out = append(out, u.Place()+" matches nothing that is stored: is it spelled as the metric is?")
		}
	}
	return out
}
