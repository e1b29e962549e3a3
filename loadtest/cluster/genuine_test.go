package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

// genuine is one family as a real server showed it.
type genuine struct {
	typ    model.MetricType
	labels []string
	les    string
}

var genuineLabel = regexp.MustCompile(`(\w+)\{(.*?)\}(?: |$)`)

func readGenuine(t *testing.T, file string) map[string]genuine {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]genuine{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		col := append(strings.Split(line, "\t"), "")
		g := genuine{typ: model.MetricType(col[1])}
		if g.typ == "untyped" {
			g.typ = model.MetricTypeUnknown
		}
		for _, m := range genuineLabel.FindAllStringSubmatch(col[3]+" ", -1) {
			g.labels = append(g.labels, m[1])
			if m[1] == "le" {
				g.les = strings.ReplaceAll(m[2], ",", "|")
			}
		}
		sort.Strings(g.labels)
		out[col[0]] = g
	}
	return out
}

// Every family that the model has in common with the real server has its type,
// its label names and, for histograms, its buckets.
func TestGenuine(t *testing.T) {
	t.Run("as ever", func(t *testing.T) {
		testGenuine(t, mustNew(t, Options{Nodes: 10, Detail: Full, Exporters: AllExporters}))
	})
	// Troubles bring no series that the real server would not have.
	t.Run("under troubles", func(t *testing.T) {
		o := allPlaneTroubles(t)
		o.Detail, o.Exporters = Full, AllExporters
		testGenuine(t, mustNew(t, o))
	})
}

func testGenuine(t *testing.T, m *Model) {
	t.Helper()
	// Labels depend on allow lists there; ours are the experiments'.
	free := map[string]bool{"kube_pod_labels": true, "kube_node_labels": true}
	all, have := 0, 0
	for _, c := range []struct{ job, file string }{
		{JobAPIServer, "kube-apiserver-1.34.4.tsv"},
		{JobEtcd, "etcd-3.6.4.tsv"},
		{JobKubelet, "kubelet-hollow-1.34.4.tsv"},
		{JobKubeStateMetrics, "kube-state-metrics-2.18.0.tsv"},
		{JobNode, "node_exporter-1.12.1.tsv"},
		{JobScheduler, "kube-scheduler-1.34.4.tsv"},
		{JobControllerManager, "kube-controller-manager-1.34.4.tsv"},
		{JobIPTables, "iptables_exporter-0.1.0.tsv"},
	} {
		real := readGenuine(t, filepath.Join("genuine", c.file))
		type seen struct {
			typ    model.MetricType
			labels map[string]bool
			les    []string
			firstN string
		}
		ours := map[string]*seen{}
		at := testUntil.UnixMilli()
		for i := range m.targets {
			if m.targets[i].Job != c.job {
				continue
			}
			// A window of a day, so that pods and taints come by.
			p := m.compiler(at-24*3600e3, at, false).page(&m.targets[i])
			p.collect(familiesOf(c.job, Full), func(s *series) {
				f := ours[s.fam.name]
				if f == nil {
					f = &seen{typ: s.fam.typ, labels: map[string]bool{}}
					ours[s.fam.name] = f
				}
				key := ""
				for n := 0; n < len(s.pairs); n += 2 {
					f.labels[s.pairs[n]] = true
					if s.pairs[n] != "le" {
						key += s.pairs[n+1] + "\xff"
					} else if f.firstN == "" || f.firstN == key {
						f.firstN = key
						f.les = append(f.les, s.pairs[n+1])
					}
				}
			})
		}
		both := 0
		for name, g := range real {
			f, ok := ours[name]
			if !ok {
				continue
			}
			both++
			if f.typ != g.typ {
				t.Errorf("%s %s: type %s, really %s", c.job, name, f.typ, g.typ)
			}
			var names []string
			for l := range f.labels {
				names = append(names, l)
			}
			sort.Strings(names)
			if !free[name] && strings.Join(names, ",") != strings.Join(g.labels, ",") {
				t.Errorf("%s %s: labels %v, really %v", c.job, name, names, g.labels)
			}
			if n := len(strings.Split(g.les, "|")); g.les != "" && len(f.les) >= n && strings.Join(f.les[:n], "|") != g.les {
				t.Errorf("%s %s: le %v, really %s", c.job, name, f.les[:n], g.les)
			}
		}
		all, have = all+len(real), have+both
		t.Logf("%-24s %3d of %3d genuine families (%d %%), %d in all", c.job, both, len(real), 100*both/len(real), len(ours))
	}
	t.Logf("%-24s %3d of %3d genuine families (%d %%)", "together", have, all, 100*have/all)
	if have*10 < all*7 {
		t.Errorf("only %d of %d genuine families are left", have, all)
	}
}

// What could not be run is as its documentation says, nothing left out and
// nothing beside it but what all Go programs show.
func TestDocumented(t *testing.T) {
	o := allPlaneTroubles(t)
	m := mustNew(t, o)
	for job, file := range map[string]string{JobAutoscaler: "cluster-autoscaler-1.36.tsv", JobAPIServerSLIs: "apiserver-slis-1.34.tsv"} {
		real := readGenuine(t, filepath.Join("documented", file))
		i := slices.IndexFunc(m.targets, func(t Target) bool { return t.Job == job })
		at := testUntil.UnixMilli()
		seen := map[string]bool{}
		m.compiler(at-3600e3, at, false).page(&m.targets[i]).collect(familiesOf(job, Lean), func(s *series) {
			g, ok := real[s.fam.name]
			if !ok {
				if !strings.HasPrefix(s.fam.name, "process_") && !strings.HasPrefix(s.fam.name, "go_") {
					t.Errorf("%s: %s is not documented", job, s.fam.name)
				}
				return
			}
			seen[s.fam.name] = true
			var names []string
			for n := 0; n < len(s.pairs); n += 2 {
				names = append(names, s.pairs[n])
			}
			if s.fam.typ == model.MetricTypeHistogram && !strings.HasSuffix(s.name, "_bucket") {
				names = append(names, "le")
			}
			slices.Sort(names)
			if s.fam.typ != g.typ || !slices.Equal(names, g.labels) {
				t.Errorf("%s: %s is a %s with labels %v, should be a %s with %v", job, s.name, s.fam.typ, names, g.typ, g.labels)
			}
		})
		for name := range real {
			if !seen[name] {
				t.Errorf("%s: %s is missing", job, name)
			}
		}
	}
}
