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
	// Jobs are those that the rules are for, sorted.
	Jobs []string
}

var (
	savesLine = regexp.MustCompile(`^ *# Saves ([0-9]+) series,`)
	// ruleID is how the ids of rules are made: see Rule.ID.
	ruleID = regexp.MustCompile(`^(.*?)/(?:(?:names|buckets)/[0-9]+$|slice/|label/)`)
)

// isOf says whether a rule is for the job. One job may have the name of another one with more
// behind it.
func isOf(id, job string) bool {
	rest, ok := strings.CutPrefix(id, job)
	m := ruleID.FindStringSubmatch(rest)
	return ok && m != nil && m[1] == ""
}

// jobOf is the job of a rule, as far as its id says.
func jobOf(id string) string {
	if m := ruleID.FindStringSubmatch(id); m != nil {
		return m[1]
	}
	return id
}

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
		id := b.id
		if plain, err := strconv.Unquote(id); err == nil { // see comment
			id = plain
		}
		if slices.ContainsFunc(but, func(job string) bool { return isOf(id, job) }) {
			continue
		}
		out.Rules++
		if job := jobOf(id); !slices.Contains(out.Jobs, job) {
			out.Jobs = append(out.Jobs, job)
		}
		for _, line := range lines[b.begin : b.end+1] {
			if m := savesLine.FindStringSubmatch(line); m != nil {
				n, _ := strconv.ParseInt(m[1], 10, 64) // of digits: what is too large is the largest
				out.Series += n
			}
		}
	}
	slices.Sort(out.Jobs)
	return out, nil
}

// BringsBack says whether most of what the rules drop is stored again with others in their place.
// Where the plan is made of what a server stores, they are then most likely in force there: of what
// they drop it knows nothing.
func (o Ours) BringsBack(later Ours) bool {
	return o.Rules > 0 && later.Rules == 0 || 2*later.Series < o.Series
}
