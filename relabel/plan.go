package relabel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
)

// Version is that of the plan's format.
const Version = 1

// Plan is what `spillway relabel plan` writes.
type Plan struct {
	Version int `json:"version"`
	// Made is when the inputs were read; part of the input, so that equal inputs give equal bytes.
	Made time.Time `json:"made"`
	// Owner is who answers for the rules; --owner.
	Owner string `json:"owner,omitempty"`
	// Inputs are what was read.
	Inputs Inputs `json:"inputs"`
	// Stored is what there is, Dropped what the rules take of it together.
	Stored  propose.Saving `json:"stored"`
	Dropped propose.Saving `json:"dropped"`
	// Alarms are what has to be seen before anything else: what was not looked at, and what can
	// hardly be meant. They are shown in red.
	Alarms []string `json:"alarms,omitempty"`
	// Jobs are sorted by name.
	Jobs []Job `json:"jobs"`
	// Rules are ranked: the one that saves the most series first.
	Rules []propose.Rule `json:"rules"`
	// Refused are what was thought of and may not be.
	Refused []propose.Refusal `json:"refused"`
	// Elsewhere are metrics that a rule takes from one job by name and of which another job keeps
	// something, sorted. The proxy's warnings look at it.
	Elsewhere []string `json:"elsewhere,omitempty"`
	// Unrecorded are names of recorded series that are used and whose rules are not known, sorted:
	// what these read is not known either, so that nothing of the plan counts as proven.
	Unrecorded []string    `json:"unrecorded,omitempty"`
	Proof      prove.Proof `json:"proof"`
	// Warnings are what the reader should know.
	Warnings []string `json:"warnings"`
	// Checksum is over all the rest, as written. A plan that was changed by hand is refused: its
	// proof is not about what it says now.
	Checksum string `json:"checksum"`
}

// Inputs are what a plan was made of.
type Inputs struct {
	Sources []string `json:"sources"`
	// BehindRules says that a source is what a server stores: what its rules in force drop, the
	// plan does not know.
	BehindRules bool `json:"behind_rules,omitempty"`
	// Uses are the numbers of uses, by kind.
	Uses map[string]int `json:"uses"`
	// Window is how far back logged queries count; Covered is how far they reach.
	Window  string    `json:"window"`
	Covered string    `json:"covered"`
	From    time.Time `json:"from,omitzero"`
	To      time.Time `json:"to,omitzero"`
	// Lost is how many requests of that time the usage logs lack: nothing of the plan counts as
	// proven then.
	Lost int64 `json:"lost,omitempty"`
	// Unrendered is in how many folders sources of dashboards and rules are that were not rendered
	// and not read: nothing of the plan counts as proven then.
	Unrendered int    `json:"unrendered,omitempty"`
	Risk       string `json:"risk"`
}

// Job is one job's share.
type Job struct {
	Job     string         `json:"job"`
	Metrics int            `json:"metrics"`
	Stored  propose.Saving `json:"stored"`
	Dropped propose.Saving `json:"dropped"`
	// Top are its largest metrics.
	Top []Metric `json:"top"`
}

// Metric is one metric's share of its job.
type Metric struct {
	Name    string `json:"name"`
	Series  int64  `json:"series"`
	Dropped int64  `json:"dropped"`
	// Uses is how many uses select it.
	Uses int `json:"uses"`
}

// Without is the plan without the rules of some jobs: of what these have nothing goes. A job that
// the plan does not have is an error.
func (p *Plan) Without(jobs ...string) (*Plan, error) {
	out := *p
	out.Jobs = slices.Clone(p.Jobs)
	for _, name := range jobs {
		i := slices.IndexFunc(out.Jobs, func(j Job) bool { return j.Job == name })
		if i < 0 {
			var have []string
			for _, j := range p.Jobs {
				have = append(have, j.Job)
			}
			return nil, fmt.Errorf("the plan has no job %q; it has %s", name, strings.Join(have, ", "))
		}
		j := &out.Jobs[i]
		out.Dropped.Series -= j.Dropped.Series
		out.Dropped.SamplesPerSecond -= j.Dropped.SamplesPerSecond
		out.Dropped.MemoryBytes -= j.Dropped.MemoryBytes
		out.Dropped.BytesPerDay -= j.Dropped.BytesPerDay
		j.Dropped, j.Top = propose.Saving{}, slices.Clone(j.Top)
		for t := range j.Top {
			j.Top[t].Dropped = 0
		}
	}
	out.Rules = slices.DeleteFunc(slices.Clone(p.Rules), func(r propose.Rule) bool { return slices.Contains(jobs, r.Job) })
	return &out, nil
}
