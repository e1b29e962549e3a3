package emit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/config"
)

// Merge puts the plan's rules into a prometheus.yml (or a file of scrape_config_files): behind a
// job's own rules, those that were written behind ours since among them; rules of ours that the
// plan no longer has go. Every other byte stays. Behind, because what was proven was looked at
// after the job's own rules. Where series of other jobs may come by, a rule asks for its own. diff
// is a unified diff from what was given, empty where nothing changes.
//
// Rules go when the plan no longer has them, and it has none for what was not stored when it was
// made: make a plan that replaces another one from scraped pages, which still have what the rules
// drop, or the second merge brings it all back. The diff shows it, and OursIn tells how much.
//
// It refuses a file that is no YAML, jobs that it does not have (by the label job of their series),
// places where no line can be put in, and rules of ours that were changed by hand; the error lists
// all of them, with their lines.
func Merge(p *relabel.Plan, promYAML []byte) (merged []byte, diff string, err error) {
	planned, err := byJob(p)
	if err != nil {
		return nil, "", err
	}
	if !utf8.Valid(promYAML) {
		return nil, "", fmt.Errorf("the file is not UTF-8: store it as UTF-8")
	}
	text := string(promYAML)
	before, err := document(text)
	if err != nil {
		return nil, "", err
	}
	f := newFile(text)
	if err := strip(f, before); err != nil {
		return nil, "", err
	}
	stripped := f.String()
	root, err := document(stripped)
	if err != nil {
		return nil, "", fmt.Errorf("without the rules of the earlier merge %w", err)
	}
	found, refused, err := jobs(root, f.lines)
	if err != nil {
		return nil, "", err
	}
	entries, sole := entriesOf(stripped)
	edits, added, err := openings{entries, sole, found, refused}.edits(f, planned, p.Owner)
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.at - a.at })
	for _, e := range edits {
		f.insert(e.at, e.lines)
	}
	out := f.String()
	if err := proveMerge(root, out, added); err != nil {
		return nil, "", err
	}
	return []byte(out), unified("prometheus.yml", text, out), nil
}

// openings tell of a file without our rules where those of each of its scrape_configs entries go.
type openings struct {
	entries map[string][]string // names of entries by their job
	sole    map[string]bool     // of the names, those whose series all have that job
	found   map[string]*list
	refused map[string]error // entries in which no line can be put
}

// edit is lines that are put in before a line.
type edit struct {
	at    int
	lines []string
}

// edits are the lines of the planned rules, and the rules that each entry gets.
func (o openings) edits(f *file, planned []jobRules, owner string) (edits []edit, added map[string][]*promrelabel.Config, err error) {
	var problems []error
	added = map[string][]*promrelabel.Config{}
	for _, j := range planned {
		names := o.entries[j.job]
		if len(names) == 0 {
			problems = append(problems, fmt.Errorf("the file has no job %q; it has %s. If the label job is set by relabelling, or the job is in one of "+
				"scrape_config_files, put the rules there: `emit` without a file prints them", j.job, some(slices.Sorted(maps.Keys(o.entries)))))
			continue
		}
		for _, name := range names {
			l := o.found[name]
			if l == nil {
				problems = append(problems, o.refused[name])
				continue
			}
			blocks, configs, err := ruleBlocks(j, owner, o.sole[name])
			if err != nil {
				problems = append(problems, err)
				break
			}
			e := edit{at: l.end(f.lines)}
			if l.key == nil {
				e.lines = append(e.lines, strings.Repeat(" ", l.mapping.Content[0].Column-1)+"metric_relabel_configs: "+markAdded)
			}
			margin := strings.Repeat(" ", l.dash())
			for _, line := range blocks {
				e.lines = append(e.lines, margin+line)
			}
			added[name] = configs
			edits = append(edits, e)
		}
	}
	return edits, added, errors.Join(problems...)
}

// entriesOf are the names of the scrape_configs entries by the label job of their series: as a rule
// one with that name, but a rule with target_label: job makes it another, or several. sole are the
// names of those whose series have no other.
func entriesOf(text string) (entries map[string][]string, sole map[string]bool) {
	jobs, _, _ := config.Prometheus("prometheus.yml", []byte(text)) // what is wrong with a rule of another job is not for here
	entries, sole = map[string][]string{}, map[string]bool{}
	for _, j := range jobs {
		if len(j.Labels) == 1 {
			entries[j.Label] = append(entries[j.Label], j.Name)
			sole[j.Name] = j.Sole()
		}
	}
	return entries, sole
}

