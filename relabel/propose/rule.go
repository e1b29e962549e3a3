package propose

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// Kind is what a rule takes away.
type Kind string

// Kinds of rules.
const (
	Names   Kind = "names"   // metrics that nothing uses
	Slice   Kind = "slice"   // series of used metrics, by a value of one label, that nothing uses
	Buckets Kind = "buckets" // buckets of histograms
	Label   Kind = "label"   // a label that changes no answer
)

// Risk is how much a rule may change.
type Risk string

// Risks, from the smallest.
const (
	// Low: only metrics that nothing uses. Every answer stays what it is.
	Low Risk = "low"
	// Medium: also slices, and buckets that no query needs. Every answer of a known use stays what
	// it is.
	Medium Risk = "medium"
	// High: also buckets that only histogram_quantile reads: its answers change within
	// Options.QuantileError. And labels that change no answer and tell no two series of today
	// apart: series that come later and differ in nothing else would become one, without a word
	// from the server.
	High Risk = "high"
)

// Rule is one proposal for one job.
type Rule struct {
	// ID names the rule for as long as it takes the same kind of thing from the same job:
	// `apiserver/names/1`.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	Risk Risk   `json:"risk"`
	Job  string `json:"job"`
	// Metrics are the exact names, sorted.
	Metrics []string `json:"metrics"`
	// Label is the label of a slice, le of buckets, or the label that is taken away.
	Label string `json:"label,omitempty"`
	// Values are the label's values whose series go, sorted; le as Prometheus 3 stores it. None for
	// names and labels.
	Values []string `json:"values,omitempty"`
	// QuantileError is the largest ratio of the upper to the lower edge of a bucket that stays,
	// where that is more than it was; 0 elsewhere.
	QuantileError float64 `json:"quantile_error,omitempty"`
	// Saves is what the inventory says goes by this rule alone: rules may overlap, a slice with
	// buckets for instance. A proof counts it again, series by series, each rule by itself, and the
	// two must agree. A rule that takes a label saves no series and no samples, but memory of the
	// index.
	Saves Saving `json:"saves"`
	// Evidence says why nothing needs it.
	Evidence Evidence `json:"evidence"`
	// Relabel is the rule as Prometheus applies it.
	Relabel []*relabel.Config `json:"-"`
}

// Saving is what a rule saves.
type Saving struct {
	Series           int64   `json:"series"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	// BytesPerDay on disk and MemoryBytes in the head are estimates: BytesPerSample and
	// BytesPerSeries times the figures above.
	BytesPerDay int64 `json:"bytes_per_day"`
	MemoryBytes int64 `json:"memory_bytes"`
}

// Estimates of Prometheus' own documentation and of the measurement in docs/relabel.md.
const (
	// BytesPerSample is what a sample takes in a block, compressed.
	BytesPerSample = 1.7
	// BytesPerSeries is what a series takes in the head, its labels, index and open chunk together.
	BytesPerSeries = 4096
)

// Evidence is why a rule is harmless, as far as is known.
type Evidence struct {
	// Text is a sentence for the comment above the rule.
	Text string `json:"text"`
	// LastUse is who used the metrics last, for slices, buckets and labels: the use that does not
	// need what goes. Nil where nothing uses them.
	LastUse *uses.Use `json:"last_use,omitempty"`
}

// Refusal is what was not proposed, or did not pass its proof, and what to do instead.
type Refusal struct {
	Kind    Kind     `json:"kind"`
	Job     string   `json:"job"`
	Metrics []string `json:"metrics"`
	Label   string   `json:"label,omitempty"`
	// Reason names what stands against it.
	Reason string `json:"reason"`
	// Examples are series: those that would become one, or that a use selects.
	Examples []string `json:"examples,omitempty"`
	// Instead is the alternative: a recording rule, or aggregation at the agent.
	Instead string `json:"instead,omitempty"`
	Saves   Saving `json:"saves"`
}

// Options say what may be proposed.
type Options struct {
	// Risk is the largest that is accepted; Medium.
	Risk Risk
	// MinSaving is the smallest number of series that a rule must save of each of its metrics (for
	// a label: that must lose it); 1. It is asked of each metric rather than of the rule, so that
	// more uses, which make rules smaller, never put metrics together to a rule that is large
	// enough.
	MinSaving int64
	// QuantileError is the largest ratio of a bucket's upper to its lower edge that thinning may
	// make; 2.5. Buckets that are wider already stay as they are.
	QuantileError float64
	// Window is how far back uses were looked for; it goes into the evidence.
	Window time.Duration
	// KeepLabels leaves out rules that take a label: they save no series that is stored today, and
	// with High alone that surprises.
	KeepLabels bool
	// Exempt jobs get no rules.
	Exempt []string
	// External are the labels that are added on the way out: a matcher on one of them excludes no
	// series. Nil means uses.External.
	External []string
	// Collisions has seen every series; labels that it saw merge series are refused at once. Nil
	// leaves that to the proof.
	Collisions *Collisions
}

// withDefaults puts in what is documented for zero values.
func (o Options) withDefaults() Options {
	if o.Risk == "" {
		o.Risk = Medium
	}
	if o.MinSaving <= 0 {
		o.MinSaving = 1
	}
	if o.QuantileError <= 1 {
		o.QuantileError = 2.5
	}
	if o.External == nil {
		o.External = uses.External
	}
	return o
}

// Accepts says whether a rule of risk r may be proposed where largest is the largest that is
// accepted.
func (largest Risk) Accepts(r Risk) bool { return rank(r) >= 0 && rank(r) <= rank(largest) }

// rank orders risks; -1 is none.
func rank(r Risk) int { return slices.Index([]Risk{Low, Medium, High}, r) }

// ParseRisk reads a risk as written on a command line.
func ParseRisk(s string) (Risk, error) {
	if r := Risk(s); rank(r) >= 0 {
		return r, nil
	}
	return "", fmt.Errorf("risk %q: there are low, medium and high", s)
}

// Save is what so many series with so many samples a second together cost.
func Save(series int64, samplesPerSecond float64) Saving {
	const secondsPerDay = 86400
	return Saving{
		Series: series, SamplesPerSecond: samplesPerSecond,
		BytesPerDay: int64(math.Round(samplesPerSecond * secondsPerDay * BytesPerSample)),
		MemoryBytes: series * BytesPerSeries,
	}
}

// Add is both savings together.
func (s Saving) Add(other Saving) Saving {
	return Saving{
		Series: s.Series + other.Series, SamplesPerSecond: s.SamplesPerSecond + other.SamplesPerSecond,
		BytesPerDay: s.BytesPerDay + other.BytesPerDay, MemoryBytes: s.MemoryBytes + other.MemoryBytes,
	}
}
