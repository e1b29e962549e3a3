package uses

import (
	"fmt"
	"slices"
)

// Readers are the uses that read the series of this name, directly or through series that are recorded from them, recording rules left out; in the order of the
// set. So the readers of a recorded series are why the rule that records it, and what that rule reads, is of use.
func (x *Index) Readers(name string) []*Use {
	var out []*Use
	seenName, seenUse := map[string]bool{}, map[*Use]bool{}
	var follow func(string)
	follow = func(name string) {
		if seenName[name] {
			return
		}
		seenName[name] = true
		for _, e := range x.For(name) {
			for _, u := range e.Uses {
				if u.Records != "" {
					follow(u.Records)
				} else {
					seenUse[u] = true
				}
			}
		}
	}
	follow(name)
	for _, u := range x.uses {
		if seenUse[u] {
			out = append(out, u)
		}
	}
	return out
}

// Unread are warnings about recorded series that no use reads, not even through others, sorted: the rule could go, and what it reads with it.
func (x *Index) Unread() []string {
	var out []string
	for _, u := range x.uses {
		if u.Records != "" && len(x.Readers(u.Records)) == 0 {
			out = append(out, fmt.Sprintf("%s: nothing that is known reads %s; what the rule reads is kept all the same", u.Place(), u.Records))
		}
	}
	slices.Sort(out)
	return out
}
