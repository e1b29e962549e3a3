package experiments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// Finding is one thing that is not set up: what is missing and how to mend it, each a sentence or
// two.
type Finding struct {
	Missing string `json:"missing"`
	Fix     string `json:"fix"`
	// Clusters are those in which it is missing, sorted. A single "" is a proxy whose series have
	// no label cluster.
	Clusters []string `json:"clusters,omitempty"`
	// Everywhere tells that each cluster that was asked about lacks this, or something else without
	// which the same cannot be shown.
	Everywhere bool `json:"everywhere"`
	// Need is what cannot be shown without it.
	Need Need `json:"-"`
}

// SetupError is what a query ends with that shows nothing because something is missing. It is no
// fault of the plugin's: the edge makes a DownstreamError of it.
type SetupError struct{ Findings []Finding }

func (e *SetupError) Error() string {
	parts := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		parts[i] = f.Missing + " " + f.Fix
	}
	return strings.Join(parts, "\n")
}

// Need says what a query cannot do without. Needs are added: NeedPods|NeedGPUs.
type Need uint

const (
	// NeedPods is experiment:pod:info, and what it is recorded from.
	NeedPods Need = 1 << iota
	// NeedGPUs is experiment:gpu:*, and what it is recorded from.
	NeedGPUs
	// NeedFaults is DCGM's Xids and counters of errors.
	NeedFaults
	// NeedHours is experiment:pod:gpus.
	NeedHours
	// NeedInfiniband, NeedEthernet and NeedNVLink are what the views of type network show.
	NeedInfiniband
	NeedEthernet
	NeedNVLink
)

// NeedAll is everything, what the health check looks for.
const NeedAll = NeedPods | NeedGPUs | NeedFaults | NeedHours | NeedInfiniband | NeedEthernet | NeedNVLink

// Empty is what a handler calls that has nothing to show. Where each of the chosen clusters lacks
// something that it needs, it returns a *SetupError; else there is just nothing, and a notice says
// of what and when: what is a noun, such as "pods that wait". What is missing in some of the
// clusters is a notice too. What is not measured where something of what is chosen ran is left out:
// nobody knows that it is none.
func (r *Run) Empty(ctx context.Context, needs Need, what string) error {
	findings, _, err := diagnose(ctx, noted{r}, r.Settings, needs, []model.Metric{r.Query.Metric}, r.Query.Clusters, r.Until)
	if err != nil {
		return err
	}
	var everywhere []Finding
	for _, f := range findings {
		if f.Everywhere {
			everywhere = append(everywhere, f)
		}
	}
	if len(everywhere) > 0 {
		return &SetupError{everywhere}
	}
	if err := r.tellMissing(ctx, findings); err != nil {
		return err
	}
	r.Notice(data.NoticeSeverityInfo, "There are no %s of what is chosen between %s and %s.", what, r.From.UTC().Format(time.DateTime), r.Until.UTC().Format(time.DateTime+" MST"))
	return nil
}

// tellMissing says what is missing in some of the clusters.
func (r *Run) tellMissing(ctx context.Context, findings []Finding) error {
	const measured = NeedGPUs | NeedHours | NeedFaults
	ran := set{}
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Need&measured != 0 }) {
		var err error
		if ran, err = r.clustersOf(ctx, r.Query, seconds(min(mostBack, r.back()))); err != nil {
			return err
		}
	}
	for _, f := range findings {
		if f.Need&measured != 0 && slices.ContainsFunc(f.Clusters, func(c string) bool { return ran[c] }) {
			r.LeftOut("%s %s", f.Missing, f.Fix)
			continue
		}
		r.Notice(data.NoticeSeverityWarning, "%s %s", f.Missing, f.Fix)
	}
	return nil
}

// clustersOf are those in which something of what q chooses was within d before the range's end.
func (r *Run) clustersOf(ctx context.Context, q model.Query, d string) (set, error) {
	counted := Selector("experiment:pods:count", Chosen(q)...)
	return r.clusters(ctx, "group by (cluster) (last_over_time("+counted+"["+d+"]))")
}

// clusters are those that an answer at the range's end names.
func (r *Run) clusters(ctx context.Context, query string) (set, error) {
	series, err := r.Instant(ctx, query, r.Until)
	if err != nil {
		return nil, err
	}
	return clustersIn(series), nil
}

// clustersIn are those of series.
func clustersIn(series []prom.Series) set {
	out := set{}
	for _, s := range series {
		out[s.Labels["cluster"]] = true
	}
	return out
}

// unmeasured says in which of some clusters nothing would tell of faults, where others have some.
func (r *Run) unmeasured(ctx context.Context, clusters set) error {
	findings, _, err := diagnose(ctx, noted{r}, r.Settings, NeedFaults, nil, clusters.names(), r.Until)
	if err != nil { // it is for a notice alone
		if r.Alert || ctx.Err() != nil || errors.Is(err, ErrPanic) {
			return err
		}
		return nil
	}
	for _, f := range findings {
		r.LeftOut("%s %s", f.Missing, f.Fix)
	}
	return nil
}

// noted asks as its run does, so that what was asked and the proxy's warnings stand in the answer.
type noted struct{ r *Run }

func (n noted) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	return n.r.instant(ctx, query, at)
}

func (n noted) Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	return n.r.rangeOf(ctx, query, from, until, step)
}

// Diagnose looks for what queries need at the moment at, in the clusters that are named, or in all
// of them. What depends on something that is missing itself is not reported too. An error is the
// proxy's, not a finding; its warnings, such as of a shard that is away, are returned too, each
// once: what is there may not have been seen then. It asks one question after the other, sixteen
// where everything is there and at most sixty; each answers with one series for each cluster.
func Diagnose(ctx context.Context, asker prom.Asker, settings model.Settings, needs Need, clusters []string, at time.Time) (
	findings []Finding, warnings []string, err error,
) {
	return diagnose(ctx, asker, settings, needs, model.Metrics, clusters, at)
}
