package uses

import (
	"slices"
	"strings"
)

// some is the set of the names, in any order, with duplicates or not.
func some(names ...string) Labels {
	if len(names) == 0 {
		return Labels{}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return Labels{Names: slices.Compact(names)}
}

// allBut is the set of all labels but the names.
func allBut(names ...string) Labels {
	l := some(names...)
	l.Except = true
	return l
}

// Has tells whether the label is in the set.
func (l Labels) Has(label string) bool {
	_, listed := slices.BinarySearch(l.Names, label)
	return listed != l.Except
}

// Or is the set of the labels that are in either set.
func (l Labels) Or(o Labels) Labels {
	switch {
	case !l.Except && !o.Except:
		return some(slices.Concat(l.Names, o.Names)...)
	case l.Except && o.Except: // what both leave out
		return allBut(slices.DeleteFunc(slices.Clone(l.Names), func(n string) bool { return o.Has(n) })...)
	case o.Except:
		l, o = o, l
	}
	return allBut(slices.DeleteFunc(slices.Clone(l.Names), o.Has)...)
}

func (l Labels) equal(o Labels) bool { return l.Except == o.Except && slices.Equal(l.Names, o.Names) }

// String is for messages: `all`, `none`, `a, b`, `all but a, b`.
func (l Labels) String() string {
	names := strings.Join(l.Names, ", ")
	switch {
	case l.Except && names == "":
		return "all"
	case l.Except:
		return "all but " + names
	case names == "":
		return "none"
	}
	return names
}
