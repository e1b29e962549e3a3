package emit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Words by which a later merge finds what an earlier one wrote.
const (
	markBegin = "# spillway: begin "
	markEnd   = "# spillway: end "
	markAdded = "# spillway: added"
)

// jobRules are the rules of one job, in the order in which they stand.
type jobRules struct {
	job   string
	rules []*propose.Rule
}

// byJob sorts the plan's rules by job. Inside a job they stay as they are ranked, but what takes a
// label away comes last: a rule before it may look at that label.
func byJob(p *relabel.Plan) ([]jobRules, error) {
	jobs := map[string][]*propose.Rule{}
	seen := map[string]bool{}
	var problems []error
	for i := range p.Rules {
		r := &p.Rules[i]
		switch {
		case r.ID == "":
			problems = append(problems, fmt.Errorf("a rule of job %q has no id: rules are found again by it", r.Job))
		case seen[r.ID]:
			problems = append(problems, fmt.Errorf("rule %s is in the plan twice: make the plan again", r.ID))
		case len(r.Relabel) == 0:
			problems = append(problems, fmt.Errorf("rule %s says nothing that Prometheus could apply: read the plan with relabel.Read", r.ID))
		}
		seen[r.ID] = true
		jobs[r.Job] = append(jobs[r.Job], r)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	var out []jobRules
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		rules := jobs[job]
		slices.SortStableFunc(rules, func(a, b *propose.Rule) int { return cmp.Compare(last(a), last(b)) })
		out = append(out, jobRules{job, rules})
	}
	return out, nil
}

func last(r *propose.Rule) int {
	if r.Kind == propose.Label {
		return 1
	}
	return 0
}

// ruleBlock writes one rule with its evidence between its marks, without indentation. sole says
// that the place has series of the rule's job only.
func ruleBlock(r *propose.Rule, owner string, sole bool) ([]string, error) {
	configs, err := placed(r, sole)
	if err != nil {
		return nil, err
	}
	var rule []string
	for _, c := range configs {
		lines, err := configLines(c, prometheusSpelling)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		rule = append(rule, lines...)
	}
	if err := readBack(rule, configs); err != nil {
		return nil, fmt.Errorf("rule %s: %w", r.ID, err)
	}
	body := append(evidence(r, owner), rule...)
	lines := append([]string{markBegin + comment(r.ID) + " " + checksum(body)}, body...)
	return append(lines, markEnd+comment(r.ID)), nil
}

// checksum is of the lines without indentation, so that whoever indents a file anew changes
// nothing.
func checksum(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

// evidence is what stands above a rule: what goes, what that saves, who used it last, what to watch
// for.
func evidence(r *propose.Rule, owner string) []string {
	what := fmt.Sprintf("%s, risk %s: %s", r.Kind, r.Risk, metrics(r))
	if r.Evidence.Text != "" {
		what += ". " + r.Evidence.Text
	}
	lines := []string{
		what,
		saves(r.Saves),
		"Last use: " + lastUse(r.Evidence.LastUse) + ".",
	}
	if r.QuantileError > 0 {
		lines = append(lines, fmt.Sprintf("Neighbouring buckets that stay differ by a factor of up to %s.", number(r.QuantileError)))
	}
	if owner != "" {
		lines = append(lines, "Owner: "+owner+".")
	}
	for _, text := range tooLong(r) {
		lines = append(lines, "Warning: "+text+".")
	}
	for i, l := range lines {
		lines[i] = "# " + comment(l)
	}
	return lines
}

// saves leaves out what a source without intervals cannot know.
func saves(s propose.Saving) string {
	text := fmt.Sprintf("Saves %s, %s of memory", plural(s.Series, "series", "series"), size(s.MemoryBytes))
	if s.SamplesPerSecond > 0 {
		text += fmt.Sprintf(", %s samples/s, %s a day on disk", number(s.SamplesPerSecond), size(s.BytesPerDay))
	}
	return text + "."
}

func metrics(r *propose.Rule) string {
	text := plural(int64(len(r.Metrics)), "metric", "metrics")
	switch r.Kind {
	case propose.Slice:
		return fmt.Sprintf("%s of label %s, %s", plural(int64(len(r.Values)), "value", "values"), r.Label, text)
	case propose.Buckets:
		return fmt.Sprintf("%s, %s", plural(int64(len(r.Values)), "bucket", "buckets"), text)
	case propose.Label:
		return fmt.Sprintf("label %s of %s", r.Label, text)
	}
	return text
}

func lastUse(u *uses.Use) string {
	if u == nil {
		return "none found"
	}
	var parts []string
	if !u.Last.IsZero() {
		parts = append(parts, u.Last.UTC().Format(time.DateOnly))
	}
	if u.Owner != "" && !strings.Contains(u.Where, u.Owner) {
		parts = append(parts, u.Owner)
	}
	if u.Where != "" {
		parts = append(parts, u.Where)
	}
	if u.File != "" {
		file := u.File
		if u.Line > 0 {
			file += ":" + strconv.Itoa(u.Line)
		}
		parts = append(parts, file)
	}
	if len(parts) == 0 {
		return string(u.Kind)
	}
	return strings.Join(parts, ", ")
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// number writes three digits: nobody needs more of an estimate.
func number(f float64) string { return strconv.FormatFloat(f, 'g', max(3, digits(f)), 64) }

// digits is how many stand before the point, so that thousands are not written as 1.2e+03.
func digits(f float64) int { return len(strconv.FormatInt(int64(f), 10)) }

func size(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, u
	}
	return number(f) + " " + unit
}
