package emit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/spillwayproject/spillway/relabel"
)

// RuleOptions are for those who need them; the zero value will do.
type RuleOptions struct {
	// Labels are put on each series beside job: cluster, where the rules are evaluated by a ruler
	// over many clusters. On a Prometheus of the cluster its external labels do that.
	Labels map[string]string
	// Namespace, Name and ObjectLabels are those of the PrometheusRule; Name is drop-rules where it
	// is empty. ObjectLabels are what the operator's ruleSelector wants to see.
	Namespace, Name string
	ObjectLabels    map[string]string
}

// RecordingRules writes the group drop_rules: for each job with rules drop_rules:expected_ratio,
// the share of its series that go. DropRulesNotEffective fires when what a job really drops, 1 -
// scrape_samples_post_metric_relabeling / scrape_samples_scraped, is under 0.8 of it for an hour.
//
// The ratio is of the stored series. Where a job had rules already when these were counted, it
// really drops more than that, and the alert speaks later than it could; it never speaks too early.
// Rounded down to four digits, a job whose rules drop less than a ten-thousandth has none.
func RecordingRules(p *relabel.Plan, w io.Writer, o ...RuleOptions) error {
	lines, err := ruleGroup(p, first(o))
	if err != nil {
		return err
	}
	return write(w, append(header(p), lines...))
}

// PrometheusRule writes the same as an object of prometheus-operator.
func PrometheusRule(p *relabel.Plan, w io.Writer, o ...RuleOptions) error {
	opt := first(o)
	group, err := ruleGroup(p, opt)
	if err != nil {
		return err
	}
	lines := append(header(p), "apiVersion: monitoring.coreos.com/v1", "kind: PrometheusRule", "metadata:")
	var problems []error
	add := func(prefix, value string) {
		text, err := scalar(value)
		problems = append(problems, err)
		lines = append(lines, prefix+text)
	}
	add("  name: ", cmp.Or(opt.Name, "drop-rules"))
	if opt.Namespace != "" {
		add("  namespace: ", opt.Namespace)
	}
	if len(opt.ObjectLabels) > 0 {
		lines = append(lines, "  labels:")
		for _, k := range slices.Sorted(maps.Keys(opt.ObjectLabels)) {
			key, err := scalar(k)
			problems = append(problems, err)
			add("    "+key+": ", opt.ObjectLabels[k])
		}
	}
	lines = append(lines, "spec:")
	for _, l := range group {
		lines = append(lines, "  "+l)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	return write(w, lines)
}

func first(o []RuleOptions) RuleOptions {
	if len(o) == 0 {
		return RuleOptions{}
	}
	return o[0]
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func ruleGroup(p *relabel.Plan, o RuleOptions) ([]string, error) {
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		if !labelName.MatchString(name) || name == "job" || name == "__name__" {
			return nil, fmt.Errorf("label %q cannot be put on the recorded series: it is job or __name__, or not a label's name", name)
		}
	}
	planned := slices.Clone(p.Jobs)
	slices.SortFunc(planned, func(a, b relabel.Job) int { return cmp.Compare(a.Job, b.Job) })
	withRules := Jobs(p)
	var rules []string
	for _, j := range planned {
		if _, has := slices.BinarySearch(withRules, j.Job); !has || j.Stored.Series <= 0 || j.Dropped.Series <= 0 {
			continue
		}
		if j.Dropped.Series > j.Stored.Series {
			return nil, fmt.Errorf("job %q drops %d of %d series: the plan does not add up, make it again", j.Job, j.Dropped.Series, j.Stored.Series)
		}
		ratio := math.Floor(float64(j.Dropped.Series)/float64(j.Stored.Series)*10000) / 10000
		if ratio == 0 {
			continue
		}
		job, err := scalar(j.Job)
		if err != nil {
			return nil, fmt.Errorf("job: %w", err)
		}
		rules = append(rules,
			fmt.Sprintf("      # %d of %d series.", j.Dropped.Series, j.Stored.Series),
			"      - record: drop_rules:expected_ratio",
			"        expr: vector("+strconv.FormatFloat(ratio, 'f', -1, 64)+")",
			"        labels:",
			"          job: "+job,
		)
		for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
			value, err := scalar(o.Labels[name])
			if err != nil {
				return nil, fmt.Errorf("label %s: %w", name, err)
			}
			rules = append(rules, "          "+quotedKey(name)+": "+value)
		}
	}
	group := []string{"groups:", "  - name: drop_rules"}
	if len(rules) == 0 {
		return append(group, "    rules: []"), nil
	}
	return append(append(group, "    rules:"), rules...), nil
}

// quotedKey is a label name as a key: `on` and `y` are no keys to every reader.
func quotedKey(name string) string {
	text, err := scalar(name)
	if err != nil { // labelName has seen it
		return name
	}
	return text
}
