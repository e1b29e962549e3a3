package cost

import (
	"flag"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

var large = flag.Bool("cost.large", false, "TestMonth bills more nodes, of 8 GPUs each, scraped every 15 s")

var directory = &Directory{
	Currency: "USD",
	Prices:   map[string]float64{"*H100*": 2.5, "NVIDIA-H200": 4},
	Teams: []TeamEntry{
		{Name: "vision", Contact: "#vision", Namespaces: []string{"research-vision*"}},
		{
			Name: "agents", Namespaces: []string{"research-robotics"},
			People: []PersonEntry{{Name: "Ada", Namespaces: []string{"research-evals"}}},
		},
	},
}

// teamOf is the team that pays for a namespace by this test's own reading of the directory.
func teamOf(x *cluster.Experiment) string {
	switch {
	case strings.HasPrefix(x.Namespace, "research-vision"):
		return "vision"
	case x.Namespace == "research-robotics", x.Namespace == "research-evals":
		return "agents"
	case x.Team == "":
		return Unassigned
	}
	return x.Team
}

// TestMonth bills a simulated month, in which clocks are changed, and compares it with what the
// model knows of itself: pods that wait, fail and come again under the same name, containers
// restarted in place, two kube-state-metrics replicas that are scraped at other times and miss
// other stretches, restarts of kube-state-metrics, five hours in which nothing was scraped, a
// namespace without a team.
func TestMonth(t *testing.T) {
	billMonth(t, cluster.Options{Seed: 5, Nodes: 3, GPUsPerNode: 2}, raceDetector)
}

// TestMonthOfClaims: the same where pods have their GPUs through ResourceClaims, of its last days.
func TestMonthOfClaims(t *testing.T) {
	billMonth(t, cluster.Options{Seed: 5, Nodes: 3, GPUsPerNode: 2, Claims: true}, true)
}

// TestMonthOfSharing: the same of nodes whose GPUs are shared or cut, one sort after the other, of
// its last days: what pods held, what was free and what was dead are together what the machines
// are, and the truth is the model's.
func TestMonthOfSharing(t *testing.T) {
	for name, kind := range map[string]cluster.NodeKind{
		"time slicing": {Sharing: cluster.TimeSliced}, "MIG, all of one profile": {Sharing: cluster.MIGSingle},
		"MIG beside whole GPUs": {Sharing: cluster.MIGMixed},
	} {
		t.Run(name, func(t *testing.T) {
			billMonth(t, cluster.Options{Seed: 5, Nodes: 3, GPUsPerNode: 2, NodeKinds: []cluster.NodeKind{kind}}, true)
		})
	}
}

// billMonth bills a cluster of that kind, or its last three days only.
func billMonth(t *testing.T, o cluster.Options, short bool) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	w := &month{
		t: t, from: dayStart(2026, 3, 1, berlin), to: dayStart(2026, 4, 1, berlin), scrape: 90 * time.Second,
		external: labels.FromStrings("cluster", "jaguar"),
	}
	if short && !*large { // the race detector is several times slower, and three days run the same lines; the month is for a run without it
		w.from = dayStart(2026, 3, 29, berlin)
	}
	w.gap = cluster.Gap{From: time.Date(2026, 3, 31, 9, 40, 0, 0, berlin), Until: time.Date(2026, 3, 31, 14, 40, 0, 0, berlin)}
	o.Cluster, o.NodesPerRack, o.Start = "jaguar", 2, w.from.Add(-5*24*time.Hour)
	if o.Claims {
		w.gpus = time.Minute // of who has which it is the only word
	}
	if *large {
		o.Nodes, o.GPUsPerNode, w.scrape = 6, 8, 15*time.Second
	}
	if w.model, err = cluster.New(o); err != nil {
		t.Fatal(err)
	}
	s := w.serve()
	w.fill(s, s)
	w.checkCases()

	c := testClient(t, s.URL())
	modelOf := w.modelOf()
	keys := map[Dimension]func(x *cluster.Experiment, node string) string{
		Team:       func(x *cluster.Experiment, _ string) string { return teamOf(x) },
		Namespace:  func(x *cluster.Experiment, _ string) string { return x.Namespace },
		Experiment: func(x *cluster.Experiment, _ string) string { return x.Name },
		Model:      func(_ *cluster.Experiment, node string) string { return modelOf[node] },
	}
	all := []Dimension{Team, Namespace, Experiment, Model}
	for _, daily := range []bool{false, true} {
		b, err := Make(t.Context(), Options{
			Client: c, Range: Range{w.from, w.to, berlin}, Daily: daily, By: all, Directory: directory,
			Now: func() time.Time { return w.to.Add(24 * time.Hour) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range all {
			days := []Day{{From: w.from, To: w.to}}
			if daily {
				days = (&Range{w.from, w.to, berlin}).Days()
			}
			worst := 0.0
			for _, day := range days {
				billed := map[string]float64{}
				for _, r := range b.Rows {
					if r.Day == day.Name {
						billed[r.Keys[i]] += r.GPUHours.Hours()
					}
				}
				truth := w.truth(day.From, day.To, keys[d])
				worst = max(worst, compare(t, strings.TrimSpace(day.Name+" by "+string(d)), truth, billed))
				if d := math.Abs(sum(billed) - sum(truth)); d > 1 {
					t.Errorf("%s: billed %.3f GPU hours in all, the truth is %.3f", day.Name, sum(billed), sum(truth))
				} else {
					worst = max(worst, d)
				}
			}
			t.Logf("daily %v, by %s: at most %.3f GPU hours from the truth, of %s", daily, d, worst, b.Total.GPUHours)
		}
		w.checkBill(b, berlin)
	}
}

// checkCases makes sure that the month has what the test is about.
func (w *month) checkCases() {
	again, unlabelled := 0, 0
	for _, x := range w.model.Experiments(w.from, w.to) {
		if len(x.Runs) > 1 {
			again++
		}
		if x.Namespace == "sandbox" && len(x.Runs) > 0 {
			unlabelled++
		}
	}
	restarts := w.model.Troubles(cluster.ProcessRestart, "kube-state-metrics/10.0.0.10:8080", w.from, w.to)
	if again == 0 || unlabelled == 0 || len(restarts) == 0 && w.to.Sub(w.from) > 10*24*time.Hour {
		w.t.Fatalf("the month has %d experiments that came again under the same pod names, %d in a namespace without a team, %d restarts of kube-state-metrics: choose another seed", again, unlabelled, len(restarts))
	}
	w.t.Logf("%d experiments came again, %d without a team, %d restarts of kube-state-metrics", again, unlabelled, len(restarts))
}

func (w *month) checkBill(b *Bill, loc *time.Location) {
	t := w.t
	t.Helper()
	var hours, fleetHeld Milli
	var money Hundredths
	for _, r := range b.Rows {
		hours += r.GPUHours
		if r.Cost != nil {
			money += *r.Cost
		}
		if r.Measured > r.GPUHours+1 || r.Idle > r.Measured+1 {
			t.Errorf("%v: idle %s of measured %s of %s", r.Keys, r.Idle, r.Measured, r.GPUHours)
		}
	}
	if hours != b.Total.GPUHours || b.Total.Cost == nil || money != *b.Total.Cost {
		t.Errorf("the rows add up to %s GPU hours and %s, the total says %s and %v", hours, money, b.Total.GPUHours, b.Total.Cost)
	}
	wantMachines(t, b)
	if b.Total.Unpriced != 0 {
		t.Errorf("%s GPU hours have no price", b.Total.Unpriced)
	}
	if len(b.Gaps) != 1 || math.Abs(b.Gaps[0].From.Sub(w.gap.From).Seconds()) > w.scrape.Seconds()+1 ||
		math.Abs(b.Gaps[0].To.Sub(w.gap.Until).Seconds()) > w.scrape.Seconds()+1 {
		t.Errorf("the gaps are %v, there was one from %s to %s", b.Gaps, w.gap.From, w.gap.Until)
	}
	// 9:40 to 14:40 touches six hours. Where one replica comes back as the other goes, less than a
	// scrape of each is lost.
	missing := slices.DeleteFunc(slices.Clone(b.Hours), func(h Hour) bool { return h.CoveredSeconds > 3600-2*w.scrape.Seconds() })
	if len(missing) != 6 || missing[1].CoveredSeconds != 0 || !missing[0].From.Equal(time.Date(2026, 3, 31, 9, 0, 0, 0, loc)) ||
		len(b.Hours) > len(missing)+1 {
		t.Errorf("the hours not covered are %v", b.Hours)
	}
	for _, d := range b.Days {
		want := map[string]float64{"2026-03-29": 23}[d.Day]
		if want == 0 {
			want = 24
		}
		if d.Hours != want {
			t.Errorf("%s has %v hours, not %v", d.Day, d.Hours, want)
		}
		if d.Day == "2026-03-31" {
			want -= 5
		}
		if math.Abs(d.CoveredHours-want) > 0.1 {
			t.Errorf("of %s %.3f hours were covered, not %v", d.Day, d.CoveredHours, want)
		}
	}
	var capacity Milli
	for _, f := range b.Fleet {
		fleetHeld += f.Held
		capacity += f.Capacity
		if f.Held+f.Free+f.Unhealthy-f.Beyond != f.Capacity {
			t.Errorf("the GPUs do not add up: %+v", f)
		}
	}
	if d := fleetHeld - hours; max(d, -d) > Milli(len(b.Fleet)) { // each of its rows is rounded for itself
		t.Errorf("%s GPU hours are billed and %s held", hours, fleetHeld)
	}
	mo := w.model.Options()
	want := float64(mo.Nodes*mo.GPUsPerNode) * (w.to.Sub(w.from) - w.gap.Until.Sub(w.gap.From)).Hours()
	if math.Abs(capacity.Hours()-want) > 1 {
		t.Errorf("the capacity was %s GPU hours, not %.1f", capacity, want)
	}
	idle := float64(b.Total.Idle) / float64(b.Total.Measured)
	if slices.ContainsFunc(mo.NodeKinds, func(k cluster.NodeKind) bool { return k.Sharing == cluster.TimeSliced }) {
		// DCGM names one of the pods that take turns on a GPU, and shows what all of them do.
		if !(idle > 0 && idle < 1) || b.Total.Measured == 0 || b.Total.Measured > hours {
			t.Errorf("%s of %s measured GPU hours were idle, of %s", b.Total.Idle, b.Total.Measured, hours)
		}
	} else if !(idle > 0.02 && idle < 0.25) || float64(b.Total.Measured) < 0.9*float64(hours) {
		t.Errorf("%s of %s measured GPU hours were idle; the model's GPUs are busy at 93 %%", b.Total.Idle, b.Total.Measured)
	}
}
