package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	commonmodel "github.com/prometheus/common/model"
)

// Settings are those of one instance of the datasource, its jsonData. The proxy's URL, TLS,
// credentials and headers are Grafana's own settings of a datasource.
type Settings struct {
	// Labels of kube_pod_labels that name an experiment; the first that a pod has counts. They are
	// what the recording rules were rendered with (_config.experimentLabels of the mixin), and what
	// the health check looks for.
	Labels []string `json:"labels,omitempty"`
	// RuleInterval is how often experiment:pod:gpus and the others are recorded: a GPU hour is a
	// sum of samples times this.
	RuleInterval string `json:"ruleInterval,omitempty"`
	// IdleBelow is the use in percent below which a held GPU counts as idle.
	IdleBelow *float64 `json:"idleBelow,omitempty"`
	// StragglerBelow is the share of the median below which a GPU is a straggler, above 0 and at
	// most 1.
	StragglerBelow float64 `json:"stragglerBelow,omitempty"`
	// Prices are for one hour of one GPU, by modelName as DCGM reports it; "default" is for models
	// that are not listed. Without prices there are GPU hours but no money.
	Prices map[string]float64 `json:"prices,omitempty"`
	// Currency is three letters of ISO 4217.
	Currency string `json:"currency,omitempty"`
	// PartialResponse is "" (what the proxy is configured for), "warn" (an answer without a lost
	// shard, which says so) or "abort".
	PartialResponse string `json:"partialResponse,omitempty"`
	// MaxSeries is the most series of one query's answer, MaxRows the most rows of a table. What is
	// more is left out, and a notice says how much.
	MaxSeries int `json:"maxSeries,omitempty"`
	MaxRows   int `json:"maxRows,omitempty"`
	// Links lead from an experiment to other places: W&B, MLflow, TensorBoard.
	Links []Link `json:"links,omitempty"`
	// NodeDashboard, GPUDashboard and PodDashboard are UIDs of dashboards that nodes, GPUs and pods
	// link to; "-" makes none.
	NodeDashboard string `json:"nodeDashboard,omitempty"`
	GPUDashboard  string `json:"gpuDashboard,omitempty"`
	PodDashboard  string `json:"podDashboard,omitempty"`

	interval time.Duration
}

// Link is a link from an experiment. URL begins with https:// or http://; ${experiment}, ${team},
// ${cluster} and ${namespace} in it are replaced, encoded.
type Link struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

// DefaultLabels is the chain of labels that name an experiment: one's own, JobSet, Kubeflow, Ray,
// LeaderWorkerSet, Kueue, Volcano, Job.
var DefaultLabels = []string{
	"label_experiment", "label_jobset_sigs_k8s_io_jobset_name", "label_training_kubeflow_org_job_name", "label_ray_io_cluster",
	"label_leaderworkerset_sigs_k8s_io_name", "label_kueue_x_k8s_io_pod_group_name", "label_volcano_sh_job_name",
	"label_batch_kubernetes_io_job_name", "label_job_name",
}

const (
	maxLinks  = 20
	maxLabels = 20
	ceiling   = 10_000 // of MaxSeries and MaxRows
)

// Interval is RuleInterval.
func (s Settings) Interval() time.Duration { return s.interval }

// Idle is IdleBelow, 5 where it is not set.
func (s Settings) Idle() float64 { return *s.IdleBelow }

// ParseSettings reads jsonData; none at all means the defaults.
func ParseSettings(raw []byte) (Settings, error) {
	var s Settings
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &s); err != nil {
			return s, fmt.Errorf("settings of the datasource: %w", err)
		}
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	s.checkLabels(bad)
	s.checkThresholds(bad)
	s.checkMoney(bad)
	s.checkBounds(bad)
	s.checkLinks(bad)
	return s, errors.Join(errs...)
}

// problem takes in what is wrong with a setting, beginning with its name.
type problem func(format string, args ...any)

