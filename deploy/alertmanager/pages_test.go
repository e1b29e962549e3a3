package alertmanager

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// onePage are labels of critical alerts that call nobody a second time, and why: what has another
// value there is no other thing, or has a page of its own.
var onePage = map[string]string{
	"KubeAPIErrorBudgetBurnErrors verb":   "reads and writes of one API",
	"KubeAPIErrorBudgetBurnErrors long":   "windows of one budget",
	"KubeAPIErrorBudgetBurnErrors short":  "windows of one budget",
	"KubeAPIErrorBudgetBurnSlow verb":     "reads and writes of one API",
	"KubeAPIErrorBudgetBurnSlow long":     "windows of one budget",
	"KubeAPIErrorBudgetBurnSlow short":    "windows of one budget",
	"ProxyErrorBudgetBurn long":           "windows of one budget",
	"ProxyErrorBudgetBurn short":          "windows of one budget",
	"ProxyShardDown shard":                "a tunnel that is cut takes all of a group at once; a pair of servers that falls over has a page by its shard",
	"ProxyReplicaSilent shard":            "likewise",
	"ProxyReplicaSilent replica":          "as a page all of the shard are silent",
	"RulerFailing instance":               "the two rulers of one cluster",
	"LocationLost state":                  "how a zone is lost, which changes while it is",
	"PrometheusMemoryNearLimit instance":  "memory grows in all of them; a pair that falls over is PrometheusHACrashLooping or PrometheusHAPairDown, each by its shard",
	"PrometheusMemoryNearLimit pod":       "likewise",
	"PrometheusOOMLoop pod":               "likewise",
	"PrometheusMemoryNearLimit namespace": "likewise",
	"PrometheusOOMLoop namespace":         "likewise",
}

// byTheHundred are labels by which one incident would be many pages.
var byTheHundred = []string{"...", "node", "instance", "pod", "namespace", "gpu", "UUID", "device", "container"}

