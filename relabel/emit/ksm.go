package emit

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// familyName is what kube-state-metrics can deny: its families are kube_…, and its flag separates
// names by commas. What it says about itself (kube_state_metrics_…) comes from another place that
// no flag filters.
var familyName = regexp.MustCompile(`^kube_[a-zA-Z0-9_]+$`)

// KubeStateMetrics writes the metrics that no one uses as the --metric-denylist of
// kube-state-metrics: as args and as values of the Helm chart. A metric that is not made costs
// nothing, one that is dropped was made, sent and parsed. jobs are those that scrape
// kube-state-metrics; with none given, those whose name has kube-state-metrics in it. With several,
// only metrics that all of them drop are denied: the flag is for everyone who scrapes it.
//
// kube-state-metrics searches its expressions anywhere in a name, so that kube_pod_info would deny
// kube_pod_info_x too: each is anchored.
func KubeStateMetrics(p *relabel.Plan, w io.Writer, jobs ...string) error {
	if len(jobs) == 0 {
		for _, j := range planJobs(p) {
			if strings.Contains(j, "kube-state-metrics") {
				jobs = append(jobs, j)
			}
		}
		if len(jobs) == 0 {
			return errors.New("no job of the plan has kube-state-metrics in its name: say which one scrapes it")
		}
	}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	drops := map[string]int{}
	var series int64
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Kind != propose.Names || !slices.Contains(jobs, r.Job) {
			continue
		}
		series += r.Saves.Series
		for _, name := range r.Metrics {
			drops[name]++
		}
	}
	var names []string
	for name, n := range drops {
		if n == len(jobs) && familyName.MatchString(name) && !strings.HasPrefix(name, "kube_state_metrics_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return fmt.Errorf("the plan drops no whole metric of kube-state-metrics (job %s): there is nothing to deny", strings.Join(jobs, ", "))
	}
	denied := make([]string, len(names))
	for i, n := range names {
		denied[i] = "^" + n + "$"
	}
	flag, err := scalar("--metric-denylist=" + strings.Join(denied, ","))
	if err != nil {
		return err
	}
	lines := header(p)
	lines = append(lines,
		fmt.Sprintf("# %s of kube-state-metrics (job %s) that nothing uses; the rules that name them save %s.",
			plural(int64(len(names)), "metric", "metrics"), comment(strings.Join(jobs, ", ")), plural(series, "series", "series")),
		"# Denied at the source they are not even made. Make the plan again afterwards: its rules for them then have nothing to drop, and",
		"# DropRulesNotEffective would say so. --metric-denylist excludes --metric-allowlist.",
		"---",
		"# The container's arguments.",
		"args:",
		"  - "+flag,
		"---",
		"# Values of the Helm chart kube-state-metrics; inside kube-prometheus-stack under the key kube-state-metrics.",
		"metricDenylist:",
	)
	for _, d := range denied {
		text, err := scalar(d)
		if err != nil {
			return err
		}
		lines = append(lines, "  - "+text)
	}
	return write(w, lines)
}

// planJobs are the jobs that the plan knows, with rules or without, sorted.
func planJobs(p *relabel.Plan) []string {
	names := Jobs(p)
	for _, j := range p.Jobs {
		names = append(names, j.Job)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
