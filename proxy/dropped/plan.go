package dropped

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/plainfile"
)

// Bounds of what is read.
const (
	// Version is the plan's format that this package reads.
	Version = 1
	// MaxBytes is the largest plan.
	MaxBytes = 32 << 20
	// MaxRules is how many rules all plans may have together.
	MaxRules = 20_000
	// MaxEntries is how many metrics the rules of all plans may name together.
	MaxEntries = 1_000_000
)

// The kinds of rules, as package propose of relabel spells them.
const (
	kindNames   = "names"
	kindSlice   = "slice"
	kindBuckets = "buckets"
	kindLabel   = "label"
)

// plan is what is read of a plan. Its other keys are not for here.
type plan struct {
	Version int       `json:"version"`
	Made    time.Time `json:"made"`
	Owner   string    `json:"owner"`
	// Jobs are all that the plan's servers have.
	Jobs []struct {
		Job string `json:"job"`
	} `json:"jobs"`
	Rules []rule `json:"rules"`
	// Elsewhere are metrics that a rule takes from one job and that another job keeps.
	Elsewhere []string `json:"elsewhere"`
}

// rule is one rule of a plan.
type rule struct {
	ID      string   `json:"id"`
	Kind    string   `json:"kind"`
	Risk    string   `json:"risk"`
	Job     string   `json:"job"`
	Metrics []string `json:"metrics"`
	Label   string   `json:"label"`
	Values  []string `json:"values"`

	owner string
	since time.Time
	plan  int // which of the plans has it
}

// Set is what all plans together drop. It never changes, and any number of goroutines may ask it. A
// nil Set drops nothing.
type Set struct {
	rules     map[string][]*rule // by metric
	names     []string           // sorted
	labels    map[string]bool    // that rules of the kind label take away
	elsewhere map[string]bool    // metrics that some job keeps
	some      map[string]bool    // metrics that some plans drop by name, and others may have
	jobs      map[string]plans   // which plans have the job; this and the next two are for several plans
	known     map[string]plans   // which plans have rules about a metric, or list it under elsewhere
	whole     map[string]plans   // which plans drop a metric by name
	hash      string
}

// Load reads plans. Without a path the set is nil.
func Load(paths []string) (*Set, error) {
	var b builder
	for _, path := range paths {
		if err := b.load(path); err != nil {
			return nil, err
		}
	}
	return b.set()
}

// Read is Load for one plan that is not in a file.
func Read(r io.Reader) (*Set, error) {
	var b builder
	if err := b.read(r); err != nil {
		return nil, err
	}
	return b.set()
}

// Hash changes when a plan does. It is empty for a nil Set.
func (s *Set) Hash() string {
	if s == nil {
		return ""
	}
	return s.hash
}

// IDs are those of all rules.
func (s *Set) IDs() map[string]bool {
	ids := map[string]bool{}
	if s == nil {
		return ids
	}
	for _, rules := range s.rules {
		for _, r := range rules {
			ids[r.ID] = true
		}
	}
	return ids
}

// builder gathers plans.
type builder struct {
	plans   int
	sums    bytes.Buffer
	rules   []*rule
	kept    []string
	keptBy  []int // which of the plans lists the one of kept
	jobs    map[string]plans
	entries int
}