func (s *Settings) checkLabels(bad problem) {
	if len(s.Labels) == 0 {
		s.Labels = slices.Clone(DefaultLabels)
	}
	if len(s.Labels) > maxLabels {
		bad("labels: %d are more than %d", len(s.Labels), maxLabels)
	}
	for i, l := range s.Labels {
		if !commonmodel.LegacyValidation.IsValidLabelName(l) || !strings.HasPrefix(l, "label_") {
			bad("labels[%d]: %q is no label of kube_pod_labels; they begin with label_, as label_experiment does", i, l)
		}
		if slices.Contains(s.Labels[:i], l) {
			bad("labels[%d]: %q stands in the list twice", i, l)
		}
	}
}

func (s *Settings) checkThresholds(bad problem) {
	if s.RuleInterval == "" {
		s.RuleInterval = "1m"
	}
	if d, err := commonmodel.ParseDuration(s.RuleInterval); err != nil || d <= 0 {
		bad("ruleInterval: %q is no duration; write one such as 1m or 30s", s.RuleInterval)
	} else {
		s.interval = time.Duration(d)
	}
	if s.IdleBelow == nil {
		five := 5.0
		s.IdleBelow = &five
	}
	if !(*s.IdleBelow >= 0 && *s.IdleBelow <= 100) {
		bad("idleBelow: %v is outside 0 to 100 percent", *s.IdleBelow)
	}
	if s.StragglerBelow == 0 {
		s.StragglerBelow = 0.8
	}
	if !(s.StragglerBelow > 0 && s.StragglerBelow <= 1) {
		bad("stragglerBelow: %v is not above 0 and at most 1", s.StragglerBelow)
	}
}

func (s *Settings) checkMoney(bad problem) {
	for _, model := range slices.Sorted(maps.Keys(s.Prices)) {
		if !(s.Prices[model] >= 0 && s.Prices[model] < 1e6) {
			bad("prices[%q]: %v is no price of a GPU's hour", model, s.Prices[model])
		}
	}
	if s.Currency == "" {
		s.Currency = "USD"
	}
	if len(s.Currency) != 3 || strings.Trim(s.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		bad("currency: %q is not three capital letters, such as USD", s.Currency)
	}
}

func (s *Settings) checkBounds(bad problem) {
	if !slices.Contains([]string{"", "warn", "abort"}, s.PartialResponse) {
		bad(`partialResponse: %q is neither "warn" nor "abort"; leave it empty for what the proxy is configured for`, s.PartialResponse)
	}
	for _, n := range []struct {
		name  string
		value *int
		def   int
	}{{"maxSeries", &s.MaxSeries, 200}, {"maxRows", &s.MaxRows, 1000}} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < 1 || *n.value > ceiling {
			bad("%s: %d is outside 1 to %d", n.name, *n.value, ceiling)
		}
	}
}

func (s *Settings) checkLinks(bad problem) {
	if len(s.Links) > maxLinks {
		bad("links: %d are more than %d", len(s.Links), maxLinks)
	}
	for i, l := range s.Links {
		if l.Title == "" {
			bad("links[%d].title: empty", i)
		}
		// What comes from a label never becomes a scheme or a host.
		at := strings.Index(l.URL, "${")
		if at < 0 {
			at = len(l.URL)
		}
		u, err := url.Parse(l.URL[:at])
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || at < len(l.URL) && u.Path == "" && u.RawQuery == "" {
			bad("links[%d].url: %q must begin with https://host/ or http://host/, before any ${…}", i, l.URL)
		}
	}
	for _, d := range []struct {
		uid *string
		def string
	}{{&s.NodeDashboard, "spillway-node"}, {&s.GPUDashboard, "spillway-gpu-node"}, {&s.PodDashboard, "spillway-pending"}} {
		if *d.uid == "" {
			*d.uid = d.def
		}
	}
}
