package uses

import (
	"fmt"
	"slices"
	"strings"
)

// ignoreListing takes the needs without a metric's name out of a use that only lists series, names
// or values of labels, where IgnoreListings says so: label_values({job="x"}, pod), or a logged call
// of /api/v1/series?match[]={job="x"}. It reads no sample, and yet keeps everything of a job.
func (s *Set) ignoreListing(u *Use) {
	if !s.IgnoreListings || !u.Lists {
		return
	}
	left := slices.DeleteFunc(slices.Clone(u.Needs), func(n Need) bool { return n.everything() })
	if len(left) == len(u.Needs) {
		return
	}
	s.ignored = append(s.ignored, u)
	u.Needs, u.Query = left, "" // a list of less is another answer, and is not asked again
}

// IgnoredListings says, for people, which listings were left out: how many, and the first of them.
// It is empty where none was.
func (s *Set) IgnoredListings() string {
	if len(s.ignored) == 0 {
		return ""
	}
	var named []string
	for _, u := range s.ignored[:min(len(s.ignored), namedPlaces)] {
		named = append(named, u.Place())
	}
	if more := len(s.ignored) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s without a metric's name: %s", number(int64(len(s.ignored)), "listing", "listings"), strings.Join(named, "; "))
}