func (b *builder) load(path string) error {
	f, err := plainfile.Open(path)
	if err != nil {
		return err // which names the file
	}
	defer f.Close()
	if err := b.read(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (b *builder) read(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return err
	}
	if len(data) > MaxBytes {
		return fmt.Errorf("the plan is larger than %d MiB; make one plan for each cluster, or drop only what saves much (spillway relabel plan --min-saving)", MaxBytes>>20)
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return notJSON(data, err)
	}
	switch p.Version {
	case Version:
	case 0:
		return errors.New("this is JSON, but no plan: it has no version; name a file that `spillway relabel plan -o FILE` has written")
	default:
		return fmt.Errorf("the plan has version %d, and this Spillway reads version %d; write the plan and read it with the same release", p.Version, Version)
	}
	if p.Made.IsZero() {
		return errors.New("the plan does not say when it was made (made); write it again with `spillway relabel plan`")
	}
	for i := range p.Rules {
		ru := &p.Rules[i]
		if err := ru.check(); err != nil {
			return fmt.Errorf("rules[%d]: %w", i, err)
		}
		ru.owner, ru.since, ru.plan = p.Owner, p.Made.UTC(), b.plans
		b.entries += len(ru.Metrics)
		b.rules = append(b.rules, ru)
		b.job(ru.Job)
	}
	for _, j := range p.Jobs {
		b.job(j.Job)
	}
	if len(b.rules) > MaxRules {
		return fmt.Errorf("the plans have more than %d rules together; name only those that are in force", MaxRules)
	}
	if b.entries > MaxEntries {
		return fmt.Errorf("the rules of the plans name more than %d metrics together; name only the plans that are in force", MaxEntries)
	}
	if b.kept = append(b.kept, p.Elsewhere...); len(b.kept) > MaxEntries {
		return fmt.Errorf("the plans list more than %d metrics under elsewhere; name only the plans that are in force", MaxEntries)
	}
	for range p.Elsewhere {
		b.keptBy = append(b.keptBy, b.plans)
	}
	b.plans++
	sum := sha256.Sum256(data)
	b.sums.Write(sum[:])
	return nil
}

// job notes that the plan that is read has a job.
func (b *builder) job(name string) {
	if b.jobs == nil {
		b.jobs = map[string]plans{}
	}
	if of := b.jobs[name]; !of.has(b.plans) {
		b.jobs[name] = of.with(b.plans)
	}
}

// check refuses what Look would misread.
func (r *rule) check() error {
	if r.ID == "" {
		return errors.New("the rule has no id")
	}
	r.ID = strings.ToValidUTF8(r.ID, "\uFFFD") // it becomes the value of a metric's label
	id := clip.Text(r.ID, 100)
	if len(r.ID) > 1024 {
		return fmt.Errorf("the id %s is longer than 1024 bytes", id)
	}
	if len(r.Metrics) == 0 || slices.Contains(r.Metrics, "") {
		return fmt.Errorf("rule %s names no metric, or an empty one", id)
	}
	switch r.Kind {
	case kindNames:
	case kindLabel:
		if r.Label == "" {
			return fmt.Errorf("rule %s takes a label and does not say which", id)
		}
	case kindSlice, kindBuckets:
		if r.Label == "" || len(r.Values) == 0 {
			return fmt.Errorf("rule %s drops series by the values of a label, and does not say the label or the values", id)
		}
	default:
		return fmt.Errorf("rule %s is of the kind %q, which this Spillway does not know; write the plan and read it with the same release", id, clip.Text(r.Kind, 40))
	}
	return nil
}

// notJSON says on which line JSON ends to be a plan.
func notJSON(data []byte, err error) error {
	line := func(offset int64) int {
		return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte{'\n'})
	}
	var bad *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	const hint = "name a file that `spillway relabel plan -o FILE` has written"
	switch {
	case errors.As(err, &bad):
		return fmt.Errorf("line %d: not JSON (%w); %s", line(bad.Offset), err, hint)
	case errors.As(err, &wrong):
		return fmt.Errorf("line %d: %s is not what a plan has there (a JSON %s); %s", line(wrong.Offset), clip.Text(cmp.Or(wrong.Field, "the file"), 100), wrong.Value, hint)
	default:
		return fmt.Errorf("not a plan (%w); %s", err, hint)
	}
}

func (b *builder) set() (*Set, error) {
	if b.plans == 0 {
		return nil, nil
	}
	sum := sha256.Sum256(b.sums.Bytes())
	s := &Set{
		rules: map[string][]*rule{}, labels: map[string]bool{}, elsewhere: map[string]bool{},
		some: map[string]bool{}, known: map[string]plans{}, whole: map[string]plans{},
		hash: hex.EncodeToString(sum[:]),
	}
	for _, r := range b.rules {
		if r.Kind == kindLabel {
			s.labels[r.Label] = true
		}
		for _, name := range r.Metrics {
			if len(s.rules[name]) == 0 {
				s.names = append(s.names, name)
			}
			s.rules[name] = append(s.rules[name], r)
		}
	}
	for _, name := range b.kept {
		s.elsewhere[name] = true
	}
	s.compare(b)
	slices.Sort(s.names)
	// Of rules that say the same of a metric the oldest comes first: since then it is gone.
	for _, rules := range s.rules {
		slices.SortStableFunc(rules, func(a, b *rule) int { return cmp.Or(a.since.Compare(b.since), strings.Compare(a.ID, b.ID)) })
	}
	return s, nil
}

// matches tells whether a matcher accepts a label's dropped value. Both spellings of a bucket's
// edge count, since both may be asked for.
func matches(m *labels.Matcher, value string) bool {
	if m.Matches(value) {
		return true
	}
	short, whole := strings.CutSuffix(value, ".0")
	return whole && m.Name == labels.BucketLabel && m.Matches(short)
}
