package alerts_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// facts is metrics.yaml: what exporters export, by job.
type facts map[string]*jobFacts

type jobFacts struct {
	// Source is the server and version, or where the fact comes from.
	Source string `yaml:"source"`
	// Genuine is a file of facts about a page that the real server showed, with which these must
	// agree.
	Genuine string `yaml:"genuine"`
	// Target are labels of the job's targets beside cluster, job and instance.
	Target []string `yaml:"target"`
	// Operated are others of theirs where an operator makes the scrape configuration.
	Operated []string `yaml:"operated"`
	// Model is false where the simulated cluster does not have the job, because a real one runs
	// beside it.
	Model *bool `yaml:"model"`
	// Common are labels of all series of the job.
	Common []string `yaml:"common"`
	// Optional are labels that only some set-ups have, such as those of a GPU that is divided.
	Optional []string `yaml:"optional"`
	// Metrics are the families that rules and dashboards name.
	Metrics map[string]fact `yaml:"metrics"`
}

type fact struct {
	Type   string   `yaml:"type"`
	Labels []string `yaml:"labels,flow"`
	// Added are labels that our relabelings make while scraping.
	Added []string `yaml:"added,flow"`
	// Buckets are the le of a histogram whose buckets rules name.
	Buckets []string `yaml:"le,flow"`
	// Source is there where it is not the job's.
	Source string `yaml:"source"`
}

func (j *jobFacts) modelled() bool { return j.Model == nil || *j.Model }

// everyTarget are labels that each target has. prometheus adds the first by external labels, the
// proxy by its group's.
var everyTarget = []string{"cluster", "job", "instance"}

// synthetic are series that Prometheus makes for each target.
var synthetic = map[string]string{
	"up": "gauge", "scrape_duration_seconds": "gauge", "scrape_samples_scraped": "gauge", "scrape_samples_post_metric_relabeling": "gauge",
	"scrape_series_added": "gauge",
}

func readFacts(t testing.TB) facts {
	t.Helper()
	b, err := os.ReadFile("metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	var f facts
	if err := d.Decode(&f); err != nil {
		t.Fatalf("metrics.yaml: %v", err)
	}
	return f
}

// suffixes of the series that a histogram or summary has, with their own label.
var suffixes = map[string]string{"_bucket": "le", "_sum": "", "_count": ""}

// found is one job's fact about a series name.
type found struct {
	job    string
	fact   fact
	series string // the type of the series itself: counter, gauge, untyped
	labels []string
}

// find are the facts about a series name for the jobs that the matchers let through.
func (f facts) find(name string, matchers []*labels.Matcher) []found {
	var out []found
	for _, job := range slices.Sorted(maps.Keys(f)) {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == "job" && !m.Matches(job) }) {
			j := f[job]
			target := slices.Concat(everyTarget, j.Target, j.Operated)
			own := slices.Concat(target, j.Common, j.Optional)
			if typ, ok := synthetic[name]; ok {
				out = append(out, found{job, fact{Type: typ}, typ, target})
				continue
			}
			if m, ok := j.Metrics[name]; ok {
				switch m.Type {
				case "histogram": // a native one
					out = append(out, found{job, m, m.Type, slices.Concat(own, m.Labels, m.Added)})
				case "summary":
					out = append(out, found{job, m, "gauge", slices.Concat(own, m.Labels, []string{"quantile"})})
				default:
					out = append(out, found{job, m, m.Type, slices.Concat(own, m.Labels, m.Added)})
				}
				continue
			}
			for suffix, added := range suffixes {
				base, ok := strings.CutSuffix(name, suffix)
				m, known := j.Metrics[base]
				if !ok || !known || (m.Type != "histogram" && (m.Type != "summary" || added != "")) {
					continue
				}
				ls := slices.Concat(own, m.Labels, m.Added)
				if added != "" {
					ls = append(ls, added)
				}
				out = append(out, found{job, m, "counter", ls})
			}
		}
	}
	return out
}

// recorded are the names of our recording rules.
func recorded(rules []ruleAt) map[string][]ruleAt {
	out := map[string][]ruleAt{}
	for _, r := range rules {
		if r.Record != "" {
			out[r.Record] = append(out[r.Record], r)
		}
	}
	return out
}

