package thanos

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// DefaultLookback is what the engine of Prometheus takes where it is given none.
const DefaultLookback = 5 * time.Minute

// Flags are the flags of a Thanos Query that matter here.
type Flags struct {
	ReplicaLabels []string      // query.replica-label
	Static        []string      // addresses under endpoint that are asked for by themselves, not found by DNS
	Strict        []string      // those under endpoint-strict: never left out
	Timeout       time.Duration // query.timeout; 0 where not known
	Checks        time.Duration // endpoint.info-timeout, which is the time between two health checks too; 0 where not known
}

// ReadFlags takes them from what status/flags says.
func ReadFlags(flags map[string]string) Flags {
	list := func(name string) []string {
		var out []string
		for s := range strings.SplitSeq(flags[name], ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
		return out
	}
	f := Flags{ReplicaLabels: list("query.replica-label"), Strict: list("endpoint-strict")}
	for _, a := range slices.Concat(list("endpoint"), f.Strict) {
		if !strings.Contains(a, "+") { // dns+, dnssrv+ and the like
			f.Static = append(f.Static, a)
		}
	}
	f.Timeout = duration(flags["query.timeout"])
	f.Checks = duration(flags["endpoint.info-timeout"])
	return f
}

// Is tells whether the flags are those of a Thanos Query: of other servers none has these two.
func Is(flags map[string]string) bool {
	_, labels := flags["query.replica-label"]
	_, endpoint := flags["endpoint"]
	return labels || endpoint
}

// Limit is the time after which an answer is none: what the server was given, or its own
// query.timeout where that is less. 0 is no limit.
func (f Flags) Limit(given time.Duration) time.Duration {
	if f.Timeout > 0 && (given <= 0 || f.Timeout < given) {
		return f.Timeout
	}
	return given
}

// ReadEngine takes from the flags what those of a Prometheus do not have, or have under another
// name.
func ReadEngine(e *trust.Engine, flags map[string]string) {
	e.Thanos = true
	d := duration(flags["query.lookback-delta"])
	if d <= 0 {
		d = DefaultLookback
	}
	e.Lookback = config.Duration(d)
	if d := duration(flags["query.default-evaluation-interval"]); d > 0 {
		e.EvaluationInterval = config.Duration(d)
	}
}

// duration reads 5m as well as 5m0s; 0 where it is neither.
func duration(s string) time.Duration {
	if d, err := time.ParseDuration(s); err == nil {
		return max(d, 0)
	}
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d)
	}
	return 0
}
