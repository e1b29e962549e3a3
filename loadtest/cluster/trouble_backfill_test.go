package cluster

import (
	"context"
	"math"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	"go.yaml.in/yaml/v3"
)

// staged is a time line with every trouble of nodes and GPUs in one hour, some
// of them over one another and over a reboot.
func staged(t *testing.T, o Options) []Trouble {
	t.Helper()
	m := mustNew(t, o)
	e, run := longRun(t, m, 1)
	at := func(minutes int) time.Time { return testUntil.Add(time.Duration(minutes) * time.Minute) }
	return []Trouble{
		{Kind: GPUXidFatal, Target: "gpu-00000/1", From: at(-50), Until: at(-40), Value: 79},
		{Kind: GPUXidFatal, Target: "gpu-00000/1", From: at(-45), Until: at(-35)},
		{Kind: GPUXidFatal, Target: "gpu-00000/4", From: at(-34), Until: at(-20), Value: 119},
		{Kind: NodeDown, Target: "gpu-00000", From: at(-33), Until: at(-30)},
		{Kind: GPUUncorrectableECC, Target: "gpu-00001/0", From: at(-48), Until: at(-10), Value: 3},
		{Kind: GPUCorrectableECC, Target: "gpu-00001/2", From: at(-48), Until: at(-10), Value: 7},
		{Kind: GPURowRemapPending, Target: "gpu-00001/0", From: at(-30), Until: at(-5)},
		{Kind: GPURowRemapFailure, Target: "gpu-00001/1", From: at(-30), Until: at(-5)},
		{Kind: GPUHot, Target: "gpu-00002/1", From: at(-40), Until: at(-5)},
		{Kind: GPUThrottled, Target: "gpu-00002/1", From: at(-40), Until: at(-30)},
		{Kind: GPUThrottled, Target: "gpu-00002/1", From: at(-27), Until: at(-20)},
		{Kind: GPUSlow, Target: e.Nodes[0] + "/0", From: at(-35), Until: at(-15), Value: 0.3},
		{Kind: GPUNVLinkErrors, Target: "gpu-00002/2", From: at(-40), Until: at(-20), Value: 7},
		{Kind: GPUPCIeReplay, Target: "gpu-00002/3", From: at(-40), Until: at(-20), Value: 7},
		{Kind: GPUExporterGone, Target: "gpu-00003", From: at(-44), Until: at(-41)},
		{Kind: GPUAllocatedIdle, Target: e.Name, From: run.From.Add(time.Minute), Until: run.Until},
		{Kind: NodeUnreachable, Target: "gpu-00003", From: at(-20), Until: at(-15)},
		{Kind: NodeCutOff, Target: "gpu-00002", From: at(-14), Until: at(-11)},
		{Kind: NodeNotReady, Target: fleet, From: at(-25), Until: at(-12), Value: 0.5},
		{Kind: NodeDiskFull, Target: "gpu-00003", From: at(-20), Until: at(-15)},
		{Kind: NodeDiskReadOnly, Target: "gpu-00003", From: at(-30), Until: at(-15)},
		{Kind: NodeDiskError, Target: "gpu-00001", From: at(-30), Until: at(-15)},
		{Kind: NodeDiskError, Target: "gpu-00001", From: at(-20), Until: at(-14)},
		{Kind: NodeARPTableFilling, Target: "gpu-00002", From: at(-50), Until: at(-10)},
		{Kind: NodeARPTableOverflow, Target: "gpu-00002", From: at(-20), Until: at(-5)},
		{Kind: EgressJump, Target: WholeCluster, From: at(-40), Until: at(-20), Value: 30},
		{Kind: NetworkAccountingLost, Target: fleet, From: at(-30), Until: at(-20), Value: 0.75},
	}
}

// With every trouble of nodes and GPUs on the time line, relabelled or not,
// blocks hold what a server would have stored that scraped the pages one by one.
func TestBackfillOfTroubles(t *testing.T) {
	o := Options{Seed: 7, Nodes: 4, APIServers: 1, Exporters: AllExporters}
	o.Troubles = staged(t, o)
	backfilled(t, mustNew(t, o))
}

// The same of nodes of all kinds, two of which are worked on.
func TestBackfillOfKinds(t *testing.T) {
	o := Options{Seed: 7, Nodes: 4, APIServers: 1, Exporters: AllExporters, NodesPerRack: 1, NodeKinds: allKinds}
	at := func(minutes int) time.Time { return testUntil.Add(time.Duration(minutes) * time.Minute) }
	o.Troubles = []Trouble{
		{Kind: NodeUpgrade, Target: "gpu-00001", From: at(-50), Until: at(-35)},
		{Kind: NodeAbsent, Target: "gpu-00002", From: at(-55), Until: at(-40)},
		{Kind: NodeAbsent, Target: "gpu-00002", From: at(-20), Until: at(20)},
		{Kind: GPUXidFatal, Target: "gpu-00003/7", From: at(-34), Until: at(-20), Value: 119},
		{Kind: GPUXidFatal, Target: "gpu-00002/1", From: at(-30), Until: at(-25), Value: 79},
		{Kind: GPUThrottled, Target: "gpu-00003/1", From: at(-40), Until: at(-30)},
		{Kind: NodeDiskReadOnly, Target: "gpu-00003", From: at(-30), Until: at(-15)},
	}
	backfilled(t, mustNew(t, o))
}

