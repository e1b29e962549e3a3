package endpoint

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ID names a row of the endpoint table. It is also the value of the metric label endpoint and of
// the key under limits.endpoints.
type ID string

// The endpoints that Spillway serves. What is not here is 404.
const (
	Query             ID = "query"
	QueryRange        ID = "query_range"
	QueryExemplars    ID = "query_exemplars"
	Series            ID = "series"
	Labels            ID = "labels"
	LabelValues       ID = "label_values"
	SearchMetricNames ID = "search_metric_names"
	SearchLabelNames  ID = "search_label_names"
	SearchLabelValues ID = "search_label_values"
	Metadata          ID = "metadata"
	Rules             ID = "rules"
	Alerts            ID = "alerts"
	Targets           ID = "targets"
	TargetsMetadata   ID = "targets_metadata"
	ScrapePools       ID = "scrape_pools"
	Alertmanagers     ID = "alertmanagers"
	FormatQuery       ID = "format_query"
	ParseQuery        ID = "parse_query"
	Features          ID = "features"
	Read              ID = "read"
	Federate          ID = "federate"
	StatusBuildinfo   ID = "status_buildinfo"
	StatusTSDB        ID = "status_tsdb"
	StatusFlags       ID = "status_flags"
	StatusConfig      ID = "status_config"
	StatusRuntimeinfo ID = "status_runtimeinfo"
	StatusWALReplay   ID = "status_walreplay"
	Notifications     ID = "notifications"
	OpenAPIDocument   ID = "openapi"
)

// Caps on the shape of any request. They refuse with 400: no client of the field comes near them.
const (
	// MaxParameters is how many name=value pairs URL and body may have together.
	MaxParameters = 128
	// MaxMatches is how many different match[] selectors a request may have.
	MaxMatches = 64
	// MaxLabelNameBytes caps the decoded label name in a path.
	MaxLabelNameBytes = 1024
)

// Class groups endpoints by what they cost a shard. Shards admit each class separately.
type Class string

// The classes.
const (
	// ClassQuery evaluates PromQL over samples, or reads the exemplars that it selects: exact or
	// refused, never narrowed.
	ClassQuery Class = "query"
	// ClassBulk returns raw samples of whole series: remote read and federation. Like ClassQuery it
	// is never narrowed.
	ClassBulk Class = "bulk"
	// ClassMetadata walks the index: series, label names and values. It is answered within bounds.
	ClassMetadata Class = "metadata"
	// ClassStatus reads small things that a shard has at hand: rules, targets, build information.
	ClassStatus Class = "status"
	// ClassLocal is answered without asking any shard.
	ClassLocal Class = "local"
)

// Decode names the shape of a shard's answer.
type Decode string

// The shapes.
const (
	// DecodeNone is for endpoints that ask no shard.
	DecodeNone Decode = "none"
	// DecodeQuery is {resultType, result}: vector, matrix, scalar or string.
	DecodeQuery Decode = "query"
	// DecodeExemplars is a list of {seriesLabels, exemplars}.
	DecodeExemplars Decode = "exemplars"
	// DecodeLabelSets is a list of label sets.
	DecodeLabelSets Decode = "label_sets"
	// DecodeStrings is a sorted list of strings.
	DecodeStrings Decode = "strings"
	// DecodeSearch is lines of JSON: batches of what was found, in order, and a last line that says
	// whether there is more.
	DecodeSearch Decode = "search"
	// DecodeMetadata is a map from metric to a list of {type, help, unit}.
	DecodeMetadata Decode = "metadata"
	// DecodeRules is {groups, groupNextToken}.
	DecodeRules Decode = "rules"
	// DecodeAlerts is {alerts}.
	DecodeAlerts Decode = "alerts"
	// DecodeTargets is {activeTargets, droppedTargets, droppedTargetCounts}.
	DecodeTargets Decode = "targets"
	// DecodeTargetsMetadata is a list of {target, metric, type, help, unit}.
	DecodeTargetsMetadata Decode = "targets_metadata"
	// DecodeScrapePools is {scrapePools}.
	DecodeScrapePools Decode = "scrape_pools"
	// DecodeAlertmanagers is {activeAlertmanagers, droppedAlertmanagers}.
	DecodeAlertmanagers Decode = "alertmanagers"
	// DecodeFeatures is a map from category to a map from feature to bool.
	DecodeFeatures Decode = "features"
	// DecodeBuildinfo is the object of status/buildinfo.
	DecodeBuildinfo Decode = "buildinfo"
	// DecodeTSDB is the object of status/tsdb.
	DecodeTSDB Decode = "tsdb"
	// DecodeRead is remote read's answer: snappy-compressed samples or streamed chunks.
	DecodeRead Decode = "read"
	// DecodeExposition is the text exposition format.
	DecodeExposition Decode = "exposition"
)

