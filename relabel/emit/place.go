package emit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	promrelabel "github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/propose"
)

// placed are a rule's configs for a place where only series of its job come by, or for any place.
// A rule is proven for one label job: where others may come by, it has to ask for it.
func placed(r *propose.Rule, sole bool) ([]*promrelabel.Config, error) {
	if sole {
		return r.Relabel, nil
	}
	return forJob(r)
}

// forJob are a rule's configs with its job in front of each expression: `JOB;(?:…)` of job and what
// the rule looks at. They do to series of the job what they did, and nothing to others: the
// separator is one that neither the job nor the rule's names and values hold, so that what reads
// the same when it is joined is the same.
func forJob(r *propose.Rule) ([]*promrelabel.Config, error) {
	separator := propose.Separator(append([]string{r.Job}, r.Metrics...), r.Values)
	out := make([]*promrelabel.Config, len(r.Relabel))
	for i, c := range r.Relabel {
		if err := valid(c); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		copied, regex := *c, pattern(c)
		if len(c.SourceLabels) > 1 && c.Separator != separator {
			was := propose.Quote(c.Separator)
			if strings.Count(regex, was) != 1 {
				return nil, fmt.Errorf("rule %s: its separator %q cannot be told from the rest of %s, and the job %q has it too", r.ID, c.Separator, regex,
					r.Job)
			}
			regex = strings.Replace(regex, was, propose.Quote(separator), 1)
		}
		if strings.Contains(regex, "|") {
			regex = "(?:" + regex + ")"
		}
		var err error
		if copied.Regex, err = promrelabel.NewRegexp(propose.Quote(r.Job) + propose.Quote(separator) + regex); err != nil {
			return nil, fmt.Errorf("rule %s: the regex with the job in front: %w", r.ID, err)
		}
		copied.Separator, copied.SourceLabels = separator, slices.Insert(slices.Clone(c.SourceLabels), 0, model.LabelName(model.JobLabel))
		out[i] = &copied
	}
	return out, nil
}
