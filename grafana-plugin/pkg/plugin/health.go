package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
)

// health is what is known of a datasource that can be asked.
type health struct {
	// Version is that of the API; of a proxy, of its oldest server. Empty where it does not tell.
	Version string `json:"version"`
	// Findings are empty where everything is set up.
	Findings []experiments.Finding `json:"findings"`
	// Warnings are the proxy's: what is set up may not have been seen.
	Warnings []string `json:"warnings"`
	// Verbose is the warnings and the findings as text, which Grafana shows under the message of a
	// health check.
	Verbose string `json:"verboseMessage,omitempty"`
}

// CheckHealth implements backend.CheckHealthHandler: it says whether the proxy can be asked, and
// what is not set up. Without series about experiments' pods nothing works, so that is an error;
// without the rest, some views show nothing, which the message says. So it does of a proxy that
// warns, as of a shard that is away: Grafana's protocol has no warning, and the front end makes one
// where there is more than the message. Its error is always nil.
func (d *Datasource) CheckHealth(ctx context.Context, req *backend.CheckHealthRequest) (result *backend.CheckHealthResult, _ error) {
	defer func() {
		if p := recover(); p != nil {
			result = unhealthy(panicked(ctx, p))
		}
	}()
	ctx, cancel := d.inTime(asked(ctx, req.PluginContext, d.headers(req.PluginContext, req.GetHTTPHeaders(), req.Headers)))
	defer cancel()
	h, err := d.health(ctx)
	if err != nil {
		return unhealthy(public(ctx, err)), nil
	}
	result = &backend.CheckHealthResult{
		Status:  backend.HealthStatusOk,
		Message: "The proxy answers" + of(h.Version) + ", and everything that is shown here is set up.",
	}
	essential := 0
	for _, f := range h.Findings {
		if f.Everywhere && f.Need == experiments.NeedPods {
			essential++
		}
	}
	switch n := len(h.Findings); {
	case essential > 0:
		result.Status = backend.HealthStatusError
		result.Message = "The proxy answers" + of(h.Version) + ", but there is nothing to show: " + h.Findings[0].Missing + " " +
			h.Findings[0].Fix
	case n == 0 && len(h.Warnings) > 0:
		result.Message = "The proxy answers" + of(h.Version) + ", but not with everything: " +
			strings.TrimSuffix(h.Warnings[0], ".") + ". All else that is shown here is set up."
	case n == 1:
		result.Message = "The proxy answers" + of(h.Version) + ". One thing is not set up: " + h.Findings[0].Missing
	case n > 1:
		result.Message = fmt.Sprintf("The proxy answers%s. %d things are not set up; the first: %s", of(h.Version), n, h.Findings[0].Missing)
	}
	if result.JSONDetails, err = json.Marshal(h); err != nil {
		return unhealthy(err), nil
	}
	return result, nil
}

func of(version string) string {
	if version == "" {
		return ""
	}
	return " (version " + version + ")"
}

func unhealthy(err error) *backend.CheckHealthResult {
	return &backend.CheckHealthResult{Status: backend.HealthStatusError, Message: err.Error()}
}

// health asks the proxy for its version and for everything that queries need.
func (d *Datasource) health(ctx context.Context) (health, error) {
	if d.broken != nil {
		return health{}, d.broken
	}
	version, err := d.client.Version(ctx)
	if err != nil {
		return health{}, err
	}
	findings, warnings, err := experiments.Diagnose(ctx, d.asker, d.settings, experiments.NeedAll, nil, d.now())
	if err != nil {
		return health{}, err
	}
	h := health{Version: version, Findings: findings, Warnings: warnings}
	var lines []string
	for _, w := range warnings {
		lines = append(lines, "The proxy warned: "+w)
	}
	for _, f := range findings {
		lines = append(lines, f.Missing+" "+f.Fix)
	}
	h.Verbose = strings.Join(lines, "\n\n")
	if h.Findings == nil {
		h.Findings = []experiments.Finding{}
	}
	if h.Warnings == nil {
		h.Warnings = []string{}
	}
	return h, nil
}
