package trust

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
	interned "unique"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Engine is what decides what a server's PromQL means.
type Engine struct {
	// Lookback is the flag query.lookback-delta, such as 5m; empty while not known.
	Lookback string `json:"lookback,omitempty"`
	// EvaluationInterval is global.evaluation_interval, such as 1m: the step of a subquery that has
	// none. Empty while not known.
	EvaluationInterval string `json:"evaluationInterval,omitempty"`
	// Flags are the entries of --enable-feature that change what queries mean, sorted.
	Flags []string `json:"flags,omitempty"`
	// Gates are those that only let queries be written: without one the parser refuses them, and
	// all others mean what they mean with it. Sorted.
	Gates []string `json:"-"`
	// Features are the names under promql, promql_functions and promql_operators of the features
	// endpoint that are on, sorted; nil where it is not served (before 3.8).
	Features []string `json:"-"`
	// Known tells whether the flags were read.
	Known bool `json:"-"`
	// Thanos tells that its engine is that of an older Prometheus, and that it does not say which
	// functions it knows.
	Thanos bool `json:"-"`
	// Old tells that it is a Prometheus before 3.0, or a Thanos that is built on one, whose ranges,
	// subqueries and lookback include a sample at their left end.
	Old bool `json:"old,omitempty"`
	// Slots is how many queries the server evaluates at once; 0 where it does not say.
	Slots int `json:"-"`
	// Search tells that it says it serves the search API (--enable-feature=search-api), which
	// changes nothing about what queries mean.
	Search bool `json:"-"`

	// What flags and features were decoded from, by hash: they hardly ever change, and there may be
	// a thousand servers.
	flagsHash, featuresHash uint64
	key                     interned.Handle[string] // of all that is compared; zero where it was not sealed
}

// idle are the promql-… entries that change nothing in any version whose queries are compared here:
// at-modifier and negative-offset are permanent since 2.33.
var idle = []string{"promql-at-modifier", "promql-negative-offset", "promql-per-step-stats"}

// gates are those without which the parser refuses what they are named for, and which do nothing
// else. duration-expr is permanent since 3.14.
var gates = []string{
	"promql-binop-fill-modifiers", "promql-duration-expr", "promql-experimental-functions", "promql-extended-range-selectors",
}

var engineSeed = maphash.MakeSeed()

// ReadFlags takes in a server's answer to status/flags, and returns the flags where the answer
// differs from the last one and makes sense; else the engine stays as it is.
func (e *Engine) ReadFlags(raw []byte) (flags map[string]string) {
	h := maphash.Bytes(engineSeed, raw)
	if e.Known && h == e.flagsHash || json.Unmarshal(raw, &flags) != nil {
		return nil
	}
	e.flagsHash = h
	e.Known, e.Lookback, e.Flags, e.Gates = true, clip.Said(flags["query.lookback-delta"]), nil, nil
	for f := range strings.SplitSeq(flags["enable-feature"], ",") {
		f = strings.TrimSpace(f)
		switch {
		case slices.Contains(idle, f):
		case slices.Contains(gates, f):
			e.Gates = append(e.Gates, f)
		case strings.HasPrefix(f, "promql-"), f == "type-and-unit-labels", f == "use-start-timestamps":
			e.Flags = append(e.Flags, clip.Said(f))
		}
	}
	slices.Sort(e.Flags)
	slices.Sort(e.Gates)
	e.Slots = slotsOf(flags)
	return flags
}

// ReadFeatures takes in a server's answer to features; one that makes no sense changes nothing.
func (e *Engine) ReadFeatures(raw []byte) {
	h := maphash.Bytes(engineSeed, raw)
	var data map[string]map[string]bool
	if e.Features != nil && h == e.featuresHash || json.Unmarshal(raw, &data) != nil {
		return
	}
	e.Features, e.featuresHash, e.Search = []string{}, h, data["api"]["search"]
	for _, section := range []string{"promql", "promql_functions", "promql_operators"} {
		for name, on := range data[section] {
			if on && name != "per_step_stats" {
				e.Features = append(e.Features, section+"/"+clip.Said(name))
			}
		}
	}
	slices.Sort(e.Features)
}

// thanosNew is the first minor version of Thanos 0 that is built on Prometheus 3.
const thanosNew = 37

// ReadVersion takes in what the server says of its version, such as 3.15.0, or 0.42.4 of a Thanos.
func (e *Engine) ReadVersion(version string) {
	major, rest, ok := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	n, err := strconv.Atoi(major)
	if e.Old = ok && err == nil && n < 3; e.Thanos {
		minor, _, _ := strings.Cut(rest, ".")
		m, err := strconv.Atoi(minor)
		e.Old = e.Old && n == 0 && err == nil && m < thanosNew
	}
}

