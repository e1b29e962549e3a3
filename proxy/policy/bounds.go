package policy

// The bounds that a refusal, a warning or an overload can name, across all of Spillway. Each has a
// page docs/bounds/<name>.md; a test compares the two.
const (
	// BoundTimeout is the time one request may take, limits.timeout.
	BoundTimeout = "timeout"
	// BoundMaxSeries is the number of series one request may hold or return, limits.max_series.
	BoundMaxSeries = "max_series"
	// BoundMaxSamples is the number of samples one request may hold, limits.max_samples.
	BoundMaxSamples = "max_samples"
	// BoundMaxResponseBytes is the size of what one request reads from shards or returns,
	// limits.max_response_bytes.
	BoundMaxResponseBytes = "max_response_bytes"
	// BoundMaxSeriesTouched is how many series shards select for one query,
	// limits.max_series_touched.
	BoundMaxSeriesTouched = "max_series_touched"
	// BoundMaxShardBytes is what one request makes one server hold, limits.max_shard_bytes.
	BoundMaxShardBytes = "max_shard_bytes"
	// BoundMaxRange is the longest stretch of time, limits.max_range.
	BoundMaxRange = "max_range"
	// BoundMetadataRange is the stretch of time that metadata is looked up in where no metric is
	// named, limits.metadata_range.
	BoundMetadataRange = "metadata_range"
	// BoundMaxQueryBytes is the length of a query text, limits.max_query_bytes.
	BoundMaxQueryBytes = "max_query_bytes"
	// BoundMaxPoints is the number of evaluation steps of a range query or subquery.
	BoundMaxPoints = "max_points"
	// BoundQueryShape is the number of operators, nesting levels, tokens and matchers of a query
	// text.
	BoundQueryShape = "query_shape"
	// BoundQueryLeaves is the number of selectors of a query text.
	BoundQueryLeaves = "query_leaves"
	// BoundRegexCost is the compiled size of the regular expressions of a request.
	BoundRegexCost = "regex_cost"
	// BoundLabelBytes is the size of the labels and of the series that an expression makes.
	BoundLabelBytes = "label_bytes"
	// BoundUnselective refuses selectors that select nothing in particular, limits.unselective.
	BoundUnselective = "unselective"
	// BoundUnselectiveSlots is the number of unselective metadata calls at once per replica.
	BoundUnselectiveSlots = "unselective_slots"
	// BoundReadSlots is the number of remote reads at once per replica.
	BoundReadSlots = "read_slots"
	// BoundEvaluations is the number of long evaluations that run at once.
	BoundEvaluations = "evaluations"
	// BoundReplicaCalls is the number of calls at once per replica, of all requests together.
	BoundReplicaCalls = "replica_calls"
	// BoundProcessCalls is the number of calls at once to all shards.
	BoundProcessCalls = "process_calls"
	// BoundQuarantine refuses for a while what a server was working on when it ended.
	BoundQuarantine = "quarantine"
	// BoundDenyRule refuses what whoever runs Spillway has forbidden, by the rule's name.
	BoundDenyRule = "deny_rule"
	// BoundMemoryBudget is the memory that all requests together hold, memory.budget.
	BoundMemoryBudget = "memory.budget"
	// BoundMemoryHeap is the memory that the process may really hold.
	BoundMemoryHeap = "memory.heap"
	// BoundLabelCollision refuses answers in which two series become one when replica labels are
	// removed.
	BoundLabelCollision = "label_collision"
	// BoundThanosRaw refuses requests that need series of a shard that serves finished answers
	// only.
	BoundThanosRaw = "thanos_raw"
	// BoundBody is the size of a request body.
	BoundBody = "body"
)

// Bounds returns the name of every bound, in an order that means nothing but is always the same.
func Bounds() []string {
	return []string{
		BoundTimeout, BoundMaxSeries, BoundMaxSamples, BoundMaxResponseBytes, BoundMaxSeriesTouched, BoundMaxShardBytes, BoundMaxRange,
		BoundMetadataRange, BoundMaxQueryBytes, BoundMaxPoints, BoundQueryShape, BoundQueryLeaves, BoundRegexCost, BoundLabelBytes,
		BoundUnselective, BoundUnselectiveSlots, BoundReadSlots, BoundEvaluations,
		BoundQuarantine, BoundDenyRule, BoundReplicaCalls, BoundProcessCalls, BoundMemoryBudget, BoundMemoryHeap, BoundLabelCollision,
		BoundThanosRaw, BoundBody,
	}
}

// CapacityBounds are the bounds that say how much Spillway and its servers can do at once, whatever
// is asked: 429, and trying again makes sense. The others say what one request may ask for. Alerts
// and dashboards tell the two apart by jsonnet/lib/bounds.libsonnet, which a test compares with
// this.
func CapacityBounds() []string {
	return []string{
		BoundMemoryBudget, BoundMemoryHeap, BoundEvaluations, BoundProcessCalls, BoundReplicaCalls, BoundReadSlots,
		BoundUnselectiveSlots,
	}
}

// checks are all rules in the order in which they are asked: what is cheap to find out stands
// before what is dear, and nothing that reads a text stands before what bounds its length.
// CONTRIBUTING.md has what a new one needs.
var checks = []Check{
	limitsSet{},     // fail closed: a bound that is not set is a fault of ours, never "unlimited"
	queryBytes{},    // a length comparison
	timeOrder{},     // start after end: 400 whatever the query says
	maxPoints{},     // start, end and step of query_range
	maxRange{},      // the range that the request itself asks for
	queryShape{},    // one pass of the lexer; makes the parser's quadratic roads short
	regexCost{},     // looks at each regular expression's text; the parser compiles them
	parses{},        // the parser; fills Expr and Selectors
	queryLeaves{},   // how many selectors it found
	noSelector{},    // what Prometheus rejects after parsing
	selectorRange{}, // windows inside the expression: ranges, subqueries, lookback
	subqueryCost{},  // steps that subqueries ask for
	labelBytes{},    // labels that the expression makes, and the regular expressions that make them
	unselective{},   // selectors that select nothing in particular
}

// Checks returns the rules in the order in which Decide asks them.
func Checks() []Check { return append([]Check(nil), checks...) }
