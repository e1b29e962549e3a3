package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// QueryType says what is asked. The names stand in stored dashboards.
type QueryType string

const (
	// Experiments is a table of experiments, those that were seen last first.
	Experiments QueryType = "experiments"
	// Status counts an experiment's pods by cluster and phase, now or over time.
	Status QueryType = "status"
	// Pods has a row for each pod.
	Pods QueryType = "pods"
	// Nodes has a row for each node that the experiment's pods are on.
	Nodes QueryType = "nodes"
	// GPUTimeSeries is one metric of its GPUs over time.
	GPUTimeSeries QueryType = "gpu_timeseries"
	// GPUHealth lists what is wrong with the GPUs under it.
	GPUHealth QueryType = "gpu_health"
	// Network is the traffic of its nodes over time.
	Network QueryType = "network"
	// Pending has a row for each pod that waits, with the reason.
	Pending QueryType = "pending"
	// Events are annotations: restarts, nodes that went, Xids, evictions.
	Events QueryType = "events"
	// Cost is GPU hours, idle GPU hours and money by team and experiment.
	Cost QueryType = "cost"
	// Compare puts two to MaxCompared runs over the time since each began.
	Compare QueryType = "compare"
	// Stragglers are GPUs that do less than the others of the experiment.
	Stragglers QueryType = "stragglers"
	// PromQL is the user's own query, in which $__experiment stands for matchers.
	PromQL QueryType = "promql"
)

// QueryTypes are all of them, in the order of the editor.
var QueryTypes = []QueryType{
	Experiments, Status, Pods, Nodes, GPUTimeSeries, GPUHealth, Network, Pending, Events, Cost, Compare,
	Stragglers, PromQL,
}

const (
	// MaxCompared is how many runs can be compared.
	MaxCompared = 8
	// MaxNames is how many names a list of a query may have.
	MaxNames = 100
	// MaxNameBytes is how long a name may be; Kubernetes' own are at most 253 bytes.
	MaxNameBytes = 16 << 10
	// MaxK is the most series that the largest or smallest K can be.
	MaxK = 100
)

// Metric is one number of a GPU.
type Metric string

const (
	Util   Metric = "util"   // share of time in which a kernel ran, percent
	Tensor Metric = "tensor" // share of time in which tensor cores worked, 0 to 1
	DRAM   Metric = "dram"   // share of time in which memory was read or written, 0 to 1
	Memory Metric = "mem"    // memory in use, MiB
	Power  Metric = "power"  // W
	Temp   Metric = "temp"   // °C
)

// Metrics are all of them, in the order of the editor.
var Metrics = []Metric{Util, Tensor, DRAM, Memory, Power, Temp}

// Unit is Grafana's name for the metric's unit.
func (m Metric) Unit() string {
	return map[Metric]string{
		Util: "percent", Tensor: "percentunit", DRAM: "percentunit", Memory: "mbytes", Power: "watt",
		Temp: "celsius",
	}[m]
}

// GroupLabels are what a metric can be grouped by.
var GroupLabels = []string{"experiment", "team", "cluster", "namespace", "node", "pod", "gpu"}

// Views of query types that have more than one. The first is the default.
var Views = map[QueryType][]string{
	Status:    {"now", "over_time", "total"}, // total: of all clusters, one frame
	GPUHealth: {"table", "count", "total"},   // count: a number for each class of fault; total: of all
	Network:   {"infiniband", "ethernet", "nvlink", "errors"},
	Cost:      {"table", "total"}, // total: one number each for money, GPU hours and idle GPU hours
	Compare:   {"series", "summary"},
}

// Query is one query of a panel, a variable or an annotation, after the front end replaced the
// dashboard's variables.
type Query struct {
	RefID string    `json:"-"`
	Type  QueryType `json:"queryType"`
	// Experiments, Clusters, Namespaces and Teams choose; an empty list chooses all. Names are
	// compared as they are: nothing in them is a pattern.
	Experiments []string `json:"experiments,omitempty"`
	Clusters    []string `json:"clusters,omitempty"`
	Namespaces  []string `json:"namespaces,omitempty"`
	Teams       []string `json:"teams,omitempty"`
	// Search is part of an experiment's name, for type experiments; upper and lower case are one.
	Search string `json:"search,omitempty"`
	// Metric is for gpu_timeseries, compare and stragglers; util where it is empty.
	Metric Metric `json:"metric,omitempty"`
	// GroupBy is for gpu_timeseries: labels of GroupLabels; where it is empty, experiment.
	GroupBy []string `json:"groupBy,omitempty"`
	// View is one of Views[Type].
	View string `json:"view,omitempty"`
	// Rank is "top" or "bottom" (or empty: all, under the settings' MaxSeries) and K how many, of
	// gpu_timeseries and network.
	Rank string `json:"rank,omitempty"`
	K    int    `json:"k,omitempty"`
	// Limit is the most rows of a table; 0 means the settings' MaxRows.
	Limit int `json:"limit,omitempty"`
	// Expr is the text of a promql query; Legend names its series ({{label}}), Instant asks for one
	// moment.
	Expr    string `json:"expr,omitempty"`
	Legend  string `json:"legend,omitempty"`
	Instant bool   `json:"instant,omitempty"`
}

