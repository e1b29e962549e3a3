package uses

import (
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Kind is where a use was found.
type Kind string

// Kinds of uses.
const (
	Dashboard  Kind = "dashboard"
	Rule       Kind = "rule"       // alerting and recording rules
	Autoscaler Kind = "autoscaler" // HPA, KEDA, prometheus-adapter
	Logged     Kind = "query"      // the usage log
	Object     Kind = "object"     // any other document: analyses of rollouts, SLOs, canaries
	Listed     Kind = "file"       // a file of PromQL, one query each
	Kept       Kind = "keep"       // keep.yaml
)

// Use is one query somewhere.
type Use struct {
	Kind Kind `json:"kind"`
	// File and Line are where it stands; Line is 0 where that has no meaning.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Where is its name for people: `dashboard Fleet, panel Nodes`, `alert X`, `ada, dashboard
	// gpu-overview, panel 7`.
	Where string `json:"where"`
	// Owner is who asked or who wants it kept; empty where nobody is named.
	Owner string `json:"owner,omitempty"`
	// Reason is keep.yaml's, or why a query that did not parse keeps what it names.
	Reason string `json:"reason,omitempty"`
	// Query is the PromQL as written there, variables and all; empty where there is none that could
	// be asked, as of a text that was cut.
	Query string `json:"query,omitempty"`
	// Records is the name of the series that a recording rule records.
	Records string `json:"records,omitempty"`
	// RuleLabels are the labels that a recording rule sets.
	RuleLabels map[string]string `json:"-"`
	// Alerts says that it is an alerting rule.
	Alerts bool `json:"alerts,omitempty"`
	// Last is when it was last asked, and Count how often, where a log says so.
	Last  time.Time `json:"last,omitzero"`
	Count int64     `json:"count,omitempty"`
	// Lists says that it only lists series, names or values of labels, and reads no sample.
	Lists bool `json:"-"`
	// Picked says that a usage log tells of it, and that no rule asked: a value in it may be the
	// one that somebody picked from many that day. See Entry.Whole.
	Picked bool `json:"-"`
	// Guessed says that it is no use that was read, but what a rule that is missing may read.
	Guessed bool `json:"-"`
	// Scales is the name and the source of a metric that a HorizontalPodAutoscaler asks an adapter
	// for; its zero value for other uses.
	Scales Scaling `json:"-"`
	// Needs are what it selects.
	Needs []Need `json:"-"`
}

// Need is one selector of a query, with what the answer depends on.
type Need struct {
	// Matchers select the series, the one on __name__ among them. No matcher at all selects
	// everything.
	Matchers []*labels.Matcher
	// Labels are those that can change the answer beside the ones in Matchers.
	Labels Labels
	// Quantile says that its buckets go nowhere but into histogram_quantile: with fewer of them the
	// answer changes within the width of a bucket.
	Quantile bool
	// Absent says that the need is about series that are not there (absent, absent_over_time, the
	// right side of unless): dropping series makes something appear.
	Absent bool
	// Saved are the metrics that it names as its dashboard was saved, where a text box is a part of
	// a metric's name and somebody may type another one; nil for all others.
	Saved []string
}

// Scaling is a metric that an adapter makes of stored ones.
type Scaling struct {
	// Metric is the name that the adapter gives it.
	Metric string
	// Type is where it comes from: pods, object or external. The last is often of another system.
	Type string
}

// Labels is a set of label names: Names, or all but Names where Except is set. Names are sorted.
type Labels struct {
	Except bool
	Names  []string
}

// All are all labels.
var All = Labels{Except: true}

// Place is where the use stands, for messages: `rules/a.yaml:12 (alert X)`.
func (u *Use) Place() string {
	place := u.File
	if u.Line > 0 {
		place += ":" + strconv.Itoa(u.Line)
	}
	switch {
	case place == "":
		return u.Where
	case u.Where == "":
		return place
	}
	return place + " (" + u.Where + ")"
}