func backfilled(t *testing.T, m *Model) {
	t.Helper()
	var rules []*relabel.Config
	if err := yaml.Unmarshal([]byte(accountingRelabelling), &rules); err != nil {
		t.Fatal(err)
	}
	for _, rules := range [][]*relabel.Config{nil, rules} {
		b := BackfillOptions{
			From: testUntil.Add(-time.Hour), Until: testUntil, Interval: time.Minute,
			Keep:          func(tg Target) bool { return tg.node >= 0 || tg.Job == JobNodeMesh || tg.Job == JobKubeStateMetrics },
			MetricRelabel: func(string) []*relabel.Config { return rules },
		}
		dir := t.TempDir()
		st, err := m.Backfill(context.Background(), dir, b)
		if err != nil {
			t.Fatal(err)
		}
		got := readAll(t, dir)
		if len(got) != st.Series {
			t.Errorf("%d series stored, Stats says %d", len(got), st.Series)
		}
		j, err := m.newJob(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range rules {
			if err := c.Validate(model.UTF8Validation); err != nil {
				t.Fatal(err)
			}
		}
		// What is stored of each scrape, to find what should not be there.
		type scrape struct {
			instance, job string
			at            int64
		}
		stored := map[scrape]int{}
		for l, ss := range got {
			name, inst, job := attribute(l, "__name__"), attribute(l, "instance"), attribute(l, "job")
			if name == "up" || strings.HasPrefix(name, "scrape_") {
				continue
			}
			for _, x := range ss {
				if !value.IsStaleNaN(x.v) {
					stored[scrape{inst, job, x.t}]++
				}
			}
		}
		checked, missing, dropped := 0, 0, 0
		for i := range j.targets {
			tg := m.targets[j.targets[i]]
			for k, at := range m.scrapeTimes(j.page(i), &j.o).ts {
				if k%4 != 0 {
					continue
				}
				n := stored[scrape{tg.Instance, tg.Job, at}]
				// Down: nothing is there, and nothing is compared.
				_ = m.Series(tg, time.UnixMilli(at), func(l labels.Labels, v float64, _ metricType) {
					lb := labels.NewBuilder(l)
					j.extra[i].Range(func(x labels.Label) {
						if own := l.Get(x.Name); own != "" {
							lb.Set("exported_"+x.Name, own)
						}
						lb.Set(x.Name, x.Value)
					})
					if !relabel.ProcessBuilder(lb, rules...) {
						dropped++
						return
					}
					ss := got[lb.Labels().String()]
					x := sort.Search(len(ss), func(n int) bool { return ss[n].t >= at })
					if x == len(ss) || ss[x].t != at || math.Float64bits(ss[x].v) != math.Float64bits(v) {
						if missing++; missing < 9 {
							have := "nothing"
							if x < len(ss) {
								have = time.UnixMilli(ss[x].t).UTC().String()
							}
							t.Errorf("%s at %s: %v is not what is stored (%d samples, next %s)", lb.Labels(), time.UnixMilli(at).UTC(), v, len(ss), have)
						}
					}
					checked++
					n--
				})
				if n != 0 {
					t.Errorf("%s/%s at %s: %d more samples are stored than the page has", tg.Job, tg.Instance, time.UnixMilli(at).UTC(), n)
				}
			}
		}
		if (dropped > 0) != (rules != nil) {
			t.Errorf("%d samples dropped by %d rules", dropped, len(rules))
		}
		traffic := 0
		for l := range got {
			if strings.Contains(l, "traffic=\"internet-out\"") {
				traffic++
			}
		}
		// Bytes and packets, of FORWARD and of OUTPUT.
		if want := 4 * m.o.Nodes; rules != nil && traffic != want {
			t.Errorf("%d series have the label traffic, not %d", traffic, want)
		}
		t.Logf("%d series, %d samples, %d values compared, %d dropped", st.Series, st.Samples, checked, dropped)
	}
}

// attribute is the value of a label in the text of a label set.
func attribute(l, name string) string {
	_, rest, _ := strings.Cut(l, name+`="`)
	v, _, _ := strings.Cut(rest, `"`)
	return v
}

func TestBackfillRefusesRelabelling(t *testing.T) {
	m := mustNew(t, Options{Nodes: 1, Exporters: WithIPTables})
	o := BackfillOptions{From: testUntil, Until: testUntil.Add(time.Minute)}
	for name, rule := range map[string]*relabel.Config{
		"no target":         {Action: relabel.Replace, Regex: relabel.MustNewRegexp("(.*)")},
		"two series as one": {Action: relabel.LabelDrop, Regex: relabel.MustNewRegexp("rule")},
	} {
		o.MetricRelabel = func(job string) []*relabel.Config {
			if job != JobIPTables {
				return nil
			}
			return []*relabel.Config{rule}
		}
		if _, err := m.Backfill(context.Background(), t.TempDir(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