// Merge names how the answers of several shards become one.
type Merge string

// The ways to merge.
const (
	// MergeNone is for endpoints that ask no shard.
	MergeNone Merge = "none"
	// MergePlan is what the plan of the query says: pass, splice, push or raw.
	MergePlan Merge = "plan"
	// MergeSeries joins lists of series by label set: equal ones become one.
	MergeSeries Merge = "series"
	// MergeSorted joins sorted lists of strings: equal ones become one.
	MergeSorted Merge = "sorted"
	// MergeSearch joins what was found in the order that was asked for: equal ones become one.
	MergeSearch Merge = "search"
	// MergeMap joins maps; lists under an equal key are joined, equal elements once.
	MergeMap Merge = "map"
	// MergeRules joins rule groups and alerts of replicas by file, group and labels; the most
	// urgent state wins.
	MergeRules Merge = "rules"
	// MergeConcat lists everything, equal elements once.
	MergeConcat Merge = "concat"
	// MergeLowest takes the answer with the lowest version.
	MergeLowest Merge = "lowest"
	// MergeCommon keeps what all have.
	MergeCommon Merge = "common"
	// MergeSum adds the numbers of equal names and keeps the greatest.
	MergeSum Merge = "sum"
)

// Endpoint is a row of the table.
type Endpoint struct {
	// ID names the row.
	ID ID
	// Path is the canonical path; {name} stands for a label name.
	Path string
	// Methods are the allowed ones; everything else is 405 with these as Allow.
	Methods []string
	// Params are the parameters it takes. Others are dropped, or refused where parameters are
	// strict; see Ignored.
	Params []Param
	// Class is what it costs.
	Class Class
	// Decode is the shape of a shard's answer.
	Decode Decode
	// Merge is how answers are joined.
	Merge Merge
	// Selects is what it makes of stored series.
	Selects Selects
	// Span is how a request says which time it looks at.
	Span Span
	// Blames is the parameter that Prometheus names before what is wrong with an expression or a
	// selector; empty where it gives the bare error.
	Blames string
	// Inventory tells that spillway relabel asks it to take stock. It asks no queries: a query with
	// its mark is a use like any other.
	Inventory bool
	// Whole tells that it answers about the servers themselves or about all that they hold, so that
	// a caller that may see only a part may not ask it.
	Whole bool
	// Media is the type of its answers where they are not JSON.
	Media string
	// Limits are its own where the configuration overrides nothing.
	Limits Limits
	// Doc is one or two sentences for the documentation.
	Doc string

	// post tells that Prometheus takes the parameters as a form too, so Write may send long ones in
	// a body. label values is not: Spillway serves POST there because Grafana sends it, Prometheus
	// does not.
	post   bool
	sorted []int // Params by name, as a query string has them
	promql bool  // one of Params is PromQL
	// snappy tells that the body is remote read's, not a form.
	snappy bool
	// check looks at what no single parameter shows.
	check func(*Request) error
}

var (
	get     = []string{http.MethodGet}
	getPost = []string{http.MethodGet, http.MethodPost}
	post    = []string{http.MethodPost}
)

