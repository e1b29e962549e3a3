package emit

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Ours are the rules that earlier merges put into a file.
type Ours struct {
	Rules int
	// Series is what they save together, as they say themselves.
	Series int64
}

var savesLine = regexp.MustCompile(`^ *# Saves ([0-9]+) series,`)

// OursIn counts the rules of ours in a prometheus.yml, but for those of some jobs. An error is one
// that Merge has, too.
func OursIn(promYAML []byte, but ...string) (Ours, error) {
	lines := splitLines(string(promYAML))
	blocks, err := findOurs(lines)
	if err != nil {
		return Ours{}, err
	}
	var out Ours
	for _, b := range blocks {
		if slices.ContainsFunc(but, func(job string) bool { return strings.HasPrefix(b.id, strings.TrimSuffix(comment(job+"/"), `"`)) }) {
			continue
		}
		out.Rules++
		for _, line := range lines[b.begin : b.end+1] {
			if m := savesLine.FindStringSubmatch(line); m != nil {
				n, _ := strconv.ParseInt(m[1], 10, 64) // of digits: what is too large is the largest
				out.Series += n
			}
		}
	}
	return out, nil
}

// BringsBack says whether most of what the rules drop is stored again with others in their place.
// Where the plan is made of what a server stores, they are then most likely in force there: of what
// they drop it knows nothing.
func (o Ours) BringsBack(later Ours) bool {
	return o.Rules > 0 && later.Rules == 0 || 2*later.Series < o.Series
}