// Every metric that a rule names is in the facts or is recorded by a rule; every label of a matcher
// is one that it has; counters are looked at only through functions that know about restarts,
// gauges never through those.
func TestRulesKnowTheirMetrics(t *testing.T) {
	f, rules, shown := readFacts(t), rulesOf(t), onDashboards(t)
	own := recorded(rules)
	in := newInference(t)
	used := map[string]map[string]bool{} // job -> families
	missing := map[string][]string{}
	for _, r := range rules {
		parser.Inspect(r.expr, func(n parser.Node, path []parser.Node) error {
			sel, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			name := nameOf(sel)
			switch {
			case name == "":
				t.Errorf("%s: the selector %s names no metric", r.where(), sel)
				return nil
			case name == "ALERTS" || name == "ALERTS_FOR_STATE":
				return nil
			case own[name] != nil:
				has := in.recorded(name)
				for _, m := range sel.LabelMatchers {
					if m.Name != model.MetricNameLabel && !has.has(m.Name) {
						t.Errorf("%s: %s has no label %s; it has %s", r.where(), name, m.Name, has)
					}
				}
				if fn := rangeFunction(path); counterOnly[fn] {
					t.Errorf("%s: %s(%s): a recorded series is no counter", r.where(), fn, name)
				}
				return nil
			}
			hits := f.find(name, sel.LabelMatchers)
			if len(hits) == 0 {
				var jobs []string
				for _, m := range sel.LabelMatchers {
					if m.Name == "job" {
						jobs = append(jobs, m.String())
					}
				}
				key := fmt.Sprintf("%s of %s", name, strings.Join(jobs, ","))
				missing[key] = append(missing[key], r.name())
				return nil
			}
			for _, h := range hits {
				if used[h.job] == nil {
					used[h.job] = map[string]bool{}
				}
				used[h.job][name] = true
				for _, m := range sel.LabelMatchers {
					if m.Name == model.MetricNameLabel || m.Matches("") {
						continue // a matcher that takes a series without the label says nothing about it
					}
					if !setOf(h.labels...).has(m.Name) {
						t.Errorf("%s: %s of %s has no label %s; it has %v", r.where(), name, h.job, m.Name, h.labels)
					}
					if m.Name == "le" && len(h.fact.Buckets) == 0 {
						t.Errorf("%s: %s of %s: metrics.yaml does not list its buckets", r.where(), name, h.job)
					} else if m.Name == "le" && !slices.ContainsFunc(h.fact.Buckets,
						func(le string) bool { return m.Matches(canonicalLe(le)) }) {
						t.Errorf("%s: %s of %s has no bucket that matches %s; it has %v", r.where(), name, h.job, m, h.fact.Buckets)
					}
				}
				checkUse(t, r, sel, name, h.series, path)
			}
			return nil
		})
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[key])
		t.Errorf("metrics.yaml has no %s, which is used by %v", key, slices.Compact(missing[key]))
	}
	for job, j := range f {
		for name := range j.Metrics {
			if !used[job][name] && !used[job][name+"_bucket"] && !used[job][name+"_sum"] && !used[job][name+"_count"] && !shown[name] {
				t.Errorf("metrics.yaml has %s of %s, which no rule and no dashboard uses", name, job)
			}
		}
	}
}

// onDashboards are the words of the generated dashboards, without the suffixes of histograms: what
// they use is looked at closely by the tests beside them.
func onDashboards(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	out := map[string]bool{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range metricWord.FindAllString(string(b), -1) {
			out[word] = true
			for suffix := range suffixes {
				out[strings.TrimSuffix(word, suffix)] = true
			}
		}
	}
	return out
}

