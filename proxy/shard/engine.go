package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	interned "unique"

	"github.com/prometheus/common/model"
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
	// Features are the names under promql, promql_functions and promql_operators of the features
	// endpoint that are on, sorted; nil where it is not served (before 3.8).
	Features []string `json:"-"`
	// Known tells whether the flags were read.
	Known bool `json:"-"`

	// What flags and features were decoded from, by hash: they hardly ever change, and there may be
	// a thousand servers.
	flagsHash, featuresHash uint64
	key                     interned.Handle[string] // equal for engines of the same lookback, flags and features; zero where it was not made

	slots int // queries that the server evaluates at once; 0 where it does not say

	isThanos bool        // its engine is that of an older Prometheus, and it does not say which functions it knows
	thanos   thanosFlags // zero for a Prometheus
}

// readEngine reads flags and features. What cannot be read keeps its last value.
func (r *Replica) readEngine(ctx context.Context, last Engine) (e Engine) {
	e = last
	defer func() { e.key = e.makeKey() }()
	if raw, err := r.getData(ctx, "/api/v1/status/flags", nil); err == nil {
		var flags map[string]string
		if h := maphash.Bytes(hashSeed, raw); e.Known && h == e.flagsHash {
			// as before
		} else if json.Unmarshal(raw, &flags) == nil {
			e.flagsHash = h
			e.Known, e.Lookback, e.Flags = true, cleaned(flags["query.lookback-delta"]), nil
			for f := range strings.SplitSeq(flags["enable-feature"], ",") {
				f = strings.TrimSpace(f)
				if strings.HasPrefix(f, "promql-") && f != "promql-per-step-stats" || f == "type-and-unit-labels" || f == "use-start-timestamps" {
					e.Flags = append(e.Flags, cleaned(f))
				}
			}
			slices.Sort(e.Flags)
			e.slots = slotsOf(flags)
			if r.Thanos() {
				e.readThanos(flags)
			}
		}
	}
	if r.Thanos() {
		return e
	}
	raw, err := r.getData(ctx, "/api/v1/features", nil)
	if err != nil {
		if clientStatus(err) {
			e.Features = nil
		}
		return e
	}
	h := maphash.Bytes(hashSeed, raw)
	if e.Features != nil && h == e.featuresHash {
		return e
	}
	var data map[string]map[string]bool
	if json.Unmarshal(raw, &data) != nil {
		return e
	}
	e.Features, e.featuresHash = []string{}, h
	for _, section := range []string{"promql", "promql_functions", "promql_operators"} {
		for name, on := range data[section] {
			if on && name != "per_step_stats" {
				e.Features = append(e.Features, section+"/"+cleaned(name))
			}
		}
	}
	slices.Sort(e.Features)
	return e
}

// querySlots is how many queries a server evaluates at once that does not say: the default of
// Prometheus and of Thanos.
const querySlots = 20