// Table is every endpoint that Spillway serves, in the order of the documentation. It must not be
// changed.
var Table = []Endpoint{
	{
		ID: Query, Path: "/api/v1/query", Methods: getPost, post: true, Class: ClassQuery, Decode: DecodeQuery, Merge: MergePlan,
		Selects: SelectsComputed, Span: SpanInstant, Blames: "query",
		Doc: "Evaluates an expression at one instant.",
		Params: []Param{
			promqlParam(),
			timeParam("time", "The instant; now where absent.", func(r *Request) *Time { return &r.Time }),
			timeoutParam(),
			lookbackParam(),
			limitParam("Cuts the answer to so many series, with a warning; 0 is no limit. It never changes what is evaluated."),
			statsParam(),
			partialParam(),
		},
	},
	{
		ID: QueryRange, Path: "/api/v1/query_range", Methods: getPost, post: true, Class: ClassQuery, Decode: DecodeQuery, Merge: MergePlan,
		Selects: SelectsComputed, Span: SpanSteps, Blames: "query",
		Doc: "Evaluates an expression at every step of a time range.",
		Params: []Param{
			promqlParam(), required(startParam()), required(endParam()),
			required(durationParam("step", "15", "The resolution; above zero, cut to whole milliseconds.", parseStep, func(r *Request) *time.Duration { return &r.Step })),
			timeoutParam(), lookbackParam(),
			limitParam("Cuts the answer to so many series, with a warning; 0 is no limit. It never changes what is evaluated."),
			statsParam(), partialParam(),
		},
		check: orderedRange,
	},
	{
		ID: QueryExemplars, Path: "/api/v1/query_exemplars", Methods: getPost, post: true, Class: ClassQuery, Decode: DecodeExemplars,
		Merge:   MergeSeries,
		Selects: SelectsStored, Span: SpanRange, Limits: Limits{Timeout: 10 * time.Second, MaxSeries: 10_000, MaxResponseBytes: 16 << 20},
		Doc:    "Exemplars of the series that an expression selects.",
		Params: []Param{promqlParam(), startParam(), endParam(), timeoutParam(), partialParam()},
		check:  orderedRange,
	},
	{
		ID: Series, Path: "/api/v1/series", Methods: getPost, post: true, Class: ClassMetadata, Decode: DecodeLabelSets, Merge: MergeSeries,
		Selects: SelectsListed, Span: SpanRange, Blames: "match[]", Inventory: true,
		Limits: Limits{Timeout: 10 * time.Second, MaxSeries: 10_000, MaxResponseBytes: 32 << 20},
		Doc:    "The label sets of the series that a selector matches in a time range.",
		Params: []Param{
			required(matchParam("Selectors; a series needs to match one of them.")).with(func(p *Param) { p.missing = errNoMatch }),
			startParam(), listedEndParam(), limitParam(limitDoc), timeoutParam(), partialParam(),
		},
	},
	{
		ID: Labels, Path: "/api/v1/labels", Methods: getPost, post: true, Class: ClassMetadata, Decode: DecodeStrings, Merge: MergeSorted,
		Selects: SelectsListed, Span: SpanRange, Inventory: true, Limits: Limits{Timeout: 10 * time.Second, MaxResponseBytes: 32 << 20},
		Doc: "The label names of the series that a selector matches in a time range.",
		Params: []Param{
			matchParam("Selectors; a series needs to match one of them. Where absent, all series count."),
			startParam(), listedEndParam(), limitParam(limitDoc), timeoutParam(), partialParam(),
		},
	},
	{
		ID: LabelValues, Path: "/api/v1/label/{name}/values", Methods: getPost, Class: ClassMetadata, Decode: DecodeStrings,
		Merge:   MergeSorted,
		Selects: SelectsListed, Span: SpanRange, Inventory: true, Limits: Limits{Timeout: 10 * time.Second, MaxResponseBytes: 32 << 20},
		Doc: "The values that a label has in a time range. A name beyond letters, digits and underscores is written U__http_2e_status, " +
			"or as it is (http.status) with percent-encoding only for what a URL cannot have: letters, digits, `-`, `.`, `_` and `~` that are percent-encoded are 404, and so are `/`, `\\` and `%`. " +
			"POST is served for Grafana, which sends it with an empty body; Prometheus has only GET.",
		Params: []Param{
			matchParam("Selectors; a series needs to match one of them. Where absent, all series count."),
			startParam(), listedEndParam(), limitParam(limitDoc), timeoutParam(), partialParam(),
		},
	},
	{
		ID: SearchMetricNames, Path: "/api/v1/search/metric_names", Methods: getPost, post: true, Class: ClassMetadata,
		Decode: DecodeSearch, Merge: MergeSearch, Media: ndjsonType,
		Selects: SelectsListed, Span: SpanRange, Limits: searchLimits,
		Doc: "The metric names that are like a text, " + searchDoc,
		Params: searchParams(filterParam("include_metadata", KindBool, "true", "Gives type, help and unit of each metric where a server scrapes it now; not to tenants with matchers.",
			boolWord)),
		check: searchRules,
	},
	{
		ID: SearchLabelNames, Path: "/api/v1/search/label_names", Methods: getPost, post: true, Class: ClassMetadata,
		Decode: DecodeSearch, Merge: MergeSearch, Media: ndjsonType,
		Selects: SelectsListed, Span: SpanRange, Limits: searchLimits,
		Doc:    "The label names that are like a text, " + searchDoc,
		Params: searchParams(),
		check:  searchRules,
	},
	{
		ID: SearchLabelValues, Path: "/api/v1/search/label_values", Methods: getPost, post: true, Class: ClassMetadata,
		Decode: DecodeSearch, Merge: MergeSearch, Media: ndjsonType,
		Selects: SelectsListed, Span: SpanRange, Limits: searchLimits,
		Doc: "The values of one label that are like a text, " + searchDoc,
		Params: searchParams(required(textParam("label", MaxLabelNameBytes, "instance", "The label, as it is: U__ has no meaning here.",
			func(r *Request) *string { return &r.Label })).with(func(p *Param) { p.missing = errNoLabel })),
		check: searchRules,
	},
	{
		ID: Metadata, Path: "/api/v1/metadata", Methods: get, Class: ClassStatus, Decode: DecodeMetadata, Merge: MergeMap,
		Selects: SelectsNothing, Span: SpanNone, Inventory: true, Limits: Limits{Timeout: 10 * time.Second, MaxResponseBytes: 32 << 20},
		Doc: "Type, help and unit of the metrics that are scraped now.",
		Params: []Param{
			metricParam(), limitParam("At most so many metrics; 0 is Spillway's own limit."),
			numberParam("limit_per_metric", "At most so many entries for one metric; 0 is all.",
				func(r *Request) *int { return &r.LimitPerMetric }),
			timeoutParam(), partialParam(),
		},
	},
	{
		ID: Rules, Path: "/api/v1/rules", Methods: get, Class: ClassStatus, Decode: DecodeRules, Merge: MergeRules,
		Selects: SelectsNothing, Span: SpanNone, Limits: Limits{Timeout: 10 * time.Second},
		Doc: "The rule groups of all shards, with their alerts.",
		Params: []Param{
			enumParam("type", "alert", "alert or record.", oneOf, "alert", "record"),
			filterList("rule_name[]", KindText, "NodeDown", "Only rules of these names."),
			filterList("rule_group[]", KindText, "nodes", "Only groups of these names."),
			filterList("file[]", KindText, "/etc/prometheus/rules.yml", "Only groups of these files."),
			filterList("match[]", KindSelector, `{severity="page"}`,
				"Only rules whose labels match.").with(func(p *Param) { p.MaxCount = MaxMatches }),
			filterParam("exclude_alerts", KindBool, "true", "Leaves the alerts out.", boolText),
			boundedParam("group_limit", "100", "At most so many groups.", 1, math.MaxInt32),
			filterParam("group_next_token", KindText, "a3f1", "Where the page before ended; needs group_limit.", anyText),
			timeoutParam(), partialParam(),
		},
		check: pagedRules,
	},
	{
		ID: Alerts, Path: "/api/v1/alerts", Methods: get, Class: ClassStatus, Decode: DecodeAlerts, Merge: MergeRules,
		Selects: SelectsNothing, Span: SpanNone, Limits: Limits{Timeout: 10 * time.Second},
		Doc:    "The pending and firing alerts of all shards.",
		Params: []Param{timeoutParam(), partialParam()},
	},
	{
		ID: Targets, Path: "/api/v1/targets", Methods: get, Class: ClassStatus, Decode: DecodeTargets, Merge: MergeConcat,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Inventory: true, Limits: Limits{Timeout: 10 * time.Second},
		Doc: "The scrape targets of all shards.",
		Params: []Param{
			enumParam("state", "active", "active, dropped or any.", oneOf, "active", "dropped", "any"),
			filterParam("scrapePool", KindText, "node", "Only targets of this scrape pool.", anyText),
			timeoutParam(), partialParam(),
		},
	},
	{
		ID: TargetsMetadata, Path: "/api/v1/targets/metadata", Methods: get, Class: ClassStatus, Decode: DecodeTargetsMetadata,
		Merge:   MergeConcat,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Blames: "match_target",
		Limits: Limits{Timeout: 10 * time.Second, MaxResponseBytes: 32 << 20},
		Doc:    "Type, help and unit of metrics, by target.",
		Params: []Param{
			{
				Name: "match_target", Kind: KindSelector, Example: `{job="node"}`, Doc: "Only targets whose labels match.",
				set: func(r *Request, v []string) error { r.Match = v[:1:1]; return nil },
				get: func(r *Request) []string { return r.Match },
			},
			metricParam(), limitParam("At most so many entries; 0 is Spillway's own limit."), timeoutParam(), partialParam(),
		},
	},
	{
		ID: ScrapePools, Path: "/api/v1/scrape_pools", Methods: get, Class: ClassStatus, Decode: DecodeScrapePools, Merge: MergeSorted,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 10 * time.Second},
		Doc:    "The names of the scrape pools of all shards, sorted, each once. Prometheus has it since 2.43.",
		Params: []Param{timeoutParam(), partialParam()},
	},
	{
		ID: Alertmanagers, Path: "/api/v1/alertmanagers", Methods: get, Class: ClassStatus, Decode: DecodeAlertmanagers, Merge: MergeConcat,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 10 * time.Second},
		Doc: "The Alertmanagers that the servers send to, and those that their relabelling drops: of all shards and all replicas that can be asked, " +
			"each URL once in a list, sorted. One that some servers send to and others drop is in both.",
		Params: []Param{timeoutParam(), partialParam()},
	},
	{
		ID: FormatQuery, Path: "/api/v1/format_query", Methods: getPost, post: true, Class: ClassLocal, Decode: DecodeNone,
		Merge:   MergeNone,
		Selects: SelectsNothing, Span: SpanNone, Blames: "query", Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "The expression, laid out as Prometheus does.", Params: []Param{promqlParam()},
	},
	{
		ID: ParseQuery, Path: "/api/v1/parse_query", Methods: getPost, post: true, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Span: SpanNone, Blames: "query", Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 16 << 20},
		Doc: "The syntax tree of the expression.", Params: []Param{promqlParam()},
	},
	{
		ID: Features, Path: "/api/v1/features", Methods: get, Class: ClassStatus, Decode: DecodeFeatures, Merge: MergeCommon,
		Selects: SelectsNothing, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "The features that all shards have. What Spillway serves itself (search, the OpenAPI document) is true, and what it never serves (writing, the admin API, lifecycle, Prometheus' pages) false.", Params: []Param{timeoutParam(), partialParam()},
	},
	{
		ID: Read, Path: "/api/v1/read", Methods: post, snappy: true, Class: ClassBulk, Media: protoType,
		Decode: DecodeRead, Merge: MergeSeries,
		Selects: SelectsStored, Span: SpanQueries, Inventory: true,
		Doc: "Remote read: a snappy-compressed ReadRequest with at most 16 queries; the answer is sampled or streamed, as the request accepts.",
	},
	{
		ID: Federate, Path: "/federate", Methods: get, Class: ClassBulk, Decode: DecodeExposition, Merge: MergeSeries, Media: "text/plain",
		Selects: SelectsStored, Span: SpanRecent,
		Doc: "The newest sample of the series that a selector matches, in the exposition format. Without match[] it is empty, as in Prometheus. " +
			"What is a warning elsewhere is a comment before the samples, and nothing in protobuf; where a shard is missing (partial_response=true) there is the header " +
			"`X-Spillway-Partial: true`, too. A scraper looks at neither: let it have an error.",
		Params: []Param{matchParam("Selectors; a series needs to match one of them."), timeoutParam(), partialParam()},
	},
	{
		ID: StatusBuildinfo, Path: "/api/v1/status/buildinfo", Methods: get, Class: ClassStatus, Decode: DecodeBuildinfo,
		Merge:   MergeLowest,
		Selects: SelectsNothing, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "The lowest version among the shards.", Params: []Param{timeoutParam(), partialParam()},
	},
	{
		ID: StatusTSDB, Path: "/api/v1/status/tsdb", Methods: get, Class: ClassStatus, Decode: DecodeTSDB, Merge: MergeSum,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 10 * time.Second, MaxResponseBytes: 8 << 20},
		Doc: "What the heads of the shards hold, added up.",
		Params: []Param{
			boundedParam("limit", "10", "How many names each list has, 1 to 10000; 10 where absent.", 1, 10000),
			timeoutParam(), partialParam(),
		},
	},
	{
		ID: StatusFlags, Path: "/api/v1/status/flags", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "Spillway's own flags.",
	},
	{
		ID: StatusConfig, Path: "/api/v1/status/config", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 8 << 20},
		Doc: "Spillway's own configuration, secrets starred.",
	},
	{
		ID: StatusRuntimeinfo, Path: "/api/v1/status/runtimeinfo", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "Spillway's own process.",
	},
	{
		ID: StatusWALReplay, Path: "/api/v1/status/walreplay", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Whole: true, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "Always done: Spillway has no write-ahead log.",
	},
	{
		ID: Notifications, Path: "/api/v1/notifications", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Span: SpanNone, Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc: "Always an empty list: Spillway has no notifications of its own, and a server's are about its own configuration and start. " +
			"How the servers fare is on the admin listener, at `/api/spillway/v1/shards`.",
	},
	{
		ID: OpenAPIDocument, Path: "/api/v1/openapi.yaml", Methods: get, Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone,
		Selects: SelectsNothing, Span: SpanNone, Media: "application/yaml",
		Limits: Limits{Timeout: 5 * time.Second, MaxResponseBytes: 1 << 20},
		Doc:    "This table as an OpenAPI document: what is served here, with all parameters and their bounds.",
		Params: []Param{filterParam("openapi_version", KindText, "3.1", "3.1 (the default, as anything else) or 3.2.", anyText).
			with(func(p *Param) { p.MaxBytes = 64 })},
	},
}

