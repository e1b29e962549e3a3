package usage

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Version is the value of the field v. It changes when the meaning of a field does. Lines that were
// written before there were Nameless and Cut have neither: their lists are complete, however long.
const Version = 1

// MaxQueryBytes is the longest query text in a line; what is longer is cut at a rune boundary and
// ends in CutMark.
const MaxQueryBytes = 8 << 10

// CutMark ends a query text that was cut. No PromQL outside a string has this character, so such a
// text does not parse by accident.
const CutMark = "…"

// Inventory is the Purpose of a request by which spillway relabel asks what is stored. It asks for
// every name there is, so that such a request is no use of anything.
const Inventory = "inventory"

// Explain is the Purpose of a request that asked for the plan of a query alone. Nobody has seen an
// answer, so that it is no use of anything.
const Explain = "explain"

// Agent is the Purpose of a request by which a language model asks, through a server of tools that
// says so. It is a use like any other.
const Agent = "agent"

// Lost is the Purpose of a line that is no request's: from Time on, for RangeSeconds, as many
// requests as Lost says were left out.
const Lost = "lost"

// Record is one request. All fields stand in every line, in this order; lists are sorted, without
// duplicates, and [] where there is nothing.
type Record struct {
	// V is Version; Write sets it.
	V int `json:"v"`
	// Time is when the request arrived, UTC, in milliseconds.
	Time time.Time `json:"time"`
	// ID is the request's id, as in the list of live queries and in the process' log.
	ID string `json:"id"`
	// Tenant is the tenant that the request was authenticated as.
	Tenant string `json:"tenant"`
	// User, Dashboard, Panel and Rule are what the caller claims, see package identity.
	User      string `json:"user"`
	Dashboard string `json:"dashboard"`
	Panel     string `json:"panel"`
	Rule      string `json:"rule"`
	// Endpoint is the endpoint's name, such as query_range.
	Endpoint string `json:"endpoint"`
	// Facts are what the query or the selectors look at.
	Facts
	// RangeSeconds is the time from start to end as it was asked of the shards; 0 for an instant.
	RangeSeconds float64 `json:"range_s"`
	// StepSeconds is the resolution of query_range; 0 elsewhere.
	StepSeconds float64 `json:"step_s"`
	// Series is how many series, names or values the shards sent.
	Series int64 `json:"series"`
	// Samples is how many samples they sent.
	Samples int64 `json:"samples"`
	// Bytes is how many bytes they sent.
	Bytes int64 `json:"bytes"`
	// ShardSeconds is the time that calls to shards took, all of them added.
	ShardSeconds float64 `json:"shard_s"`
	// PeakBytes is the most memory that was charged to the request at once.
	PeakBytes int64 `json:"peak_bytes"`
	// Verdict is pass, clamp or refuse.
	Verdict string `json:"verdict"`
	// Bound is the limit that clamped or refused; empty where none did.
	Bound string `json:"bound"`
	// Claimed tells that some of User, Dashboard, Panel and Rule was said by a caller that is not
	// known to be allowed to say it.
	Claimed bool `json:"claimed"`
	// Purpose is Inventory, Explain, Agent, Lost, or empty: somebody wanted to know something.
	Purpose string `json:"purpose"`
	// Lane is the lane that the request came in; empty where it was refused before.
	Lane string `json:"lane"`
	// Shadow are the bounds in shadow that would have refused or cut the answer.
	Shadow []string `json:"shadow"`
	// EstimatedBy is what the request's estimate was made from: text, shape, sketch or guess; empty
	// where there was none.
	EstimatedBy string `json:"estimated_by"`
	// EstimatedSeries, EstimatedSamples, EstimatedBytes and EstimatedShardSeconds are what Series,
	// Samples, Bytes and ShardSeconds were expected to be before shards were asked.
	EstimatedSeries       int64   `json:"estimated_series"`
	EstimatedSamples      int64   `json:"estimated_samples"`
	EstimatedBytes        int64   `json:"estimated_bytes"`
	EstimatedShardSeconds float64 `json:"estimated_shard_s"`
	// EstimatedGiBSeconds is how much memory shards were expected to hold, for how long.
	EstimatedGiBSeconds float64 `json:"estimated_shard_gib_s"`
	// Lost is how many requests have no line, of a line with that Purpose; else 0.
	Lost int64 `json:"lost"`
	// Caller tells whose share of the log the line takes from. It is not written; 0 takes from
	// none.
	Caller uint64 `json:"-"`
}

// Facts are what a query looks at: all that drop rules need to know of it.
type Facts struct {
	// Query is the text as PromQL prints it, so that spacing and the order of matchers do not tell
	// queries apart; cut at MaxQueryBytes.
	Query string `json:"query"`
	// Metrics are the names selected, where the name is given: by equality or by a finite
	// alternation.
	Metrics []string `json:"metrics"`
	// Matchers are all other matchers, spelled as in PromQL, those on __name__ included that give
	// no finite list of names.
	Matchers []string `json:"matchers"`
	// Grouping are the labels that the query reads otherwise: in by, without, on, ignoring,
	// group_left, group_right, and by label functions.
	Grouping []string `json:"grouping"`
	// LE are the values of the label le that are selected one by one.
	LE []string `json:"le"`
	// Nameless tells that a selector has no matcher on the metric's name.
	Nameless bool `json:"nameless"`
	// Cut names the lists that are not complete, since they were too long: CutMetrics, CutMatchers,
	// grouping and le.
	Cut []string `json:"cut"`
}

// Line is the record as one line of the log, newline included. It never fails: numbers that JSON
// lacks become 0, and bytes that are not UTF-8 the replacement character.
func (r Record) Line() []byte {
	r.V = Version
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	if y := r.Time.Year(); y < 0 || y > 9999 { // time refuses to write these
		r.Time = time.Time{}
	}
	for _, f := range []*float64{&r.RangeSeconds, &r.StepSeconds, &r.ShardSeconds, &r.EstimatedShardSeconds, &r.EstimatedGiBSeconds} {
		if math.IsNaN(*f) || math.IsInf(*f, 0) {
			*f = 0
		}
	}
	for _, list := range []*[]string{&r.Metrics, &r.Matchers, &r.Grouping, &r.LE, &r.Cut, &r.Shadow} {
		if *list == nil {
			*list = []string{}
		}
	}
	r.Query = cut(r.Query)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // < and > are operators here, and the file is no web page
	if err := enc.Encode(r); err != nil {
		panic(err) // strings, finite numbers and a valid time always encode
	}
	return out.Bytes()
}

// cut shortens a query text to MaxQueryBytes, mark included.
func cut(s string) string {
	if len(s) <= MaxQueryBytes {
		return s
	}
	return clip.Prefix(s, MaxQueryBytes-len(CutMark)) + CutMark
}
