package exporters

import (
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// TestRelabel: the rules are those that Prometheus reads from the same file.
func TestRelabel(t *testing.T) {
	got, err := Relabel(Options{Cluster: "jaguar", Shard: 1, Shards: 2, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"dcgm-exporter", "iptables-exporter", "kube-state-metrics", "ruler", "ruler-prometheus"}
	if jobs := slices.Sorted(maps.Keys(got)); !slices.Equal(jobs, want) {
		t.Errorf("jobs %q", jobs)
	}
	c := load(t, 1, 2)
	lines := map[string]labels.Labels{
		"dcgm-exporter": labels.FromStrings("__name__", "DCGM_FI_DEV_GPU_UTIL", "exported_pod", "p", "gpu_uuid", "u", "node", "n"),
		"iptables-exporter": labels.FromStrings("__name__", "iptables_rule_bytes_total", "rule",
			`-m comment --comment "traffic=internet-out"`, "node", "n"),
		"kube-state-metrics": labels.FromStrings("__name__", "kube_node_info", "node", "gpu-00003"),
	}
	for name, rules := range got {
		for _, r := range rules {
			if err := r.Validate(model.UTF8Validation); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		a, b := labels.NewBuilder(lines[name]), labels.NewBuilder(lines[name])
		kept, want := relabel.ProcessBuilder(a, rules...), relabel.ProcessBuilder(b, job(t, c, name).MetricRelabelConfigs...)
		ours, theirs := a.Labels(), b.Labels()
		if kept != want || !labels.Equal(ours, theirs) {
			t.Errorf("%s: %s %v, want %s %v", name, ours, kept, theirs, want)
		}
	}
}

// TestIPv6: discovery of pods and nodes shows an address of IPv6 without brackets, in which nothing
// can be dialled with a port behind it.
func TestIPv6(t *testing.T) {
	c := load(t, 0, 1)
	for name, found := range discovered {
		meta := found(0)
		for _, label := range []string{"__meta_kubernetes_pod_ip", "__meta_kubernetes_node_address_InternalIP"} {
			if meta[label] != "" {
				meta[label] = "fd00::5"
			}
		}
		if _, port, err := net.SplitHostPort(meta["__address__"]); err == nil {
			meta["__address__"] = net.JoinHostPort("fd00::5", port)
		} else {
			meta["__address__"] = "fd00::5" // a pod's without a port
		}
		got, ok := target(job(t, c, name), meta)
		if !ok {
			t.Errorf("%s: %v is no target", name, meta)
		}
		at := got.Get("__address__")
		if strings.HasPrefix(name, "node-mesh") {
			at = got.Get("__param_target")
		}
		if host, port, err := net.SplitHostPort(at); err != nil || host != "fd00::5" || port == "" {
			t.Errorf("%s: %s cannot be dialled: %v", name, at, err)
		}
	}
}

// TestEndedPods: a pod that has ended stays in the API with its address, which may be another's by
// then, until somebody removes it: it is no target of any job.
func TestEndedPods(t *testing.T) {
	text, err := Render(Options{Cluster: "jaguar", Shards: 1, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Scrape []struct {
			Job  string                  `yaml:"job_name"`
			Kube []struct{ Role string } `yaml:"kubernetes_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	c := load(t, 0, 1)
	pods := 0
	for _, s := range file.Scrape {
		if len(s.Kube) == 0 || s.Kube[0].Role != "pod" {
			continue
		}
		pods++
		for phase, want := range map[string]bool{"Running": true, "Pending": true, "Succeeded": false, "Failed": false} {
			meta := discovered[s.Job](0)
			meta["__meta_kubernetes_pod_phase"] = phase
			if _, ok := target(job(t, c, s.Job), meta); ok != want {
				t.Errorf("%s: a pod that is %s is a target: %t", s.Job, phase, ok)
			}
		}
	}
	if pods != 12 {
		t.Errorf("%d jobs look for pods", pods)
	}
}

// TestAccountingRules: the page's iptables rules see what pods with networks of their own send and
// receive (FORWARD) and what the host does (OUTPUT, INPUT), each once and never the loopback, for
// each exporter; what it makes of them keeps the chain, and has the label traffic.
func TestAccountingRules(t *testing.T) {
	page, err := os.ReadFile("../../docs/exporters.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"FORWARD !d internet-out", "FORWARD !s internet-in", "INPUT !i lo !s internet-in", "OUTPUT !o lo !d internet-out"}
	sc := job(t, load(t, 0, 1), "iptables-exporter")
	tl, ok := target(sc, discovered["iptables-exporter"](7))
	if !ok {
		t.Fatal("not scraped")
	}
	for _, c := range []struct{ comment, metric, rule string }{
		{"traffic=", "iptables_rule_bytes_total", `-m comment --comment \"traffic=%s\"`},
		{"iptables-exporter ", "iptables_bytes", "%s"},
	} {
		var got []string
		rule := regexp.MustCompile(`(?m)^    iptables -t mangle -A (\w+) (?:! -([io]) lo )?! -([ds]) 10\.0\.0\.0/8 -m comment --comment "` +
			c.comment + `([\w-]+)"$`)
		for _, m := range rule.FindAllSubmatch(page, -1) {
			loopback := ""
			if len(m[2]) > 0 {
				loopback = fmt.Sprintf("!%s lo ", m[2])
			}
			got = append(got, fmt.Sprintf("%s %s!%s %s", m[1], loopback, m[3], m[4]))
			line := labels.FromStrings("__name__", c.metric, "table", "mangle", "chain", string(m[1]), "rule", fmt.Sprintf(c.rule, m[4]))
			stored, keep := sample(sc, line, tl)
			if !keep || stored.Get("traffic") != string(m[4]) || stored.Get("chain") != string(m[1]) {
				t.Errorf("%s: kept %v as %s", line, keep, stored)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("rules with the comment %q: %q, want %q", c.comment, got, want)
		}
	}
}