// ParseQuery reads the JSON of a query. kind is the query's type as Grafana's protocol has it
// beside the JSON; where both are there, they must be equal.
func ParseQuery(refID, kind string, raw []byte) (Query, error) {
	q := Query{}
	if err := json.Unmarshal(raw, &q); err != nil {
		return q, fmt.Errorf("query %s is not what this datasource's editor writes: %w", refID, err)
	}
	q.RefID = refID
	if q.Type == "" {
		q.Type = QueryType(kind)
	}
	if q.Type == "" {
		q.Type = Experiments
	}
	if err := q.validate(); err != nil {
		return q, fmt.Errorf("query %s: %w", refID, err)
	}
	return q, nil
}

// variable is a variable as a dashboard writes it, and nothing else.
var variable = regexp.MustCompile(`^(\$\w+|\$\{[^{}]+\}|\[\[[^\[\]]+\]\])$`)

func (q *Query) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains(QueryTypes, q.Type) {
		bad("queryType: %q is unknown; known are %s", q.Type, join(QueryTypes))
	}
	for _, list := range []struct {
		name  string
		names []string
	}{{"experiments", q.Experiments}, {"clusters", q.Clusters}, {"namespaces", q.Namespaces}, {"teams", q.Teams}} {
		if len(list.names) > MaxNames {
			bad("%s: %d names are more than %d; choose fewer, or none for all", list.name, len(list.names), MaxNames)
		}
		for i, n := range list.names {
			if len(n) > MaxNameBytes || !utf8.ValidString(n) {
				bad("%s[%d]: a name is UTF-8 text of at most %d bytes", list.name, i, MaxNameBytes)
			}
			if variable.MatchString(n) {
				bad("%s[%d]: a dashboard's variable was not replaced (%s): public dashboards and alert rules have none; choose names", list.name, i, n)
			}
		}
	}
	// A variable that could not be filled: it would choose the pods that have no team.
	if slices.Contains(q.Teams, "") {
		bad("teams: an empty name is no team; choose a team, or unassigned for what has none")
	}
	if len(q.Search) > MaxNameBytes {
		bad("search: more than %d bytes", MaxNameBytes)
	}
	if q.Metric == "" {
		q.Metric = Util
	}
	if !slices.Contains(Metrics, q.Metric) {
		bad("metric: %q is unknown; known are %s", q.Metric, join(Metrics))
	}
	for i, by := range q.GroupBy {
		if !slices.Contains(GroupLabels, by) {
			bad("groupBy[%d]: %q is none of %s", i, by, strings.Join(GroupLabels, ", "))
		}
	}
	if q.Type == GPUTimeSeries && len(q.GroupBy) == 0 {
		q.GroupBy = []string{"experiment"}
	}
	if views := Views[q.Type]; len(views) > 0 {
		if q.View == "" {
			q.View = views[0]
		}
		if !slices.Contains(views, q.View) {
			bad("view: %q is none of %s", q.View, strings.Join(views, ", "))
		}
	}
	switch {
	case q.Rank != "" && q.Rank != "top" && q.Rank != "bottom":
		bad(`rank: %q is neither "top" nor "bottom"; leave it out for all`, q.Rank)
	case q.Rank != "" && q.K == 0:
		q.K = 10
	}
	if q.K < 0 || q.K > MaxK {
		bad("k: %d is outside 1 to %d", q.K, MaxK)
	}
	if q.Limit < 0 {
		bad("limit: %d is negative; leave it out for the datasource's own", q.Limit)
	}
	// Fewer than two are answered: a dashboard opens with one, and the answer says what to choose.
	if n := len(q.Experiments); q.Type == Compare && n > MaxCompared {
		bad("experiments: a comparison is of 2 to %d runs, and %d are chosen", MaxCompared, n)
	}
	if q.Type == PromQL && strings.TrimSpace(q.Expr) == "" {
		bad("expr: empty; write PromQL, such as avg by (node) (experiment:gpu:util{$__experiment})")
	}
	return errors.Join(errs...)
}

func join[S ~string](list []S) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}
