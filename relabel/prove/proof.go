package prove

import (
	"fmt"
	"time"

	"github.com/spillwayproject/spillway/relabel/propose"
)

// Proof is what was shown.
type Proof struct {
	// Series is how many were run through the rules; Dropped how many of them go; Changed how many
	// lose a label.
	Series  int64 `json:"series"`
	Dropped int64 `json:"dropped"`
	Changed int64 `json:"changed"`
	// Steps are what was looked at, in order.
	Steps []Step `json:"steps"`
	// Rules are what each of them takes by itself (rules may overlap: a slice and buckets), counted
	// series by series, by ID.
	Rules map[string]propose.Saving `json:"rules"`
	// Failed are the rules that did not pass, by ID, with the reason.
	Failed map[string]propose.Refusal `json:"failed,omitempty"`
	// Replay is the comparison of answers; nil where it was left out.
	Replay *Replay `json:"replay,omitempty"`
}

// Step is one thing that was looked at.
type Step struct {
	// Name is exact, collisions, uses, twice, savings or replay.
	Name string `json:"name"`
	// Checked is how many series, uses or queries; Took is the time.
	Checked int64         `json:"checked"`
	Took    time.Duration `json:"-"` // not part of the plan, whose bytes are stable
}

// Replay is the comparison of answers over a sample of the data.
type Replay struct {
	// Series is how many the sample has before, After how many are left.
	Series int64 `json:"series"`
	After  int64 `json:"after"`
	// Wanted is how many stored series were chosen for the sample, Found of how many of them the
	// source has samples. Series is more than that by what is made up: up of each target.
	Wanted int64 `json:"wanted"`
	Found  int64 `json:"found"`
	// Parts is how many targets are in the sample with a part of their series only, since they have
	// more than all of it.
	Parts int64 `json:"parts,omitempty"`
	// Queries is how many different ones were asked. Each is one of the six below: Equal to the
	// bit; Rounded: equal but for what the engine leaves open, the order in which floats are added
	// and which of equal values topk takes; Within the error that a rule states; Empty on both
	// sides, also what is compared with thresholds; Failed on both sides alike; or Different.
	Queries   int64 `json:"queries"`
	Equal     int64 `json:"equal"`
	Rounded   int64 `json:"rounded,omitempty"`
	Within    int64 `json:"within"`
	Empty     int64 `json:"empty"`
	Failed    int64 `json:"failed"`
	Different int64 `json:"different"`
	// Skipped are the uses that were not asked, by reason.
	Skipped map[string]int64 `json:"skipped,omitempty"`
	// Differences are those that no stated error explains, at most 1000 of them; a plan has none.
	Differences []Difference `json:"differences,omitempty"`
}

// Difference is one query with another answer.
type Difference struct {
	Where  string `json:"where"`
	Query  string `json:"query"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Weak says why the replay shows little or nothing, as the end of a sentence; empty where it shows
// something, and where there was none.
func (r *Replay) Weak() string {
	switch {
	case r == nil:
		return ""
	case 2*r.Found < r.Wanted:
		return fmt.Sprintf("it found samples of %d of the %d series that were chosen for it", r.Found, r.Wanted)
	case r.Queries == 0:
		return "there was no query that it could ask"
	case r.Queries == r.Empty+r.Failed:
		return fmt.Sprintf("none of its %d queries has an answer, before or after", r.Queries)
	}
	return ""
}