// pages are the critical alerts of the rules, with the values that their rules set of each label,
// and the labels that they have in the rules' own tests.
func pages(t *testing.T) (set map[string]map[string][]string, have map[string]map[string]bool) {
	t.Helper()
	read := func(pattern string, into func([]byte) error) {
		t.Helper()
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 5 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err == nil {
				err = into(text)
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
	}
	set, have = map[string]map[string][]string{}, map[string]map[string]bool{}
	of := func(text []byte) error {
		var rules struct {
			Groups []struct {
				Rules []struct {
					Alert  string
					Labels map[string]string
				}
			}
		}
		err := yaml.Unmarshal(text, &rules)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Alert == "" || r.Labels["severity"] != "critical" {
					continue
				}
				if set[r.Alert] == nil {
					set[r.Alert] = map[string][]string{}
				}
				set[r.Alert]["alertname"] = append(set[r.Alert]["alertname"], r.Alert)
				for name, value := range r.Labels {
					set[r.Alert][name] = append(set[r.Alert][name], value)
				}
			}
		}
		return err
	}
	read("../../alerts/global/*.yaml", of)
	read("../../alerts/shard/*.yaml", of)
	read("../../alerts/tests/*.yaml", func(text []byte) error {
		var tests struct {
			Tests []struct {
				Rules []struct {
					Alert string `yaml:"alertname"`
					Fires []struct {
						Labels map[string]string `yaml:"exp_labels"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		err := yaml.Unmarshal(text, &tests)
		for _, test := range tests.Tests {
			for _, r := range test.Rules {
				for _, f := range r.Fires {
					if f.Labels["severity"] != "critical" {
						continue
					}
					if have[r.Alert] == nil {
						have[r.Alert] = map[string]bool{"alertname": true}
					}
					for name := range f.Labels {
						have[r.Alert][name] = true
					}
				}
			}
		}
		return err
	})
	return set, have
}

// TestOtherThingsPageAgain: PagerDuty takes what comes of one group for one incident, and calls
// nobody for what joins it. So whatever tells one critical alert from another of the same name is
// in the group, but for what is no other thing; and nothing by which an incident is a page for each
// node.
func TestOtherThingsPageAgain(t *testing.T) {
	type route struct {
		Receiver string
		Matchers []string
		GroupBy  []string `yaml:"group_by"`
	}
	var conf struct {
		Route struct {
			route  `yaml:",inline"`
			Routes []route
		}
		Receivers []struct {
			Name  string
			Pager []any `yaml:"pagerduty_configs"`
		}
	}
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	calls := map[string]bool{}
	for _, r := range conf.Receivers {
		calls[r.Name] = len(r.Pager) > 0
	}
	set, have := pages(t)
	if len(set) < 30 || !maps.EqualFunc(set, have, func(map[string][]string, map[string]bool) bool { return true }) {
		t.Errorf("rules: %q\ntheir tests: %q", slices.Sorted(maps.Keys(set)), slices.Sorted(maps.Keys(have)))
	}
	used, named, seen := map[string]bool{}, map[string]bool{}, 0
	for _, r := range conf.Route.Routes {
		if !calls[r.Receiver] {
			continue
		}
		seen++
		by := r.GroupBy
		if by == nil {
			by = conf.Route.GroupBy
		}
		for _, name := range byTheHundred {
			if slices.Contains(by, name) {
				t.Errorf("%s: a page for each %s", r.Receiver, name)
			}
		}
		only := ""
		for _, m := range r.Matchers {
			if name, ok := strings.CutPrefix(m, "alertname="); ok {
				only = strings.Trim(name, `"`)
			}
		}
		mine := map[string]bool{}
		for alert, labels := range have {
			if only != "" && alert != only || only == "" && named[alert] {
				continue
			}
			named[alert] = true
			for label := range labels {
				mine[label] = true
				fixed := slices.Compact(slices.Sorted(slices.Values(set[alert][label]))) // by the rules, all of them
				why := alert + " " + label
				switch {
				case slices.Contains(by, label), len(fixed) == 1 && len(set[alert][label]) == len(set[alert]["alertname"]):
				case onePage[why] != "":
					used[why] = true
				default:
					t.Errorf("%s: %s of another %s calls nobody while one is known", r.Receiver, alert, label)
				}
			}
		}
		for _, name := range by {
			if !mine[name] {
				t.Errorf("%s: none of its alerts has the label %s", r.Receiver, name)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d routes call somebody", seen)
	}
	for why := range onePage {
		if !used[why] {
			t.Errorf("%s: there is no such label, or it is in the group", why)
		}
	}
}

// TestSecondPage: from a real Alertmanager with the deployed routes a second thing comes as a group
// of its own, and what is the same thing with the first.
func TestSecondPage(t *testing.T) {
	page := func(name string, more ...string) map[string]string {
		return ls(append([]string{"alertname", name, "severity", "critical", "cluster", "jaguar"}, more...)...)
	}
	of := []struct {
		alerts []map[string]string
		groups int
	}{
		{[]map[string]string{page("RulerFailing", "reason", "sending"), page("RulerFailing", "reason", "stuck")}, 2},
		{[]map[string]string{
			page("ProxyShardDown", "group", "a", "shard", "1"), page("ProxyShardDown", "group", "a", "shard", "2"),
			page("ProxyShardDown", "group", "b", "shard", "1"),
		}, 2},
		{[]map[string]string{
			page("PrometheusHAPairDown", "prometheus_shard", "1"), page("PrometheusHAPairDown", "prometheus_shard", "2"),
		}, 2},
		{[]map[string]string{page("KubeLeaderLost", "job", "kube-scheduler"), page("KubeLeaderLost", "job", "kube-controller-manager")}, 2},
		{[]map[string]string{
			page("LocationLost", "zone", "a", "level", "zone", "state", "silent"),
			page("LocationLost", "zone", "a", "level", "zone", "state", "cut-off"),
			page("LocationLost", "zone", "b", "level", "zone", "state", "silent"),
		}, 2},
		{[]map[string]string{
			page("AlertmanagerNotificationsFailing", "integration", "pagerduty"),
			page("AlertmanagerNotificationsFailing", "integration", "slack"),
		}, 2},
		{[]map[string]string{page("PrometheusOOMLoop", "pod", "prometheus-1"), page("PrometheusOOMLoop", "pod", "prometheus-2")}, 1},
		{[]map[string]string{
			page("KubeAPIErrorBudgetBurnSlow", "verb", "read", "long", "1h"),
			page("KubeAPIErrorBudgetBurnSlow", "verb", "write", "long", "6h"),
		}, 1},
	}
	var mu sync.Mutex
	groups, told := map[string]map[string]bool{}, map[string]bool{} // of each alert
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			GroupKey string
			Alerts   []struct{ Labels map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, a := range m.Alerts {
			name := a.Labels["alertname"]
			if groups[name] == nil {
				groups[name] = map[string]bool{}
			}
			groups[name][m.GroupKey] = true
			told[fmt.Sprint(a.Labels)] = true
		}
	}))
	defer receiver.Close()
	conf, err := Rehearsal(Config, receiver.URL, 30) // what comes together waits together: half a second
	if err != nil {
		t.Fatal(err)
	}
	srv, err := Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var all []map[string]string
	for _, o := range of {
		all = append(all, o.alerts...)
	}
	if err := post(t.Context(), srv.URL(), all...); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		n := len(told)
		mu.Unlock()
		if n == len(all) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d were told", n, len(all))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, o := range of {
		name := o.alerts[0]["alertname"]
		if got := slices.Sorted(maps.Keys(groups[name])); len(got) != o.groups {
			t.Errorf("%s: %d groups, want %d: %q", name, len(got), o.groups, got)
		}
	}
}