// slotsOf reads how many queries a server evaluates at once; 0 where it does not say.
func slotsOf(flags map[string]string) int {
	for _, name := range []string{"query.max-concurrency", "query.max-concurrent"} { // Prometheus' and Thanos' spelling
		if n, err := strconv.Atoi(flags[name]); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// querySlots is how many queries the server evaluates at once.
func (r *Replica) querySlots() int { return cmp.Or(r.Engine().slots, querySlots) }

func (e *Engine) makeKey() interned.Handle[string] {
	return interned.Make(e.Lookback + "\x00" + strings.Join(e.Flags, ",") + "\x00" + strings.Join(e.Features, ","))
}

// same tells whether two engines of one server say the same, so that nothing was learned.
func (e *Engine) same(o *Engine) bool {
	return e.Known == o.Known && e.key == o.key && (e.Features == nil) == (o.Features == nil) && e.EvaluationInterval == o.EvaluationInterval && e.isThanos == o.isThanos &&
		(!e.isThanos || reflect.DeepEqual(e.thanos, o.thanos))
}

// Engine is what is known of the server's query engine.
func (r *Replica) Engine() Engine {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.health.engine
}

// differences says in what b differs from a, each a sentence about b.
func (b Engine) differences(a Engine) []string {
	var out []string
	if a.Known && b.Known {
		if !b.sameLookback(a) {
			out = append(out, fmt.Sprintf("query.lookback-delta is %s, not %s", b.Lookback, a.Lookback))
		}
		// A Thanos Query has one of its own, and no part of it in an answer: it is sent the step of
		// each subquery.
		if !a.isThanos && !b.isThanos && a.EvaluationInterval != "" && b.EvaluationInterval != "" && a.EvaluationInterval != b.EvaluationInterval {
			out = append(out, fmt.Sprintf("evaluation_interval, the step of subqueries without one, is %s, not %s", b.EvaluationInterval, a.EvaluationInterval))
		}
		if !slices.Equal(a.Flags, b.Flags) {
			out = append(out, fmt.Sprintf("enable-feature has [%s], not [%s]", strings.Join(b.Flags, " "), strings.Join(a.Flags, " ")))
		}
	}
	switch {
	case a.isThanos || b.isThanos: // it has no features endpoint, and refuses a function that it does not know by itself
	case a.Features == nil && b.Features == nil:
	case b.Features == nil && b.Known:
		out = append(out, "it does not say which functions it knows (no features endpoint)")
	case a.Features != nil && b.Features != nil:
		if more := missing(b.Features, a.Features); len(more) > 0 {
			out = append(out, "it has "+strings.Join(more, " ")+" besides")
		}
		if less := missing(a.Features, b.Features); len(less) > 0 {
			out = append(out, "it lacks "+strings.Join(less, " "))
		}
	}
	return out
}

// sameLookback tells whether the lookback is the same, however it is written, or not known.
func (b Engine) sameLookback(a Engine) bool {
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

// reference is the engine that the others are compared with: the commonest, of equals the first
// listed. That of a Thanos Query counts only where there is no Prometheus.
func (t *Topology) reference() (Engine, bool) {
	// Every query asks, and comparing all servers costs more than planning it: what was found holds
	// until something new is learned about any server.
	now := learned.Load()
	if c := t.agreed.Load(); c != nil && c.learned == now {
		return c.engine, c.known
	}
	c := &agreed{learned: now}
	if c.engine, c.known = t.commonest(false); !c.known {
		c.engine, c.known = t.commonest(true)
	}
	t.agreed.Store(c)
	return c.engine, c.known
}

// learned counts how often anything was learned about the engine of any server, in whichever
// topology.
var learned atomic.Uint64

// agreed is a reference engine as of a count of learned.
type agreed struct {
	learned uint64
	engine  Engine
	known   bool
}

// alike tells, without comparing what they have one by one, that two engines do not differ. False
// may also mean that it was not seen so quickly.
func (e *Engine) alike(ref *Engine) bool {
	return e.key == ref.key && e.EvaluationInterval == ref.EvaluationInterval && (e.Features == nil) == (ref.Features == nil)
}

func (t *Topology) commonest(thanos bool) (Engine, bool) {
	var best Engine
	most := 0
	counts := map[interned.Handle[string]]int{}
	for r := range t.replicas() {
		if e := r.Engine(); e.Known && r.Thanos() == thanos {
			counts[e.key]++
		}
	}
	for r := range t.replicas() {
		if e := r.Engine(); e.Known && r.Thanos() == thanos && counts[e.key] > most {
			best, most = e, counts[e.key]
		}
	}
	return best, most > 0
}

// EngineDifferences says in what the replica's engine differs from that of most others; nil where
// it does not, or where too little is known. Nothing is pushed to a replica that differs.
func (t *Topology) EngineDifferences(r *Replica) []string {
	ref, _ := t.reference()
	return r.engineDifferences(ref)
}

func (r *Replica) engineDifferences(ref Engine) []string {
	e := r.Engine()
	if !ref.Known || !e.Known || e.alike(&ref) {
		return nil
	}
	return e.differences(ref)
}

// LowestVersion is the lowest version among the Prometheus servers that have told theirs; empty
// where none has. That of a Thanos Query counts differently.
func (t *Topology) LowestVersion() string {
	low := ""
	for r := range t.replicas() {
		if v := r.Version(); v != "" && !r.Thanos() && (low == "" || compareVersions(v, low) < 0) {
			low = v
		}
	}
	return low
}

// compareVersions orders versions as 2.42.0 < 3.0.0-rc.1 < 3.0.0 < 3.15.0. Text that is no number
// sorts below any number.
func compareVersions(a, b string) int {
	split := func(v string) (nums []string, pre string) {
		v = strings.TrimPrefix(v, "v")
		v, _, _ = strings.Cut(v, "+")
		v, pre, _ = strings.Cut(v, "-")
		return strings.Split(v, "."), pre
	}
	part := func(p []string, i int) int {
		if i >= len(p) {
			return 0
		}
		n, err := strconv.Atoi(p[i])
		if err != nil {
			return -1
		}
		return n
	}
	an, ap := split(a)
	bn, bp := split(b)
	for i := range max(len(an), len(bn)) {
		if c := cmp.Compare(part(an, i), part(bn, i)); c != 0 {
			return c
		}
	}
	switch {
	case ap == bp:
		return 0
	case ap == "":
		return 1
	case bp == "":
		return -1
	default:
		return cmp.Compare(ap, bp)
	}
}
