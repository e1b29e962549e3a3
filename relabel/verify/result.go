package verify

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	// Broken: something does not do what it was written for.
	Broken Severity = "error"
	// Doubtful: it may, depending on what is stored or on what was meant.
	Doubtful Severity = "warning"
)

// State is the result in one word.
type State string

// States. What is broken is broken even where something else could not be checked.
const (
	OK           State = "ok"
	Faulty       State = "broken"
	NotChecked   State = "could not check"
	maxExamples        = 3
	maxListed          = 8
	maxCombined        = 512
	maxLanguage        = 20_000
	placeholder        = "x"
	seriesPerCtx       = 1 << 14
)

// Checks are the kinds of findings.
const (
	CheckLost       = "lost"             // a query loses series
	CheckMerged     = "merged"           // series become one
	CheckLe         = "le-spelling"      // a list of buckets misses the form that Prometheus 3 stores
	CheckDot        = "unescaped-dot"    // a . matches any character
	CheckEverything = "drops-everything" // a rule takes all series
	CheckNothing    = "drops-nothing"    // a rule can never match
	CheckKeep       = "keep"             // an allow-list
	CheckName       = "takes-the-name"   // labelkeep without __name__, labeldrop with it
	CheckTemporary  = "temporary-label"  // a label that begins with __ is stored
	CheckRefused    = "refused"          // Prometheus or the operator does not accept the rule
	CheckDiffers    = "differs"          // servers of one fleet have different rules for a job
	CheckShards     = "shards"           // parts of a fleet that no given server keeps
	CheckLevel      = "wrong-level"      // a rule on metrics among those for targets, or the other way round
	CheckLong       = "long-regex"       // longer than anybody reads
	CheckNeverSeen  = "never-seen"       // up and scrape_… never pass metric_relabel_configs
)

// Finding is one thing that is wrong, or may be.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	// File and Line are where the reader looks first: the query that loses series, else the rule.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Where names the use for people, Query is its text.
	Where string `json:"where,omitempty"`
	Query string `json:"query,omitempty"`
	// RuleFile and RuleLine are where the rule stands, Job is its job.
	RuleFile string `json:"rule_file,omitempty"`
	RuleLine int    `json:"rule_line,omitempty"`
	Job      string `json:"job,omitempty"`
	// Text says what is wrong, Advice what to do.
	Text   string `json:"text"`
	Advice string `json:"advice"`
	// Series is how many stored series are lost or merged, 0 where none were looked at; Examples
	// are some of them, or the ones that were made up.
	Series   int64    `json:"series,omitempty"`
	Examples []string `json:"examples,omitempty"`

	remote string      // the server that is written to where it is lost there alone
	picked []*uses.Use // who may ask for other values, see tellPicked
}

// Result is what was found.
type Result struct {
	State State `json:"state"`
	// Jobs, Rules, Uses and Series are how many of each were looked at.
	Jobs   int   `json:"jobs"`
	Rules  int   `json:"rules"`
	Uses   int   `json:"uses"`
	Series int64 `json:"series,omitempty"`
	// Alarms are what has to be seen before anything else: that something was not looked at.
	Alarms []string `json:"alarms,omitempty"`
	// Unrecorded are names of recorded series that are used and whose rules are not known, sorted:
	// what these read, and whether it is lost, is not known either.
	Unrecorded []string `json:"unrecorded,omitempty"`
	// Findings are sorted by file, line and kind.
	Findings []Finding `json:"findings"`
	// Unchecked is what could not be read or judged. Warnings are what one should know about the
	// uses.
	Unchecked []string `json:"unchecked,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`

	partly      bool // not all that is used was read
	unmentioned []*unmentioned
	shapes      map[string]*openRule
	shaped      []string // the keys of these, as they came
}

func (r *Result) unchecked(err error) { r.Unchecked = append(r.Unchecked, err.Error()) }

func (r *Result) add(f Finding) {
	if f.File == "" && f.Where == "" {
		f.File, f.Line = f.RuleFile, f.RuleLine
	}
	r.Findings = append(r.Findings, f)
}

// finish sorts, takes out what is said twice, and decides.
func (r *Result) finish(set *uses.Set) {
	for _, w := range set.Warnings {
		if !slices.Contains(r.Warnings, w) {
			r.Warnings = append(r.Warnings, w)
		}
	}
	r.tellRemotes()
	r.Findings = withoutPicked(r.Findings)
	slices.SortStableFunc(r.Findings, compareFindings)
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool { return compareFindings(a, b) == 0 })
	r.State = OK
	if len(r.Unchecked) > 0 {
		r.State = NotChecked
	}
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Broken }) {
		r.State = Faulty
	}
}

// compareFindings orders by where the reader looks. Equal ones say the same.
func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Check, b.Check),
		cmp.Compare(a.RuleFile, b.RuleFile), cmp.Compare(a.RuleLine, b.RuleLine), cmp.Compare(a.Where, b.Where),
		cmp.Compare(a.Query, b.Query),
		cmp.Compare(a.Job, b.Job), cmp.Compare(a.Text, b.Text),
	)
}

// String is the finding on one line: FILE:LINE: what, and what to do.
func (f *Finding) String() string {
	var b strings.Builder
	switch {
	case f.File != "" && f.Line > 0:
		b.WriteString(f.File + ":" + strconv.Itoa(f.Line) + ": ")
	case f.File != "":
		b.WriteString(f.File + ": ")
	case f.Where != "":
		b.WriteString(f.Where + ": ")
	}
	b.WriteString(string(f.Severity) + ": ")
	if f.File != "" && f.Where != "" {
		b.WriteString(f.Where + ": ")
	}
	b.WriteString(f.Text)
	if f.RuleFile != "" && (f.RuleFile != f.File || f.RuleLine != f.Line) {
		b.WriteString(" [rule " + f.RuleFile + ":" + strconv.Itoa(f.RuleLine) + ", job " + f.Job + "]")
	}
	if f.Advice != "" {
		b.WriteString(". " + f.Advice)
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// Text writes alarms, the findings one a line, then what to know about the uses, such as a file
// that has none, then what could not be checked, then a summary.
func (r *Result) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, a := range r.Alarms {
		fmt.Fprintln(b, "ATTENTION: "+strings.ReplaceAll(a, "\n", " "))
	}
	broken := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == Broken {
			broken++
		}
		fmt.Fprintln(b, r.Findings[i].String())
	}
	for _, w := range r.Warnings {
		fmt.Fprintln(b, "note: "+strings.ReplaceAll(w, "\n", " "))
	}
	for _, u := range r.Unchecked {
		fmt.Fprintln(b, "could not check: "+u)
	}
	stored := ""
	if r.Series > 0 {
		stored = fmt.Sprintf(", %d series", r.Series)
	}
	state := string(r.State)
	switch {
	case r.State != OK:
	case len(r.Unrecorded) > 0:
		state += ", as far as rules were given"
	case r.partly:
		state += ", as far as uses were read"
	}
	fmt.Fprintf(b, "%s: %d errors, %d warnings in %d rules of %d jobs, for %d uses%s\n", state, broken, len(r.Findings)-broken, r.Rules, r.Jobs, r.Uses, stored)
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	return nil
}

// JSON writes the result as one object.
func (r *Result) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the findings: %w", err)
	}
	return nil
}

// listed names some of many.
func listed(values []string) string {
	text := strings.Join(values[:min(maxListed, len(values))], ", ")
	if len(values) > maxListed {
		text += fmt.Sprintf(" and %d more", len(values)-maxListed)
	}
	return text
}