// Ignored are parameters that clients of the field send to other servers of this API and that
// change nothing about which data is meant: how Thanos deduplicates and plans, how VictoriaMetrics
// rounds and caches, how Mimir warns, how old browsers avoid caches. They are accepted everywhere,
// strict or not, and never sent on. Parameters that select data elsewhere, such as namespace,
// storeMatch[] or extra_label, are not among them.
var Ignored = []string{
	"_", "analyze", "dedup", "engine", "explain", "max_samples_processed_error_threshold", "max_samples_processed_warning_threshold",
	"max_source_resolution", "nocache", "replicaLabels[]", "round_digits", "step", "subtype", "timeout",
}

const limitDoc = "At most so many; Spillway's own limit where absent, 0 or larger."

func metricParam() Param {
	return textParam("metric", 4096, "up", "Only this metric.", func(r *Request) *string { return &r.Metric })
}

// Get returns the row of the ID, nil if there is none.
func Get(id ID) *Endpoint { return byID[id] }

var byID, byPath = index(Table)

func index(table []Endpoint) (ids map[ID]*Endpoint, paths map[string]*Endpoint) {
	ids, paths = make(map[ID]*Endpoint, len(table)), make(map[string]*Endpoint, len(table))
	for i := range table {
		ids[table[i].ID] = &table[i]
		paths[table[i].Path] = &table[i] // the template of label values has braces, which no EscapedPath has
		for j := range table[i].Params {
			table[i].Params[j].escaped = url.QueryEscape(table[i].Params[j].Name)
			table[i].sorted = append(table[i].sorted, j)
			table[i].promql = table[i].promql || table[i].Params[j].Kind == KindPromQL
		}
		slices.SortFunc(table[i].sorted, func(a, b int) int { return strings.Compare(table[i].Params[a].Name, table[i].Params[b].Name) })
	}
	return ids, paths
}