var metricWord = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_:]*`)

// canonicalLe is how Prometheus 3 stores a bucket's bound.
func canonicalLe(le string) string {
	if !strings.ContainsAny(le, ".eI") {
		return le + ".0"
	}
	return le
}

func nameOf(s *parser.VectorSelector) string {
	if s.Name != "" {
		return s.Name
	}
	for _, m := range s.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// counterOnly are functions that take counters, gaugeOnly those that take gauges.
var (
	counterOnly = map[string]bool{"rate": true, "irate": true, "increase": true, "resets": true}
	gaugeOnly   = map[string]bool{
		"delta": true, "deriv": true, "predict_linear": true, "idelta": true, "avg_over_time": true, "min_over_time": true,
		"max_over_time": true, "sum_over_time": true,
		"quantile_over_time": true, "stddev_over_time": true, "double_exponential_smoothing": true,
	}
	// presence are functions and operators that ask whether a series is there, or what its labels
	// are, not for its value.
	presence = map[string]bool{
		"absent": true, "absent_over_time": true, "present_over_time": true, "count_over_time": true, "timestamp": true, "changes": true,
		"last_over_time": false,
	}
)

// plainCounters are counters whose value itself is asked for, by rule and metric, with the reason.
var plainCounters = map[string]string{
	"GPUUncorrectableECC: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":                    appears,
	"GPUNVLinkErrors: DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL":        appears,
	"GPUNVLinkErrors: DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": appears,
	"GPUNVLinkErrors: DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL":          "increase takes what was counted before a reset, and a dip, for errors: the value is compared with those of a while before",
	"gpu:ecc_dbe:max: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":                        "one such error since the driver was loaded is what makes the memory untrustworthy, whenever it was",
	"node:arp_entries:ratio: node_lnstat_entries_total":                     entries,
	"node:ndisc_entries:ratio: node_lnstat_entries_total":                   entries,
}

const entries = "node_exporter calls all of lnstat counters; the kernel prints here how many entries there are"

const appears = "a series may begin with its first error in it, which increase never sees: the value is compared with that of a while before"

// rangeFunction is the nearest function around a selector.
func rangeFunction(path []parser.Node) string {
	for i := len(path) - 1; i >= 0; i-- {
		if c, ok := path[i].(*parser.Call); ok {
			return c.Func.Name
		}
	}
	return ""
}

// seeksBlanks tells whether the nearest function around a selector, a maximum, is compared with
// DCGM's sentinels for no value, which no counter of theirs comes near.
func seeksBlanks(path []parser.Node) bool {
	for i := len(path) - 1; i > 0; i-- {
		if c, ok := path[i].(*parser.Call); ok {
			b, ok := path[i-1].(*parser.BinaryExpr)
			if !ok || c.Func.Name != "max_over_time" || b.Op != parser.GTE {
				return false
			}
			n, ok := b.RHS.(*parser.NumberLiteral)
			return ok && n.Val == 2e9
		}
	}
	return false
}

// checkUse says where a series is used as its type forbids.
func checkUse(t *testing.T, r ruleAt, sel *parser.VectorSelector, name, typ string, path []parser.Node) {
	t.Helper()
	fn := rangeFunction(path)
	switch typ {
	case "counter":
		if gaugeOnly[fn] && !seeksBlanks(path) {
			t.Errorf("%s: %s(%s): %s is a counter, which restarts", r.where(), fn, sel, name)
		}
		if counterOnly[fn] || presence[fn] || gaugeOnly[fn] || onlyPresent(path) || plainCounters[r.name()+": "+name] != "" {
			return
		}
		t.Errorf("%s: %s is a counter and is looked at without rate or increase", r.where(), name)
	case "gauge":
		if counterOnly[fn] {
			t.Errorf("%s: %s(%s): %s is a gauge; take delta, deriv or changes", r.where(), fn, sel, name)
		}
	}
}

// onlyPresent says whether a selector's values are not used: it is counted, grouped or the right
// side of and/unless.
func onlyPresent(path []parser.Node) bool {
	for i, n := range path {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			if n.Op == parser.COUNT || n.Op == parser.GROUP {
				return true
			}
		case *parser.BinaryExpr:
			if (n.Op == parser.LAND || n.Op == parser.LUNLESS) && i+1 < len(path) && path[i+1] == parser.Node(n.RHS) {
				return true
			}
		}
	}
	return false
}

// genuineLabel is one label of a line of a genuine page.
var genuineLabel = regexp.MustCompile(`(\w+)\{(.*?)\}(?: |$)`)

// Facts that a real server showed are what it showed: type, labels and buckets.
func TestFactsAreGenuine(t *testing.T) {
	for job, j := range readFacts(t) {
		if j.Source == "" {
			t.Errorf("metrics.yaml: %s has no source", job)
		}
		if j.Genuine == "" {
			continue
		}
		b, err := os.ReadFile(filepath.FromSlash(j.Genuine))
		if err != nil {
			t.Fatal(err)
		}
		real := map[string]fact{}
		for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
			col := append(strings.Split(line, "\t"), "")
			g := fact{Type: col[1]}
			for _, m := range genuineLabel.FindAllStringSubmatch(col[3]+" ", -1) {
				switch m[1] {
				case "le":
					g.Buckets = strings.Split(m[2], ",")
				case "quantile":
				default:
					g.Labels = append(g.Labels, m[1])
				}
			}
			slices.Sort(g.Labels)
			real[col[0]] = g
		}
		for name, m := range j.Metrics {
			g, ok := real[name]
			switch {
			case !ok && m.Source == "":
				t.Errorf("metrics.yaml: %s of %s is not in %s: say in its source where the fact comes from", name, job, j.Genuine)
			case !ok:
			case m.Source != "" && g.Type == m.Type && slices.Equal(g.Labels, slices.Sorted(slices.Values(m.Labels))):
				t.Errorf("metrics.yaml: %s of %s is in %s: it needs no other source", name, job, j.Genuine)
			case m.Source != "": // it says why it differs
			case g.Type != m.Type:
				t.Errorf("metrics.yaml: %s of %s is a %s, genuinely a %s", name, job, m.Type, g.Type)
			case !slices.Equal(g.Labels, slices.Sorted(slices.Values(m.Labels))):
				t.Errorf("metrics.yaml: %s of %s has %v, genuinely %v", name, job, m.Labels, g.Labels)
			case m.Buckets != nil && !slices.Equal(g.Buckets, m.Buckets):
				t.Errorf("metrics.yaml: %s of %s has the buckets %v, genuinely %v", name, job, m.Buckets, g.Buckets)
			}
		}
	}
}