// ruleBlocks writes the rules of a job, for a place that has its series only, or for any.
func ruleBlocks(j jobRules, owner string, sole bool) (lines []string, configs []*promrelabel.Config, err error) {
	var problems []error
	for _, r := range j.rules {
		block, err := ruleBlock(r, owner, sole)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		own, err := placed(r, sole)
		problems = append(problems, err)
		lines = append(lines, block...)
		configs = append(configs, own...)
	}
	return lines, configs, errors.Join(problems...)
}

// strip takes the rules of earlier merges out of f.
func strip(f *file, root *yaml.Node) error {
	blocks, err := findOurs(f.lines)
	if err != nil {
		return err
	}
	var problems []error
	for _, b := range blocks {
		if b.changed {
			problems = append(problems, fmt.Errorf("%s: rule %s was changed by hand after it was merged: undo the change, or remove the two marks around "+
				"it to keep it as yours", where(b.begin+1), b.id))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if _, _, err := jobs(root, f.lines); err != nil {
		return err
	}
	for _, b := range slices.Backward(blocks) {
		f.cut(b.begin, b.end+1)
	}
	return stripKeys(f)
}

// stripKeys takes out the empty lists that an earlier merge had to begin.
func stripKeys(f *file) error {
	root, err := document(f.String())
	if err != nil {
		return fmt.Errorf("without the rules of the earlier merge %w", err)
	}
	found, _, err := jobs(root, f.lines)
	if err != nil {
		return err
	}
	var keys []int
	for _, l := range found {
		if l.key != nil && l.value.Kind != yaml.SequenceNode && strings.HasSuffix(content(f.lines[l.key.Line-1]), markAdded) &&
			len(l.mapping.Content) > 2 {
			keys = append(keys, l.key.Line-1)
		}
	}
	slices.Sort(keys)
	for _, at := range slices.Backward(keys) {
		f.cut(at, at+1)
	}
	return nil
}

// proveMerge compares the merged file with what it was without our rules: everything else reads the
// same, and each job has its own rules, and ours behind them.
func proveMerge(before *yaml.Node, merged string, added map[string][]*promrelabel.Config) error {
	after, err := document(merged)
	if err != nil {
		return fmt.Errorf("the rules cannot be put in: %w; write the jobs' metric_relabel_configs as plain blocks", err)
	}
	was, wasRules, err := withoutRules(before, added)
	if err != nil {
		return err
	}
	is, isRules, err := withoutRules(after, added)
	if err != nil {
		return err
	}
	if was != is {
		return errors.New("the rules cannot be put in without a change elsewhere (an anchor that others share, or a text over several lines): write the " +
			"jobs' metric_relabel_configs as plain blocks")
	}
	for _, job := range slices.Sorted(maps.Keys(added)) {
		if !equalConfigs(isRules[job], slices.Concat(wasRules[job], added[job])) {
			return fmt.Errorf("the rules of job %q do not read back as they were planned: write its metric_relabel_configs as a plain block", job)
		}
	}
	return nil
}

// withoutRules writes the whole file but the metric_relabel_configs of the jobs in question, in one
// form, with anchors resolved; and gives these rules.
func withoutRules(root *yaml.Node, of map[string][]*promrelabel.Config) (string, map[string][]*promrelabel.Config, error) {
	var tree map[string]any
	if err := root.Decode(&tree); err != nil {
		return "", nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	var typed struct {
		Jobs []struct {
			Name  string    `yaml:"job_name"`
			Rules yaml.Node `yaml:"metric_relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := root.Decode(&typed); err != nil {
		return "", nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	rules := map[string][]*promrelabel.Config{}
	items, _ := tree["scrape_configs"].([]any)
	for i, j := range typed.Jobs {
		if _, ok := of[j.Name]; !ok {
			continue
		}
		var configs []*promrelabel.Config
		if j.Rules.Kind != 0 {
			if err := j.Rules.Decode(&configs); err != nil {
				return "", nil, fmt.Errorf("the metric_relabel_configs of job %q cannot be read: %w", j.Name, err)
			}
		}
		rules[j.Name] = configs
		if m, ok := items[i].(map[string]any); ok {
			delete(m, "metric_relabel_configs")
		}
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return "", nil, fmt.Errorf("the file cannot be compared: %w", err)
	}
	return string(text), rules, nil
}

// some names the first of many.
func some(names []string) string {
	const most = 10
	if len(names) == 0 {
		return "none that can be edited"
	}
	quoted := make([]string, 0, most)
	for _, n := range names[:min(most, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	text := strings.Join(quoted, ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
