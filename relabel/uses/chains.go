package uses

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Readers are the uses that read the series of this name, directly or through series that are
// recorded from them, recording rules left out; in the order of the set. So the readers of a
// recorded series are why the rule that records it, and what that rule reads, is of use.
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

// Unread are warnings about recorded series that no use reads, not even through others, one for
// each file, sorted: the rules could go, and what they read with them.
func (x *Index) Unread() []string {
	files := map[string][]*Use{}
	for _, u := range x.uses {
		if u.Records != "" && len(x.Readers(u.Records)) == 0 {
			files[u.File] = append(files[u.File], u)
		}
	}
	out := make([]string, 0, len(files))
	for _, file := range slices.Sorted(maps.Keys(files)) {
		list := files[file]
		if len(list) == 1 {
			out = append(out, fmt.Sprintf("%s: nothing that is known reads %s; what the rule reads is kept all the same", list[0].Place(), list[0].Records))
			continue
		}
		names := make([]string, len(list))
		for i, u := range list {
			names[i] = u.Records
		}
		slices.Sort(names)
		names = slices.Compact(names)
		some := strings.Join(names[:min(len(names), 3)], ", ")
		if more := len(names) - 3; more > 0 {
			some += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, fmt.Sprintf("%s: %d rules record what nothing that is known reads: %s; what the rules read is kept all the same", file, len(list), some))
	}
	return out
}