// slotsOf reads how many queries a server evaluates at once; 0 where it does not say.
func slotsOf(flags map[string]string) int {
	for _, name := range []string{"query.max-concurrency", "query.max-concurrent"} { // Prometheus' and Thanos' spelling
		if n, err := strconv.Atoi(flags[name]); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// Seal is called once all of it was read: of engines that are compared only those are looked at one
// by one that differ in what it makes, and of a thousand servers nearly all are equal. All but
// Slots and Search is in it, whatever fields there are.
func (e *Engine) Seal() {
	all := *e
	if all.Thanos || all.Features != nil { // what they say of functions is compared instead
		all.Gates = nil
	}
	all.Slots, all.Search, all.flagsHash, all.featuresHash, all.key = 0, false, 0, 0, interned.Handle[string]{}
	e.key = interned.Make(fmt.Sprintf("%#v", all))
}

// Same tells whether two sealed engines say the same: of one server, that nothing was learned.
func (e *Engine) Same(o *Engine) bool { return e.key == o.key }

// Differences says in what b differs from a, each a sentence about b; nil where it does not, or
// where too little is known.
func (b Engine) Differences(a Engine) []string {
	if !a.Known || !b.Known || b.Same(&a) {
		return nil
	}
	var out []string
	if !b.SameLookback(a) {
		out = append(out, fmt.Sprintf("query.lookback-delta is %s, not %s", b.Lookback, a.Lookback))
	}
	// A Thanos Query has one of its own, and no part of it in an answer: it is sent the step of
	// each subquery.
	if !a.Thanos && !b.Thanos && a.EvaluationInterval != "" && b.EvaluationInterval != "" && a.EvaluationInterval != b.EvaluationInterval {
		out = append(out, fmt.Sprintf("evaluation_interval, the step of subqueries without one, is %s, not %s", b.EvaluationInterval, a.EvaluationInterval))
	}
	if !slices.Equal(a.Flags, b.Flags) {
		out = append(out, otherFlags(a.Flags, b.Flags))
	}
	switch {
	case b.Old && !a.Old && b.Thanos:
		out = append(out, fmt.Sprintf("it is a Thanos before 0.%d, whose ranges include the sample at their left end as those of a Prometheus before 3.0 do; run 0.%[1]d or later", thanosNew))
	case b.Old && !a.Old:
		out = append(out, "it is a Prometheus before 3.0, whose ranges include the sample at their left end")
	case a.Old && !b.Old && !b.Thanos: // what is evaluated here is as in a Thanos since then
		out = append(out, "it is Prometheus 3.0 or later, and ranges of those before include the sample at their left end")
	}
	switch {
	case a.Thanos || b.Thanos: // it has no features endpoint, and refuses a function that it does not know by itself
	case a.Features == nil && b.Features == nil: // before 3.8 the flags tell which functions they know
		if !slices.Equal(a.Gates, b.Gates) {
			out = append(out, otherFlags(a.Gates, b.Gates))
		}
	case b.Features == nil:
		out = append(out, "it does not say which functions it knows (no features endpoint)")
	case a.Features != nil:
		if more := missing(b.Features, a.Features); len(more) > 0 {
			out = append(out, "it has "+strings.Join(more, " ")+" besides")
		}
		if less := missing(a.Features, b.Features); len(less) > 0 {
			out = append(out, "it lacks "+strings.Join(less, " "))
		}
	}
	return out
}

// otherFlags says that enable-feature of the second differs from that of the first.
func otherFlags(a, b []string) string {
	return fmt.Sprintf("enable-feature has [%s], not [%s]", strings.Join(b, " "), strings.Join(a, " "))
}

// SameLookback tells whether the lookback is the same, however it is written, or not known.
func (b Engine) SameLookback(a Engine) bool {
	if !a.Known || !b.Known || a.Lookback == b.Lookback {
		return true
	}
	x, xerr := model.ParseDuration(a.Lookback)
	y, yerr := model.ParseDuration(b.Lookback)
	return xerr == nil && yerr == nil && x == y
}

// missing are the elements of a that the sorted b lacks, at most five and a count.
func missing(a, b []string) []string {
	var out []string
	more := 0
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); ok {
			continue
		}
		if len(out) == 5 {
			more++
			continue
		}
		out = append(out, s)
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// Commonest is the engine that most of them have, the first of equally common ones; false where
// none is known.
func Commonest(engines iter.Seq[Engine]) (best Engine, known bool) {
	counts, most := map[interned.Handle[string]]int{}, 0
	for e := range engines {
		if e.Known {
			counts[e.key]++
		}
	}
	for e := range engines {
		if e.Known && counts[e.key] > most {
			best, most = e, counts[e.key]
		}
	}
	return best, most > 0
}
